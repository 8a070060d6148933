"""How often a launch lies: the probability of BAD before the culprit is in, and after."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from patchbisect.errors import UsageError

Floats = NDArray[np.float64]


Pair = tuple[float, float]
"""P(BAD) before and after the culprit."""

LOG_ZERO = -1e6
"""Stands for log 0, so that zero times it is zero."""


@dataclass(frozen=True, slots=True)
class RateGrid:
    """A discrete prior over what the rates may be.

    ``before[j]``, ``after[j]``: P(BAD) without and with the culprit, with log weight ``log_weight[j]``;
    ``caution[j]``: how much blaming the wrong change counts if these are the rates.
    ``idle[i]``: P(BAD) at every point when nothing is guilty, with log weight ``log_idle_weight[i]``.
    ``log_table[j]``: log P of GOOD before, BAD before, GOOD after, BAD after; ``log_idle_table[i]``: of GOOD, BAD.
    ``outlook``: rows before, after, and the entropies of a launch before and after, in nats.
    """

    before: Floats
    after: Floats
    log_weight: Floats
    caution: Floats
    idle: Floats
    log_idle_weight: Floats
    log_table: Floats
    log_idle_table: Floats
    outlook: Floats

    @classmethod
    def of(
        cls, *, pairs: Mapping[Pair, float], idle: Mapping[float, float], caution: Mapping[Pair, float] | None = None
    ) -> RateGrid:
        """From (before, after) -> weight, and idle rate -> weight; the weights need not sum to one.

        ``caution`` is 1 for pairs that it does not name.
        """
        before, after = np.array(list(pairs)).T
        weight, idle_weight = np.array(list(pairs.values())), np.array(list(idle.values()))
        rate = np.array(list(idle))
        logs = [_log(1 - before), _log(before), _log(1 - after), _log(after)]
        return cls(
            before=before,
            after=after,
            log_weight=np.log(weight / weight.sum()),
            caution=np.array([(caution or {}).get(pair, 1.0) for pair in pairs]),
            idle=rate,
            log_idle_weight=np.log(idle_weight / idle_weight.sum()),
            log_table=np.stack(logs, axis=1),
            log_idle_table=np.stack([_log(1 - rate), _log(rate)], axis=1),
            outlook=np.stack([before, after, _entropy(before), _entropy(after)]),
        )


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
    return RateGrid.of(pairs={(p_before, p_after): 1.0}, idle={p_before: 0.5, p_after: 0.5})


PAIRS: dict[Pair, float] = {
    (0.002, 0.998): 12.0,
    (0.002, 0.90): 11.0,
    (0.002, 0.70): 0.35,
    (0.002, 0.50): 2.4,
    (0.002, 0.30): 0.12,
    (0.05, 0.95): 3.6,
    (0.10, 0.90): 7.5,
    (0.20, 0.80): 1.8,
    (0.30, 0.70): 0.2,
    (0.05, 0.998): 0.3,
    (0.20, 0.998): 0.2,
}
"""Rates -> how common they are, when nothing is known: most boxes are clean or nearly so. Fitted to simulated worlds
(docs/search.md); steps below 0.28 are taken for no culprit at all, since telling them apart costs hundreds of
launches."""
CAUTION: dict[Pair, float] = {
    (0.002, 0.90): 0.7,
    (0.002, 0.70): 3.3,
    (0.002, 0.50): 9.6,
    (0.002, 0.30): 3.3,
    (0.05, 0.95): 0.7,
    (0.10, 0.90): 0.5,
    (0.20, 0.80): 1.0,
    (0.30, 0.70): 1.0,
    (0.05, 0.998): 0.7,
    (0.20, 0.998): 1.0,
}
"""Rates -> how much a wrong answer counts there, beside one on a clean box. A culprit that fails every other time is
rare and fools a search most: it often looks innocent, and whatever comes after it guilty. Fitted with PAIRS, so that
at most one answer in ten is wrong in every row of the table, with a margin for the luck of 400 worlds, and over the mix
one in twenty."""
IDLE = {0.02: 0.2, 0.05: 0.2, 0.10: 0.2, 0.20: 0.15, 0.35: 0.1, 0.5: 0.05, 0.7: 0.05, 0.95: 0.05}
"""P(BAD) -> weight when nothing in the range is guilty."""


@lru_cache(maxsize=1)
def _unknown_grid() -> RateGrid:
    return RateGrid.of(pairs=PAIRS, idle=IDLE, caution=CAUTION)


def _log(values: Floats) -> Floats:
    return np.where(values > 0, np.log(np.maximum(values, 1e-300)), LOG_ZERO)


def _entropy(p: Floats) -> Floats:
    inside = np.clip(p, 1e-300, 1.0)
    outside = np.clip(1 - p, 1e-300, 1.0)
    return -p * np.log(inside) - (1 - p) * np.log(outside)
