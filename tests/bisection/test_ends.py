"""Ends that are numbers, repairs, machines that change, baselines that no longer start."""

from dataclasses import replace

import pytest

from patchbisect.bisection import AnswerKind, Claim, conduct, finding_to_json
from patchbisect.bisection.judging import Threshold
from patchbisect.journal import Journal
from patchbisect.search import Observation
from patchbisect.timeline import timeline
from tests.bisection.test_running import ALL_CONFIRMED, across, statuses
from tests.bisection.world import (
    DIRTY,
    FAILS,
    READY,
    World,
    broken_by,
    found,
    point,
    question,
    queue,
    scripted,
    slugs,
)


def tokens(count, **more):
    return replace(READY, facts={"kv_tokens": count}, **more)


def sized(at, noise=0):
    """Each patch costs 100 tokens, patch 5 100 000."""
    lost = 100 * len(at.patches) + (100_000 if "p5" in slugs(at) else 0)
    return tokens(1_000_000 - lost + noise)


SMALL = Threshold.parse("kv_tokens < 950000")


# -- numbers ------------------------------------------------------------------------------------------------------


def test_a_number_is_bisected_although_everything_starts(tmp_path):
    world = World.at(tmp_path, sized)
    finding = found(world, question(bad_when=SMALL))
    assert finding.culprit.subject == "p5"
    assert world.launched[:4] == ["HEAD", "HEAD", "HEAD", "clean"]
    assert str(finding.target) == "kv_tokens < 950000"


@pytest.mark.parametrize(
    ("condition", "fix", "said"),
    [
        ("kv_tokens < 950000", False, "lowers kv_tokens from 999600 to 899500 (asked: < 950000)"),
        ("kv_tokens > 950000", True, "lowers kv_tokens from 999600 to 899500 (asked: > 950000)"),
    ],
)
def test_a_culprit_by_number_is_said_to_move_the_number(tmp_path, condition, fix, said):
    finding = found(World.at(tmp_path, sized), question(bad_when=Threshold.parse(condition), fix=fix))
    assert finding.reason == f"patch 0005-p5 (Change p5) {said}: necessary, and sufficient alone"


def test_culprits_by_number_that_only_together_do_it(tmp_path):
    world = World.at(tmp_path, lambda at: tokens(800 if {"p2", "p6"} <= slugs(at) else 1000))
    finding = found(world, question(bad_when=Threshold.parse("kv_tokens < 900")))
    assert finding.reason == (
        "patch 0002-p2 (Change p2) and patch 0006-p6 (Change p6) lower kv_tokens only together from 1000 to 800 "
        "(asked: < 900), and without them the bad end is good by its number"
    )


def test_a_threshold_within_what_one_point_moves_by_itself_is_refused(tmp_path):
    noise = iter([0, 60_000, -60_000, 0])
    finding = found(World.at(tmp_path, lambda at: sized(at, next(noise))), question(bad_when=SMALL))
    assert finding.answer is AnswerKind.ENDPOINT_FAILED
    assert "kv_tokens moves by 120000 from launch to launch of one point" in finding.reason
    assert "nothing could be told apart" in finding.reason


def test_a_bad_end_that_is_not_bad_by_its_number_is_refused_with_its_value(tmp_path):
    world = World.at(tmp_path, lambda at: tokens(1_000_000))
    finding = found(world, question(bad_when=SMALL))
    assert finding.reason == "the bad end is not bad: kv_tokens is 1000000, not kv_tokens < 950000"


def test_a_bad_end_without_the_number_is_refused(tmp_path):
    world = World.at(tmp_path, lambda at: replace(READY, facts={"avail_gb": 2.5, "load_format": "dummy"}))
    finding = found(world, question(bad_when=SMALL))
    assert finding.reason == "the bad end does not say its kv_tokens; it says avail_gb"
    assert world.launched == ["HEAD"]
    assert finding_to_json(finding)["bad_when"] == "kv_tokens < 950000"


def test_a_good_end_that_is_bad_by_its_number_is_refused_at_once_and_not_compared(tmp_path):
    world = World.at(tmp_path, lambda at: tokens(900_000))
    journal = Journal.create(tmp_path / "bisections", "b")
    finding = conduct(question(bad_when=SMALL), world, journal=journal, store=world.store)
    assert finding.reason == "the good end is no better than the bad one: its kv_tokens is 900000"
    assert finding.baseline is None
    assert world.launched == ["HEAD"] * 3 + ["clean"]


# -- repairs ------------------------------------------------------------------------------------------------------


def test_the_change_that_repaired_it(tmp_path):
    world = World.at(tmp_path, lambda at: READY if "p6" in slugs(at) else FAILS)
    finding = found(world, question(fix=True))
    assert finding.answer is AnswerKind.FOUND
    assert finding.culprit.subject == "p6"
    assert finding.reason == "patch 0006-p6 (Change p6) repairs it: necessary, and sufficient alone"
    assert statuses(finding) == ALL_CONFIRMED
    document = finding_to_json(finding)
    assert document["fix"]
    told = {trial["point"]: trial["observation"] for trial in document["trials"]}
    assert told["clean"] == "bad"
    assert told["HEAD"] == "good"


def test_a_repair_that_never_worked(tmp_path):
    finding = found(World.at(tmp_path, lambda at: FAILS), question(fix=True))
    assert finding.answer is AnswerKind.ENDPOINT_FAILED
    assert "4 of 4 launches of the good end" in finding.reason


# -- the machine --------------------------------------------------------------------------------------------------


def drifting(tmp_path, rule, *, after, **machine):
    """A world whose machine changes after so many launches."""
    world = World.at(tmp_path, rule)
    launch = world.launch

    def changing(at, **more):
        if len(world.launched) == after:
            world.machine = {**world.machine, **machine}
        return launch(at, **more)

    world.launch = changing
    return world


def test_a_machine_that_changed_is_trusted_again_when_both_ends_still_say_the_same(tmp_path):
    world = drifting(tmp_path, broken_by("p6"), after=3, driver="575.2")
    said = []
    finding = found(world, question(), notify=said.append)
    assert finding.culprit.subject == "p6"
    assert any("the machine changed (driver 570.1 -> 575.2)" in text for text in said)
    assert world.launched[4:6] == ["clean", "HEAD"]


def test_what_was_launched_on_a_machine_that_is_no_longer_the_same_does_not_count(tmp_path):
    def rule(at):
        return FAILS if world.machine["driver"] == "575.2" else broken_by("p6")(at)

    world = drifting(tmp_path, rule, after=3, driver="575.2")
    journal = Journal.create(tmp_path / "bisections", "b")
    finding = conduct(question(), world, journal=journal, store=world.store)
    assert finding.answer is AnswerKind.INCONCLUSIVE
    assert "the machine changed (driver 570.1 -> 575.2), and clean no longer ends as it did" in finding.reason
    undone = [entry.data["record"] for entry in journal.entries() if entry.event == "undo"]
    assert list(finding.lost) == undone
    assert {step.trial.record for step in finding.steps} == set(undone)


def test_a_baseline_that_is_lost_on_the_way_is_noticed_when_the_evidence_conflicts(tmp_path):
    """From the fourth launch on everything fails: the search blames a patch, the proof and the sentinel do not."""

    def rule(at):
        return FAILS if len(world.launched) > 3 else broken_by("p6")(at)

    world = World.at(tmp_path, rule)
    finding = found(world, question())
    assert finding.answer is AnswerKind.INCONCLUSIVE
    assert "clean no longer ends as it did" in finding.reason


# -- the baseline -------------------------------------------------------------------------------------------------


def journal_in(path):
    journal = Journal.create(path / "bisections", "b")
    journal.append("begin", asked={}, root=str(path))
    return journal


def memory_rule(at):
    return READY if at.flags.get("mem") == "0.9" else FAILS


def story(tmp_path):
    """Yesterday ``clean`` started with mem 0.9; today its profile says 0.8, and a debug print is on top."""
    world = World.at(tmp_path, memory_rule)
    yesterday = point("clean", flags={"mem": "0.9", "tp": 8}, env={"HF_TOKEN": "old-secret"})
    record = world.launch(yesterday, purpose="").record
    today = point("clean", flags={"mem": "0.8", "tp": 8}, env={"HF_TOKEN": "new-secret"})
    asked = across(today, replace(today, name="HEAD", patches=queue(1)))
    return world, asked, record, yesterday, today


def test_a_baseline_that_no_longer_starts_is_compared_with_its_last_good_start(tmp_path):
    world, asked, record, _, _ = story(tmp_path)
    finding = conduct(asked, world, journal=journal_in(tmp_path), store=world.store)
    assert finding.answer is AnswerKind.ENDPOINT_FAILED
    assert "the change is not in this range" in finding.reason
    assert f"(run {record}); what differs since is flag mem 0.9 -> 0.8" in finding.reason
    baseline = finding_to_json(finding)["baseline"]
    assert baseline["run"] == record
    assert {"field": "flag mem", "then": "0.9", "now": "0.8"} in baseline["differences"]
    assert "-secret" not in str(finding_to_json(finding))


def test_from_there_the_answer_is_the_flag_and_not_the_debug_print(tmp_path):
    world, asked, record, yesterday, today = story(tmp_path)
    before = len(world.launched)

    def follow(run):
        assert run == record
        then = replace(yesterday, name=f"run:{run}", env=today.env)
        return replace(asked, timeline=timeline(then, today, applies=lambda base, patches: True))

    finding = conduct(asked, world, journal=journal_in(tmp_path), store=world.store, follow=follow)
    assert finding.answer is AnswerKind.FOUND
    assert finding.culprit.subject == "mem"
    assert finding.reason.endswith("flag mem (0.9 -> 0.8) breaks it: necessary, and sufficient alone")
    assert "the change is not in this range" in finding.reason
    assert finding.launches == len(world.launched) - before
    assert world.launched[before:] == ["HEAD", *["clean"] * 4, f"run:{record}"]


def test_a_baseline_without_a_record_is_not_compared(tmp_path):
    world = World.at(tmp_path, lambda at: FAILS)
    finding = conduct(question(), world, journal=journal_in(tmp_path), store=world.store)
    assert finding.baseline is None


def test_a_bad_end_that_does_not_fail_is_not_compared(tmp_path):
    world = World.at(tmp_path, lambda at: READY)
    world.launch(point("clean"), purpose="")
    finding = conduct(question(), world, journal=journal_in(tmp_path), store=world.store)
    assert finding.answer is AnswerKind.ENDPOINT_FAILED
    assert finding.baseline is None


@pytest.mark.parametrize("verdict", [DIRTY])
def test_a_void_sentinel_is_tried_again_and_changes_nothing(tmp_path, verdict):
    rule = scripted({"clean": [READY, verdict, READY]}, broken_by("p6"))
    world = drifting(tmp_path, rule, after=3, driver="575.2")
    finding = found(world, question())
    assert finding.culprit.subject == "p6"
    assert {step.observation for step in finding.steps} <= {Observation.GOOD, Observation.BAD}
    assert Claim.ALONE_BAD in statuses(finding)
