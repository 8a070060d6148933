"""A timeline as places to launch: any subset of its changes, with a name and what it runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from patchbisect.bisection.bench import Bench
from patchbisect.errors import PointUnbuildable
from patchbisect.model import Change, Point, Timeline
from patchbisect.timeline import point_with

On = frozenset[int]
"""Indexes, from 0, of the changes that are on their bad side."""


@dataclass(frozen=True, slots=True)
class Spot:
    """A point that may be launched. ``content`` is its content id; ``unbuildable`` says why it has none.

    ``position`` is k where it is point k of the timeline, None off the timeline.
    """

    on: On
    point: Point
    position: int | None
    content: str = ""
    unbuildable: str = ""


class Ground:
    """The spots of one timeline; each is built once."""

    def __init__(self, timeline: Timeline, bench: Bench) -> None:
        self.timeline = timeline
        self.bench = bench
        self._spots: dict[On, Spot] = {}

    @property
    def changes(self) -> tuple[Change, ...]:
        return self.timeline.changes

    @property
    def everything(self) -> On:
        return frozenset(range(len(self.changes)))

    def spot(self, on: Iterable[int]) -> Spot:
        """The good end with these changes made."""
        key = frozenset(on)
        if key not in self._spots:
            self._spots[key] = self._built(key)
        return self._spots[key]

    def end(self, *, bad: bool) -> Spot:
        """An end of the timeline. Raises PointUnbuildable where it cannot be built."""
        spot = self.spot(self.everything if bad else ())
        if spot.unbuildable:
            raise PointUnbuildable(f"{spot.point.name} cannot be built: {spot.unbuildable}")
        return spot

    def line(self, suspects: Sequence[int], *, held: On = frozenset()) -> tuple[Spot, ...]:
        """The points on the way when ``suspects`` are made one after the other on top of ``held``.

        A change that alters nothing that runs gives no point of its own.
        """
        stops: list[Spot] = []
        for k in range(len(suspects) + 1):
            spot = self.spot(held | frozenset(suspects[:k]))
            if spot.unbuildable or not stops or spot.content != stops[-1].content:
                stops.append(spot)
        return tuple(stops)

    def _built(self, on: On) -> Spot:
        point = point_with(self.timeline, on)
        position = len(on) if on == frozenset(range(len(on))) else None
        try:
            return Spot(on=on, point=point, position=position, content=self.bench.content(point))
        except PointUnbuildable as fault:
            return Spot(on=on, point=point, position=position, unbuildable=fault.message)
