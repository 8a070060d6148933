"""What goes into a search and what comes out of it: frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

Kind = Literal["found", "set", "none", "budget"]


class Observation(StrEnum):
    """What one launch says about one point. A void launch is no observation: ``withdraw`` it."""

    GOOD = "good"
    BAD = "bad"
    SKIP = "skip"
    """Launched, but it cannot be said which: another failure came first."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What may be spent on asks; None is "no limit". ``seconds`` are summed over parallel launches."""

    launches: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if (self.launches or 0) < 0 or (self.seconds or 0) < 0:
            raise ValueError(f"a budget is not negative: {self}")


@dataclass(frozen=True, slots=True)
class Answer:
    """How a search ended.

    ``found``: ``culprit`` is the change to blame. ``set``: for a timeline, ``candidates`` are changes that only
    untestable points separate, one of them guilty; for toggles, ``candidates`` are needed together.
    ``none``: nothing in the range is guilty. ``budget``: what was allowed is spent; ``candidates``
    (most probable first) and ``weights`` are the best that is known.
    """

    kind: Kind
    culprit: int | None
    candidates: tuple[int, ...]
    confidence: float
    """Probability that the answer is right, rates that fool a search most counted for more than they are likely; for
    ``budget``, that the culprit is among the candidates."""
    weights: tuple[float, ...] = ()
    """Probability of each candidate, in their order."""
    assumed_deterministic: bool = False
    """True: no verdict was doubted, and the confidence holds only if none was wrong."""
    sets: tuple[tuple[int, ...], ...] = ()
    """Toggles only: every independent set, the first of which is ``candidates``."""
    inseparable: tuple[int, ...] = ()
    """Toggles only: members of ``candidates`` that no testable combination tells apart."""
    complete: bool = True
    """Toggles only: False while another, independent set may exist."""
    inverted: bool = False
    """Toggles only: what breaks is switching the candidates back to their good side."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A forecast of what is still to be launched.

    ``worst`` is a true bound when verdicts are deterministic; otherwise nothing bounds a noisy search and it
    is the 95th percentile. A budget caps both. Seconds are None without costs.
    """

    expected: float
    worst: int
    expected_seconds: float | None = None
    worst_seconds: float | None = None
