"""Which points tell most: expected information about the culprit, per launch or per second."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from patchbisect.search.belief import Belief
from patchbisect.search.rates import Floats

BEAM = 16
"""Hypothetical outcomes kept when points are chosen together: 2**4, so up to five at once are exact."""

Hypothetical = Callable[[Sequence[tuple[int, bool]]], Belief]
"""The belief after some more verdicts: (point, was it BAD)."""


def information(belief: Belief) -> Floats:
    """Mutual information, in nats, between the culprit and one more launch at each of the points 0..n."""
    change = belief.change
    idle_bad, idle_good = belief.idle * belief.bad_idle, belief.idle * (1 - belief.bad_idle)
    bad_before, bad_after = change * belief.bad_before, change * belief.bad_after
    good_before, good_after = change - bad_before, change - bad_after
    bad = _at_points(before=bad_before, after=bad_after) + idle_bad
    good = _at_points(before=good_before, after=good_after) + idle_good
    log_bad = _at_points(before=_xlogx(bad_before), after=_xlogx(bad_after)) + _xlogx(idle_bad)
    log_good = _at_points(before=_xlogx(good_before), after=_xlogx(good_after)) + _xlogx(idle_good)
    prior = _xlogx(change).sum() + _xlogx(belief.idle)
    gain: Floats = log_bad - _xlogx(bad) + log_good - _xlogx(good) - prior
    return np.maximum(gain, 0.0)


def choose(
    *, belief: Belief, value: Floats, pending: Sequence[int], count: int, hypothetical: Hypothetical
) -> list[int]:
    """The ``count`` points that, with the pending ones, tell most.

    ``value`` weighs information at each point: the chance of a verdict, divided by its cost; 0 rules a point out.
    """
    chosen: list[int] = []
    branches: list[tuple[float, list[tuple[int, bool]], Belief]] = [(1.0, [], belief)]
    for point in pending:
        branches = _branch(branches, point=point, hypothetical=hypothetical)
    while True:
        gain = value * sum(weight * information(branch) for weight, _, branch in branches)
        best = int(np.argmax(gain))
        if gain[best] <= 0:
            return chosen
        chosen.append(best)
        if len(chosen) == count:
            return chosen
        branches = _branch(branches, point=best, hypothetical=hypothetical)


def _branch(
    branches: list[tuple[float, list[tuple[int, bool]], Belief]], *, point: int, hypothetical: Hypothetical
) -> list[tuple[float, list[tuple[int, bool]], Belief]]:
    """Split every branch on the verdict at ``point``; keep the likeliest."""
    weighed = []
    for weight, verdicts, belief in branches:
        bad = belief.p_bad(point)
        weighed += [(weight * bad, [*verdicts, (point, True)]), (weight * (1 - bad), [*verdicts, (point, False)])]
    weighed.sort(key=lambda branch: -branch[0])
    kept = [branch for branch in weighed[:BEAM] if branch[0] > 1e-6]
    total = sum(weight for weight, _ in kept)
    return [(weight / total, verdicts, hypothetical(verdicts)) for weight, verdicts in kept]


def _at_points(*, before: Floats, after: Floats) -> Floats:
    """For each point k in 0..n: the sum of ``before`` over changes past k plus that of ``after`` up to k."""
    sums = np.zeros(len(before) + 1)
    np.cumsum(after - before, out=sums[1:])
    return sums + before.sum()


def _xlogx(values):  # type: ignore[no-untyped-def]
    return values * np.log(np.maximum(values, 1e-300))
