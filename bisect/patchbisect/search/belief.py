"""What the verdicts so far say about every hypothesis: Bayes over culprit and rates together.

Hypotheses are "change c is the culprit" for c in 1..n, and "nothing is". Verdicts are counted per point, so
their order never matters. Between two neighbouring points with verdicts no verdict tells changes apart, hence
likelihoods are computed per *segment* (a run of such changes): the work is rates x segments, whatever n is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from patchbisect.search.rates import Floats, RateGrid

LOG_ZERO = -1e6
"""Stands for log 0, so that zero times it is zero."""
IMPOSSIBLE = LOG_ZERO / 10
"""Log evidence below which every hypothesis has had something impossible happen."""
TINY = 1e-300

Counts = Mapping[int, tuple[int, int]]
"""point -> (times GOOD, times BAD)"""


@dataclass(frozen=True, slots=True)
class Belief:
    """The posterior, change by change (index 0 is change 1), and P(BAD) under each hypothesis.

    ``bad_before[c]``: P(next launch of a point below c is BAD | change c guilty); ``bad_after[c]``: of a point at
    or past c. ``idle`` and ``bad_idle``: probability that nothing is guilty, and P(BAD) then.
    """

    change: Floats
    bad_before: Floats
    bad_after: Floats
    idle: float
    bad_idle: float
    p_before: float
    p_after: float
    """Posterior means of the rates, given that something is guilty."""
    log_evidence: float

    @property
    def impossible(self) -> bool:
        return self.log_evidence < IMPOSSIBLE

    def p_bad(self, point: int) -> float:
        """P(BAD) of the next launch at ``point``."""
        before = float(self.change[point:] @ self.bad_before[point:])
        after = float(self.change[:point] @ self.bad_after[:point])
        return before + after + self.idle * self.bad_idle


def believe(*, prior: Floats, idle_prior: float, grid: RateGrid, counts: Counts) -> Belief:
    """Posterior from scratch. ``prior`` holds n weights that sum to 1 - idle_prior."""
    points = sorted(counts)
    verdicts = np.array([counts[point] for point in points], dtype=np.float64).reshape(-1, 2)
    below = np.concatenate([np.zeros((1, 2)), np.cumsum(verdicts, axis=0)])
    total = below[-1]
    changes = len(prior)
    edges = np.array([0, *points, changes])
    segment_sizes = np.clip(np.diff(edges), 0, None)

    logs = _log_table(grid)
    tallies = np.concatenate([below, total - below], axis=1)
    log_like = logs @ tallies.T + grid.log_weight[:, None]
    log_idle = _log(1 - grid.idle) * total[0] + _log(grid.idle) * total[1] + grid.log_idle_weight

    mass = np.array([prior[lo:hi].sum() for lo, hi in zip(edges[:-1], edges[1:], strict=True)])
    reachable = mass > 0
    peak = float(log_like[:, reachable].max()) if reachable.any() else LOG_ZERO
    if idle_prior > 0:
        peak = max(peak, float(log_idle.max()))
    joint = np.exp(log_like - peak)
    idle_joint = idle_prior * np.exp(log_idle - peak)
    per_segment = joint.sum(axis=0)
    evidence = max(float(per_segment @ mass + idle_joint.sum()), TINY)

    safe = np.maximum(per_segment, TINY)
    before = (grid.before @ joint) / safe
    after = (grid.after @ joint) / safe
    guilty_joint = joint @ mass
    guilty = max(float(guilty_joint.sum()), TINY)
    idle_total = float(idle_joint.sum())
    return Belief(
        change=prior * np.repeat(per_segment / evidence, segment_sizes),
        bad_before=np.repeat(before, segment_sizes),
        bad_after=np.repeat(after, segment_sizes),
        idle=idle_total / evidence,
        bad_idle=float(grid.idle @ idle_joint) / max(idle_total, TINY),
        p_before=float(grid.before @ guilty_joint) / guilty,
        p_after=float(grid.after @ guilty_joint) / guilty,
        log_evidence=peak + float(np.log(evidence)),
    )


def _log(values: Floats) -> Floats:
    return np.where(values > 0, np.log(np.maximum(values, TINY)), LOG_ZERO)


def _log_table(grid: RateGrid) -> Floats:
    """Rows: rate pairs. Columns: log P of GOOD before, BAD before, GOOD after, BAD after."""
    return np.stack(
        [_log(1 - grid.before), _log(grid.before), _log(1 - grid.after), _log(grid.after)],
        axis=1,
    )
