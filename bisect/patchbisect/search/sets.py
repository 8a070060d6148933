"""Sets of culprits among toggles without order: a chain of timeline searches.

Put the toggles in an order. The shortest prefix that still fails ends with a toggle that is needed. Hold that
one on, and look for the shortest prefix of what came before it that still fails; and so on until nothing more is
needed. Each step is a ``CulpritSearch``, so noise, SKIP, parallel asks and confidence come from there.

The chain is computed anew from all observations each time, so a step that later evidence throws into
doubt opens again by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from patchbisect.search.culprit import IDLE_PRIOR, CulpritSearch
from patchbisect.search.rates import Floats, Rates
from patchbisect.search.values import Answer, Budget, Observation

Toggles = frozenset[int]

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


class CulpritSet:
    """Finds a smallest set of toggles that breaks together, then the sets independent of it.

    Toggles are 0..toggles-1, a point is the frozenset of those on their bad side; the verbs are those of
    ``CulpritSearch``. ``answer()`` is there as soon as the first set is; ``ask()`` goes on for further sets,
    disjoint from it, until ``answer().complete``. When all-off fails and all-on works, the search inverts
    itself and finds what breaks when switched *off*. ``prior`` weighs each toggle.
    """

    def __init__(
        self,
        *,
        toggles: int,
        confidence: float = 0.95,
        rates: Rates | None = None,
        prior: Sequence[float] | None = None,
        budget: Budget | None = None,
    ) -> None:
        if toggles < 1:
            raise ValueError(f"a set search needs at least one toggle, not {toggles}")
        self.toggles = toggles
        self.confidence = confidence
        self.rates = rates or Rates.unknown()
        self.budget = budget or Budget()
        self.launches = 0
        self.seconds = 0.0
        self._weights = _weights(prior, toggles=toggles)
        self._seen: dict[Toggles, Counter[Observation]] = {}
        self._pending: Counter[Toggles] = Counter()
        self._state: tuple[Answer | None, Step | None] | None = None

    # -- the four verbs ---------------------------------------------------------------------------------------

    def ask(self, parallel: int = 1) -> list[Toggles]:
        """The toggle sets to launch next, together; empty when all is known or the budget is spent."""
        count = min(parallel, self._launches_left())
        _, step = self._solve()
        if step is None or count <= 0 or self._out_of_time():
            return []
        for k, point in enumerate(step.points):
            for _ in range(self._pending[self._facing(point)]):
                step.search.expect(k)
        asked = [self._facing(step.points[k]) for k in step.search.ask(parallel=count)]
        self._pending.update(asked)
        self._state = None
        return asked

    def tell(self, toggles: Toggles, observation: Observation, *, seconds: float | None = None) -> None:
        """What a launch with exactly ``toggles`` on said."""
        point = self._checked(toggles)
        self._settle(point, seconds=seconds, launched=True)
        self._seen.setdefault(point, Counter())[Observation(observation)] += 1
        self._state = None

    def withdraw(self, toggles: Toggles, *, seconds: float | None = None) -> None:
        """The launch said nothing about the code: forget that it was asked."""
        self._settle(self._checked(toggles), seconds=seconds, launched=False)
        self._state = None

    def answer(self) -> Answer | None:
        """The answer, or None while not even one set is known."""
        answer, step = self._solve()
        if answer is not None:
            return answer
        if step is not None and self._launches_left() > 0 and not self._out_of_time():
            return None
        return self._best_guess()

    @property
    def inverted(self) -> bool:
        """All-off fails and all-on works: what breaks is switching something off."""
        off, on = self._tally(frozenset()), self._tally(frozenset(range(self.toggles)))
        return off[1] > off[0] and on[0] > on[1]

    # -- the chain --------------------------------------------------------------------------------------------

    def _solve(self) -> tuple[Answer | None, Step | None]:
        """The answer so far, and the step that is open (None: nothing is)."""
        if self._state is None:
            self._state = self._chain()
        return self._state

    def _chain(self) -> tuple[Answer | None, Step | None]:
        self._doubt_contradictions()
        for share in SHARES:
            found, step, complete = self._all_sets(confidence=1 - (1 - self.confidence) / share)
            if not found:
                conclusion = step.search.answer() if step else None
                return conclusion, None if conclusion else step
            if all(one.confidence >= self.confidence for one in found):
                break
        return self._found(found, complete=complete), step

    def _all_sets(self, *, confidence: float) -> tuple[list[Found], Step | None, bool]:
        """The sets found, the step that is open, and whether no further set is left to find."""
        universe = tuple(range(self.toggles))
        verdicts = Verdicts()
        found: list[Found] = []
        while True:
            result = self._one_set(universe=universe, verdicts=verdicts, confidence=confidence)
            if isinstance(result, Step):
                return found, result, False
            found.append(result)
            rest = tuple(t for t in universe if t not in result.toggles)
            if not rest:
                return found, None, True
            others = self._others(universe=universe, rest=rest, verdicts=result.verdicts)
            conclusion = others.search.answer()
            if conclusion is None:
                return found, others, False
            if conclusion.culprit != 1:
                return found, None, conclusion.culprit == 2
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
        """The next step and its answer. A band that cannot be tested in one order is tried in the reverse order."""
        for turn in range(2):
            points = _prefixes(frozenset(sum(held, ())), order)
            if floor is not None:
                points = (floor, *points)
            offset = len(points) - 1 - len(order)
            chances = _chances(weights=self._weights, universe=universe, held=len(held), order=order)
            search = self._search(points=points, chances=chances, verdicts=verdicts, confidence=confidence)
            step, conclusion = Step(search, points, order, offset), search.answer()
            if turn == 1 or conclusion is None or conclusion.kind != "set":
                break
            low, high = max(0, conclusion.candidates[0] - 1 - offset), conclusion.candidates[-1] - offset
            order = order[:low] + order[low:high][::-1] + order[high:]
        return step, conclusion

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
            none_prior=IDLE_PRIOR if fresh else 0.0,
        )
        search.tally(0, good=verdicts.without[0], bad=verdicts.without[1])
        search.tally(len(points) - 1, good=verdicts.with_it[0], bad=verdicts.with_it[1])
        for k, point in enumerate(points):
            seen = self._seen.get(self._facing(point), Counter())
            if fresh or 0 < k < len(points) - 1:
                search.tally(k, good=seen[Observation.GOOD], bad=seen[Observation.BAD])
            for _ in range(seen[Observation.SKIP]):
                search.tell(k, Observation.SKIP)
        return search

    # -- answers ----------------------------------------------------------------------------------------------

    def _found(self, found: list[Found], *, complete: bool) -> Answer:
        first = found[0]
        return Answer(
            kind="found" if len(first.toggles) == 1 else "set",
            culprit=first.toggles[0] if len(first.toggles) == 1 else None,
            candidates=first.toggles,
            confidence=first.confidence,
            assumed_deterministic=self.rates.kind == "deterministic",
            sets=tuple(one.toggles for one in found),
            inseparable=first.inseparable,
            inverted=self.inverted,
            complete=complete,
        )

    def _best_guess(self) -> Answer:
        """What is most probable when the budget is spent: the toggles that the open step may still add."""
        _, step = self._solve()
        assert step is not None, "a chain without an open step has an answer"
        held = step.points[1] if step.offset else frozenset[int]()
        likely = [step.order[c - 1 - step.offset] for c in step.search.candidates() if c > step.offset]
        return Answer(
            kind="budget",
            culprit=None,
            candidates=(*sorted(held), *likely),
            confidence=float(1 - step.search.belief.idle),
            assumed_deterministic=self.rates.kind == "deterministic",
            inverted=self.inverted,
        )

    # -- bookkeeping ------------------------------------------------------------------------------------------

    def _facing(self, point: Toggles) -> Toggles:
        """Between the caller's toggles and the chain's, which are the complement when inverted. Its own inverse."""
        return frozenset(range(self.toggles)) - point if self.inverted else point

    def _tally(self, toggles: Toggles) -> tuple[int, int]:
        seen = self._seen.get(toggles, Counter())
        return seen[Observation.GOOD], seen[Observation.BAD]

    def _doubt_contradictions(self) -> None:
        """A set that fails within one that works (or the same one both ways) ends the belief that no verdict lies."""
        if self.rates.kind != "deterministic":
            return
        good = [self._facing(t) for t, seen in self._seen.items() if seen[Observation.GOOD]]
        bad = [self._facing(t) for t, seen in self._seen.items() if seen[Observation.BAD]]
        if any(failing <= working for failing in bad for working in good):
            self.rates = Rates.unknown()

    def _launches_left(self) -> int:
        if self.budget.launches is None:
            return 1 << 30
        return self.budget.launches - self.launches - self._pending.total()

    def _out_of_time(self) -> bool:
        return self.budget.seconds is not None and self.seconds >= self.budget.seconds

    def _settle(self, point: Toggles, *, seconds: float | None, launched: bool) -> None:
        if self._pending[point] > 0:
            self._pending[point] -= 1
            self.launches += launched
            self.seconds += seconds or 0.0

    def _checked(self, toggles: Toggles) -> Toggles:
        point = frozenset(toggles)
        if not point <= frozenset(range(self.toggles)):
            raise ValueError(f"toggles are 0..{self.toggles - 1}, not {sorted(point)}")
        return point


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


def _weights(prior: Sequence[float] | None, *, toggles: int) -> Floats:
    if prior is None:
        return np.ones(toggles)
    weights = np.asarray(prior, dtype=np.float64)
    if weights.shape != (toggles,) or not np.all(np.isfinite(weights)) or weights.min() <= 0:
        raise ValueError(f"a prior is {toggles} positive weights")
    return weights / weights.mean()
