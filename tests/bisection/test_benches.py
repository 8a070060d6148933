"""Several boxes, remembered verdicts, the plan, what people say about a bisection."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest

from patchbisect.bisection import AnswerKind, Shut, conduct, finding_to_json, forecast, plan_to_json
from patchbisect.bisection.amending import mark_content, point_named, reasons_of, take_back
from patchbisect.bisection.bench import OnRig
from patchbisect.bisection.fleet import Fleet
from patchbisect.bisection.judging import Threshold
from patchbisect.bisection.machines import unlike
from patchbisect.bisection.remembering import Remembering
from patchbisect.errors import BoxError, UsageError
from patchbisect.journal import Journal, Sealed
from patchbisect.model import Stage
from patchbisect.report.plan import plan_lines
from patchbisect.search import Budget, Rates
from patchbisect.timeline import timeline
from patchbisect.trial import Silent
from tests.bisection.test_running import across
from tests.bisection.world import DIRTY, FAILS, LATER, READY, World, broken_by, found, point, question, queue, slugs

MACHINE = {"hostname": "sim", "boot_id": "1", "driver": "570.1"}


def journal_in(path):
    journal = Journal.create(path / "bisections", "b")
    journal.append("begin", asked={}, root=str(path))
    return journal


# -- several boxes ------------------------------------------------------------------------------------------------


def fleet(*worlds, notify=print):
    """These worlds as boxes of one host: each has its own part of the GPUs."""
    for number, world in enumerate(worlds):
        world.box = f"box{number}"
        world.machine = {"hostname": "sim", "boot_id": "1", "driver": "570.1", "gpus": [{"index": number}]}
    return Fleet({world.box: world for world in worlds}, notify=notify)


def test_boxes_work_side_by_side_and_reach_the_answer(tmp_path):
    boxes = [World.at(tmp_path, broken_by("p21")) for _ in range(3)]
    finding = found(fleet(*boxes), question(32))
    assert finding.culprit.subject == "p21"
    assert sum(len(box.launched) for box in boxes) == finding.launches
    assert all(box.launched for box in boxes)


def test_a_box_that_comes_on_the_way_takes_part_and_one_that_was_left_out_does_not(tmp_path):
    early, late = (World.at(tmp_path, broken_by("p21")) for _ in range(2))
    boxes = fleet(early)
    late.box = "late"

    def rule(at):
        if len(early.launched) == 3:
            boxes.join("late", late)
        return broken_by("p21")(at)

    early.rule = rule
    finding = found(boxes, question(32))
    assert finding.culprit.subject == "p21"
    assert late.launched
    assert len(early.launched) > 3
    assert finding.launches == len(early.launched) + len(late.launched)
    assert boxes.forgo("late")
    launched = len(late.launched)
    boxes.join("late", late)
    for _ in range(3):
        boxes.launch(point("x"), purpose="search")
    assert len(late.launched) == launched


def test_two_boxes_of_one_host_are_two_machines(tmp_path):
    boxes = [World.at(tmp_path, broken_by("p21")) for _ in range(2)]
    finding = found(fleet(*boxes), question(32))
    assert "sentinel" not in [step.purpose for step in finding.steps]


class Replaced(World):
    """A machine that is another one at each launch."""

    def launch(self, at, **more):
        self.machine = {**self.machine, "boot_id": str(len(self.launched))}
        return super().launch(at, **more)


def test_a_box_that_changes_is_asked_for_both_ends_itself_and_they_ask_for_no_more(tmp_path):
    steady, unsteady = World.at(tmp_path, broken_by("p21")), Replaced.at(tmp_path, broken_by("p21"))
    finding = found(fleet(steady, unsteady), question(32))
    assert finding.culprit.subject == "p21"
    sentinels = [step.trial for step in finding.steps if step.purpose == "sentinel"]
    assert {trial.box for trial in sentinels} == {"box1"}
    others = [step for step in finding.steps if step.purpose != "sentinel" and step.trial.box == "box1"]
    assert 2 <= len(sentinels) <= 2 * (len(others) - 1)


class Worn(Replaced):
    """From its third launch on nothing starts there."""

    def launch(self, at, **more):
        if len(self.launched) > 1:
            self.rule = lambda _: FAILS
        return super().launch(at, **more)


def test_only_what_ran_on_the_box_that_drifted_is_lost_and_the_other_goes_on(tmp_path):
    steady, worn = World.at(tmp_path, broken_by("p21")), Worn.at(tmp_path, broken_by("p21"))
    said = []
    finding = found(fleet(steady, worn), question(32), notify=said.append)
    assert finding.culprit.subject == "p21"
    assert set(finding.lost) == {step.trial.record for step in finding.steps if step.trial.box == "box1"}
    assert {step.observation for step in finding.steps if step.trial.box == "box1"} == {None}
    assert {step.trial.box for step in finding.proof} == {"box0"}
    assert finding.launches == len(steady.launched) + len(worn.launched)
    assert [text for text in said if text.endswith("going on without box box1")]


def test_when_every_box_has_drifted_that_is_the_answer(tmp_path):
    finding = found(fleet(*(Worn.at(tmp_path, broken_by("p21")) for _ in range(2))), question(32))
    assert finding.answer is AnswerKind.INCONCLUSIVE
    assert set(finding.lost) == {step.trial.record for step in finding.steps}


def test_what_was_launched_before_a_box_drifted_leads_to_the_same_answer_again(tmp_path):
    steady, worn = World.at(tmp_path, broken_by("p21")), Worn.at(tmp_path, broken_by("p21"))
    journal = journal_in(tmp_path)
    finding = conduct(question(32), fleet(steady, worn), journal=journal, store=steady.store)
    again = conduct(question(32), Shut(steady), journal=Sealed(journal.path), store=steady.store)
    assert finding.lost
    assert (again.culprit, again.lost) == (finding.culprit, ())


class Running(World):
    """A box on which nothing may happen while a launch is joined again, and on which two never run at once."""

    @classmethod
    def at(cls, *known, **more):
        box = super().at(*known, **more)
        box.alone, box.joining, box.go_on = threading.Lock(), threading.Event(), threading.Event()
        return box

    def launch(self, at, **more):
        assert self.alone.acquire(blocking=False), "two at once on one box"
        try:
            return super().launch(at, **more)
        finally:
            self.alone.release()

    def rejoin(self, at, *, record, settle=False):
        assert self.alone.acquire(blocking=False), "two at once on one box"
        try:
            self.joining.set()
            assert self.go_on.wait(10)
            return World.launch(self, at, purpose="", record=record)
        finally:
            self.alone.release()


def test_a_box_on_which_a_launch_is_joined_is_not_free(tmp_path):
    joined, other = Running.at(tmp_path, broken_by("p6")), Running.at(tmp_path, broken_by("p6"))
    both = fleet(joined, other)
    with ThreadPoolExecutor() as pool:
        rejoined = pool.submit(both.rejoin, point("x"), record="20260101-000000-aaaa")
        assert joined.joining.wait(10)
        assert both.launch(point("y"), purpose="search").box == "box1"
        assert both.launch(point("z"), purpose="search").box == "box1"
        joined.go_on.set()
        assert rejoined.result(10).box == "box0"
    assert joined.launched == ["x"]


def test_a_box_that_fails_when_a_launch_is_to_be_joined_is_left_out(tmp_path):
    class Unreachable(World):
        def rejoin(self, at, **more):
            raise BoxError("no route to host")

    said = []
    gone, alive = Unreachable.at(tmp_path, broken_by("p6")), World.at(tmp_path, broken_by("p6"))
    both = fleet(gone, alive, notify=said.append)
    assert both.rejoin(point("x"), record="20260101-000000-aaaa") is None
    assert said == ["box box0 is left out from now on: no route to host"]
    assert both.launch(point("x"), purpose="search").box == "box1"
    with pytest.raises(BoxError, match="box box0 is left out"):
        both.launch(point("x"), purpose="sentinel", box="box0")


class Free(World):
    """Launches do not wait for each other."""

    def launch(self, at, **more):
        verdict = self.rule(at)
        return replace(self, rule=lambda _: verdict).launched_once(at, **more)

    def launched_once(self, at, **more):
        return World.launch(self, at, **more)


def test_both_ends_and_both_parts_of_the_proof_are_launched_at_once(tmp_path):
    """Each waits for the other one of its pair to be under way."""
    pairs = {name: threading.Barrier(2) for name in ("ends", "proof")}

    def rule(at):
        if at.name in ("HEAD", "clean"):
            pairs["ends"].wait(10)
        elif at.name.startswith(("HEAD without", "clean with")):
            pairs["proof"].wait(10)
        return broken_by("p6")(at)

    finding = found(fleet(*(Free.at(tmp_path, rule) for _ in range(2))), question(16))
    assert finding.culprit.subject == "p6"
    assert {step.status for step in finding.proof} == {"confirmed"}
    assert [step.purpose for step in finding.steps[:2]] == ["bad end", "good end"]


def test_ends_that_are_more_than_the_budget_are_launched_one_by_one(tmp_path):
    boxes = [World.at(tmp_path, broken_by("p6")) for _ in range(2)]
    finding = found(fleet(*boxes), question(budget=Budget(launches=3)))
    assert finding.answer is AnswerKind.INCONCLUSIVE
    assert finding.launches == 3


class Dead(World):
    def launch(self, at, **more):
        self.launched.append(at.name)
        raise BoxError("no route to host")


def test_a_box_that_dies_loses_its_trial_only(tmp_path):
    dead, alive = Dead.at(tmp_path, broken_by("p6")), World.at(tmp_path, broken_by("p6"))
    said = []
    finding = found(fleet(dead, alive, notify=said.append), question(16))
    assert finding.culprit.subject == "p6"
    assert len(dead.launched) == 1
    assert said == ["box box0 is left out from now on: no route to host"]
    assert finding.launches == len(alive.launched)


def test_when_every_box_is_dead_the_box_is_at_fault(tmp_path):
    both = fleet(*(Dead.at(tmp_path, broken_by("p6")) for _ in range(2)))
    with pytest.raises(BoxError, match="no route to host"):
        found(both, question())


def test_an_interruption_ends_the_launches_of_the_other_boxes(tmp_path):
    """Both boxes are at work when one of them is interrupted: the other must not go on to its own end."""
    both = threading.Barrier(2)

    def interrupted(at):
        if at.name not in ("HEAD", "clean"):
            both.wait(10)
            raise KeyboardInterrupt
        return broken_by("p6")(at)

    def waiting(at):
        if at.name not in ("HEAD", "clean"):
            both.wait(10)
            assert second.cancelled.wait(10)
            raise KeyboardInterrupt
        return broken_by("p6")(at)

    first, second = Free.at(tmp_path, interrupted), Free.at(tmp_path, waiting)
    with pytest.raises(KeyboardInterrupt):
        found(fleet(first, second), question(16))
    assert first.cancelled.is_set()


def test_an_interruption_ends_a_rest_too():
    hurried = threading.Event()
    rig = SimpleNamespace(box=SimpleNamespace(patience=SimpleNamespace(hurry=hurried.set)))
    bench = OnRig(rig, until=Stage.SERVING, watcher=Silent())
    with ThreadPoolExecutor() as pool:
        resting = pool.submit(bench.rest, 600.0)
        bench.cancel()
        with pytest.raises(KeyboardInterrupt):
            resting.result(10)
    assert hurried.is_set(), "a lost link is no longer waited for"


def test_a_box_on_which_every_launch_is_void_is_left_out_and_its_trial_goes_to_another(tmp_path):
    dirty, clean = World.at(tmp_path, lambda at: DIRTY), World.at(tmp_path, broken_by("p6"))
    said = []
    finding = found(fleet(dirty, clean, notify=said.append), question(16), notify=said.append)
    assert finding.culprit.subject == "p6"
    assert len(dirty.launched) == 3
    reason = "3 launches in a row were void there, the last: the box is not clean"
    assert f"box box0 is left out from now on: {reason}" in said


def test_voids_on_several_boxes_do_not_add_up(tmp_path):
    """Two of three boxes are never clean: the third one finds it."""
    dirty = [World.at(tmp_path, lambda at: DIRTY) for _ in range(2)]
    finding = found(fleet(*dirty, World.at(tmp_path, broken_by("p6"))), question(16))
    assert finding.culprit.subject == "p6"


def test_when_no_box_is_ever_clean_that_is_said(tmp_path):
    with pytest.raises(BoxError, match="4 launches in a row were void, the last because the box is not clean"):
        found(fleet(*(World.at(tmp_path, lambda at: DIRTY) for _ in range(2))), question(16))


def test_a_trial_that_another_box_takes_over_is_another_launch(tmp_path):
    """Boxes may share a directory: the id of the launch that failed would be taken for that launch."""

    class Failing(World):
        def launch(self, at, **more):
            asked.append(more["record"])
            raise BoxError("the lease was taken")

    class Taking(World):
        def launch(self, at, **more):
            asked.append(more["record"])
            return super().launch(at, **more)

    asked = []
    both = fleet(Failing.at(tmp_path, READY), Taking.at(tmp_path, broken_by("p6")))
    both.launch(point("x"), purpose="search", record="20260101-000000-aaaa")
    assert asked == ["20260101-000000-aaaa", ""]


class Asked(World):
    """Notes for which box it was asked."""

    def launch(self, at, *, box="", **more):
        asked = self.__dict__.setdefault("asked", [])
        asked.append((more["purpose"], box))
        return super().launch(at, **more)


def test_the_box_whose_launch_threw_doubt_on_the_answer_is_the_one_that_shows_whether_it_is_as_it_was(tmp_path):
    def rule(at):
        return FAILS if at.name.startswith("HEAD without") else broken_by("p6")(at)

    boxes = [Asked.at(tmp_path, rule) for _ in range(2)]
    finding = found(fleet(*boxes), question(16))
    (where,) = {
        step.trial.box for step in finding.steps if step.purpose == "proof" and "HEAD without" in step.trial.point.name
    }
    sentinels = [box for world in boxes for purpose, box in world.asked if purpose == "sentinel"]
    assert sentinels
    assert set(sentinels) == {where}


class DyingChanged(Replaced):
    """After a launch on another machine nothing answers any more."""

    def launch(self, at, *, purpose, **more):
        if purpose == "sentinel":
            raise BoxError("no route to host")
        return super().launch(at, purpose=purpose, **more)


def test_what_a_box_said_before_it_changed_and_died_does_not_count(tmp_path):
    steady, dying = World.at(tmp_path, broken_by("p21")), DyingChanged.at(tmp_path, broken_by("p21"))
    said = []
    finding = found(fleet(steady, dying), question(32), notify=said.append)
    assert finding.culprit.subject == "p21"
    assert any("box box1 cannot show whether clean still ends as it did" in text for text in said)
    assert set(finding.lost) == {step.trial.record for step in finding.steps if step.trial.box == "box1"}


def gpus(*names, driver="570.1"):
    return {"driver": driver, "gpus": [{"index": k, "name": name, "total_gb": 95.6} for k, name in enumerate(names)]}


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        (gpus("RTX PRO 6000"), gpus("RTX PRO 6000"), ""),
        (gpus("RTX PRO 6000"), gpus("H200"), "gpus: 1x RTX PRO 6000 96 GiB (a), 1x H200 96 GiB (b)"),
        (gpus("H200"), gpus("H200", "H200"), "gpus: 1x H200 96 GiB (a), 2x H200 96 GiB (b)"),
        (gpus("H200"), gpus("H200", driver="575.2"), "driver: 570.1 (a), 575.2 (b)"),
    ],
)
def test_boxes_that_are_not_alike_are_told_apart(one, other, said):
    assert unlike({"a": {"hostname": "x", **one}, "b": {"hostname": "y", **other}}) == said


# -- remembered verdicts ------------------------------------------------------------------------------------------


def remembering(world, *, machine=MACHINE, box="simulated"):
    return Remembering(world, store=world.store, box=box, machine=machine, until=Stage.SERVING)


def test_a_second_bisection_of_the_same_contents_launches_the_ends_only(tmp_path):
    world = World.at(tmp_path, broken_by("p6"))
    first = found(world, question())
    again = World(rule=broken_by("p6"), store=world.store)
    second = found(remembering(again), question())
    assert second.culprit == first.culprit
    assert again.launched == ["HEAD", "clean"]
    assert second.launches == 2
    assert finding_to_json(second)["reused"] == first.launches - 2


@pytest.mark.parametrize(
    "today", [{"packages": {"torch": "2.10.0"}}, {"interpreter": "/other/bin/python"}], ids=["packages", "interpreter"]
)
def test_what_ran_with_other_packages_does_not_count(tmp_path, today):
    """The failure came with a package: what was good before is not good now."""
    world = World.at(tmp_path, broken_by("p6"))
    found(world, question())
    again = World(rule=broken_by("p3"), store=world.store, **today)
    finding = found(remembering(again), question())
    assert finding.culprit.subject == "p3"
    assert finding_to_json(finding)["reused"] == 0


def test_nothing_is_remembered_before_a_launch_has_shown_the_packages_of_today(tmp_path):
    world = World.at(tmp_path, broken_by("p6"))
    at = point("x", queue(6))
    world.launch(at, purpose="")
    bench = remembering(world)
    assert not bench.launch(at, purpose="search").reused
    assert bench.launch(at, purpose="search").reused


def test_each_interpreter_is_known_by_its_own_last_launch(tmp_path):
    """A base that needs other wheels runs in an environment of its own."""
    world = World.at(tmp_path, broken_by("p6"))
    own, layered = point("own", queue(2)), point("layered", queue(3))
    other = {"interpreter": "/box/environments/k/bin/python", "packages": {"torch": "2.11.0"}}
    world.launch(own, purpose="")
    World(rule=world.rule, store=world.store, **other).launch(layered, purpose="")
    bench = remembering(world)
    bench.launch(point("good"), purpose="good end")
    assert not bench.launch(layered, purpose="search").reused
    bench = remembering(world)
    bench.launch(point("good"), purpose="good end")
    world.interpreter, world.packages = other["interpreter"], other["packages"]
    bench.launch(point("bad"), purpose="bad end")
    assert bench.launch(own, purpose="search").reused


def test_a_record_that_does_not_say_its_packages_is_not_remembered(tmp_path):
    world = World.at(tmp_path, broken_by("p6"), packages={})
    at = point("x", queue(6))
    world.launch(at, purpose="")
    bench = remembering(world)
    bench.launch(point("y"), purpose="good end")
    assert not bench.launch(at, purpose="search").reused


@pytest.mark.parametrize(
    "other", [{"box": "another"}, {"machine": {**MACHINE, "driver": "575.2"}}], ids=["box", "driver"]
)
def test_what_ran_elsewhere_does_not_count(tmp_path, other):
    world = World.at(tmp_path, broken_by("p6"))
    found(world, question())
    again = World(rule=broken_by("p6"), store=world.store)
    found(remembering(again, **other), question())
    assert len(again.launched) == 7


def test_what_the_journal_holds_is_not_remembered_besides(tmp_path):
    world = World.at(tmp_path, broken_by("p6"))
    trial = world.launch(point("x", queue(6)), purpose="")
    bench = Remembering(
        world,
        store=world.store,
        box="simulated",
        machine=MACHINE,
        until=Stage.SERVING,
        without={trial.record},
    )
    bench.launch(point("y"), purpose="good end")
    assert not bench.launch(point("x", queue(6)), purpose="search").reused


def test_an_old_verdict_is_one_observation(tmp_path):
    world = World.at(tmp_path, broken_by("p6"))
    at = point("x", queue(6))
    world.launch(at, purpose="")
    bench = remembering(world)
    bench.launch(point("y"), purpose="good end")
    assert bench.launch(at, purpose="search").reused
    assert not bench.launch(at, purpose="search").reused


def test_a_start_that_was_not_watched_for_long_does_not_show_that_it_serves(tmp_path):
    """It was good for a question about the KV pool; of the first request it says nothing. A failure says all."""
    world = World.at(tmp_path, broken_by("p6", failure=LATER))
    good, bad = point("x", queue(4)), point("z", queue(7))
    for at in (good, bad):
        world.launch(at, purpose="search", settle=False)
    bench = remembering(world)
    bench.launch(point("y"), purpose="good end")
    assert not bench.launch(good, purpose="search", settle=True).reused
    assert bench.launch(bad, purpose="search", settle=True).reused
    again = remembering(world)
    again.launch(point("y"), purpose="good end")
    assert again.launch(good, purpose="search", settle=True).reused


# -- the plan -----------------------------------------------------------------------------------------------------


def test_a_plan_says_what_it_will_cost_and_launches_nothing(tmp_path):
    world = World.at(tmp_path, broken_by("p6"))
    document = plan_to_json(question(), forecast(question(), store=world.store, box="simulated"))
    assert document["launches"] == {"expected": 7.0, "worst": 7, "made": 0}
    assert document["minutes"] is None
    assert document["axes"] == {"queue": 8}
    found(world, question())
    launched = len(world.launched)
    document = plan_to_json(question(), forecast(question(), store=world.store, box="simulated"))
    assert document["minutes"] == {"expected": 1.2, "worst": 1.2, "launch": 0.17, "runs": 7}
    assert len(world.launched) == launched


def test_ends_that_do_not_differ_cost_nothing(tmp_path):
    asked, world = question(0), World.at(tmp_path, broken_by(""))
    document = plan_to_json(asked, forecast(asked, store=world.store, box=""))
    assert document["launches"] == {"expected": 0.0, "worst": found(world, asked).launches, "made": 0}
    assert list(plan_lines(document, box="")) == [
        "both ends run the same code with the same settings: there is nothing to launch"
    ]


@pytest.mark.parametrize("guilty", range(1, 13))
def test_the_worst_case_of_a_plan_is_kept(tmp_path, guilty):
    asked = question(12)
    worst = forecast(asked, store=World.at(tmp_path, broken_by("")).store, box="").worst
    assert found(World.at(tmp_path, broken_by(f"p{guilty}")), asked).launches <= worst


@pytest.mark.parametrize("count", [1, 2, 3, 8])
@pytest.mark.parametrize("more", [{}, {"bad_when": Threshold.parse("kv_tokens < 3000")}], ids=["failure", "number"])
def test_no_single_culprit_takes_more_launches_than_the_plan_says(tmp_path, count, more):
    def rule(guilty):
        return lambda at: replace(
            FAILS if guilty in slugs(at) else READY, facts={"kv_tokens": 2048 if guilty in slugs(at) else 4096}
        )

    asked = question(count, **more)
    worst = forecast(asked, store=World.at(tmp_path, broken_by("")).store, box="").worst
    took = []
    for number in range(1, count + 1):
        world = World.at(tmp_path / str(number), rule(f"p{number}"))
        assert found(world, asked).culprit.subject == f"p{number}"
        took.append(len(world.launched))
    assert max(took) == worst


def test_axes_and_noise_cost_more(tmp_path):
    store = World.at(tmp_path, broken_by("p1")).store
    ends = point("clean"), point("HEAD", queue(8), flags={"a": 1, "b": 2})
    plain = forecast(question(), store=store, box="")
    assert forecast(across(*ends), store=store, box="").expected > plain.expected
    assert forecast(question(rates=Rates.unknown()), store=store, box="").expected > plain.expected


# -- what people say ----------------------------------------------------------------------------------------------


def finished(tmp_path):
    world = World.at(tmp_path, broken_by("p6"))
    journal = journal_in(tmp_path)
    finding = conduct(question(), world, journal=journal, store=world.store)
    return world, journal, finding


def test_replay_leads_to_the_same_answer_and_launches_nothing(tmp_path):
    world, journal, finding = finished(tmp_path)
    launched = len(world.launched)
    again = conduct(question(), Shut(world), journal=journal, store=world.store)
    assert again.reason == finding.reason
    assert len(world.launched) == launched


def test_replay_of_half_a_journal_says_what_is_missing(tmp_path):
    world, journal, _ = finished(tmp_path)
    take_back(journal, store=world.store)
    with pytest.raises(UsageError, match=r"the journal ends before the answer: clean with 0006-p6 alone"):
        conduct(question(), Shut(world), journal=journal, store=world.store)


def test_the_last_trial_or_a_named_one_is_taken_back(tmp_path):
    world, journal, finding = finished(tmp_path)
    first, last = (finding.steps[k].trial.record for k in (0, -1))
    assert take_back(journal, store=world.store).data["record"] == last
    assert take_back(journal, first, store=world.store).data["point"] == "HEAD"
    with pytest.raises(UsageError, match="is taken back already"):
        take_back(journal, first, store=world.store)


def test_what_was_taken_back_is_not_remembered_by_a_later_bisection(tmp_path):
    world, journal, finding = finished(tmp_path)
    (odd,) = (step.trial for step in finding.steps if step.position == 4)
    take_back(journal, odd.record, store=world.store)
    again = World(rule=broken_by("p6"), store=world.store)
    found(remembering(again), question())
    assert again.launched == ["HEAD", "clean", odd.point.name]


def test_what_drifted_is_not_remembered_by_a_later_bisection(tmp_path):
    worn = Worn.at(tmp_path, broken_by("p6"))
    journal = journal_in(tmp_path)
    finding = conduct(question(), worn, journal=journal, store=worn.store)
    assert finding.lost
    again = World(rule=broken_by("p6"), store=worn.store)
    later = found(remembering(again), question())
    assert later.culprit.subject == "p6"
    assert not {step.trial.record for step in later.steps} & set(finding.lost)


def named(journal, world, name, *, asked=None, resolve=None):
    asked = asked or question()
    return point_named(
        journal, name, question=asked, bench=Shut(world), store=world.store, resolve=resolve or unresolved
    )


def content_of(journal, world, name, **more):
    return named(journal, world, name, **more).content


def unresolved(name):
    raise UsageError(f"{name} is no point")


@pytest.mark.parametrize("said", ["clean + 4 of 8 (0004-p4)", "4"])
def test_a_point_is_marked_by_what_it_runs(tmp_path, said):
    world, journal, _ = finished(tmp_path)
    content = content_of(journal, world, said)
    assert content == world.content(point("", queue(4)))
    mark_content(journal, content, point=said, verdict="bad")
    again = World(rule=broken_by("p3"), store=World.at(tmp_path / "other", broken_by("p3")).store)
    fresh = journal_in(tmp_path / "other")
    mark_content(fresh, content, point=said, verdict="bad")
    finding = conduct(question(), again, journal=fresh, store=again.store)
    assert finding.culprit.subject == "p3"
    assert not any(name.startswith("clean + 4") for name in again.launched)


def test_a_number_is_a_position_of_the_timeline_and_no_patch(tmp_path):
    """The timeline begins after patch 2: its point 4 is patch 6, whatever was launched under what name."""
    world, journal = World.at(tmp_path, broken_by("p6")), journal_in(tmp_path)
    ends = timeline(point("2", queue(2)), point("HEAD", queue(8)), applies=lambda base, patches: True)
    asked = question(timeline=ends)
    conduct(asked, world, journal=journal, store=world.store)
    at = world.content(point("", queue(6)))
    assert content_of(journal, world, "4", asked=asked, resolve=lambda name: point("4", queue(4))) == at
    with pytest.raises(UsageError, match="no point 7"):
        content_of(journal, world, "7", asked=asked)


@pytest.mark.parametrize(
    ("said", "name"), [("0", "clean"), ("3", "clean + 3 of 8 (0003-p3)"), ("8", "HEAD (0008-p8)"), ("HEAD", "HEAD")]
)
def test_a_point_is_named_with_the_change_that_makes_it(tmp_path, said, name):
    world, journal, _ = finished(tmp_path)
    assert named(journal, world, said).name == name


def test_a_bisection_that_cannot_go_on_takes_no_mark(tmp_path):
    world, journal, _ = finished(tmp_path)
    with pytest.raises(UsageError, match="cannot go on: .*new: add 0009-p9"):
        named(journal, world, "4", asked=question(9))


def test_the_end_of_a_name_is_no_name(tmp_path):
    world, journal, _ = finished(tmp_path)
    with pytest.raises(UsageError, match="4 of 8 is no point"):
        content_of(journal, world, "4 of 8")


def test_what_the_bisection_does_not_run_cannot_be_marked(tmp_path):
    world, journal, _ = finished(tmp_path)
    assert content_of(journal, world, "main", resolve=lambda _: point("x", queue(3)))
    with pytest.raises(UsageError, match="main is no point of bisection b"):
        content_of(journal, world, "main", resolve=lambda _: point("x", queue(9)))


def test_reading_a_journal_again_joins_nothing_and_writes_nothing(tmp_path):
    world, journal, _ = finished(tmp_path)
    lines = journal.path.read_bytes().splitlines(keepends=True)
    intent = next(k for k, line in enumerate(lines) if b'"intent"' in line and k > 5)
    journal.path.write_bytes(b"".join(lines[: intent + 1]))
    world.running = {json.loads(lines[intent])["record"]}
    launched, before = len(world.launched), journal.path.read_bytes()
    with pytest.raises(UsageError, match="the journal ends before the answer"):
        conduct(question(), Shut(world), journal=Sealed(journal.path), store=world.store)
    assert len(world.launched) == launched
    assert journal.path.read_bytes() == before


def test_why_says_why_what_and_what_was_told(tmp_path):
    world, journal, finding = finished(tmp_path)
    step = next(step for step in finding.steps if step.position == 4)
    document = reasons_of([journal], step.trial.record, store=world.store)
    assert document["point"] == "clean + 4 of 8 (0004-p4)"
    assert document["purpose"] == "search"
    assert "Point 4" in document["why"]
    assert document["told"] == "good"
    assert json.dumps(document)
    with pytest.raises(UsageError, match="nothing is no trial of bisection b"):
        reasons_of([journal], "nothing", store=world.store)
    trials = len(finding.steps)
    for ask in (partial(reasons_of, [journal]), partial(take_back, journal)):
        with pytest.raises(UsageError, match=f"'2' begins {trials} trials of bisection b") as refusal:
            ask("2", store=world.store)
        assert finding.steps[0].trial.record in refusal.value.remedy
    journal.append("intent", purpose="search", point="5", content_id="five", record="running")
    for ask in (partial(reasons_of, [journal]), partial(take_back, journal)):
        with pytest.raises(UsageError, match="trial running of bisection b has not ended"):
            ask("running", store=world.store)


def test_why_finds_a_trial_of_any_bisection(tmp_path):
    world, newer, finding = finished(tmp_path)
    older = Journal.create(tmp_path / "bisections", "a")
    older.append("trial", purpose="search", point="3", content_id="three", record="of-the-older", reused=False)
    both = [newer, older]
    assert reasons_of(both, "of-the-older", store=world.store)["bisection"] == "a"
    assert reasons_of(both, finding.steps[0].trial.record, store=world.store)["bisection"] == "b"
    world.store.tag(finding.steps[0].trial.record, "broken")
    assert reasons_of(both, "broken", store=world.store)["purpose"] == "bad end"
    by_itself = world.launch(point("other"), purpose="launch").record
    with pytest.raises(UsageError, match=f"run {by_itself} is no trial of any bisection") as refusal:
        reasons_of(both, by_itself, store=world.store)
    assert refusal.value.remedy == f"invoke show {by_itself} says what it was"
    with pytest.raises(UsageError, match="nobody is no trial of any bisection"):
        reasons_of(both, "nobody", store=world.store)


# -- inside a patch -----------------------------------------------------------------------------------------------


@pytest.mark.ci
def test_going_on_inside_a_patch_launches_neither_end_again(tmp_path):
    from patchbisect.model import Base, Point
    from patchbisect.upstream import Mirror
    from tests.tiny_upstream import ENGINE, LOADER, Upstream, replaced

    upstream = Upstream(tmp_path / "up")
    one = upstream.patch(1, "one", {ENGINE: [replaced("engine_3 = 3")]})
    edits = {ENGINE: [replaced("engine_10 = 10"), replaced("engine_40 = 40")], LOADER: [replaced("loader_5 = 5")]}
    two = upstream.patch(2, "two", edits)
    base = Base(upstream.pin())
    mirror = Mirror(tmp_path / "state", source="git")

    def code(at):
        return mirror.materialize(at.base, at.patches)

    def rule(at):
        text = mirror.read(code(at).commit, ENGINE).decode()
        return broken_by()(at) if "engine_40 = 40 + 100" in text else READY

    world = World.at(tmp_path, rule, contents=lambda at: code(at).tree)
    clean, head = Point("clean", base, (), "tiny"), Point("HEAD", base, (one, two), "tiny")
    asked = question(timeline=timeline(clean, head, applies=mirror.applies))
    finding = conduct(asked, world, journal=journal_in(tmp_path), store=world.store, depth="hunk")
    assert finding.culprit.subject == "two"
    assert finding.inside.culprit.title == "add 0002-two-hunk-2: hunk 2 of 3, engine.py:37"
    assert "inside it, patch 0002-two-hunk-2" in finding.reason
    assert finding.launches == len(world.launched)
    assert world.launched.count("HEAD") == 2, "as the last change's own point, and never for the inside"
    outside = finding.launches - finding.inside.launches
    for budget, launched in ((outside, outside), (outside + 1, outside + 1), (40, finding.launches)):
        poor = World.at(tmp_path / f"poor-{budget}", rule, contents=lambda at: code(at).tree)
        limited = replace(asked, budget=Budget(launches=budget))
        home = tmp_path / f"home-{budget}"
        spent = conduct(limited, poor, journal=journal_in(home), store=poor.store, depth="hunk")
        assert len(poor.launched) == launched
        assert (spent.inside is None) == (budget == outside)
        assert spent.reason.endswith("not going on inside the guilty patch: the budget is spent") == (budget == outside)
    assert not slugs(clean)
