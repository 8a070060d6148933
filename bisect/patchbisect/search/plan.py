"""How much is still to be launched: the search plays on against its own belief.

Each verdict comes with the probability that the search gives it, so what is forecast is what the search itself
expects: nothing is assumed a second time.
"""

from __future__ import annotations

from typing import Any, Protocol, Self

import numpy as np

from patchbisect.search.rates import Rates
from patchbisect.search.values import Answer, Observation, Plan

RUNS = 32
BUSY = 100_000
"""Runs times changes that a forecast may look at; fewer runs on a long timeline, and never fewer than eight."""
LONGEST = 400
"""Launches after which a run is cut off. Arbitrary; far beyond what anybody pays."""
EXACT = 2048
"""Timelines of up to this many changes are planned exactly while verdicts are taken not to lie."""
CERTAIN = 1e-12
PERCENTILE = 95


class Player(Protocol):
    """What a forecast needs of a search, whatever its points are."""

    @property
    def rates(self) -> Rates: ...

    def fork(self) -> Self: ...

    def ask(self, parallel: int = 1) -> list[Any]: ...

    def tell(self, k: Any, observation: Observation, /) -> None: ...

    def answer(self) -> Answer | None: ...

    def p_bad(self, k: Any) -> float: ...

    def cost(self, k: Any) -> float: ...


def forecast(search: Player, *, exact: bool = False, runs: int = RUNS, seed: int = 0) -> Plan:
    """Expected and worst number of launches from here. ``exact`` walks every course that a search can take."""
    if exact:
        outcomes = _every_course(search)
    else:
        rng = np.random.default_rng(seed)
        outcomes = [(1 / runs, *_one_course(search.fork(), rng)) for _ in range(runs)]
    weights, launches, seconds = (np.array(column, dtype=np.float64) for column in zip(*outcomes, strict=True))
    worst = launches.max() if exact else np.percentile(launches, PERCENTILE, method="higher")
    priced = bool(seconds.any())
    return Plan(
        expected=float(weights @ launches),
        worst=int(worst),
        expected_seconds=float(weights @ seconds) if priced else None,
        worst_seconds=float(seconds.max() if exact else np.percentile(seconds, PERCENTILE)) if priced else None,
    )


def _one_course(search: Player, rng: np.random.Generator) -> tuple[int, float]:
    launches, seconds = 0, 0.0
    while launches < LONGEST and (asked := search.ask()):
        (point,) = asked
        bad = rng.random() < search.p_bad(point)
        search.tell(point, Observation.BAD if bad else Observation.GOOD)
        launches += 1
        seconds += search.cost(point)
    return launches, seconds


def _every_course(search: Player) -> list[tuple[float, int, float]]:
    """(probability, launches, seconds) of each course that is possible."""
    ends: list[tuple[float, int, float]] = []
    open_courses = [(1.0, 0, 0.0, search.fork())]
    while open_courses:
        weight, launches, seconds, course = open_courses.pop()
        asked = course.ask()
        if not asked:
            ends.append((weight, launches, seconds))
            continue
        (point,) = asked
        bad = course.p_bad(point)
        for chance, said in ((bad, Observation.BAD), (1 - bad, Observation.GOOD)):
            if chance > CERTAIN:
                branch = course.fork()
                branch.tell(point, said)
                open_courses.append((weight * chance, launches + 1, seconds + course.cost(point), branch))
    return ends
