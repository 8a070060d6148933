"""A bisection that is only planned, as lines for a terminal: its timeline, and what it will cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from patchbisect.report.words import counted
from patchbisect.wire import Json

_LISTED = 40
"""Changes that are listed before the middle is left out."""


def plan_lines(plan: Json, *, box: str) -> Iterator[str]:
    """``plan`` as ``bisect --plan --json`` gives it, for that box."""
    if not plan["timeline"]:
        yield "both ends run the same code with the same settings: there is nothing to launch"
        return
    yield from _timeline(plan["timeline"])
    if len(plan["axes"]) > 1:
        yield "axes: " + ", ".join(f"{axis} {count}" for axis, count in plan["axes"].items())
    launches, minutes = plan["launches"], plan["minutes"]
    yield (
        f"launches: {launches['expected']:.1f} expected, {launches['worst']} at worst for one culprit; "
        "ends and proof included"
    )
    if made := launches["made"]:
        yield f"{made} of these {'is' if made == 1 else 'are'} made already: --resume goes on from there"
    if allowed := plan["budget"]["launches"]:
        yield f"budget: {allowed} launches in all, {max(allowed - made, 0)} left"
    if seconds := plan["budget"]["seconds"]:
        yield f"budget: {seconds / 60:g} minutes in all"
    if plan["repeats"]:
        yield f"an end that is not what it should be is launched {counted(plan['repeats'], 'time')} more (--repeats)"
    if minutes:
        yield (
            f"minutes: {minutes['expected']:.1f} expected, {minutes['worst']:.1f} at worst; "
            f"{minutes['launch'] * 60:.0f} s a launch in the last {minutes['runs']} runs"
        )
    else:
        yield "minutes: no run of this profile is on record yet"
    yield from _environments(plan["environments"] or {}, box=box)


def _timeline(changes: Sequence[Json]) -> Iterator[str]:
    lines = [f"{change['position']:4d}  {change['kind']:8}  {change['title']}" for change in changes]
    if len(lines) <= _LISTED:
        yield from lines
        return
    yield from lines[: _LISTED // 2]
    yield f"   …  {len(lines) - _LISTED} more: --json lists them all"
    yield from lines[-_LISTED // 2 :]


def _environments(needs: Json, *, box: str) -> Iterator[str]:
    if needs.get("build") or needs.get("there"):
        yield (
            f"environments on {box}: {needs['build']} to build at most, about {needs['minutes']:.1f} minutes; "
            f"{needs['there']} there already"
        )
    reasons: dict[str, list[int]] = {}
    for one in needs.get("untestable", ()):
        reasons.setdefault(one["why"], []).append(one["position"])
    for why, positions in reasons.items():
        yield f"not testable on {box}: {'point' if len(positions) == 1 else 'points'} {spans(positions)}: {why}"


def spans(numbers: Sequence[int]) -> str:
    """``3, 5-9``."""
    starts = [n for n in numbers if n - 1 not in numbers]
    ends = [n for n in numbers if n + 1 not in numbers]
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))
