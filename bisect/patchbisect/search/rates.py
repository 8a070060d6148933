"""How often a launch lies: the probability of BAD before the culprit is in, and after."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from patchbisect.errors import UsageError

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RateGrid:
    """A discrete prior over what the rates may be.

    ``before[j]``, ``after[j]``: P(BAD) without and with the culprit, with log weight ``log_weight[j]``.
    ``idle[i]``: P(BAD) at every point when nothing is guilty, with log weight ``log_idle_weight[i]``.
    """

    before: Floats
    after: Floats
    log_weight: Floats
    idle: Floats
    log_idle_weight: Floats


@dataclass(frozen=True, slots=True)
class Rates:
    """What is known about noise. Build it with one of the three class methods."""

    kind: Literal["unknown", "told", "deterministic"]
    p_before: float = 0.0
    p_after: float = 1.0

    @classmethod
    def unknown(cls) -> Rates:
        """Nothing is known; the search learns the rates as it goes."""
        return cls(kind="unknown")

    @classmethod
    def told(cls, p_before: float, p_after: float) -> Rates:
        """P(BAD) before and after the culprit are known, from the journal or from repeats.

        Raises UsageError unless 0 <= p_before < p_after <= 1.
        """
        if not 0.0 <= p_before < p_after <= 1.0:
            raise UsageError(
                f"rates must satisfy 0 <= before < after <= 1, these are {p_before:g} and {p_after:g}",
                remedy="Swap them if they are the wrong way round, or leave them out: the search then learns them.",
            )
        return cls(kind="told", p_before=p_before, p_after=p_after)

    @classmethod
    def deterministic(cls) -> Rates:
        """A verdict never lies. One contradiction ends that belief: the search goes on as ``unknown()``."""
        return cls(kind="deterministic")

    def grid(self) -> RateGrid:
        if self.kind == "unknown":
            return _unknown_grid()
        return _point_grid(self.p_before, self.p_after)


@lru_cache(maxsize=64)
def _point_grid(p_before: float, p_after: float) -> RateGrid:
    idle = np.array([p_before, p_after])
    return RateGrid(
        before=np.array([p_before]),
        after=np.array([p_after]),
        log_weight=np.zeros(1),
        idle=idle,
        log_idle_weight=np.log(np.full(2, 0.5)),
    )


BEFORE = {0.002: 0.40, 0.02: 0.15, 0.05: 0.15, 0.10: 0.12, 0.20: 0.10, 0.30: 0.05, 0.40: 0.03}
AFTER = {0.998: 0.40, 0.97: 0.12, 0.92: 0.12, 0.85: 0.10, 0.75: 0.08, 0.62: 0.07, 0.50: 0.06, 0.38: 0.03, 0.28: 0.02}
IDLE = {0.02: 0.2, 0.05: 0.2, 0.10: 0.2, 0.20: 0.15, 0.35: 0.1, 0.5: 0.05, 0.7: 0.05, 0.95: 0.05}
SMALLEST_STEP = 0.2
"""A culprit that moves the rate by less is taken for none: telling them apart costs hundreds of launches."""


@lru_cache(maxsize=1)
def _unknown_grid() -> RateGrid:
    pairs = [(b, a, wb * wa) for b, wb in BEFORE.items() for a, wa in AFTER.items() if a - b >= SMALLEST_STEP]
    before, after, weight = np.array(pairs).T
    idle_weight = np.array(list(IDLE.values()))
    return RateGrid(
        before=before,
        after=after,
        log_weight=np.log(weight / weight.sum()),
        idle=np.array(list(IDLE)),
        log_idle_weight=np.log(idle_weight / idle_weight.sum()),
    )
