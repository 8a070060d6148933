"""From what was seen to the sets that it proves: a chain of timeline searches.

Put the toggles in an order. The shortest prefix that still fails ends with a toggle that is needed. Hold that
one on, and look for the shortest prefix of what came before it that still fails; and so on until nothing more is
needed. Then see whether it fails with that set off: if so, there is another one in the rest. Each step is a
``CulpritSearch``, so noise, SKIP, parallel asks and confidence come from there.

The chain is computed anew from all observations each time, so a step that later evidence throws into doubt opens
again by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from patchbisect.search.culprit import NONE_PRIOR, CulpritSearch
from patchbisect.search.rates import Floats, Rates
from patchbisect.search.values import Answer, Observation

Toggles = frozenset[int]
Seen = Mapping[Toggles, Counter[Observation]]

SIZES = (0.36, 0.36, 0.20, 0.05, 0.02, 0.01)
"""P(a guilty set has 1, 2, ... toggles). Beyond the last, one more is as likely as no more."""
OTHERS_PRIOR = 0.1
"""P(one more independent set), given one."""
SHARES = (2, 3, 4, 6, 8, 12, 16)
"""Among how many steps the permitted doubt is shared: the first that makes the whole chain sure enough."""


@dataclass(frozen=True, slots=True)
class Step:
    """One timeline of the chain: point k of ``search`` stands for the toggles ``points[k]``.

    In the first step change i adds ``order[i-1]``. Later, change 1 adds the toggle found last (so culprit 1 means
    that nothing more is needed) and change i adds ``order[i-2]``: ``offset`` is then 1.
    """

    search: CulpritSearch
    points: tuple[Toggles, ...]
    order: tuple[int, ...]
    offset: int


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What is known about the rates from steps that are over: verdicts without and with the guilty set."""

    without: tuple[int, int] = (0, 0)
    with_it: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class Found:
    """A guilty set, the probability that it is one and minimal, and what in it no testable point tells apart."""

    toggles: tuple[int, ...]
    confidence: float
    inseparable: tuple[int, ...]
    verdicts: Verdicts


@dataclass(frozen=True, slots=True)
class Progress:
    """The sets found, the step at which more must be known (None: nowhere), and whether no further set can be there."""

    found: tuple[Found, ...]
    step: Step | None
    complete: bool


@dataclass(frozen=True, slots=True)
class Chain:
    """The chain over all toggles, in the order of their numbers."""

    weights: Floats
    rates: Rates
    confidence: float
    seen: Seen

    def progress(self) -> Progress:
        """How far the observations carry with the wanted confidence in each set found."""
        for share in SHARES:
            progress = self._all_sets(confidence=1 - (1 - self.confidence) / share)
            if all(one.confidence >= self.confidence for one in progress.found):
                break
        return progress

    def _all_sets(self, *, confidence: float) -> Progress:
        universe = tuple(range(len(self.weights)))
        verdicts = Verdicts()
        found: tuple[Found, ...] = ()
        while True:
            result = self._one_set(universe=universe, verdicts=verdicts, confidence=confidence)
            if isinstance(result, Step):
                return Progress(found, result, complete=False)
            found += (result,)
            rest = tuple(t for t in universe if t not in result.toggles)
            if not rest:
                return Progress(found, None, complete=True)
            others = self._others(universe=universe, rest=rest, verdicts=result.verdicts)
            conclusion = others.search.answer()
            if conclusion is None:
                return Progress(found, others, complete=False)
            if conclusion.culprit != 1:
                return Progress(found, None, complete=conclusion.culprit == 2)
            universe, verdicts = rest, _after(others.search, first=1, last=1)

    def _one_set(self, *, universe: tuple[int, ...], verdicts: Verdicts, confidence: float) -> Found | Step:
        """A guilty set within ``universe``, or the step at which more must be known."""
        held: tuple[tuple[int, ...], ...] = ()
        inseparable: tuple[int, ...] = ()
        order, floor, sure = universe, None, 1.0
        while True:
            step, conclusion = self._step(
                universe=universe, held=held, order=order, floor=floor, verdicts=verdicts, confidence=confidence
            )
            if conclusion is None or conclusion.kind == "none":
                return step
            sure *= conclusion.confidence
            first, last = conclusion.candidates[0], conclusion.candidates[-1]
            verdicts = _after(step.search, first=first, last=last)
            below = max(0, first - 1 - step.offset)
            unit = step.order[below : last - step.offset]
            if len(conclusion.candidates) > 1:
                inseparable += unit
            if unit:
                held += (unit,)
            order, floor = step.order[:below], step.points[first - 1]
            if not unit or not order:
                return Found(tuple(sorted(sum(held, ()))), sure, tuple(sorted(inseparable)), verdicts)

    def _step(
        self,
        *,
        universe: tuple[int, ...],
        held: tuple[tuple[int, ...], ...],
        order: tuple[int, ...],
        floor: Toggles | None,
        verdicts: Verdicts,
        confidence: float,
    ) -> tuple[Step, Answer | None]:
        """The next step and its answer.

        What cannot be tested in one order may be in another: a toggle that needs one after it, when they are turned
        round; two that only launch together, when what lies between them comes first.
        """
        arrangements = iter((_turned, _ends_last))
        while True:
            points = _prefixes(frozenset(sum(held, ())), order)
            if floor is not None:
                points = (floor, *points)
            offset = len(points) - 1 - len(order)
            chances = _chances(weights=self.weights, universe=universe, held=len(held), order=order)
            search = self._search(points=points, chances=chances, verdicts=verdicts, confidence=confidence)
            step, conclusion = Step(search, points, order, offset), search.answer()
            arrange = next(arrangements, None)
            if arrange is None or conclusion is None or conclusion.kind != "set":
                return step, conclusion
            low, high = max(0, conclusion.candidates[0] - 1 - offset), conclusion.candidates[-1] - offset
            order = order[:low] + arrange(order[low:high]) + order[high:]

    def _others(self, *, universe: tuple[int, ...], rest: tuple[int, ...], verdicts: Verdicts) -> Step:
        """Does it still break with the set found off? Culprit 1: yes, so another set is in ``rest``; 2: no."""
        points = (frozenset[int](), frozenset(rest), frozenset(universe))
        chances = np.array([OTHERS_PRIOR, 1 - OTHERS_PRIOR])
        search = self._search(points=points, chances=chances, verdicts=verdicts, confidence=self.confidence)
        return Step(search, points, (), 0)

    def _search(
        self, *, points: tuple[Toggles, ...], chances: Floats, verdicts: Verdicts, confidence: float
    ) -> CulpritSearch:
        """A timeline search over ``points`` that knows all that was told about them.

        After the first step the verdicts at its two ends are among ``verdicts``, so they are not counted again.
        """
        fresh = verdicts == Verdicts()
        search = CulpritSearch(
            changes=len(points) - 1,
            confidence=confidence,
            rates=self.rates,
            prior=tuple(chances),
            none_prior=NONE_PRIOR if fresh else 0.0,
        )
        search.tally(0, good=verdicts.without[0], bad=verdicts.without[1])
        search.tally(len(points) - 1, good=verdicts.with_it[0], bad=verdicts.with_it[1])
        for k, point in enumerate(points):
            seen = self.seen.get(point, Counter())
            if fresh or 0 < k < len(points) - 1:
                search.tally(k, good=seen[Observation.GOOD], bad=seen[Observation.BAD])
            search.tally(k, skip=seen[Observation.SKIP])
        return search


def _turned(block: tuple[int, ...]) -> tuple[int, ...]:
    return block[::-1]


def _ends_last(block: tuple[int, ...]) -> tuple[int, ...]:
    return (*block[1:-1], block[0], block[-1]) if len(block) > 1 else block


def _prefixes(on: Toggles, order: tuple[int, ...]) -> tuple[Toggles, ...]:
    return tuple(accumulate(order, lambda point, toggle: point | {toggle}, initial=on))


def _after(search: CulpritSearch, *, first: int, last: int) -> Verdicts:
    return Verdicts(without=search.verdicts(0, first - 1), with_it=search.verdicts(last, search.changes))


def _chances(*, weights: Floats, universe: tuple[int, ...], held: int, order: tuple[int, ...]) -> Floats:
    """P(each change of a step is its culprit): first "nothing more is needed" (later steps only), then each toggle.

    A set of r toggles has probability SIZES[r-1], shared in proportion to the product of its weights; the last of
    its toggles in the order is the one that the step finds.
    """
    whole = _symmetric(weights[list(universe)])[-1]
    partial = _symmetric(weights[list(order)])
    nothing = SIZES[held - 1] / whole[held] if 0 < held <= len(SIZES) and whole[held] > 0 else 0.0
    toggles = np.zeros(len(order))
    for size in range(held + 1, len(SIZES) + 1):
        if whole[size] > 0:
            toggles += SIZES[size - 1] / whole[size] * weights[list(order)] * partial[:-1, size - held - 1]
    if held >= len(SIZES):
        nothing, toggles = 1.0, np.full(len(order), 1.0 / len(order))
    return toggles if held == 0 else np.concatenate([[nothing], toggles])


def _symmetric(weights: Floats) -> Floats:
    """Row i, column r: the sum over all r-subsets of the first i weights of their product."""
    table = np.zeros((len(weights) + 1, len(SIZES) + 1))
    table[:, 0] = 1.0
    for i, weight in enumerate(weights):
        table[i + 1, 1:] = table[i, 1:] + weight * table[i, :-1]
    return table
