"""One culprit on a timeline: ask and tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from patchbisect.search.belief import Belief, believe
from patchbisect.search.choice import choose, information
from patchbisect.search.conclusion import leading_block, likeliest, unconfirmed
from patchbisect.search.evidence import Counts, Evidence
from patchbisect.search.explain import Moment, explained
from patchbisect.search.plan import BUSY, EXACT, RUNS, forecast
from patchbisect.search.rates import Floats, Rates
from patchbisect.search.spending import Spending
from patchbisect.search.testability import LEAST_CHANCE, chance_of_verdict
from patchbisect.search.values import Answer, Budget, Kind, Observation, Plan

NONE_PRIOR = 0.05
"""P(nothing in the range is guilty) before any launch."""
PRIOR_FLOOR = 1e-3
"""Share of the prior spread evenly, so that no heuristic can rule a change out for good."""


@dataclass(frozen=True, slots=True)
class Known:
    """All that follows from the evidence.

    ``closed`` are the points out of reach; ``worth`` is the information at each point times its ``value``.
    """

    belief: Belief
    closed: frozenset[int]
    answer: Answer | None
    value: Floats
    worth: Floats


class CulpritSearch:
    """Finds the change that turns GOOD into BAD on a timeline of ``changes`` changes.

    Points are 0..changes; change i turns point i-1 into point i. ``ask`` names points to launch, ``tell`` takes
    what a launch said (in any order, asked for or not), ``withdraw`` takes back an ask whose launch was void.
    ``prior`` weighs each change (index 0 is change 1); ``costs`` are seconds for each point 0..changes;
    ``none_prior`` is the probability, before any launch, that nothing in the range is guilty.

    Raises ValueError for sizes that do not fit, a confidence outside [0.5, 1) or a point off the timeline.
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
        none_prior: float = NONE_PRIOR,
    ) -> None:
        if changes < 1:
            raise ValueError(f"a search needs at least one change, not {changes}")
        if not 0.5 <= confidence < 1:
            raise ValueError(f"confidence must be in [0.5, 1), not {confidence}")
        self.changes = changes
        self.confidence = confidence
        self._rates = rates or Rates.unknown()
        self._none_prior = none_prior
        self._prior = _shares(prior, changes=changes) * (1 - none_prior)
        self._costs = None if costs is None else _seconds(costs, points=changes + 1)
        self._spending: Spending[int] = Spending(budget)
        self._evidence = Evidence()
        self._asked: Moment | None = None
        self._known: Known | None = None

    def ask(self, parallel: int = 1) -> list[int]:
        """The points to launch next, together. Asks that are still out are taken into account.

        Empty when the answer is there, or when the budget allows no more than what is out already. The same
        point may come twice: two launches of it can tell more than launches of two points.
        """
        affordable = self._spending.affordable
        count = parallel if affordable is None else min(parallel, affordable)
        if count < 1 or self.answer() is not None:
            return []
        known = self._know()
        points = choose(
            belief=known.belief,
            worth=known.worth,
            value=known.value,
            pending=list(self._spending.pending.elements()),
            count=count,
            hypothetical=lambda verdicts: self._believe(self._evidence.supposing(verdicts)),
        )
        self._spending.ask(points)
        if points:
            self._asked = Moment(tuple(points), known.belief, self._evidence.copy(), known.closed, self.confidence)
        return points

    def tell(self, k: int, observation: Observation, *, seconds: float | None = None) -> None:
        """What a launch of point ``k`` said, and the seconds it took (by default its cost)."""
        self._check(k)
        self._spending.settle(k, seconds=self.cost(k) if seconds is None else seconds, launched=True)
        said = Observation(observation)
        self.tally(k, good=said is Observation.GOOD, bad=said is Observation.BAD, skip=said is Observation.SKIP)

    def withdraw(self, k: int, *, seconds: float = 0.0) -> None:
        """The launch of ``k`` was void: as if it had not been asked, but for the ``seconds`` it took."""
        self._check(k)
        self._spending.settle(k, seconds=seconds, launched=False)
        self._known = None

    def answer(self) -> Answer | None:
        """The answer, or None while the search is open. A later observation may open it again."""
        return self._know().answer

    @property
    def rates(self) -> Rates:
        """What is assumed about noise now: after a contradiction ``deterministic()`` is ``unknown()``."""
        self._know()
        return self._rates

    @property
    def belief(self) -> Belief:
        return self._know().belief

    @property
    def launches(self) -> int:
        """Asks that came back with an observation."""
        return self._spending.launches

    def posterior(self) -> Floats:
        """P(guilty) of each change; index 0 is change 1. What is missing to 1 is P(nothing is guilty)."""
        return self.belief.change.copy()

    def candidates(self) -> tuple[int, ...]:
        """The fewest changes that, if any is guilty, hold the culprit with the wanted confidence; likeliest first."""
        return likeliest(self.belief, confidence=self.confidence)

    def plan(self) -> Plan:
        """How many launches, and seconds where there are costs, are still to come."""
        exact = self.rates.kind == "deterministic" and self.changes <= EXACT
        return forecast(self, exact=exact, runs=max(8, min(RUNS, BUSY // self.changes)))

    def explain(self) -> str:
        """Why the last ask named its points, and what was known then, in plain sentences."""
        return explained(self._asked) if self._asked else "Nothing was asked yet."

    def tally(self, k: int, *, good: int = 0, bad: int = 0, skip: int = 0) -> None:
        """Observations that this search did not ask for, several at once; nothing is spent."""
        self._check(k)
        self._evidence.add(k, good=good, bad=bad, skip=skip)
        self._known = None

    def expect(self, k: int) -> None:
        """A launch of ``k`` is out that this search did not ask for."""
        self._check(k)
        self._spending.ask([k])

    def verdicts(self, first: int, last: int) -> tuple[int, int]:
        """How often the points ``first``..``last`` were GOOD, and how often BAD."""
        return self._evidence.total(first, last)

    def fork(self) -> CulpritSearch:
        """A search that knows the same and goes its own way, with nothing out."""
        twin = CulpritSearch.__new__(CulpritSearch)
        twin.__dict__.update(self.__dict__)
        twin._evidence = self._evidence.copy()
        twin._spending = self._spending.fork()
        return twin

    def p_bad(self, k: int) -> float:
        """P(BAD) of the next launch at ``k``."""
        return self.belief.p_bad(k)

    def cost(self, k: int) -> float:
        """Seconds that a launch of ``k`` is expected to take; 0 when no costs were given."""
        return 0.0 if self._costs is None else float(self._costs[k])

    def reprice(self, costs: Sequence[float] | None) -> None:
        """Other seconds for each point 0..changes: what makes a launch dear may be done by now."""
        self._costs = None if costs is None else _seconds(costs, points=self.changes + 1)
        self._known = None

    def _know(self) -> Known:
        if self._known is None:
            belief = self._believe(self._evidence.counts)
            if belief.impossible and self._rates.kind != "unknown":
                self._rates = Rates.unknown()
                belief = self._believe(self._evidence.counts)
            chance = self._chance()
            closed = frozenset(np.flatnonzero(chance < LEAST_CHANCE).tolist())
            answer = self._conclude(belief, closed)
            value = worth = np.zeros(self.changes + 1)
            if answer is None:
                value = self._value(belief, closed, chance)
                worth = value * information(belief)
                if not worth.any():
                    answer = self._give_up(belief, closed)
            self._known = Known(belief, closed, answer, value, worth)
        return self._known

    def _believe(self, counts: Counts) -> Belief:
        return believe(prior=self._prior, none_prior=self._none_prior, grid=self._rates.grid(), counts=counts)

    def _conclude(self, belief: Belief, closed: frozenset[int]) -> Answer | None:
        if belief.idle >= self.confidence:
            return self._answer(belief, kind="none", candidates=(), confidence=belief.idle)
        block = leading_block(belief, closed)
        if block.doubt <= 1 - self.confidence and not unconfirmed(block, self._evidence, closed):
            kind: Kind = "found" if block.first == block.last else "set"
            return self._answer(belief, kind=kind, candidates=block.changes, confidence=1 - block.doubt)
        return self._out_of_budget(belief) if self._spending.spent else None

    def _give_up(self, belief: Belief, closed: frozenset[int]) -> Answer:
        """No launch can tell more: only untestable points are left, or none that the budget still pays."""
        if self._costs is not None and self._spending.seconds_left < self._costs.max():
            return self._out_of_budget(belief)
        block = leading_block(belief, closed)
        return self._answer(belief, kind="set", candidates=block.changes, confidence=max(0.0, 1 - block.doubt))

    def _out_of_budget(self, belief: Belief) -> Answer:
        candidates = likeliest(belief, confidence=self.confidence)
        mass = float(belief.change[np.array(candidates) - 1].sum())
        return self._answer(belief, kind="budget", candidates=candidates, confidence=mass)

    def _answer(self, belief: Belief, *, kind: Kind, candidates: tuple[int, ...], confidence: float) -> Answer:
        return Answer(
            kind=kind,
            culprit=candidates[0] if kind == "found" else None,
            candidates=candidates,
            confidence=min(1.0, confidence),
            weights=tuple(float(belief.change[c - 1]) for c in candidates),
            assumed_deterministic=self._rates.kind == "deterministic",
        )

    def _chance(self) -> Floats:
        """P(a launch gives a verdict) at each point."""
        seen = dict.fromkeys(self._evidence.counts, True) | dict.fromkeys(self._evidence.closed(), False)
        return chance_of_verdict(points=self.changes + 1, seen=seen)

    def _value(self, belief: Belief, closed: frozenset[int], chance: Floats) -> Floats:
        """What information is worth at each point: the chance of a verdict there, per second where there are costs.

        Once a block is sure enough, only its unconfirmed sides are worth a launch.
        """
        value = np.where(chance < LEAST_CHANCE, 0.0, chance)
        if self._costs is not None:
            value = np.where(self._costs <= self._spending.seconds_left, value / self._costs, 0.0)
        block = leading_block(belief, closed)
        if block.doubt <= 1 - self.confidence:
            sides = list(unconfirmed(block, self._evidence, closed))
            only = np.zeros_like(value)
            only[sides] = value[sides]
            value = only
        return value

    def _check(self, k: int) -> None:
        if not 0 <= k <= self.changes:
            raise ValueError(f"point {k} is not in 0..{self.changes}")


def _shares(prior: Sequence[float] | None, *, changes: int) -> Floats:
    if prior is None:
        return np.full(changes, 1.0 / changes)
    weights = np.asarray(prior, dtype=np.float64)
    if weights.shape != (changes,) or not np.all(np.isfinite(weights)) or weights.min() < 0 or weights.sum() <= 0:
        raise ValueError(f"a prior is {changes} weights, none negative and not all zero")
    shares: Floats = (1 - PRIOR_FLOOR) * weights / weights.sum() + PRIOR_FLOOR / changes
    return shares


def _seconds(costs: Sequence[float], *, points: int) -> Floats:
    seconds = np.asarray(costs, dtype=np.float64)
    if seconds.shape != (points,) or not np.all(np.isfinite(seconds)) or seconds.min() <= 0:
        raise ValueError(f"costs are {points} positive numbers of seconds, one for each point 0..{points - 1}")
    return seconds
