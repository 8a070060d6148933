"""A timeline as places to launch: any subset of its changes, with a name and what it runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from patchbisect.bisection.bench import Reading
from patchbisect.errors import PointUnbuildable
from patchbisect.model import Axis, Change, Patch, Point, Timeline
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
    remedy: str = ""


class Ground:
    """The spots of one timeline; each is built once."""

    def __init__(self, timeline: Timeline, bench: Reading) -> None:
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
            raise PointUnbuildable(f"{spot.point.name} cannot be built: {spot.unbuildable}", remedy=spot.remedy)
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
        position = len(on) if on == frozenset(range(len(on))) else None
        point = point_with(self.timeline, on)
        try:
            point = point_with(self.timeline, on, difference=self.bench.difference)
            point, content = self._with_fitting_variants(point)
        except PointUnbuildable as fault:
            return Spot(on=on, point=point, position=position, unbuildable=fault.message, remedy=fault.remedy)
        return Spot(on=on, point=point, position=position, content=content)

    def _with_fitting_variants(self, point: Point) -> tuple[Point, str]:
        """The point and what it runs. On a base between two pins a replaced patch comes in the form that applies.

        Raises PointUnbuildable where a patch applies in neither form.
        """
        swapped: set[str] = set()
        while True:
            try:
                return point, self.bench.content(point)
            except PointUnbuildable as fault:
                other = self._other_form(point, fault.patch)
                if other is None or other.slug in swapped:
                    raise
                swapped.add(other.slug)
                point = replace(point, patches=tuple(other if p.slug == other.slug else p for p in point.patches))

    def _other_form(self, point: Point, name: str) -> Patch | None:
        """The other form of a patch that the timeline replaces; None where the base does not move, or there is none."""
        if not any(change.axis is Axis.BASE for change in self.changes):
            return None
        patch = next((patch for patch in point.patches if patch.name == name), None)
        forms = [
            form
            for change in self.changes
            if patch and change.axis is Axis.QUEUE and change.verb == "replace" and change.subject == patch.slug
            for form in (change.before, change.after)
        ]
        return next((form for form in forms if patch and form.text != patch.text), None)
