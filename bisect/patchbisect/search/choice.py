"""Which points tell most: expected information about the culprit, per launch or per second."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import overload

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

RATES_WEIGHT = 4.0
"""Worth of information about the rates beside that about the culprit, and never more than the latter: whoever
learns the rates early is fooled less by a culprit that fails now and then. Measured, see docs/search.md."""

Hypothetical = Callable[[Sequence[tuple[int, bool]]], Belief]
"""The belief after some more verdicts: (point, was it BAD)."""
Branch = tuple[float, list[tuple[int, bool]], Belief]
"""A course that pending launches may take: its probability, their verdicts, and what would be believed then."""


def information(belief: Belief) -> Floats:
    """What one more launch tells, in nats, at each point 0..n: about the culprit, and about the rates given it."""
    change = belief.change
    idle_bad, idle_good = belief.idle * belief.bad_idle, belief.idle * (1 - belief.bad_idle)
    bad_before, bad_after = change * belief.bad_before, change * belief.bad_after
    good_before, good_after = change - bad_before, change - bad_after
    bad = _at_points(before=bad_before, after=bad_after) + idle_bad
    good = _at_points(before=good_before, after=good_after) + idle_good
    log_bad = _at_points(before=_xlogx(bad_before), after=_xlogx(bad_after)) + _xlogx(idle_bad)
    log_good = _at_points(before=_xlogx(good_before), after=_xlogx(good_after)) + _xlogx(idle_good)
    about_culprit = log_bad - _xlogx(bad) + log_good - _xlogx(good) - _xlogx(change).sum() - _xlogx(belief.idle)
    about_rates = _at_points(
        before=change * (_entropy(belief.bad_before) - belief.luck_before),
        after=change * (_entropy(belief.bad_after) - belief.luck_after),
    )
    told = about_culprit + np.minimum(RATES_WEIGHT * about_rates, about_culprit)
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


def _entropy(p: Floats) -> Floats:
    return -_xlogx(p) - _xlogx(1 - p)


@overload
def _xlogx(values: Floats) -> Floats: ...
@overload
def _xlogx(values: float) -> float: ...
def _xlogx(values: Floats | float) -> Floats | float:
    logs: Floats = np.log(np.maximum(values, 1e-300))
    return values * logs
