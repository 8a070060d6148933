"""Information agrees with its definition, and points chosen together complement each other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchbisect.search import CulpritSearch, Observation, Rates
from patchbisect.search.belief import WARINESS, believe
from patchbisect.search.choice import FOR_THE_CULPRIT, information
from patchbisect.search.rates import RateGrid

PRIOR = np.full(6, 0.15)
COUNTS = st.dictionaries(st.integers(0, 6), st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=7)


def believed(counts, grid):
    return believe(prior=PRIOR, none_prior=0.1, grid=grid, counts=counts)


def entropy(belief):
    p = np.array([*belief.change, belief.idle])
    return -float(np.sum(p * np.log(np.maximum(p, 1e-300))))


def about_culprit(k, counts, grid):
    """The entropy about the culprit that a launch of ``k`` is expected to take away."""
    now = believed(counts, grid)
    good, bad = counts.get(k, (0, 0))
    if_bad = believed({**counts, k: (good, bad + 1)}, grid)
    if_good = believed({**counts, k: (good + 1, bad)}, grid)
    return entropy(now) - now.p_bad(k) * entropy(if_bad) - (1 - now.p_bad(k)) * entropy(if_good)


@given(counts=COUNTS)
def test_with_known_rates_it_is_the_expected_loss_of_entropy(counts):
    grid = RateGrid.of(pairs={(0.1, 0.8): 1.0}, idle={0.3: 1.0})
    told = information(believed(counts, grid))
    for k in range(7):
        assert told[k] == pytest.approx(about_culprit(k, counts, grid), abs=1e-8)


@given(counts=COUNTS)
def test_with_unknown_rates_it_is_the_expected_loss_of_surprise_at_the_truth(counts):
    # Pair -> weight and caution; None: nothing is guilty, and launches fail 30 %.
    rates = {(0.05, 0.9): (0.75, 1.0), (0.2, 0.6): (0.25, 3.0), None: (1.0, 1.0)}

    def p_bad(hypothesis, k):
        change, pair = hypothesis
        return 0.3 if pair is None else pair[1] if k >= change else pair[0]

    goods, bads = ([k for k, row in counts.items() if row[verdict]] for verdict in (0, 1))
    wariness = WARINESS if max(goods, default=-1) < min(bads, default=7) else 1

    def shares(counts, *, dreaded):
        weight = {}
        for change, pair in [*((c, pair) for c in range(1, 7) for pair in rates if pair), (0, None)]:
            weight[change, pair] = (PRIOR[change - 1] if pair else 0.1) * rates[pair][0]
            weight[change, pair] *= rates[pair][1] ** wariness if dreaded else 1
            for k, (good, bad) in counts.items():
                p = p_bad((change, pair), k)
                weight[change, pair] *= p**bad * (1 - p) ** good
        total = sum(weight.values())
        return {hypothesis: w / total for hypothesis, w in weight.items()}

    pairs = {pair: weight for pair, (weight, _) in rates.items() if pair}
    caution = {pair: caution for pair, (_, caution) in rates.items() if pair}
    grid = RateGrid.of(pairs=pairs, idle={0.3: 1.0}, caution=caution)
    told = information(believed(counts, grid))
    truth, now = shares(counts, dreaded=False), shares(counts, dreaded=True)
    for k in range(7):
        good, bad = counts.get(k, (0, 0))
        if_bad = shares({**counts, k: (good, bad + 1)}, dreaded=True)
        if_good = shares({**counts, k: (good + 1, bad)}, dreaded=True)
        loss = 0.0
        for hypothesis, probability in truth.items():
            p = p_bad(hypothesis, k)
            after = p * np.log(if_bad[hypothesis]) + (1 - p) * np.log(if_good[hypothesis])
            loss += probability * (after - np.log(now[hypothesis]))
        assert told[k] == pytest.approx(min(loss, FOR_THE_CULPRIT * about_culprit(k, counts, grid)), abs=1e-8)


def test_nothing_is_told_by_a_point_whose_verdict_is_certain():
    told = information(believed({2: (1, 0), 4: (0, 1)}, Rates.deterministic().grid()))
    assert list(np.flatnonzero(told)) == [3]


def asked_together(changes, parallel, rates):
    search = CulpritSearch(changes=changes, rates=rates)
    search.tell(0, Observation.GOOD)
    search.tell(changes, Observation.BAD)
    return sorted(search.ask(parallel=parallel))


@pytest.mark.parametrize("parallel", [2, 3, 4, 7])
def test_points_asked_together_part_the_range_evenly(parallel):
    points = asked_together(64, parallel, Rates.deterministic())
    parts = np.diff([0, *points, 64])
    assert len(set(points)) == parallel
    assert parts.max() <= 2 * 64 / (parallel + 1)


def test_pending_points_are_not_asked_again_while_others_tell_more():
    search = CulpritSearch(changes=64, rates=Rates.deterministic())
    search.tell(0, Observation.GOOD)
    search.tell(64, Observation.BAD)
    first = search.ask()
    assert sorted(first + search.ask() + search.ask()) == [16, 32, 48]
