"""What the verdicts so far say about every hypothesis: Bayes over culprit and rates together.

Hypotheses are "change c is the culprit" for c in 1..n, and "nothing is". Verdicts are counted per point, so
their order never matters. Between two neighbouring points with verdicts no verdict tells changes apart, hence
likelihoods are computed per *segment* (a run of such changes): the work is rates x segments, whatever n is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from patchbisect.search.evidence import Counts
from patchbisect.search.rates import LOG_ZERO, Floats, RateGrid

IMPOSSIBLE = LOG_ZERO / 10
"""Log evidence below which every hypothesis has had something impossible happen."""
TINY = 1e-300


@dataclass(frozen=True, slots=True)
class Belief:
    """The posterior, change by change (index 0 is change 1), and P(BAD) under each hypothesis.

    ``bad_before[c]``: P(next launch of a point below c is BAD | change c guilty); ``bad_after[c]``: of a point at
    or past c. ``luck_before[c]``, ``luck_after[c]``: the entropy, in nats, that such a launch would still have if
    the rates were known. ``idle`` and ``bad_idle``: probability that nothing is guilty, and P(BAD) then.
    """

    change: Floats
    bad_before: Floats
    bad_after: Floats
    luck_before: Floats
    luck_after: Floats
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


def believe(*, prior: Floats, none_prior: float, grid: RateGrid, counts: Counts) -> Belief:
    """Posterior from scratch. ``prior`` holds n weights that sum to 1 - none_prior."""
    points = sorted(counts)
    verdicts = np.array([counts[point] for point in points], dtype=np.float64).reshape(-1, 2)
    below = np.concatenate([np.zeros((1, 2)), np.cumsum(verdicts, axis=0)])
    total = below[-1]
    edges = np.array([0, *points, len(prior)])
    sizes = np.diff(edges)
    sums = np.concatenate([[0.0], np.cumsum(prior)])
    mass = sums[edges[1:]] - sums[edges[:-1]]

    log_like = grid.log_table @ np.concatenate([below, total - below], axis=1).T + grid.log_weight[:, None]
    log_idle = grid.log_idle_table @ total + grid.log_idle_weight
    peak = max(float(log_like[:, sizes > 0].max()), float(log_idle.max()) if none_prior > 0 else -np.inf)
    joint = np.exp(log_like - peak)
    idle_joint = none_prior * np.exp(log_idle - peak)
    per_segment = joint.sum(axis=0)
    idle_total = float(idle_joint.sum())
    evidence = max(float(per_segment @ mass) + idle_total, TINY)

    of_rates = joint / np.maximum(per_segment, TINY)
    by_segment = np.concatenate([per_segment[None, :] / evidence, grid.outlook @ of_rates])
    share, bad_before, bad_after, luck_before, luck_after = np.repeat(by_segment, sizes, axis=1)
    guilty = joint @ mass
    guilty /= max(float(guilty.sum()), TINY)
    return Belief(
        change=prior * share,
        bad_before=bad_before,
        bad_after=bad_after,
        luck_before=luck_before,
        luck_after=luck_after,
        idle=idle_total / evidence,
        bad_idle=float(grid.idle @ idle_joint) / max(idle_total, TINY),
        p_before=float(grid.before @ guilty),
        p_after=float(grid.after @ guilty),
        log_evidence=peak + float(np.log(evidence)),
    )
