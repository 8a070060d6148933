import json
import shutil
from dataclasses import asdict, replace

import pytest

from patchbisect.bisection import AnswerKind, Asked, conduct, finding_to_json, since_baseline
from patchbisect.bisection.bench import left_running, marks, standing
from patchbisect.bisection.ground import Ground
from patchbisect.errors import BoxError, UsageError
from patchbisect.journal import Journal
from patchbisect.search import Observation
from patchbisect.timeline import timeline
from tests.bisection.world import DIRTY, READY, World, broken_by, point, question, queue, scripted, slugs


def journal_in(path):
    journal = Journal.create(path / "bisections", "b")
    journal.append("begin", asked={}, root=str(path))
    return journal


def answer_of(journal):
    return [entry.data["finding"] for entry in journal.entries() if entry.event == "answer"][-1]


def lines(journal):
    return journal.path.read_bytes().splitlines(keepends=True)


RULES = {"one": broken_by("p6"), "pair": broken_by("p2", "p6")}


@pytest.mark.parametrize("rule", ["one", pytest.param("pair", marks=pytest.mark.ci)])
def test_a_cut_at_any_line_gives_the_same_answer_and_launches_only_what_is_missing(tmp_path, rule):
    world = World.at(tmp_path, RULES[rule])
    whole = journal_in(tmp_path)
    finding = conduct(question(), world, journal=whole, store=world.store)
    trials = [step.trial.record for step in finding.steps]
    entries = lines(whole)
    for cut in range(1, len(entries) + 1):
        half = Journal(tmp_path / f"cut-{cut}" / "journal.jsonl")
        half.path.parent.mkdir()
        half.path.write_bytes(b"".join(entries[:cut]))
        known = len(standing(half))
        again = World(rule=RULES[rule], store=world.store)
        resumed = conduct(question(), again, journal=half, store=world.store)
        assert resumed.reason == finding.reason
        assert resumed.candidates == finding.candidates
        assert [step.trial.record for step in resumed.steps][:known] == trials[:known]
        assert len(again.launched) == len(trials) - known
        assert again.launched == [step.trial.point.name for step in finding.steps][known:]
        assert resumed.launches == finding.launches


@pytest.mark.parametrize("rule", RULES)
def test_a_finished_bisection_that_is_resumed_says_its_answer_again_and_writes_nothing(tmp_path, rule):
    world = World.at(tmp_path, RULES[rule])
    journal = journal_in(tmp_path)
    finding = conduct(question(), world, journal=journal, store=world.store)
    written = journal.path.read_bytes()
    again = conduct(question(), world, journal=journal, store=world.store)
    assert again.reason == finding.reason
    assert journal.path.read_bytes() == written


def test_a_mark_that_changes_nothing_is_answered_all_the_same(tmp_path):
    world = World.at(tmp_path, broken_by("p6"))
    journal = journal_in(tmp_path)
    conduct(question(), world, journal=journal, store=world.store)
    content = standing(journal)[0].data["content_id"]
    journal.append("mark", content_id=content, point="HEAD", observation="bad")
    journal.append("unmark", content_id=content, point="HEAD")
    conduct(question(), world, journal=journal, store=world.store)
    assert [entry.event for entry in journal.entries()][-4:] == ["answer", "mark", "unmark", "answer"]


def test_a_torn_last_line_loses_that_trial_only(tmp_path):
    world = World.at(tmp_path, broken_by("p6"))
    journal = journal_in(tmp_path)
    conduct(question(), world, journal=journal, store=world.store)
    kept = lines(journal)[:12]
    journal.path.write_bytes(b"".join(kept) + lines(journal)[12][:20])
    known = len(standing(journal))
    again = World(rule=broken_by("p6"), store=world.store)
    finding = conduct(question(), again, journal=journal, store=world.store)
    assert finding.culprit.subject == "p6"
    assert len(again.launched) == finding.launches - known


def test_an_intent_is_on_disk_before_the_launch_and_the_trial_after_it(tmp_path):
    journal = journal_in(tmp_path)
    seen = []

    def rule(at):
        seen.append(json.loads(lines(journal)[-1]))
        return broken_by("p6")(at)

    world = World.at(tmp_path, rule)
    conduct(question(), world, journal=journal, store=world.store)
    assert [entry["event"] for entry in seen] == ["intent"] * len(world.launched)
    assert [entry["point"] for entry in seen] == world.launched
    events = [entry.event for entry in journal.entries()]
    assert events == ["begin", "question", *["intent", "trial", "told"] * len(world.launched), "answer"]


@pytest.mark.parametrize("fix", [False, True])
def test_what_a_trial_told_is_on_disk_before_the_next_one_is_launched(tmp_path, fix):
    journal = journal_in(tmp_path)
    told = {}

    def rule(at):
        told[at.name] = {one.data["record"]: one.data for one in journal.entries() if one.event == "told"}
        return broken_by("p6")(at)

    world = World.at(tmp_path, rule)
    ends = timeline(point("HEAD", queue(8)), point("clean"), applies=lambda base, patches: True)
    asked = question(timeline=ends, fix=True) if fix else question()
    finding = conduct(asked, world, journal=journal, store=world.store)
    shown = [(trial["run"], trial["observation"], trial["why"]) for trial in finding_to_json(finding)["trials"]]
    for step, name in enumerate(world.launched):
        before = [(run, each["observation"], each["why"]) for run, each in told[name].items()]
        assert before == shown[:step], "as the answer tells it in the end"


def test_what_is_bad_is_not_known_before_the_bad_end_has_failed(tmp_path):
    journal = journal_in(tmp_path)
    world = World.at(tmp_path, scripted({"HEAD": [READY, DIRTY, DIRTY, DIRTY, DIRTY]}, broken_by("p6")))
    with pytest.raises(BoxError):
        conduct(question(), world, journal=journal, store=world.store)
    assert "told" not in {entry.event for entry in journal.entries()}


def test_a_void_is_written_down_and_never_handed_out(tmp_path):
    journal = journal_in(tmp_path)
    world = World.at(tmp_path, scripted({"HEAD": [DIRTY] * 4}, broken_by("p6")))
    with pytest.raises(BoxError):
        conduct(question(), world, journal=journal, store=world.store)
    assert [entry.event for entry in journal.entries()].count("void") == 4
    finding = conduct(question(), world, journal=journal, store=world.store)
    assert finding.culprit.subject == "p6"
    assert finding.launches == len(world.launched) - 4


@pytest.mark.parametrize("said", ["good", "bad", "skip"])
@pytest.mark.parametrize("k", range(9))
def test_what_was_launched_can_be_marked_and_the_bisection_goes_on(tmp_path, k, said):
    world = World.at(tmp_path, broken_by("p6"))
    journal = journal_in(tmp_path)
    conduct(question(), world, journal=journal, store=world.store)
    ground = Ground(question().timeline, world)
    marked = ground.spot(range(k)).content
    journal.append("mark", content_id=marked, point=str(k), observation=said)
    again = World(rule=world.rule, store=world.store)
    finding = conduct(question(), again, journal=journal, store=world.store)
    told = {step.observation for step in finding.steps if step.trial.content_id == marked}
    assert told <= {Observation(said)}
    assert finding.answer is AnswerKind.ENDPOINT_FAILED or finding.candidates


@pytest.mark.parametrize("change", ["queue", "contents"])
def test_the_journal_of_another_question_is_refused(tmp_path, change):
    world = World.at(tmp_path, broken_by("p6"))
    journal = journal_in(tmp_path)
    conduct(question(8), world, journal=journal, store=world.store)
    launched = len(world.launched)
    if change == "contents":
        world.contents = lambda at: f"other {sorted(slugs(at))}"
    said = {
        "contents": "the good end runs not what it was .* a patch, the pin, the profile or a secret is another one",
        "queue": "the bad end runs not what it was when it began .*: gone: add 0008-p8: Change p8",
    }
    with pytest.raises(UsageError, match=f"cannot go on: {said[change]}$"):
        conduct(question(8 if change == "contents" else 7), world, journal=journal, store=world.store)
    assert len(world.launched) == launched


def test_a_record_that_is_gone_is_said(tmp_path):
    world = World.at(tmp_path, broken_by("p6"))
    journal = journal_in(tmp_path)
    conduct(question(), world, journal=journal, store=world.store)
    shutil.rmtree(world.store.path(standing(journal)[0].data["record"]))
    with pytest.raises(UsageError, match="no run"):
        conduct(question(), world, journal=journal, store=world.store)


def test_an_undone_trial_no_longer_counts(tmp_path):
    world = World.at(tmp_path, scripted({"clean + 4 of 8 (0004-p4)": [READY]}, broken_by("p3")))
    journal = journal_in(tmp_path)
    wrong = conduct(question(), world, journal=journal, store=world.store)
    (odd,) = [step.trial.record for step in wrong.steps if step.position == 4][:1]
    journal.append("undo", record=odd)
    finding = conduct(question(), world, journal=journal, store=world.store)
    assert not wrong.assumed_deterministic
    assert finding.culprit.subject == "p3"
    assert finding.assumed_deterministic
    assert odd not in [step.trial.record for step in finding.steps]


def test_the_last_mark_of_a_point_counts_and_can_be_taken_back(tmp_path):
    journal = journal_in(tmp_path)
    for event, observation in [("mark", "good"), ("mark", "skip"), ("unmark", ""), ("mark", "bad")]:
        journal.append(event, content_id="c", **({"observation": observation} if observation else {}))
        expected = {"c": Observation(observation)} if observation else {}
        assert marks(journal) == expected


def test_the_answer_is_the_last_line(tmp_path):
    world = World.at(tmp_path, broken_by("p6"))
    journal = journal_in(tmp_path)
    finding = conduct(question(), world, journal=journal, store=world.store)
    assert finding.answer is AnswerKind.FOUND
    document = answer_of(journal)
    assert document["culprit"] == {"position": 6, "kind": "queue", "id": "p6", "title": "add 0006-p6: Change p6"}
    assert document["launches"] == len(world.launched)


def test_what_was_asked_comes_back_from_a_journal_with_its_types(tmp_path):
    asked = Asked(good="clean", bad="HEAD", sets=("flag:a=1",), budget_launches=5)
    journal = Journal.create(tmp_path, "b")
    journal.append("begin", asked=asdict(asked))
    assert Asked.of(next(journal.entries()).data["asked"]) == asked


def test_several_boxes_reach_the_same_answer(tmp_path):
    world = World.at(tmp_path, broken_by("p6"), width=3)
    journal = journal_in(tmp_path)
    finding = conduct(question(16), world, journal=journal, store=world.store)
    assert finding.culprit.subject == "p6"
    assert finding.launches == len(world.launched)
    again = World(rule=broken_by("p6"), store=world.store, width=1)
    resumed = conduct(question(16), again, journal=journal, store=world.store)
    assert resumed.culprit == finding.culprit


def cut_while_running(tmp_path, rule):
    """A journal whose last line is the intent of a launch, and that launch's id."""
    world = World.at(tmp_path, rule)
    whole = journal_in(tmp_path)
    conduct(question(), world, journal=whole, store=world.store)
    half = Journal(tmp_path / "cut" / "journal.jsonl")
    half.path.parent.mkdir()
    half.path.write_bytes(b"".join(lines(whole)[:9]))
    (intent,) = left_running(half)
    return world.store, half, intent.data["record"]


def test_the_launch_that_was_running_is_joined_and_its_verdict_counts(tmp_path):
    store, journal, running = cut_while_running(tmp_path, broken_by("p6"))
    shutil.rmtree(store.path(running))
    again = World(rule=broken_by("p6"), store=store, running={running})
    finding = conduct(question(), again, journal=journal, store=store)
    assert finding.culprit.subject == "p6"
    assert running in [step.trial.record for step in finding.steps]
    assert [entry.data["record"] for entry in journal.entries() if entry.event == "intent"].count(running) == 1
    assert left_running(journal) == []


def test_a_launch_that_cannot_be_joined_is_made_again(tmp_path):
    store, journal, running = cut_while_running(tmp_path, broken_by("p6"))
    again = World(rule=broken_by("p6"), store=store)
    finding = conduct(question(), again, journal=journal, store=store)
    assert finding.culprit.subject == "p6"
    assert running not in [step.trial.record for step in finding.steps]


@pytest.mark.parametrize(
    ("asked", "bad"),
    [
        (Asked(good="clean", bad="HEAD", profile="big"), "clean@big"),
        (Asked(good="clean@mine", bad="HEAD", profile="big"), "clean@mine"),
        (Asked(good="upstream:v1", bad="HEAD", carry=("0001", "4")), "upstream:v1+1+4"),
    ],
)
def test_since_the_baseline_only_the_record_has_its_own_flags(asked, bad):
    asked = replace(asked, sets=("flag:a=1",), good_sets=("env:B=2",), bad_sets=("env:B=3",))
    since = since_baseline(asked, "20260101-000000-aaaa")
    assert (since.good, since.bad, since.profile, since.carry) == ("run:20260101-000000-aaaa", bad, "", ())
    assert (since.sets, since.good_sets, since.bad_sets) == ((), (), ("flag:a=1", "env:B=2"))
