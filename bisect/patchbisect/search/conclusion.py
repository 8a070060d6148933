"""When a search may stop, and whom it then blames."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from patchbisect.search.belief import Belief
from patchbisect.search.evidence import Evidence


@dataclass(frozen=True, slots=True)
class Block:
    """Changes ``first``..``last`` that only points out of reach separate; P(one of them is guilty).

    ``doubt``: P(none of them is), where rates that ask for caution count for more. About 1 - probability when the
    rates are known.
    """

    first: int
    last: int
    probability: float
    doubt: float

    @property
    def changes(self) -> tuple[int, ...]:
        return tuple(range(self.first, self.last + 1))


def leading_block(belief: Belief, closed: frozenset[int]) -> Block:
    """The likeliest block, ``closed`` being the points out of reach; without any, every block is one change."""
    changes = len(belief.change)
    starts = np.arange(1, changes + 1)
    mass = belief.change
    inner = [k for k in closed if 0 < k < changes]
    if inner:
        starts = np.delete(starts, inner)
        mass = np.add.reduceat(belief.change, starts - 1)
    best = int(np.argmax(mass))
    last = int(starts[best + 1]) - 1 if best + 1 < len(starts) else changes
    first = int(starts[best])
    doubt = belief.fear - float(belief.feared[first - 1 : last].sum())
    return Block(first=first, last=last, probability=float(mass[best]), doubt=max(0.0, doubt))


def unconfirmed(block: Block, evidence: Evidence, closed: frozenset[int]) -> tuple[int, ...]:
    """The sides of a block not yet seen as they must be: its parent GOOD and its last point BAD.

    Nobody is blamed on the strength of a prior alone. A side that cannot be tested is not waited for.
    """
    parent, last = block.first - 1, block.last
    sides = []
    if parent not in closed and not evidence.good(parent):
        sides.append(parent)
    if last not in closed and not evidence.bad(last):
        sides.append(last)
    return tuple(sides)


def likeliest(belief: Belief, *, confidence: float) -> tuple[int, ...]:
    """The fewest changes that, if any is guilty, hold the culprit with ``confidence``; likeliest first."""
    order = np.argsort(-belief.change, kind="stable")
    mass = np.cumsum(belief.change[order])
    enough = int(np.searchsorted(mass, confidence * mass[-1]))
    return tuple(int(c) + 1 for c in order[: enough + 1])
