"""How likely a point can be tested at all: SKIPs come in bands.

A two-state chain along the timeline (testable, untestable), mixed over band lengths and shares. What neighbours
with an observation say reaches as far as the bands that explain them best.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from patchbisect.search.rates import Floats

SHARES = (0.05, 0.2, 0.4)
"""Share of untestable points, a priori equally likely."""
LEAST_CHANCE = 0.05
"""A point less likely than this to give a verdict is out of reach: twenty launches for one verdict."""
BANDS = (0.0, 1 / 40, 1 / 10, 1 / 4)
"""Mean length of a band as a share of the timeline (never below one point), a priori equally likely."""


def chance_of_verdict(*, points: int, seen: Mapping[int, bool]) -> Floats:
    """P(a launch gives a verdict) for each of ``points`` points; ``seen[k]`` tells whether k did."""
    if all(seen.values()):
        return np.ones(points)
    where = np.array(sorted(seen))
    state = np.array([0.0 if seen[int(k)] else 1.0 for k in where])
    gaps = np.diff(where)
    every = np.arange(points)
    right = np.searchsorted(where, every)
    left = np.searchsorted(where, every, side="right") - 1

    total = np.zeros(points)
    evidence = 0.0
    for share in SHARES:
        for band in BANDS:
            leave = min(1.0, 1.0 / max(1.0, band * points))
            memory = max(0.0, 1.0 - leave / (1.0 - share))
            stay = memory**gaps
            odds = share + (state[:-1] - share) * stay
            weight = float(np.prod(np.where(state[1:] > 0, odds, 1 - odds)))
            weight *= share if state[0] else 1 - share
            from_left = _chance(
                share=share, state=state, index=left, distance=every - where[np.clip(left, 0, None)], memory=memory
            )
            from_right = _chance(
                share=share,
                state=state,
                index=np.where(right < len(where), right, -1),
                distance=where[np.minimum(right, len(where) - 1)] - every,
                memory=memory,
            )
            skip = from_left * from_right / share
            fine = (1 - from_left) * (1 - from_right) / (1 - share)
            total += weight * fine / np.maximum(skip + fine, 1e-300)
            evidence += weight
    return total / max(evidence, 1e-300)


def _chance(*, share: float, state: Floats, index: np.ndarray, distance: np.ndarray, memory: float) -> Floats:
    """P(untestable) at each point, told by its neighbour ``index`` (-1: none) at ``distance``."""
    known = share + (state[index] - share) * memory ** np.abs(distance)
    return np.where(index >= 0, known, share)
