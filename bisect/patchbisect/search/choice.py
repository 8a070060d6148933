"""Which points tell most: expected information about culprit and rates, per launch or per second."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from patchbisect.search.belief import Belief
from patchbisect.search.rates import Floats

BEAM = 16
"""Most hypothetical outcomes kept when points are chosen together: 2**4, so up to five at once are exact."""
EFFORT = 160_000
"""Outcomes times points looked at for each one chosen: keeps eight at once of 20,000 points under half a second."""
TIE = 1e-9
"""Points whose worth differs by less than this share are equal, and the first is taken, on every machine alike."""
NOTHING = 1e-9
"""Information, in nats, that is no more than rounding."""

FOR_THE_CULPRIT = 3.0
"""What a launch tells counts for at most so many times what it tells about the culprit: the rates are learned for its
sake alone."""

Hypothetical = Callable[[Sequence[tuple[int, bool]]], Belief]
"""The belief after some more verdicts: (point, was it BAD)."""
Branch = tuple[float, list[tuple[int, bool]], Belief]
"""A course that pending launches may take: its probability, their verdicts, and what would be believed then."""


def information(belief: Belief) -> Floats:
    """What one more launch tells, in nats, at each point 0..n.

    It is the expected loss of surprise at the truth, culprit and rates: the truth as it is believed, the surprise
    as it is dreaded. So launches suit the box as it probably is, and settle first what would fool the search worst.
    What an innocent range is like is of no interest.
    """
    change, dreaded, idle_bad = belief.change, belief.dreaded, belief.idle * belief.bad_idle
    bad = _at_points(before=change * belief.bad_before, after=change * belief.bad_after) + idle_bad
    dread = _at_points(before=dreaded * belief.dreaded_before, after=dreaded * belief.dreaded_after) + idle_bad
    idle_luck = belief.idle * _entropy(belief.bad_idle)
    luck = _at_points(before=change * belief.luck_before, after=change * belief.luck_after) + idle_luck
    told = _surprise(bad, dread / (dreaded.sum() + belief.idle)) - luck
    given_culprit = _at_points(before=change * _entropy(belief.bad_before), after=change * _entropy(belief.bad_after))
    about_culprit = _entropy(bad) - given_culprit - idle_luck
    told = np.minimum(told, FOR_THE_CULPRIT * about_culprit)
    return np.where(told > NOTHING, told, 0.0)


def choose(
    *, belief: Belief, worth: Floats, value: Floats, pending: Sequence[int], count: int, hypothetical: Hypothetical
) -> list[int]:
    """The ``count`` points that, with the pending ones, tell most.

    ``value`` weighs information at each point: the chance of a verdict, divided by its cost; 0 rules a point out.
    ``worth`` is that weight times the information now, before any pending launch is back.
    """
    chosen: list[int] = []
    branches: list[Branch] = [(1.0, [], belief)]
    keep = max(4, min(BEAM, EFFORT // len(value)))
    for point in pending:
        branches = _branch(branches, point=point, keep=keep, hypothetical=hypothetical)
    if pending:
        worth = _worth(branches, value=value)
    while worth.any():
        best = int(np.argmax(worth >= worth.max() * (1 - TIE)))
        chosen.append(best)
        if len(chosen) == count:
            break
        branches = _branch(branches, point=best, keep=keep, hypothetical=hypothetical)
        worth = _worth(branches, value=value)
    return chosen


def _worth(branches: Sequence[Branch], *, value: Floats) -> Floats:
    told: Floats = np.sum([weight * information(belief) for weight, _, belief in branches], axis=0)
    return value * told


def _branch(branches: list[Branch], *, point: int, keep: int, hypothetical: Hypothetical) -> list[Branch]:
    """Split every branch on the verdict at ``point``; keep the likeliest."""
    weighed = []
    for weight, verdicts, belief in branches:
        bad = belief.p_bad(point)
        weighed += [(weight * bad, [*verdicts, (point, True)]), (weight * (1 - bad), [*verdicts, (point, False)])]
    weighed.sort(key=lambda branch: -branch[0])
    kept = [branch for branch in weighed[:keep] if branch[0] > 1e-6]
    total = sum(weight for weight, _ in kept)
    return [(weight / total, verdicts, hypothetical(verdicts)) for weight, verdicts in kept]


def _at_points(*, before: Floats, after: Floats) -> Floats:
    """For each point k in 0..n: the sum of ``before`` over changes past k plus that of ``after`` up to k."""
    sums = np.zeros(len(before) + 1)
    np.cumsum(after - before, out=sums[1:])
    return sums + float(before.sum())


def _entropy(p: Floats | float) -> Floats:
    return _surprise(p, p)


def _surprise(p: Floats | float, expected: Floats | float) -> Floats:
    """The mean surprise at a verdict, in nats: BAD has probability ``p``, and ``expected`` was thought."""
    bad: Floats = np.log(np.maximum(expected, 1e-300))
    good: Floats = np.log(np.maximum(1 - np.asarray(expected), 1e-300))
    return -p * bad - (1 - p) * good
