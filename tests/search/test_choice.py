"""Information agrees with its definition, and points chosen together complement each other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchbisect.search import CulpritSearch, Observation, Rates
from patchbisect.search.belief import believe
from patchbisect.search.choice import information
from patchbisect.search.rates import RateGrid

PRIOR = np.full(6, 0.15)
COUNTS = st.dictionaries(st.integers(0, 6), st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=7)


def believed(counts, grid):
    return believe(prior=PRIOR, none_prior=0.1, grid=grid, counts=counts)


def entropy(belief):
    p = np.array([*belief.change, belief.idle])
    return -float(np.sum(p * np.log(np.maximum(p, 1e-300))))


@given(counts=COUNTS)
def test_with_known_rates_it_is_the_expected_loss_of_entropy(counts):
    grid = RateGrid.of(pairs={(0.1, 0.8): 1.0}, idle={0.3: 1.0})
    now = believed(counts, grid)
    told = information(now)
    for k in range(7):
        good, bad = counts.get(k, (0, 0))
        if_bad = believed({**counts, k: (good, bad + 1)}, grid)
        if_good = believed({**counts, k: (good + 1, bad)}, grid)
        expected = now.p_bad(k) * entropy(if_bad) + (1 - now.p_bad(k)) * entropy(if_good)
        assert told[k] == pytest.approx(entropy(now) - expected, abs=1e-8)


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
