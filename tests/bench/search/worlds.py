"""Simulated worlds: where the culprit is, how often a launch lies, what cannot be tested."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np

from patchbisect.search import Answer, CulpritSearch, CulpritSet, Observation, Rates

GIVE_UP = 1000
"""Launches after which a run counts as without an answer."""

Rng = np.random.Generator
Launch = Callable[[int], Observation]


@dataclass(frozen=True)
class World:
    """A timeline; a launch fails with ``before`` or ``after`` the culprit, ``guilty=False``: there is none."""

    changes: int
    before: float
    after: float
    guilty: bool = True
    skips: Callable[[int, int, Rng], Collection[int]] | None = None
    prior_on_culprit: float | None = None
    parallel: int = 1


@dataclass(frozen=True)
class Run:
    """How one search in one world went."""

    right: bool
    launches: int
    rounds: int
    answer: Answer | None


def band(changes: int, culprit: int, rng: Rng) -> Collection[int]:
    """A fifth of the range, in one piece within the good part (all of that part where it is shorter)."""
    length = min(round(changes / 5), culprit - 1)
    start = int(rng.integers(1, culprit - length + 1)) if length > 0 else 1
    return range(start, start + length)


def scattered(changes: int, culprit: int, rng: Rng) -> Collection[int]:
    """Each point of the good part with probability a fifth."""
    return {k for k in range(1, culprit) if rng.random() < 0.2}


def draw(world: World, rng: Rng) -> tuple[int, Launch]:
    """A culprit (one past the end when nothing is guilty), and the machine that launches points."""
    culprit = int(rng.integers(1, world.changes + 1)) if world.guilty else world.changes + 1
    closed = world.skips(world.changes, culprit, rng) if world.skips else ()

    def launch(k: int) -> Observation:
        if k in closed:
            return Observation.SKIP
        return Observation.BAD if rng.random() < (world.after if k >= culprit else world.before) else Observation.GOOD

    return culprit, launch


def run(world: World, rates: Rates, rng: Rng) -> Run:
    """One search in one world, told one GOOD at 0 and one BAD at the end for free."""
    culprit, launch = draw(world, rng)
    search = CulpritSearch(changes=world.changes, rates=rates, prior=_prior(world, culprit))
    search.tell(0, Observation.GOOD)
    search.tell(world.changes, Observation.BAD)
    launches = rounds = 0
    while search.answer() is None and launches < GIVE_UP:
        asked = search.ask(parallel=world.parallel)
        rounds += 1
        for k in asked:
            search.tell(k, launch(k))
        launches += len(asked)
    answer = search.answer()
    return Run(_right(answer, culprit, guilty=world.guilty), launches, rounds, answer)


def _prior(world: World, culprit: int) -> list[float] | None:
    if world.prior_on_culprit is None:
        return None
    prior = [(1 - world.prior_on_culprit) / (world.changes - 1)] * world.changes
    prior[culprit - 1] = world.prior_on_culprit
    return prior


def _right(answer: Answer | None, culprit: int, *, guilty: bool) -> bool:
    if answer is None:
        return False
    if not guilty:
        return answer.kind == "none"
    return answer.kind in ("found", "set") and culprit in answer.candidates


def run_set(*, toggles: int, size: int, rates: Rates, rng: Rng) -> Run:
    """One search for ``size`` toggles guilty together, until they are known; all-off and all-on are told for free."""
    guilty = frozenset(int(t) for t in rng.choice(toggles, size=size, replace=False))
    search = CulpritSet(toggles=toggles, rates=rates)
    search.tell(frozenset(), Observation.GOOD)
    search.tell(frozenset(range(toggles)), Observation.BAD)
    launches = 0
    while search.answer() is None and launches < GIVE_UP:
        for on in search.ask():
            search.tell(on, Observation.BAD if guilty <= on else Observation.GOOD)
            launches += 1
    answer = search.answer()
    return Run(answer is not None and frozenset(answer.candidates) == guilty, launches, launches, answer)
