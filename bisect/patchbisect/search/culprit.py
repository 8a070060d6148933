"""One culprit on a timeline: ask and tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from patchbisect.search.belief import Belief, Counts, believe
from patchbisect.search.choice import choose
from patchbisect.search.rates import Floats, Rates
from patchbisect.search.testability import testability
from patchbisect.search.values import Answer, Budget, Observation

IDLE_PRIOR = 0.1
"""P(nothing in the range is guilty) before any launch."""
PRIOR_FLOOR = 1e-3
"""Share of the prior spread evenly, so that no heuristic can rule a change out for good."""


class CulpritSearch:
    """Finds the change that turns GOOD into BAD on a timeline of ``changes`` changes.

    Points are 0..changes; change i turns point i-1 into point i. ``ask`` names points to launch, ``tell`` takes
    what a launch said (in any order, asked for or not), ``withdraw`` takes back an ask whose launch was void.
    ``prior`` weighs each change (index 0 is change 1), ``costs`` are seconds for each point 0..changes.
    """

    def __init__(
        self,
        *,
        changes: int,
        confidence: float = 0.95,
        rates: Rates | None = None,
        prior: Sequence[float] | None = None,
        costs: Sequence[float] | None = None,
        budget: Budget | None = None,
        none_prior: float = IDLE_PRIOR,
    ) -> None:
        if changes < 1:
            raise ValueError(f"a search needs at least one change, not {changes}")
        if not 0.5 <= confidence < 1:
            raise ValueError(f"confidence must be in [0.5, 1), not {confidence}")
        self.changes = changes
        self.confidence = confidence
        self.rates = rates or Rates.unknown()
        self.budget = budget or Budget()
        self.launches = 0
        self.seconds = 0.0
        self._idle_prior = none_prior
        self._prior = _normalised(prior, changes=changes) * (1 - none_prior)
        self._costs = None if costs is None else _positive(costs, points=changes + 1)
        self._verdicts: dict[int, tuple[int, int]] = {}
        self._skips: Counter[int] = Counter()
        self._pending: Counter[int] = Counter()
        self._belief: Belief | None = None

    # -- the four verbs ---------------------------------------------------------------------------------------

    def ask(self, parallel: int = 1) -> list[int]:
        """The points to launch next, together; empty when the answer is there. Points still pending count as on their way."""
        if self.answer() is not None:
            return []
        count = parallel if self.budget.launches is None else min(parallel, self._launches_left())
        pending = list(self._pending.elements())
        points = choose(
            belief=self.belief,
            value=self._value(),
            pending=pending,
            count=count,
            hypothetical=self._hypothetical,
        )
        self._pending.update(points)
        return points

    def tell(self, k: int, observation: Observation, *, seconds: float | None = None) -> None:
        """What a launch of point ``k`` said. ``seconds`` it took; by default its cost."""
        self._check(k)
        self._settle(k, seconds=seconds, launched=True)
        good, bad = self._verdicts.get(k, (0, 0))
        match Observation(observation):
            case Observation.GOOD:
                self._verdicts[k] = (good + 1, bad)
            case Observation.BAD:
                self._verdicts[k] = (good, bad + 1)
            case Observation.SKIP:
                self._skips[k] += 1
        self._belief = None

    def withdraw(self, k: int, *, seconds: float | None = None) -> None:
        """The launch of ``k`` said nothing about the code: forget that it was asked."""
        self._check(k)
        self._settle(k, seconds=seconds, launched=False)

    def expect(self, k: int) -> None:
        """A launch of ``k`` is on its way that this search did not ask for."""
        self._check(k)
        self._pending[k] += 1

    def answer(self) -> Answer | None:
        """The answer, or None while the search is open."""
        return self._conclusion() or self._exhausted()

    def tally(self, k: int, *, good: int, bad: int) -> None:
        """Many verdicts at once, from launches made for another purpose: nothing is spent."""
        self._check(k)
        if good or bad:
            before = self._verdicts.get(k, (0, 0))
            self._verdicts[k] = (before[0] + good, before[1] + bad)
            self._belief = None

    def verdicts(self, first: int, last: int) -> tuple[int, int]:
        """How often the points ``first``..``last`` were GOOD, and how often BAD."""
        rows = [row for k, row in self._verdicts.items() if first <= k <= last]
        return sum(row[0] for row in rows), sum(row[1] for row in rows)

    # -- what is known ----------------------------------------------------------------------------------------

    @property
    def belief(self) -> Belief:
        if self._belief is None:
            self._belief = self._believe(self._verdicts)
            if self._belief.impossible and self.rates.kind != "unknown":
                self.rates = Rates.unknown()
                self._belief = self._believe(self._verdicts)
        return self._belief

    def posterior(self) -> Floats:
        """P(guilty) of each change; index 0 is change 1. What is missing to 1 is P(nothing is guilty)."""
        return self.belief.change.copy()

    def candidates(self) -> tuple[int, ...]:
        """The fewest changes that hold the culprit with the wanted confidence, most probable first."""
        belief = self.belief
        order = np.argsort(-belief.change, kind="stable")
        mass = np.cumsum(belief.change[order])
        wanted = self.confidence * (1 - belief.idle)
        return tuple(int(c) + 1 for c in order[: int(np.searchsorted(mass, wanted)) + 1])

    # -- inside -----------------------------------------------------------------------------------------------

    def _believe(self, counts: Counts) -> Belief:
        return believe(prior=self._prior, idle_prior=self._idle_prior, grid=self.rates.grid(), counts=counts)

    def _hypothetical(self, verdicts: Sequence[tuple[int, bool]]) -> Belief:
        counts = dict(self._verdicts)
        for point, was_bad in verdicts:
            good, bad = counts.get(point, (0, 0))
            counts[point] = (good, bad + 1) if was_bad else (good + 1, bad)
        return self._believe(counts)

    def _closed(self) -> set[int]:
        """Points that were launched and never gave a verdict."""
        return {k for k in self._skips if k not in self._verdicts}

    def _value(self) -> Floats:
        closed = self._closed()
        value = testability(
            points=self.changes + 1, seen=dict.fromkeys(self._verdicts, True) | dict.fromkeys(closed, False)
        )
        value[list(closed)] = 0.0
        if self._costs is not None:
            value = value / self._costs
        unconfirmed = self._unconfirmed()
        if unconfirmed:
            only = np.zeros_like(value)
            only[unconfirmed] = value[unconfirmed]
            value = only
        return value

    def _blocks(self) -> tuple[np.ndarray, Floats]:
        """First change of each run of changes that only closed points separate, and its probability."""
        boundary = np.ones(self.changes, dtype=bool)
        inner = [k for k in self._closed() if 0 < k < self.changes]
        boundary[inner] = False
        starts = np.flatnonzero(boundary)
        return starts + 1, np.add.reduceat(self.belief.change, starts)

    def _leading_block(self) -> tuple[int, int, float]:
        """First and last change of the likeliest block, and its probability."""
        starts, mass = self._blocks()
        best = int(np.argmax(mass))
        last = int(starts[best + 1]) - 1 if best + 1 < len(starts) else self.changes
        return int(starts[best]), last, float(mass[best])

    def _unconfirmed(self) -> list[int]:
        """Of the likeliest block, when it is sure enough, the sides never seen as they should be."""
        first, last, mass = self._leading_block()
        if mass < self.confidence:
            return []
        sides = []
        closed = self._closed()
        if first - 1 not in closed and self._verdicts.get(first - 1, (0, 0))[0] == 0:
            sides.append(first - 1)
        if last not in closed and self._verdicts.get(last, (0, 0))[1] == 0:
            sides.append(last)
        return sides

    def _conclusion(self) -> Answer | None:
        belief = self.belief
        if belief.idle >= self.confidence:
            return self._answer(kind="none", candidates=(), confidence=belief.idle)
        first, last, mass = self._leading_block()
        if mass < self.confidence or self._unconfirmed():
            return None
        return self._answer(
            kind="found" if first == last else "set", candidates=tuple(range(first, last + 1)), confidence=mass
        )

    def _exhausted(self) -> Answer | None:
        spent = self._launches_left() <= 0 or (self.budget.seconds is not None and self.seconds >= self.budget.seconds)
        if not spent:
            return None
        candidates = self.candidates()
        mass = float(self.belief.change[np.array(candidates) - 1].sum())
        return self._answer(kind="budget", candidates=candidates, confidence=mass)

    def _answer(self, *, kind, candidates: tuple[int, ...], confidence: float) -> Answer:  # type: ignore[no-untyped-def]
        return Answer(
            kind=kind,
            culprit=candidates[0] if kind == "found" else None,
            candidates=candidates,
            confidence=min(1.0, confidence),
            weights=tuple(float(self.belief.change[c - 1]) for c in candidates),
            assumed_deterministic=self.rates.kind == "deterministic",
        )

    def _launches_left(self) -> int:
        if self.budget.launches is None:
            return 1 << 30
        return self.budget.launches - self.launches - self._pending.total()

    def _settle(self, k: int, *, seconds: float | None, launched: bool) -> None:
        """Take one ask of ``k`` off the list. Only what was asked for is spent: a cached verdict is free."""
        if self._pending[k] <= 0:
            return
        self._pending[k] -= 1
        self.launches += launched
        default = 0.0 if self._costs is None else float(self._costs[k])
        self.seconds += default if seconds is None else seconds

    def _check(self, k: int) -> None:
        if not 0 <= k <= self.changes:
            raise ValueError(f"point {k} is not in 0..{self.changes}")


def _normalised(prior: Sequence[float] | None, *, changes: int) -> Floats:
    if prior is None:
        return np.full(changes, 1.0 / changes)
    weights = np.asarray(prior, dtype=np.float64)
    if weights.shape != (changes,) or not np.all(np.isfinite(weights)) or weights.min() < 0 or weights.sum() <= 0:
        raise ValueError(f"a prior is {changes} weights, none negative and not all zero")
    return (1 - PRIOR_FLOOR) * weights / weights.sum() + PRIOR_FLOOR / changes


def _positive(costs: Sequence[float], *, points: int) -> Floats:
    seconds = np.asarray(costs, dtype=np.float64)
    if seconds.shape != (points,) or not np.all(np.isfinite(seconds)) or seconds.min() <= 0:
        raise ValueError(f"costs are {points} positive numbers of seconds, one for each point 0..{points - 1}")
    return seconds
