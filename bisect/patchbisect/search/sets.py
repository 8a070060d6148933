"""Sets of culprits among toggles without order: ask and tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from patchbisect.search.chain import Chain, Progress, Step, Toggles
from patchbisect.search.plan import forecast
from patchbisect.search.rates import Floats, Rates
from patchbisect.search.spending import Spending
from patchbisect.search.values import Answer, Budget, Observation, Plan


class CulpritSet:
    """Finds a smallest set of toggles that breaks together, then the sets independent of it.

    Toggles are 0..toggles-1, a point is the frozenset of those on their bad side; the verbs are those of
    ``CulpritSearch``. ``answer()`` is there as soon as the first set is; ``ask()`` goes on for further sets,
    disjoint from it, until ``answer().complete``. When all-off fails and all-on works, the search inverts
    itself and finds what breaks when switched *off*. ``prior`` weighs each toggle.

    Raises ValueError for sizes that do not fit, a confidence outside [0.5, 1) or a toggle that is not there.
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
        if not 0.5 <= confidence < 1:
            raise ValueError(f"confidence must be in [0.5, 1), not {confidence}")
        self.toggles = toggles
        self.confidence = confidence
        self._rates = rates or Rates.unknown()
        self._weights = _weights(prior, toggles=toggles)
        self._spending: Spending[Toggles] = Spending(budget)
        self._seen: dict[Toggles, Counter[Observation]] = {}
        self._why = "Nothing was asked yet."
        self._known: Progress | None = None

    def ask(self, parallel: int = 1) -> list[Toggles]:
        """The toggle sets to launch next, together; empty when all is known or the budget allows no more."""
        affordable = self._spending.affordable
        count = parallel if affordable is None else min(parallel, affordable)
        step = self._progress().step
        if step is None or count < 1 or self._spending.spent:
            return []
        search = step.search.fork()
        for k, point in enumerate(step.points):
            for _ in range(self._spending.pending[self._facing(point)]):
                search.expect(k)
        asked = [self._facing(step.points[k]) for k in search.ask(parallel=count)]
        self._spending.ask(asked)
        if asked:
            self._why = self._reason(step, asked)
        return asked

    def tell(self, k: Toggles, observation: Observation, *, seconds: float = 0.0) -> None:
        """What a launch with exactly the toggles ``k`` on said, and the seconds it took."""
        point = self._checked(k)
        self._spending.settle(point, seconds=seconds, launched=True)
        self._seen.setdefault(point, Counter())[Observation(observation)] += 1
        self._known = None

    def withdraw(self, k: Toggles, *, seconds: float = 0.0) -> None:
        """The launch was void: as if it had not been asked, but for the ``seconds`` it took."""
        self._spending.settle(self._checked(k), seconds=seconds, launched=False)

    def answer(self) -> Answer | None:
        """The answer, or None while not even one set is known. A later observation may open it again."""
        progress = self._progress()
        if progress.found:
            return self._found(progress)
        assert progress.step is not None, "a chain that found nothing stands at its first step"
        conclusion = progress.step.search.answer()
        if conclusion is not None:
            return conclusion
        return self._best_guess(progress.step) if self._spending.spent else None

    @property
    def rates(self) -> Rates:
        """What is assumed about noise now: after a contradiction ``deterministic()`` is ``unknown()``."""
        self._progress()
        return self._rates

    @property
    def launches(self) -> int:
        """Asks that came back with an observation."""
        return self._spending.launches

    @property
    def inverted(self) -> bool:
        """All-off fails and all-on works: what breaks is switching something off."""
        off, on = (self._seen.get(point, Counter()) for point in (frozenset[int](), frozenset(range(self.toggles))))
        good, bad = Observation.GOOD, Observation.BAD
        return off[bad] > off[good] and on[good] > on[bad]

    def candidates(self) -> tuple[int, ...]:
        """The toggles of the open step that are needed or may be, and those of the sets found."""
        progress = self._progress()
        found = {t for one in progress.found for t in one.toggles}
        return tuple(sorted(found | set(_suspects(progress.step)))) if progress.step else tuple(sorted(found))

    def plan(self) -> Plan:
        """How many launches are still to come until all sets are known."""
        return forecast(self, runs=24)

    def explain(self) -> str:
        """Why the last ask named its points, and what was known then, in plain sentences."""
        return self._why

    def fork(self) -> CulpritSet:
        """A search that knows the same and goes its own way, with nothing out."""
        twin = CulpritSet.__new__(CulpritSet)
        twin.__dict__.update(self.__dict__)
        twin._seen = {point: Counter(tally) for point, tally in self._seen.items()}
        twin._spending = self._spending.fork()
        return twin

    def p_bad(self, k: Toggles) -> float:
        """P(BAD) of the next launch at ``k``, a point that ``ask`` named."""
        step = self._progress().step
        assert step is not None, "ask names points of the open step"
        return step.search.p_bad(step.points.index(self._facing(k)))

    def cost(self, k: Toggles) -> float:
        """Seconds that a launch is expected to take: not known for toggles."""
        return 0.0

    def _progress(self) -> Progress:
        if self._known is None:
            seen = {self._facing(point): tally for point, tally in self._seen.items()}
            if self._rates.kind == "deterministic" and _contradictory(seen):
                self._rates = Rates.unknown()
            chain = Chain(weights=self._weights, rates=self._rates, confidence=self.confidence, seen=seen)
            self._known = chain.progress()
        return self._known

    def _found(self, progress: Progress) -> Answer:
        first = progress.found[0]
        alone = len(first.toggles) == 1
        return Answer(
            kind="found" if alone else "set",
            culprit=first.toggles[0] if alone else None,
            candidates=first.toggles,
            confidence=first.confidence,
            assumed_deterministic=self._rates.kind == "deterministic",
            sets=tuple(one.toggles for one in progress.found),
            inseparable=first.inseparable,
            complete=progress.complete,
            inverted=self.inverted,
        )

    def _best_guess(self, step: Step) -> Answer:
        """What is known when the budget is spent: the toggles held, and those that may be needed with them."""
        return Answer(
            kind="budget",
            culprit=None,
            candidates=_suspects(step),
            confidence=self.confidence * (1 - step.search.belief.idle),
            assumed_deterministic=self._rates.kind == "deterministic",
            complete=False,
            inverted=self.inverted,
        )

    def _reason(self, step: Step, asked: list[Toggles]) -> str:
        sizes = " and ".join(f"{len(point)}" for point in asked)
        held = sorted(step.points[1]) if step.offset else []
        needed = f"needed so far: {', '.join(map(str, held))}" if held else "none is known to be needed yet"
        if not step.order:
            return f"Is it still bad with the toggles found on their good side? {sizes} of {self.toggles} on."
        return (
            f"{sizes} of {self.toggles} toggles on; {needed}. "
            f"Parts the {len(_suspects(step)) - len(held)} that may be needed{' too' if held else ''}."
        )

    def _facing(self, point: Toggles) -> Toggles:
        """Between the caller's toggles and the chain's, which are the complement when inverted. Its own inverse."""
        return frozenset(range(self.toggles)) - point if self.inverted else point

    def _checked(self, toggles: Toggles) -> Toggles:
        point = frozenset(toggles)
        if not point <= frozenset(range(self.toggles)):
            raise ValueError(f"toggles are 0..{self.toggles - 1}, not {sorted(point)}")
        return point


def _suspects(step: Step) -> tuple[int, ...]:
    """The toggles that the step holds on, then those that it may still add, likeliest first."""
    if not step.order:
        return tuple(sorted(step.points[1]))
    held = sorted(step.points[1]) if step.offset else []
    added = [step.order[c - 1 - step.offset] for c in step.search.candidates() if c > step.offset]
    return (*held, *added)


def _contradictory(seen: dict[Toggles, Counter[Observation]]) -> bool:
    """Does a set fail that lies within one that works (or is it one and the same)?"""
    good = [point for point, tally in seen.items() if tally[Observation.GOOD]]
    bad = [point for point, tally in seen.items() if tally[Observation.BAD]]
    return any(failing <= working for failing in bad for working in good)


def _weights(prior: Sequence[float] | None, *, toggles: int) -> Floats:
    if prior is None:
        return np.ones(toggles)
    weights = np.asarray(prior, dtype=np.float64)
    if weights.shape != (toggles,) or not np.all(np.isfinite(weights)) or weights.min() <= 0:
        raise ValueError(f"a prior is {toggles} positive weights")
    relative: Floats = weights / weights.mean()
    return relative
