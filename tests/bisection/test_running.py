from collections import Counter
from dataclasses import replace

import pytest

from patchbisect.bisection import AnswerKind, Claim, finding_to_json
from patchbisect.errors import BoxError, PointUnbuildable
from patchbisect.search import Budget, Observation, Rates
from patchbisect.timeline import timeline
from tests.bisection.world import (
    DIRTY,
    ELSEWHERE,
    FAILS,
    LATER,
    READY,
    WRONG_CODE,
    World,
    broken_by,
    flaky,
    found,
    patch,
    point,
    question,
    queue,
    scripted,
    slugs,
    without_effect,
)


def statuses(finding):
    return {step.claim: step.status for step in finding.proof}


ALL_CONFIRMED = dict.fromkeys(Claim, "confirmed")


@pytest.mark.parametrize("guilty", range(1, 9))
def test_one_guilty_patch_is_found_and_proven(tmp_path, guilty):
    world = World.at(tmp_path, broken_by(f"p{guilty}"))
    finding = found(world, question(8))
    assert finding.answer is AnswerKind.FOUND
    assert finding.culprit.subject == f"p{guilty}"
    assert finding.position == guilty
    assert finding.reason == (
        f"patch 000{guilty}-p{guilty} (Change p{guilty}) breaks it: necessary, and sufficient alone"
    )
    assert statuses(finding) == ALL_CONFIRMED
    assert finding.launches == len(world.launched) <= 2 + 3 + 2
    assert finding.confidence > 0.99
    assert finding.assumed_deterministic


def test_points_off_the_timeline_have_names_of_their_own(tmp_path):
    world = World.at(tmp_path, broken_by("p6"))
    found(world, question(8))
    assert world.launched == [
        "HEAD",
        "clean",
        "clean + 4 of 8 (0004-p4)",
        "clean + 6 of 8 (0006-p6)",
        "clean + 5 of 8 (0005-p5)",
        "HEAD without 0006-p6",
        "clean with 0006-p6 alone",
    ]


def test_what_was_launched_in_the_search_is_not_launched_again_for_the_proof(tmp_path):
    world = World.at(tmp_path, broken_by("p1"))
    finding = found(world, question(2))
    assert len(set(world.launched)) == len(world.launched) == 4
    assert statuses(finding) == ALL_CONFIRMED


def test_one_change_is_not_blamed_for_a_single_failure(tmp_path):
    world = World.at(tmp_path, broken_by("p1"))
    finding = found(world, question(1))
    assert world.launched == ["HEAD", "clean", "HEAD"]
    assert statuses(finding) == ALL_CONFIRMED
    accident = World.at(tmp_path / "accident", scripted({"HEAD": [FAILS]}, lambda at: READY))
    finding = found(accident, question(1))
    assert finding.answer is AnswerKind.NONE


@pytest.mark.parametrize("guilty", range(1, 9))
def test_only_the_last_change_of_a_range_has_the_bad_end_launched_again_and_costs_no_more_for_it(tmp_path, guilty):
    world = World.at(tmp_path, broken_by(f"p{guilty}"))
    finding = found(world, question(8))
    assert world.launched.count("HEAD") == (2 if guilty == 8 else 1)
    assert len(world.launched) <= 2 + 3 + 2
    assert statuses(finding) == ALL_CONFIRMED


def test_the_last_change_is_not_blamed_for_an_accident_of_the_bad_end(tmp_path):
    """It fails by accident, and so does the last patch alone."""
    world = World.at(tmp_path, scripted({"HEAD": [FAILS], "clean with 0008-p8 alone": [FAILS]}, lambda at: READY))
    finding = found(world, question(8))
    assert finding.answer is AnswerKind.NONE
    assert world.launched.count("HEAD") > 1


def test_the_first_change_is_not_what_repairs_an_accident_of_the_older_end(tmp_path):
    world = World.at(tmp_path, scripted({"clean": [FAILS], "HEAD without 0001-p1": [FAILS]}, lambda at: READY))
    finding = found(world, question(8, fix=True))
    assert finding.answer is AnswerKind.NONE
    assert world.launched.count("clean") > 1


def test_ends_that_run_the_same_are_never_launched(tmp_path):
    world = World.at(tmp_path, broken_by("p1"), contents=without_effect("p1", "p2"))
    finding = found(world, question(2))
    assert finding.answer is AnswerKind.NONE
    assert "nothing to find" in finding.reason
    assert world.launched == []


def test_changes_without_effect_are_never_launched_and_never_blamed(tmp_path):
    idle = [f"p{number}" for number in range(1, 9) if number not in (3, 6)]
    world = World.at(tmp_path, broken_by("p6"), contents=without_effect(*idle))
    finding = found(world, question(8))
    assert finding.culprit.subject == "p6"
    assert finding.position == 6
    assert len(set(world.launched)) == len(world.launched) - 1 <= 2 + 1 + 1
    assert world.launched.count("HEAD") == 2, "the last change that has an effect fails at the bad end itself"


# -- endpoints ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "launches", "said"),
    [
        ({}, 4, "4 of 4 launches"),
        ({"repeats": 2}, 3, "3 of 3 launches"),
        ({"repeats": 0}, 1, "1 launch"),
    ],
)
def test_a_bad_end_that_never_fails_is_refused_after_as_many_repeats_as_are_wanted(tmp_path, more, launches, said):
    world = World.at(tmp_path, lambda at: READY)
    finding = found(world, question(**more))
    assert finding.answer is AnswerKind.ENDPOINT_FAILED
    assert finding.reason == f"the bad end does not fail: {said} of it got to ready"
    assert world.launched == ["HEAD"] * launches


def test_a_good_end_that_fails_says_that_the_range_is_innocent(tmp_path):
    world = World.at(tmp_path, lambda at: FAILS)
    finding = found(world, question())
    assert finding.answer is AnswerKind.ENDPOINT_FAILED
    assert finding.reason == (
        "the baseline itself fails, the change is not in this range: "
        "4 of 4 launches of the good end ended as crash/unbound-name"
    )
    assert world.launched == ["HEAD"] + ["clean"] * 4


def test_a_good_end_that_fails_otherwise_says_so(tmp_path):
    world = World.at(tmp_path, broken_by("p3", otherwise=ELSEWHERE))
    finding = found(world, question())
    assert finding.answer is AnswerKind.ENDPOINT_FAILED
    assert "in another way than the bad end" in finding.reason
    assert "4 of 4 launches of the good end ended as crash/nccl-error" in finding.reason


def test_a_failure_after_the_targets_stage_is_good(tmp_path):
    world = World.at(tmp_path, broken_by("p3", otherwise=LATER))
    finding = found(world, question())
    assert finding.culprit.subject == "p3"


@pytest.mark.parametrize("end", ["HEAD", "clean"])
def test_a_split_end_starts_a_noisy_search_and_says_so(tmp_path, end):
    rule = broken_by("p5")
    odd = READY if end == "HEAD" else FAILS
    world = World.at(tmp_path, scripted({end: [odd]}, rule))
    said = []
    finding = found(world, question(), notify=said.append)
    assert any("as if every launch could err" in text for text in said)
    assert any("launching it 3 times more (--repeats)" in text for text in said)
    assert finding.culprit.subject == "p5"
    assert not finding.assumed_deterministic
    assert finding.confidence >= 0.95


def test_an_end_without_the_right_code_says_nothing_about_the_range(tmp_path):
    world = World.at(tmp_path, lambda at: WRONG_CODE)
    finding = found(world, question())
    assert finding.answer is AnswerKind.ENDPOINT_FAILED
    assert finding.reason == "HEAD cannot be tested: wrong code found"
    assert finding.target is None
    assert world.launched == ["HEAD"]


def test_an_end_that_cannot_be_built_is_refused(tmp_path):
    world = World.at(tmp_path, lambda at: READY, unbuildable=lambda at: "no" if at.name == "HEAD" else "")
    with pytest.raises(PointUnbuildable, match="HEAD cannot be built: no"):
        found(world, question())


# -- void ---------------------------------------------------------------------------------------------------------


def test_a_transient_void_is_tried_again_and_never_an_observation(tmp_path):
    rule = scripted({"HEAD": [DIRTY], "clean + 4 of 8 (0004-p4)": [DIRTY, DIRTY]}, broken_by("p4"))
    world = World.at(tmp_path, rule)
    finding = found(world, question())
    assert finding.culprit.subject == "p4"
    assert all(step.observation for step in finding.steps)
    assert len(world.launched) == finding.launches + 3
    assert world.rested == [5, 5, 30]


def test_a_box_that_stays_void_ends_the_bisection_as_the_boxs_fault(tmp_path):
    world = World.at(tmp_path, lambda at: DIRTY)
    with pytest.raises(BoxError, match="4 launches in a row were void, the last because the box is not clean"):
        found(world, question())
    assert world.launched == ["HEAD"] * 4
    assert world.rested == [5, 30, 120]


def test_a_permanent_void_is_a_skip(tmp_path):
    rule = broken_by("p6")
    world = World.at(tmp_path, lambda at: WRONG_CODE if at.name.startswith("clean + 4") else rule(at))
    finding = found(world, question())
    assert finding.culprit.subject == "p6"
    assert world.launched.count("clean + 4 of 8 (0004-p4)") == 1


# -- bands that cannot be tested ----------------------------------------------------------------------------------


def test_a_band_that_fails_otherwise_is_searched_around(tmp_path):
    """Patches 3 to 5 fail earlier for another reason, 6 mends that; the culprit is 7."""

    def rule(at):
        if "p3" in slugs(at) and "p6" not in slugs(at):
            return ELSEWHERE
        return FAILS if "p7" in slugs(at) else READY

    finding = found(World.at(tmp_path, rule), question())
    assert finding.culprit.subject == "p7"
    assert statuses(finding)[Claim.WITHOUT_CULPRIT_GOOD] == "confirmed"


def test_a_culprit_inside_a_band_is_told_apart_by_other_combinations(tmp_path):
    """No point of the timeline between 2 and 6 tells; without patch 3 each of them does."""

    def rule(at):
        if "p3" in slugs(at) and "p6" not in slugs(at):
            return ELSEWHERE
        return FAILS if "p4" in slugs(at) else READY

    finding = found(World.at(tmp_path, rule), question())
    assert finding.answer is AnswerKind.FOUND
    assert finding.culprit.subject == "p4"
    shown = {step.claim: step.trial.point for step in finding.proof}
    assert slugs(shown[Claim.CULPRIT_BAD]) - slugs(shown[Claim.PARENT_GOOD]) == {"p4"}


def test_a_pair_inside_a_band_is_named_and_proven(tmp_path):
    """No point of the timeline between 2 and 6 tells; 4 and 5 break it, and neither alone."""

    def rule(at):
        if "p3" in slugs(at) and "p6" not in slugs(at):
            return ELSEWHERE
        return FAILS if {"p4", "p5"} <= slugs(at) else READY

    finding = found(World.at(tmp_path, rule), question())
    assert finding.together
    assert [change.subject for change in finding.candidates] == ["p4", "p5"]
    assert statuses(finding) == ALL_CONFIRMED


def test_two_culprits_inside_a_band_are_both_named(tmp_path):
    def rule(at):
        if "p3" in slugs(at) and "p6" not in slugs(at):
            return ELSEWHERE
        return FAILS if {"p4", "p5"} & slugs(at) else READY

    finding = found(World.at(tmp_path, rule), question())
    named = {finding.culprit.subject, *(change.subject for other in finding.others for change in other)}
    assert named == {"p4", "p5"}


def test_a_culprit_inside_a_band_that_needs_one_before_it_is_named_with_it(tmp_path):
    """No point of the timeline between 2 and 6 tells; 4 breaks it only with 1."""

    def rule(at):
        if "p3" in slugs(at) and "p6" not in slugs(at):
            return ELSEWHERE
        return FAILS if {"p1", "p4"} <= slugs(at) else READY

    finding = found(World.at(tmp_path, rule), question())
    assert finding.together
    assert [change.subject for change in finding.candidates] == ["p1", "p4"]


def test_what_no_combination_tells_apart_is_named_as_a_set(tmp_path):
    def rule(at):
        inside = slugs(at) & {"p3", "p4", "p5"}
        if inside and len(inside) < 3:
            return ELSEWHERE
        return FAILS if inside else READY

    finding = found(World.at(tmp_path, rule), question())
    assert finding.answer is AnswerKind.SET
    assert not finding.together
    assert [change.subject for change in finding.candidates] == ["p3", "p4", "p5"]
    assert finding.reason == "at least one of 3 changes is guilty; the points between them cannot be tested"


def test_points_that_cannot_be_built_are_no_launches(tmp_path):
    def unbuildable(at):
        return "0004-p4 does not apply" if 3 <= len(at.patches) <= 5 else ""

    world = World.at(tmp_path, broken_by("p7"), unbuildable=unbuildable)
    finding = found(world, question())
    assert finding.culprit.subject == "p7"
    assert not any(name.startswith(("clean + 3", "clean + 4", "clean + 5")) for name in world.launched)
    told = {point["position"]: point["why"] for point in finding_to_json(finding)["unbuildable"]}
    assert told
    assert set(told) <= {3, 4, 5}
    assert set(told.values()) == {"0004-p4 does not apply"}


def test_a_proof_that_cannot_be_built_says_why(tmp_path):
    def unbuildable(at):
        return "0005-p5 builds on 0004-p4" if "p5" in slugs(at) and "p4" not in slugs(at) else ""

    finding = found(World.at(tmp_path, broken_by("p4"), unbuildable=unbuildable), question())
    assert finding.culprit.subject == "p4"
    assert statuses(finding)[Claim.WITHOUT_CULPRIT_GOOD] == "not testable: 0005-p5 builds on 0004-p4"
    assert finding.reason.endswith("breaks it: sufficient alone")


# -- several culprits ---------------------------------------------------------------------------------------------


def test_a_pair_that_only_breaks_together(tmp_path):
    world = World.at(tmp_path, broken_by("p2", "p6"))
    finding = found(world, question())
    assert finding.answer is AnswerKind.SET
    assert finding.together
    assert finding.culprit is None
    assert [change.subject for change in finding.candidates] == ["p2", "p6"]
    assert finding.reason == (
        "patch 0002-p2 (Change p2) and patch 0006-p6 (Change p6) break it only together, "
        "and without them the bad end starts"
    )
    assert statuses(finding) == ALL_CONFIRMED
    assert len(world.launched) <= 16
    assert world.launched[-3:] == [
        "clean with 0002-p2 and 0006-p6 alone",
        "clean with 0006-p6 alone",
        "clean with 0002-p2 alone",
    ]
    assert world.launched.count("clean with 0002-p2 and 0006-p6 alone") == 2


def test_two_independent_culprits_are_both_named(tmp_path):
    def rule(at):
        return FAILS if slugs(at) & {"p3", "p7"} else READY

    finding = found(World.at(tmp_path, rule), question())
    assert finding.answer is AnswerKind.FOUND
    named = {finding.culprit.subject, *(change.subject for other in finding.others for change in other)}
    assert named == {"p3", "p7"}
    assert "independently of that, so does patch" in finding.reason


# -- noise --------------------------------------------------------------------------------------------------------


@pytest.mark.ci
@pytest.mark.parametrize("rates", [Rates.deterministic(), Rates.unknown()], ids=lambda rates: rates.kind)
def test_a_failure_that_comes_and_goes_by_itself_is_hardly_ever_blamed_on_a_change(tmp_path, rates):
    """One launch in five fails for no reason. Of 30 such ranges, two may be blamed: the search is 95 % sure."""
    answers = []
    for seed in range(30):
        world = World.at(tmp_path / str(seed), flaky(lambda at: READY, chance=0.2, seed=seed))
        answers.append(found(world, question(12, rates=rates)).answer)
    assert sum(answer in (AnswerKind.FOUND, AnswerKind.SET) for answer in answers) <= 2


@pytest.mark.ci
@pytest.mark.parametrize("rates", [Rates.deterministic(), Rates.unknown()], ids=lambda rates: rates.kind)
def test_a_culprit_is_found_although_one_launch_in_five_fails_for_no_reason(tmp_path, rates):
    right = 0
    for seed in range(20):
        world = World.at(tmp_path / str(seed), flaky(broken_by("p7"), chance=0.2, seed=seed))
        finding = found(world, question(12, rates=rates))
        right += finding.culprit is not None and finding.culprit.subject == "p7"
    assert right >= 18


def test_one_wrong_launch_is_seen_by_the_proof_and_the_search_goes_on_in_doubt(tmp_path):
    world = World.at(tmp_path, scripted({"clean + 4 of 8 (0004-p4)": [FAILS]}, broken_by("p7")))
    said = []
    finding = found(world, question(), notify=said.append)
    assert finding.answer is AnswerKind.FOUND
    assert finding.culprit.subject == "p7"
    assert not finding.assumed_deterministic
    assert any("the same point ended in two ways" in text for text in said)


def test_a_culprit_that_passed_once_alone_is_no_pair_with_a_bystander(tmp_path):
    world = World.at(tmp_path, scripted({"clean with 0006-p6 alone": [READY]}, broken_by("p6")))
    finding = found(world, question())
    assert finding.answer is AnswerKind.FOUND
    assert finding.culprit.subject == "p6"
    assert not finding.assumed_deterministic


def test_a_bystander_that_failed_once_alone_is_no_second_culprit(tmp_path):
    """Patch 3 is guilty. What has patch 8 without it fails the first time it is launched."""
    launched = Counter()

    def rule(at):
        launched[at.name] += 1
        accident = "p8" in slugs(at) and launched[at.name] <= (2 if at.name == "HEAD without 0003-p3" else 1)
        return FAILS if accident else broken_by("p3")(at)

    world = World.at(tmp_path, rule)
    finding = found(world, question())
    assert launched["clean with 0008-p8 alone"] > 1
    assert finding.others == ()
    assert not finding.assumed_deterministic


# -- budget -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("launches", range(2, 8))
def test_a_budget_counts_every_launch(tmp_path, launches):
    world = World.at(tmp_path, broken_by("p6"))
    finding = found(world, question(budget=Budget(launches=launches)))
    assert len(world.launched) <= launches
    if launches < 5:
        assert finding.answer is AnswerKind.INCONCLUSIVE
        assert "p6" in [change.subject for change in finding.candidates]
    else:
        assert finding.culprit.subject == "p6"


def test_a_budget_in_box_seconds(tmp_path):
    world = World.at(tmp_path, broken_by("p6"))
    finding = found(world, question(budget=Budget(seconds=35.0)))
    assert len(world.launched) == 4
    assert finding.answer is AnswerKind.INCONCLUSIVE


# -- marks --------------------------------------------------------------------------------------------------------


def test_a_mark_stands_in_for_a_launch(tmp_path):
    asked = question()
    world = World.at(tmp_path, broken_by("p6"))
    four = world.content(point("", queue(4)))
    finding = found(world, asked, marks={four: Observation.GOOD})
    assert finding.culprit.subject == "p6"
    assert not any(name.startswith("clean + 4") for name in world.launched)
    assert finding.launches == len(world.launched)
    marked = [trial for trial in finding_to_json(finding)["trials"] if not trial["run"]]
    assert [(trial["position"], trial["observation"]) for trial in marked] == [(4, "good")]


def test_a_person_may_say_that_the_bad_end_is_bad(tmp_path):
    world = World.at(tmp_path, broken_by("p6", failure=LATER))
    finding = found(world, question(), marks={world.content(point("", queue(8))): Observation.BAD})
    assert finding.culprit.subject == "p6"
    assert "HEAD" not in world.launched


# -- several axes -------------------------------------------------------------------------------------------------


def across(good, bad, **more):
    ends = timeline(good, bad, applies=lambda base, patches: True)
    return question(timeline=ends, **more)


GOOD = point("clean", flags={"tp-size": 8, "mem": "0.8"}, env={"NCCL": "SYS"})
BAD = point("HEAD", queue(6), flags={"tp-size": 8, "mem": "0.9", "eagle": True}, env={"NCCL": "PHB"})


def test_a_flag_is_found_among_patches_and_variables(tmp_path):
    world = World.at(tmp_path, lambda at: FAILS if at.flags.get("mem") == "0.9" else READY)
    finding = found(world, across(GOOD, BAD))
    assert finding.culprit.subject == "mem"
    assert finding.reason == "flag mem (0.8 -> 0.9) breaks it: necessary, and sufficient alone"
    assert world.launched[2:6] == [
        "clean with queue and flags of HEAD",
        "clean with queue of HEAD",
        "clean with flags of HEAD",
        "clean with queue and env of HEAD",
    ]
    assert len(world.launched) == 9


def test_a_patch_is_found_among_flags_and_variables(tmp_path):
    finding = found(World.at(tmp_path, broken_by("p4")), across(GOOD, BAD))
    assert finding.culprit.subject == "p4"
    assert statuses(finding) == ALL_CONFIRMED


def test_a_patch_that_breaks_only_with_a_flag(tmp_path):
    def rule(at):
        return FAILS if "p4" in slugs(at) and at.flags.get("eagle") else READY

    world = World.at(tmp_path, rule)
    finding = found(world, across(GOOD, BAD))
    assert finding.answer is AnswerKind.SET
    assert finding.together
    assert [change.subject for change in finding.candidates] == ["p4", "eagle"]
    assert statuses(finding)[Claim.ALONE_BAD] == "confirmed"
    assert any(name.startswith("HEAD with queue at 3 of 6") for name in world.launched)
    assert len(world.launched) <= 15


def test_one_launch_that_lies_makes_no_pair_of_a_culprit_and_another_axis(tmp_path):
    """The variable counts as needed, since all the rest of the bad end passed without it: once, by accident."""
    rule = scripted({"clean with queue and flags of HEAD": [READY]}, lambda at: FAILS if "p4" in slugs(at) else READY)
    world = World.at(tmp_path, rule)
    finding = found(world, across(GOOD, BAD))
    assert finding.answer is AnswerKind.FOUND
    assert finding.culprit.subject == "p4"
    assert not finding.assumed_deterministic


def test_axes_are_parted_again_once_launches_are_seen_to_err(tmp_path):
    """The variable seems needed, by accident; then, inside the queue, the proof errs and is seen to."""
    lies = {"clean with queue and flags of HEAD": [READY], "HEAD without 0004-p4": [FAILS]}
    world = World.at(tmp_path, scripted(lies, lambda at: FAILS if "p4" in slugs(at) else READY))
    finding = found(world, across(GOOD, BAD))
    assert finding.answer is AnswerKind.FOUND
    assert finding.culprit.subject == "p4"
    assert statuses(finding) == ALL_CONFIRMED


def test_a_set_across_axes_is_launched_without_a_change_that_one_launch_alone_shows_to_be_needed(tmp_path):
    def rule(at):
        return FAILS if at.flags["mem"] == "0.9" and at.env["NCCL"] == "PHB" else READY

    world = World.at(tmp_path, rule)
    finding = found(world, across(GOOD, BAD))
    assert [change.subject for change in finding.candidates] == ["mem", "NCCL"]
    assert finding.assumed_deterministic
    assert [step.trial.point.name for step in finding.steps if step.purpose == "proof again"] == [
        "clean with flag mem alone"
    ]


def test_a_flag_and_a_patch_that_each_break_it_are_both_named(tmp_path):
    def rule(at):
        return FAILS if "p4" in slugs(at) or at.flags.get("eagle") else READY

    finding = found(World.at(tmp_path, rule), across(GOOD, BAD))
    assert finding.answer is AnswerKind.FOUND
    named = {finding.culprit.subject, *(change.subject for other in finding.others for change in other)}
    assert named == {"p4", "eagle"}


def test_secret_values_are_not_in_the_answer(tmp_path):
    good = point("clean", env={"HF_TOKEN": "old-value", "MY_PLACE": "here-it-is"})
    bad = point("HEAD", env={"HF_TOKEN": "new-value", "MY_PLACE": "there-it-is"})
    world = World.at(tmp_path, lambda at: FAILS if at.env["HF_TOKEN"] == "new-value" else READY)
    finding = found(world, across(good, bad, secrets=("MY_PLACE",)))
    assert finding.culprit.subject == "HF_TOKEN"
    text = str(finding_to_json(finding))
    assert "-value" not in text
    assert "it-is" not in text


def test_a_replaced_and_a_removed_patch_read_well(tmp_path):
    good = point("clean", [patch(1), patch(2, text="old"), patch(3)])
    bad = point("HEAD", [patch(2, text="new"), patch(3)])
    finding = found(World.at(tmp_path, lambda at: READY if "p1" in slugs(at) else FAILS), across(good, bad))
    assert finding.reason.startswith("the removal of patch 0001-p1 (Change p1) breaks it")
    rule = World.at(tmp_path, lambda at: FAILS if any(p.text == "new" for p in at.patches) else READY)
    finding = found(rule, across(good, bad))
    assert finding.reason.startswith("the new form of patch 0002-p2 (Change p2) breaks it")


def test_a_patch_that_only_moved_is_told_as_moved(tmp_path):
    good = point("clean", [patch(1), patch(2), patch(3)])
    bad = point("HEAD", [patch(1, "p3"), patch(2, "p1"), patch(3, "p2"), patch(4, "p4")])
    first = World.at(tmp_path, lambda at: FAILS if at.patches[0].slug == "p3" else READY)
    finding = found(first, across(good, bad))
    document = finding_to_json(finding)
    assert document["culprit"]["title"] == "move 0001-p3: Change p3"
    assert document["timeline"][0]["title"] == "move 0001-p3: Change p3"
    assert "clean + 1 of 2 (0001-p3 moved)" in first.launched
    assert finding.reason == "the new place of patch 0001-p3 (Change p3) breaks it: necessary, and sufficient alone"


def test_a_flag_whose_failure_looks_otherwise_on_the_other_base_is_no_pair_with_it(tmp_path):
    """The release moved the line that fails: with the flag alone it fails elsewhere, and that tells nothing."""
    good = point("clean", flags={"mem": "0.8"}, env={"NCCL": "SYS"})
    bad = point("HEAD", queue(1), flags={"mem": "0.1"}, env={"NCCL": "PHB"})
    moved = replace(FAILS, signature=replace(FAILS.signature, frame="sizing.py:init_pools"))

    def rule(at):
        if at.flags["mem"] == "0.8":
            return READY
        return FAILS if "p1" in slugs(at) else moved

    said = []
    finding = found(World.at(tmp_path, rule), across(good, bad), notify=said.append)
    assert finding.answer is AnswerKind.FOUND
    assert finding.culprit.subject == "mem"
    assert finding.reason == "flag mem (0.8 -> 0.1) breaks it: necessary"
    told = "not testable: it ended as crash/unbound-name, in another place of SGLang's code than the bad end"
    assert statuses(finding)[Claim.ALONE_BAD] == told
    hints = [line for line in said if "--bad-is outcome" in line]
    assert len(hints) == 1
    assert "sizing.py:init_pools" in hints[0]
    alike = found(World.at(tmp_path / "alike", rule), across(good, bad, bad_is="outcome"))
    assert alike.reason == "flag mem (0.8 -> 0.1) breaks it: necessary, and sufficient alone"


def test_a_pair_of_which_one_cannot_be_tested_alone_is_not_called_a_pair(tmp_path):
    def rule(at):
        if {"p2", "p6"} <= slugs(at):
            return FAILS
        return ELSEWHERE if "p2" in slugs(at) else READY

    finding = found(World.at(tmp_path, rule), question())
    assert not finding.together
    assert "only together" not in finding.reason


def test_one_of_two_that_only_start_together_is_not_named(tmp_path):
    """Of the queue and the environment one alone never starts, and the flag needs one of them: nobody can say which."""

    def rule(at):
        if ("p1" in slugs(at)) != (at.env["NCCL"] == "PHB"):
            return ELSEWHERE
        return FAILS if at.flags["mem"] == "0.1" and "p1" in slugs(at) else READY

    good = point("clean", flags={"mem": "0.8"}, env={"NCCL": "SYS"})
    bad = point("HEAD", queue(1), flags={"mem": "0.1"}, env={"NCCL": "PHB"})
    finding = found(World.at(tmp_path, rule), across(good, bad))
    assert (finding.answer, finding.together) == (AnswerKind.SET, False)
    assert {change.subject for change in finding.candidates} == {"p1", "NCCL", "mem"}
