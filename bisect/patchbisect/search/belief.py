"""What the verdicts so far say about every hypothesis: Bayes over culprit and rates together.

Hypotheses are "change c is the culprit" for c in 1..n, and "nothing is". Verdicts are counted per point, so
their order never matters. Between two neighbouring points with verdicts no verdict tells changes apart, hence
likelihoods are computed per *segment* (a run of such changes): the work is rates x segments, whatever n is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from patchbisect.search.evidence import Counts
from patchbisect.search.rates import LOG_ZERO, Floats, Pair, RateGrid

IMPOSSIBLE = LOG_ZERO / 10
"""Log evidence below which every hypothesis has had something impossible happen."""
TINY = 1e-300
WARINESS = 2.5
"""Power of the caution with which points are chosen while no verdict contradicts another: nothing looks so much like
a clean box as a culprit that was lucky all along."""


@dataclass(frozen=True, slots=True)
class Belief:
    """The posterior, change by change (index 0 is change 1), and P(BAD) under each hypothesis.

    ``bad_before[c]``: P(next launch of a point below c is BAD | change c guilty); ``bad_after[c]``: of a point at
    or past c. ``luck_before[c]``, ``luck_after[c]``: the entropy, in nats, that such a launch would still have if
    the rates were known. ``idle`` and ``bad_idle``: probability that nothing is guilty, and P(BAD) then.
    ``feared`` is ``change`` with every pair of rates weighed by its caution: it need not sum to one. ``dreaded``,
    ``dreaded_before``, ``dreaded_after`` are ``change``, ``bad_before``, ``bad_after`` in the same way, but with more
    caution (WARINESS) as long as the verdicts agree.
    """

    change: Floats
    bad_before: Floats
    bad_after: Floats
    luck_before: Floats
    luck_after: Floats
    feared: Floats
    dreaded: Floats
    dreaded_before: Floats
    dreaded_after: Floats
    idle: float
    bad_idle: float
    log_evidence: float
    grid: RateGrid
    prior: Floats
    sizes: NDArray[np.int64]
    fears: Floats
    """Row: pair of rates; column: segment of ``sizes`` changes. What a change there is feared, beside its prior."""

    @property
    def impossible(self) -> bool:
        return self.log_evidence < IMPOSSIBLE

    @property
    def fear(self) -> float:
        """All that is feared together, an innocent range included: above one where what is likely asks for caution."""
        return float(self.feared.sum()) + self.idle

    def feared_rates(self, first: int, last: int) -> Pair | None:
        """The rates under which most is feared of changes other than ``first``..``last``; None: of no culprit."""
        segment = np.repeat(np.arange(len(self.sizes)), self.sizes)
        others = self.prior.copy()
        others[first - 1 : last] = 0.0
        fear = self.fears @ np.bincount(segment, weights=others, minlength=len(self.sizes))
        worst = int(np.argmax(fear))
        return None if fear[worst] < self.idle else (float(self.grid.before[worst]), float(self.grid.after[worst]))

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
    feared = joint * grid.caution[:, None]
    dreaded = joint * grid.caution[:, None] ** (WARINESS if _agree(verdicts) else 1.0)
    per_dreaded = dreaded.sum(axis=0)
    of_dreaded = dreaded / np.maximum(per_dreaded, TINY)
    by_segment = np.concatenate(
        [
            [per_segment / evidence],
            grid.outlook @ of_rates,
            [feared.sum(axis=0) / evidence],
            [per_dreaded / evidence],
            grid.outlook[:2] @ of_dreaded,
        ]
    )
    by_change = np.repeat(by_segment, sizes, axis=1)
    share, bad_before, bad_after, luck_before, luck_after, fear, dread, dreaded_before, dreaded_after = by_change
    return Belief(
        change=prior * share,
        bad_before=bad_before,
        bad_after=bad_after,
        luck_before=luck_before,
        luck_after=luck_after,
        feared=prior * fear,
        dreaded=prior * dread,
        dreaded_before=dreaded_before,
        dreaded_after=dreaded_after,
        idle=idle_total / evidence,
        bad_idle=float(grid.idle @ idle_joint) / max(idle_total, TINY),
        log_evidence=peak + float(np.log(evidence)),
        grid=grid,
        prior=prior,
        sizes=sizes,
        fears=feared / evidence,
    )


def _agree(verdicts: Floats) -> bool:
    """Is no point GOOD at or past one that is BAD? ``verdicts``: times GOOD and BAD, in the order of the points."""
    good, bad = verdicts.T > 0
    return not bad.any() or not good[int(np.argmax(bad)) :].any()
