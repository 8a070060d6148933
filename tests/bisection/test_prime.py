"""The prime suspect of a search by short starts: what is launched, in which order, and when nothing comes of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from patchbisect.bisection import Finding
from patchbisect.bisection.finding import Question
from patchbisect.journal import Journal
from patchbisect.model import EMPTY, Point, Scalar
from patchbisect.search import Budget, Rates
from patchbisect.timeline import timeline
from tests.bisection.test_running import ALL_CONFIRMED, statuses
from tests.bisection.test_shortening import fast, short_start
from tests.bisection.test_suspicion import LOG, editing
from tests.bisection.world import DIRTY, FAILS, READY, World, broken_by, point, question, scripted, slugs

Flags = Mapping[str, Scalar]
RAISES = 'print(f"layers {effective_layer_ids}")'


def naming(suspect: int, count: int = 8, flags: Flags = EMPTY, **more: object) -> Question:
    """``clean`` .. ``HEAD`` with that many patches; the traceback of ``LOG`` shows a line of that one."""
    lines = {suspect: ("sglang/srt/model_executor/runner.py", RAISES)}
    patches = [editing(k, *lines.get(k, ("sglang/srt/other.py",))).after for k in range(1, count + 1)]
    ends = timeline(
        point("clean", flags=flags), point("HEAD", patches, flags=flags), applies=lambda base, patches: True
    )
    return question(timeline=ends, **more)


def world_at(path: Path, rule: object, **more: object) -> World:
    return World.at(path, rule, logs=lambda at: LOG, **more)  # type: ignore[arg-type]


def once_each(world: World, finding: Finding) -> bool:
    """Every launch is a step of the answer, and none is there twice."""
    records = [step.trial.record for step in finding.steps]
    return sorted(records) == sorted(set(records)) and finding.launches == len(world.launched)


def test_its_proof_comes_first_and_its_two_points_are_started_once_and_whole(tmp_path: Path) -> None:
    world = world_at(tmp_path, broken_by("p6"))
    finding = fast(world, naming(6), tmp_path)
    assert finding.culprit.subject == "p6"
    assert statuses(finding) == ALL_CONFIRMED
    assert finding.reason.endswith("confirmed by whole starts")
    assert world.launched == [
        "HEAD, warm",
        "HEAD, short, warm",
        "clean, short, warm",
        "HEAD without 0006-p6, short, warm",
        "clean with 0006-p6 alone, short, warm",
        "clean + 5 of 8 (0005-p5)",
        "clean + 6 of 8 (0006-p6)",
    ]
    assert once_each(world, finding)
    assert not any(step.trial.warm for step in finding.proof[:2])


@pytest.mark.parametrize("flags", [{"load-format": "dummy", "tp-size": 2}, {"load-format": "auto", "tp-size": 2}])
def test_its_points_are_started_once_whatever_the_flags_are(tmp_path: Path, flags: Flags) -> None:
    world = world_at(tmp_path, broken_by("p6"))
    finding = fast(world, naming(6, flags=flags), tmp_path)
    assert statuses(finding) == ALL_CONFIRMED
    assert once_each(world, finding)
    assert [name for name in world.launched if not name.endswith("warm")] == [
        "clean + 5 of 8 (0005-p5)",
        "clean + 6 of 8 (0006-p6)",
    ]


@pytest.mark.parametrize("guilty", [1, 4, 8])
@pytest.mark.parametrize("suspect", [1, 2, 7, 8])
def test_right_or_wrong_the_answer_is_the_same(tmp_path: Path, suspect: int, guilty: int) -> None:
    world = world_at(tmp_path, broken_by(f"p{guilty}"))
    finding = fast(world, naming(suspect), tmp_path)
    assert finding.culprit.subject == f"p{guilty}"
    assert statuses(finding) == ALL_CONFIRMED
    assert finding.reason.endswith("confirmed by whole starts")
    assert once_each(world, finding)
    assert [name for name in world.launched if "short" not in name and "warm" not in name] != []


def test_a_wrong_suspicion_costs_no_whole_start(tmp_path: Path) -> None:
    world = world_at(tmp_path, broken_by("p3"))
    fast(world, naming(6), tmp_path)
    whole = [name for name in world.launched if not name.endswith("warm")]
    assert sorted(whole) == ["clean + 2 of 8 (0002-p2)", "clean + 3 of 8 (0003-p3)"]


def test_whole_starts_that_refute_it_are_not_made_again(tmp_path: Path) -> None:
    def rule(at: Point) -> object:
        return FAILS if ("p6" if short_start(at) else "p3") in slugs(at) else READY

    world = world_at(tmp_path, rule)
    finding = fast(world, naming(6), tmp_path)
    assert finding.culprit.subject == "p3"
    assert once_each(world, finding)
    whole = [name for name in world.launched if not name.endswith("warm")]
    assert len(whole) == len(set(whole))


def test_a_void_in_its_proof_is_neither_good_nor_bad(tmp_path: Path) -> None:
    alone = "clean with 0006-p6 alone, short"
    world = world_at(tmp_path, scripted({alone: [DIRTY]}, broken_by("p6")))
    finding = fast(world, naming(6), tmp_path)
    assert finding.culprit.subject == "p6"
    assert statuses(finding) == ALL_CONFIRMED


def test_where_launches_may_err_the_search_is_left_alone(tmp_path: Path) -> None:
    world = world_at(tmp_path, broken_by("p6"))
    finding = fast(world, naming(6, rates=Rates.unknown()), tmp_path)
    assert finding.culprit.subject == "p6"
    assert world.launched[3] != "HEAD without 0006-p6, short, warm"


@pytest.mark.parametrize("budget", range(1, 10))
def test_a_budget_is_kept(tmp_path: Path, budget: int) -> None:
    world = world_at(tmp_path, broken_by("p6"))
    finding = fast(world, naming(6, budget=Budget(launches=budget)), tmp_path)
    assert len(world.launched) <= max(budget, 3), "one to aim and both ends are always launched"
    assert once_each(world, finding)
    assert (statuses(finding) == ALL_CONFIRMED) == (budget == 9)


def test_resumed_at_any_launch_it_goes_the_same_way(tmp_path: Path) -> None:
    whole = world_at(tmp_path / "whole", broken_by("p6"))
    finding = fast(whole, naming(6), tmp_path / "whole")
    journal = tmp_path / "whole" / "bisections" / "b" / "journal.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    for cut in range(2, len(lines)):
        cut_short = tmp_path / str(cut) / "bisections" / "b" / "journal.jsonl"
        cut_short.parent.mkdir(parents=True)
        cut_short.write_text("".join(lines[:cut]))
        world = world_at(tmp_path / str(cut), broken_by("p6"))
        world.store = whole.store
        again = fast(world, naming(6), tmp_path, journal=Journal(cut_short))
        assert again.reason == finding.reason
        assert world.launched == whole.launched[len(whole.launched) - len(world.launched) :], cut
