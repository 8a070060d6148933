"""A plan as lines."""

from __future__ import annotations

from typing import Any

import pytest

from patchbisect.report.plan import plan_lines, spans


def plan(changes: int, **more: Any) -> dict[str, Any]:
    timeline = [{"position": k, "kind": "queue", "title": f"add {k:04d}-x: X"} for k in range(1, changes + 1)]
    document = {"timeline": timeline, "axes": {"queue": changes}, "launches": {"expected": 7.25, "worst": 9, "made": 0}}
    document["budget"] = {"launches": None, "seconds": None}
    return {**document, "repeats": None, "minutes": None, "environments": None, **more}


def test_a_short_timeline_is_listed_whole() -> None:
    assert list(plan_lines(plan(2), box="rig")) == [
        "   1  queue     add 0001-x: X",
        "   2  queue     add 0002-x: X",
        "launches: 7.2 expected, 9 at worst for one culprit; ends and proof included",
        "minutes: no run of this profile is on record yet",
    ]


def test_the_middle_of_a_long_timeline_is_left_out() -> None:
    lines = list(plan_lines(plan(100), box="rig"))
    assert [line[:4] for line in lines[19:22]] == ["  20", "   …", "  81"]
    assert "60 more" in lines[20]


def test_what_an_end_that_disagrees_costs_is_told() -> None:
    assert "an end that is not what it should be is launched 1 time more (--repeats)" in plan_lines(
        plan(2, repeats=1), box="rig"
    )


def test_what_is_made_already_and_what_is_allowed_are_told() -> None:
    launches = {"expected": 9.5, "worst": 12, "made": 4}
    lines = list(plan_lines(plan(2, launches=launches, budget={"launches": 5, "seconds": 90.0}), box="rig"))
    assert "4 of these are made already: --resume goes on from there" in lines
    assert lines[-3:-1] == ["budget: 5 launches in all, 1 left", "budget: 1.5 minutes in all"]


def test_several_axes_and_minutes_are_told() -> None:
    minutes = {"expected": 12.0, "worst": 30.0, "launch": 1.5, "runs": 8}
    lines = list(plan_lines(plan(1, axes={"queue": 1, "flags": 2}, minutes=minutes), box="rig"))
    assert "axes: queue 1, flags 2" in lines
    assert lines[-1] == "minutes: 12.0 expected, 30.0 at worst; 90 s a launch in the last 8 runs"


def test_what_the_box_needs_and_cannot_test_is_told_once_a_reason() -> None:
    untestable = [{"position": k, "why": "no wheel"} for k in (3, 5, 6, 7)] + [{"position": 9, "why": "no torch"}]
    needs = {"build": 2, "there": 1, "minutes": 4.0, "untestable": untestable}
    assert list(plan_lines(plan(1, environments=needs), box="rig"))[-3:] == [
        "environments on rig: 2 to build at most, about 4.0 minutes; 1 there already",
        "not testable on rig: points 3, 5-7: no wheel",
        "not testable on rig: point 9: no torch",
    ]


@pytest.mark.parametrize(("numbers", "words"), [([3], "3"), ([1, 2, 3], "1-3"), ([1, 3, 4], "1, 3-4")])
def test_numbers_as_spans(numbers: list[int], words: str) -> None:
    assert spans(numbers) == words
