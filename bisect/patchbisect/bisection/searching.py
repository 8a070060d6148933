"""The two searches over a ground: along a line of points, and among sets of changes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from patchbisect.bisection.course import Course, paid_s
from patchbisect.bisection.driving import drive
from patchbisect.bisection.ground import Ground, On, Spot
from patchbisect.search import Answer, CulpritSearch, CulpritSet


@dataclass(frozen=True, slots=True)
class LineAnswer:
    """What a search along a line said. ``stops`` are its points, ``answer`` counts in them."""

    answer: Answer
    stops: tuple[Spot, ...]

    def changes(self, stop: int) -> On:
        """The change that makes the stop before it into that stop; those that alter nothing that runs are left out."""
        return frozenset({max(self.stops[stop].on - self.stops[stop - 1].on)})

    @property
    def candidates(self) -> tuple[On, ...]:
        return tuple(self.changes(stop) for stop in self.answer.candidates)


def search_line(
    course: Course, ground: Ground, suspects: Sequence[int], *, held: On = frozenset(), purpose: str = "search"
) -> LineAnswer:
    """Which of ``suspects``, made one after the other on top of ``held``, turned good into bad?

    What was seen before counts; a contradiction in it makes the rates unknown.
    """
    stops = ground.line(suspects, held=held)
    prior = course.weights
    search = CulpritSearch(
        changes=len(stops) - 1,
        confidence=course.question.confidence,
        rates=course.rates,
        prior=[sum(prior[i] for i in after.on - before.on) for before, after in itertools.pairwise(stops)]
        if prior
        else None,
        budget=course.budget(),
    )
    for seen in course.evidence():
        for index, stop in enumerate(stops):
            if stop.on == seen.spot.on or (stop.content and stop.content == seen.spot.content):
                search.tell(index, seen.observation)
                break

    def told_from_journal() -> bool:
        found = [(index, seen) for index, stop in enumerate(stops) for seen in course.looked_up(stop, purpose=purpose)]
        for index, seen in found:
            search.tell(index, seen.observation, seconds=paid_s(seen))
        return bool(found)

    drive(
        course,
        search,
        place=lambda index: stops[index],
        changes=len(stops) - 1,
        purpose=purpose,
        instead=told_from_journal,
        sure=lambda: float(search.posterior().max()),
        before=lambda: search.reprice(course.costs(stops)),
    )
    course.rates = search.rates
    answer = search.answer()
    assert answer is not None, "a search that asks for nothing has its answer"
    return LineAnswer(answer=answer, stops=stops)


@dataclass(frozen=True, slots=True)
class SetAnswer:
    """What a search among sets said: ``sets`` break by themselves, each needs all of its changes.

    Of the first that holds without ``open``: whether those are needed, no point that can be tested tells.
    """

    answer: Answer
    sets: tuple[On, ...]
    open: On = frozenset()


def search_sets(
    course: Course,
    ground: Ground,
    toggles: Sequence[On],
    *,
    held: On = frozenset(),
    purpose: str = "search",
) -> SetAnswer:
    """Which smallest set of ``toggles`` (each one or more changes) breaks on top of ``held``, and which others do?"""
    suspicion = course.weights
    search = CulpritSet(
        toggles=len(toggles),
        confidence=course.question.confidence,
        rates=course.rates,
        prior=[sum(suspicion[i] for i in toggle) for toggle in toggles] if suspicion else None,
        budget=course.budget(),
    )

    def place(on: Iterable[int]) -> Spot:
        return ground.spot(held.union(*(toggles[i] for i in on)))

    for seen in course.evidence():
        on = frozenset(i for i, toggle in enumerate(toggles) if toggle <= seen.spot.on)
        if seen.spot.on == place(on).on or (seen.spot.content and seen.spot.content == place(on).content):
            search.tell(on, seen.observation)
    drive(course, search, place=place, changes=len(toggles), purpose=purpose)
    course.rates = search.rates
    answer = search.answer()
    assert answer is not None, "a search that asks for nothing has its answer"

    def changes(chosen: Iterable[int]) -> On:
        return frozenset[int]().union(*(toggles[i] for i in chosen))

    return SetAnswer(answer=answer, sets=tuple(changes(one) for one in answer.sets), open=changes(answer.inseparable))
