from dataclasses import replace

import pytest

from patchbisect.bisection import AnswerKind, conduct, mark_content
from patchbisect.bisection.ground import Ground
from patchbisect.bisection.remembering import Remembering
from patchbisect.bisection.shortening import shortcut
from patchbisect.journal import Journal
from patchbisect.model import Stage
from patchbisect.search import Budget
from patchbisect.timeline import timeline
from tests.bisection.test_running import ALL_CONFIRMED, statuses
from tests.bisection.world import (
    DIRTY,
    FAILS,
    LATER,
    READY,
    World,
    broken_by,
    failing,
    point,
    question,
    queue,
    scripted,
    slugs,
)


def journal_in(path):
    journal = Journal.create(path / "bisections", "b")
    journal.append("begin", asked={}, root=str(path))
    return journal


def shorter_in(world, *, warm=None):
    """Benches for short starts: warm ones end as in the world ``warm``, all others as in ``world``."""
    return lambda until, warmly: replace(warm or world, warm=True) if warmly else world


def fast(world, asked, tmp_path, *, bench=None, shorter=None, journal=None, **more):
    """With ``world`` for whole and short starts alike; the short ones carry the shortcut's flags."""
    return conduct(
        asked,
        bench or world,
        journal=journal or journal_in(tmp_path),
        store=world.store,
        shorter=shorter or shorter_in(world),
        **more,
    )


def whole_ones(world):
    return [name for name in world.launched if "short" not in name and "warm" not in name]


@pytest.mark.parametrize(
    ("stage", "flags", "until"),
    [
        (Stage.IMPORT, set(), Stage.KV_ALLOC),
        (Stage.WEIGHT_LOAD, set(), Stage.KV_ALLOC),
        (Stage.KV_PROFILE, {"load-format"}, Stage.KV_ALLOC),
        (Stage.GRAPH_CAPTURE, {"load-format", "skip-server-warmup"}, Stage.SERVING),
        (Stage.SERVING, {"load-format", "disable-cuda-graph"}, Stage.SERVING),
    ],
)
def test_only_what_comes_after_the_failure_is_left_out(stage, flags, until):
    short = shortcut(stage, until=Stage.SERVING)
    assert set(short.flags) == flags
    assert short.until is until
    assert short.left_out
    assert shortcut(None, until=Stage.SERVING) is None


def test_the_search_is_short_and_the_answer_is_confirmed_by_whole_starts(tmp_path):
    world = World.at(tmp_path, broken_by("p6"))
    finding = fast(world, question(), tmp_path)
    assert finding.culprit.subject == "p6"
    assert statuses(finding) == ALL_CONFIRMED
    left_out = "the weights (dummy) and everything after the KV pool, from a warm process"
    assert finding.reason.endswith(f"searched without {left_out}, confirmed by whole starts")
    assert whole_ones(world) == ["clean + 6 of 8 (0006-p6)", "clean + 5 of 8 (0005-p5)"]
    assert world.launched[0] == "HEAD, warm"
    assert finding.launches == len(world.launched)
    proven = finding.proof[:2]
    assert [step.trial.point.name for step in proven] == whole_ones(world)
    assert not any(step.trial.warm for step in proven)


def test_a_bad_end_that_is_started_so_anyway_is_started_once(tmp_path):
    dummy = {"load-format": "dummy"}
    ends = timeline(
        point("clean", flags=dummy), point("HEAD", queue(8), flags=dummy), applies=lambda base, patches: True
    )
    world = World.at(tmp_path, broken_by("p6"))
    finding = fast(world, question(timeline=ends), tmp_path)
    assert finding.culprit.subject == "p6"
    assert [name for name in world.launched if name.startswith("HEAD,")] == ["HEAD, warm"]
    assert finding.launches == len(world.launched)
    assert len({step.trial.record for step in finding.steps}) == len(finding.steps)


def test_without_a_warm_process_the_first_start_is_whole_and_the_short_ones_are_normal(tmp_path):
    world = World.at(tmp_path, broken_by("p8"))
    finding = fast(world, question(), tmp_path, shorter=lambda until, warm: world)
    assert finding.culprit.subject == "p8"
    assert whole_ones(world) == ["HEAD", "clean + 7 of 8 (0007-p7)"], "the bad end is the culprit: not started again"
    assert not any("warm" in name for name in world.launched)
    assert "warm" not in finding.reason


def test_a_bad_end_that_does_not_fail_warm_is_searched_with_normal_short_starts(tmp_path):
    world, said = World.at(tmp_path, broken_by("p6")), []
    starts = replace(world, rule=lambda at: READY)
    finding = fast(world, question(), tmp_path, shorter=shorter_in(world, warm=starts), notify=said.append)
    assert finding.culprit.subject == "p6"
    assert [name for name in world.launched if "warm" in name] == ["HEAD, warm"]
    assert "normal starts, because the bad end does not fail from a warm process" in said
    assert whole_ones(world)[0] == "HEAD"
    assert finding.launches == len(world.launched)


@pytest.mark.parametrize("rule", [broken_by("p6"), lambda at: READY], ids=["found", "refused"])
def test_the_start_that_was_aimed_by_stands_before_the_others_in_the_answer(tmp_path, rule):
    world = World.at(tmp_path, rule)
    starts = replace(world, rule=lambda at: READY)
    journal = journal_in(tmp_path)
    finding = fast(world, question(), tmp_path, shorter=shorter_in(world, warm=starts), journal=journal)
    launched = [entry.data["record"] for entry in journal.entries() if entry.event == "trial"]
    assert [step.trial.record for step in finding.steps] == launched


def test_short_starts_that_fail_everywhere_when_warm_are_made_normally(tmp_path):
    world, said = World.at(tmp_path, broken_by("p6")), []
    fails = replace(world, rule=lambda at: FAILS)
    finding = fast(world, question(repeats=1), tmp_path, shorter=shorter_in(world, warm=fails), notify=said.append)
    assert finding.culprit.subject == "p6"
    assert any(text.startswith("short starts that are not from a warm process, because there") for text in said)
    assert finding.reason.endswith("everything after the KV pool, confirmed by whole starts")
    assert any(name.endswith(", short") for name in world.launched)
    assert finding.launches == len(world.launched)
    assert len({step.trial.record for step in finding.steps}) == len(finding.steps)


def test_what_a_person_said_of_a_point_counts_for_its_short_start(tmp_path):
    asked = question()
    world = World.at(tmp_path, broken_by("p6"))
    journal = journal_in(tmp_path)
    marked = Ground(asked.timeline, world).spot(range(5))
    mark_content(journal, marked.content, point="5", verdict="good")
    finding = fast(world, asked, tmp_path, journal=journal)
    assert finding.culprit.subject == "p6"
    assert not any(name.startswith(marked.point.name) for name in world.launched)


def test_warm_verdicts_are_remembered_for_warm_starts_only(tmp_path):
    world = World.at(tmp_path, broken_by("p6"))
    fast(world, question(), tmp_path)
    at = point("HEAD", queue(8))
    launched = len(world.launched)
    machine = world.machine
    for warmly, known in ((True, 1), (False, 0)):
        bench = Remembering(
            replace(world, warm=warmly), store=world.store, box=world.box, machine=machine, until=Stage.SERVING
        )
        bench.launch(point("clean"), purpose="good end")  # shows which packages there are today
        bench.launch(at, purpose="proof")
        assert len(world.launched) == launched + (1 if known else 2)
        launched = len(world.launched)


def remembering(world):
    return Remembering(world, store=world.store, box=world.box, machine=world.machine, until=Stage.SERVING)


@pytest.mark.parametrize("resumed", range(2, 20))
def test_a_failure_on_record_is_aimed_at_without_another_launch(tmp_path, resumed):
    world = World.at(tmp_path, broken_by("p6"))
    recorded = world.launch(point("HEAD", queue(8)), purpose="by hand").record
    world.launched.clear()
    said, journal = [], journal_in(tmp_path)
    finding = fast(world, question(), tmp_path, bench=remembering(world), journal=journal, notify=said.append)
    assert finding.culprit.subject == "p6"
    assert statuses(finding) == ALL_CONFIRMED
    assert world.launched[:2] == ["HEAD, short, warm", "clean, short, warm"]
    assert finding.launches == len(world.launched)
    assert any(f"aimed by run {recorded}" in text for text in said)
    kept = journal.path.read_bytes().splitlines(keepends=True)[:resumed]
    journal.path.write_bytes(b"".join(kept))
    again = fast(world, question(), tmp_path, bench=world, journal=Journal(journal.path))
    assert [step.purpose for step in again.steps][1:] == [step.purpose for step in finding.steps][1:]
    assert again.reason == finding.reason


def test_a_start_on_record_is_nothing_to_aim_at(tmp_path):
    world = World.at(tmp_path, scripted({"HEAD": [READY]}, broken_by("p6")))
    world.launch(point("HEAD", queue(8)), purpose="by hand")
    finding = fast(world, question(), tmp_path, bench=remembering(world))
    assert finding.culprit.subject == "p6"
    assert world.launched[1] == "HEAD, warm"


def test_a_failure_on_record_that_is_none_any_more_is_no_observation(tmp_path):
    world = World.at(tmp_path, scripted({"HEAD": [FAILS]}, lambda at: READY))
    world.launch(point("HEAD", queue(8)), purpose="by hand")
    finding = fast(world, question(), tmp_path, bench=remembering(world))
    assert finding.answer is AnswerKind.ENDPOINT_FAILED
    assert "the bad end does not fail" in finding.reason


def test_a_culprit_at_the_bad_end_is_started_whole_whatever_is_on_record(tmp_path):
    world = World.at(tmp_path, broken_by("p8"))
    recorded = world.launch(point("HEAD", queue(8)), purpose="by hand").record
    finding = fast(world, question(), tmp_path, bench=remembering(world))
    assert statuses(finding) == ALL_CONFIRMED
    assert recorded not in {step.trial.record for step in finding.proof}
    assert world.launched.count("HEAD") == 2


def short_start(at):
    return "load-format" in at.flags


def test_short_starts_that_do_not_show_it_give_way_to_whole_ones_and_say_why(tmp_path):
    world = World.at(tmp_path, lambda at: READY if short_start(at) else broken_by("p6")(at))
    said = []
    finding = fast(world, question(), tmp_path, notify=said.append)
    assert finding.culprit.subject == "p6"
    assert "confirmed by whole starts" not in finding.reason
    assert any("whole starts, because short starts do not tell: the bad end does not fail" in text for text in said)
    assert any("not from a warm process" in text for text in said), "first they are tried normally"
    assert world.launched.count("HEAD") == 1


def test_an_answer_that_whole_starts_do_not_confirm_is_searched_with_whole_ones(tmp_path):
    def rule(at):
        guilty = "p6" if short_start(at) else "p3"
        return FAILS if guilty in slugs(at) else READY

    said = []
    world = World.at(tmp_path, rule)
    finding = fast(world, question(), tmp_path, notify=said.append)
    assert finding.culprit.subject == "p3"
    assert finding.launches == len(world.launched)
    assert len({step.trial.record for step in finding.steps}) == len(finding.steps)
    assert any(step.trial.point.name.endswith(", short") for step in finding.steps)
    assert any("a whole start does not confirm the answer" in text for text in said)


def test_whole_starts_that_are_void_are_made_again(tmp_path):
    """Neither the first whole start nor a confirmation may give up the short search because the box was not clean."""
    names = ("clean + 6 of 8 (0006-p6)", "clean + 5 of 8 (0005-p5)")
    world = World.at(tmp_path, scripted({name: [DIRTY] for name in names}, broken_by("p6")))
    finding = fast(world, question(), tmp_path)
    assert finding.culprit.subject == "p6"
    assert finding.reason.endswith("confirmed by whole starts")
    assert len(world.rested) == len(names)


def unconfirmed(at):
    """Short starts blame 6, whole ones 3."""
    return FAILS if ("p6" if short_start(at) else "p3") in slugs(at) else READY


def test_what_short_starts_spent_is_not_there_for_whole_ones(tmp_path):
    freely = World.at(tmp_path / "freely", unconfirmed)
    assert fast(freely, question(), tmp_path / "freely").culprit.subject == "p3"
    allowed = len(freely.launched) - 3
    world = World.at(tmp_path, unconfirmed)
    finding = fast(world, question(budget=Budget(launches=allowed)), tmp_path)
    assert finding.launches == len(world.launched) == allowed


def test_a_budget_that_ends_before_the_whole_starts_is_said(tmp_path):
    freely = World.at(tmp_path / "freely", broken_by("p6"))
    fast(freely, question(), tmp_path / "freely")
    allowed = len(freely.launched) - 2
    finding = fast(World.at(tmp_path, broken_by("p6")), question(budget=Budget(launches=allowed)), tmp_path)
    assert finding.culprit.subject == "p6"
    assert finding.launches == allowed
    assert finding.reason.endswith("not confirmed by whole starts: the budget is spent")
    assert not any(step.confirmed for step in finding.proof[:2])


def test_a_bad_end_that_starts_is_no_matter_for_short_starts(tmp_path):
    world = World.at(tmp_path, lambda at: READY)
    finding = fast(world, question(), tmp_path)
    assert finding.answer is AnswerKind.ENDPOINT_FAILED
    assert not any(name.endswith(", short") for name in world.launched)


def test_a_late_failure_is_searched_without_graphs(tmp_path):
    world = World.at(tmp_path, broken_by("p6", failure=LATER))
    finding = fast(world, question(), tmp_path)
    assert finding.culprit.subject == "p6"
    assert "searched without the weights (dummy) and the graphs" in finding.reason


def test_it_resumes(tmp_path):
    world = World.at(tmp_path, broken_by("p6", failure=failing(Stage.KV_ALLOC)))
    first = fast(world, question(), tmp_path)
    journal = Journal(tmp_path / "bisections" / "b" / "journal.jsonl")
    launched = len(world.launched)
    again = fast(world, question(), tmp_path, journal=journal)
    assert again.reason == first.reason
    assert len(world.launched) == launched
