"""The same worlds for other ways to search: re-stated binary search and majority, and the real git_bayesect."""

from __future__ import annotations

from typing import Any

import numpy as np

from patchbisect.search import Observation
from tests.bench.search.worlds import Rng, Run, World, draw

CONFIDENCE = 0.95
PATIENCE = 600
"""Launches after which git_bayesect counts as without an answer."""


def binary_search(world: World, rng: Rng, *, votes: int) -> Run:
    """Halve the range by the majority of ``votes`` launches. It always accuses somebody."""
    culprit, launch = draw(world, rng)
    low, high, launches = 0, world.changes, 0
    while high - low > 1:
        middle = (low + high) // 2
        bad = sum(launch(middle) is Observation.BAD for _ in range(votes))
        launches += votes
        low, high = (low, middle) if 2 * bad > votes else (middle, high)
    return Run(high == culprit, launches, launches, None)


def bayesect(world: World, rng: Rng) -> Run:
    """git_bayesect's own ``Bisector`` with the stopping rule of its ``run``, told the same two verdicts for free.

    It counts from the newest point, so its index is n - k; "nothing guilty" is no answer that it can give.
    """
    from git_bayesect import Bisector

    culprit, launch = draw(world, rng)
    changes = world.changes
    bisector: Any = Bisector(np.array([1.0] * changes + [0.0]))
    bisector.record(0, True)
    bisector.record(changes, False)
    launches = 0
    while bisector.distribution.max() < CONFIDENCE and launches < PATIENCE:
        index = bisector.select()
        bisector.record(index, launch(changes - index) is Observation.BAD)
        launches += 1
    answered = bisector.distribution.max() >= CONFIDENCE
    return Run(answered and changes - int(bisector.distribution.argmax()) == culprit, launches, launches, None)
