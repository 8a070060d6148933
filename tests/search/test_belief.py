"""The posterior agrees with Bayes written out, hypothesis by hypothesis."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchbisect.search.belief import Belief, believe
from patchbisect.search.rates import RateGrid, Rates

NONE_PRIOR = 0.1
GRID = RateGrid.of(pairs={(0.01, 0.9): 2.0, (0.2, 0.6): 1.0}, idle={0.1: 1.0, 0.5: 3.0}, caution={(0.2, 0.6): 4.0})
COUNTS = st.dictionaries(st.integers(0, 6), st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=7)


def written_out(prior, counts, caution=1.0):
    """P(verdicts and change c guilty), summed over rate pairs; the last entry is for no culprit.

    ``caution`` is that of the second pair.
    """

    def likelihood(p_bad):
        return math.prod(p_bad(k) ** bad * (1 - p_bad(k)) ** good for k, (good, bad) in counts.items())

    pairs, idle = ((0.01, 0.9, 2 / 3), (0.2, 0.6, caution / 3)), ((0.1, 0.25), (0.5, 0.75))
    joint = [
        prior[c - 1] * sum(w * likelihood(lambda k, c=c, b=b, a=a: a if k >= c else b) for b, a, w in pairs)
        for c in range(1, 7)
    ]
    joint.append(NONE_PRIOR * sum(w * likelihood(lambda k, p=p: p) for p, w in idle))
    return np.array(joint)


def believed(prior, counts, grid=GRID) -> Belief:
    return believe(prior=prior, none_prior=NONE_PRIOR, grid=grid, counts=counts)


@given(counts=COUNTS, weights=st.lists(st.floats(0.01, 1), min_size=6, max_size=6))
def test_posterior_is_bayes_written_out(counts, weights):
    prior = np.array(weights) / sum(weights) * (1 - NONE_PRIOR)
    belief, joint = believed(prior, counts), written_out(prior, counts)
    assert np.allclose([*belief.change, belief.idle], joint / joint.sum(), atol=1e-12)
    assert belief.log_evidence == pytest.approx(math.log(joint.sum()))


@given(counts=COUNTS)
def test_what_is_feared_weighs_rates_by_their_caution(counts):
    prior = np.full(6, (1 - NONE_PRIOR) / 6)
    belief, joint, feared = believed(prior, counts), written_out(prior, counts), written_out(prior, counts, caution=4)
    assert np.allclose(belief.feared, feared[:-1] / joint.sum(), atol=1e-12)
    assert belief.fear == pytest.approx(feared.sum() / joint.sum())


def test_the_rates_feared_most_are_those_of_the_likeliest_error():
    prior = np.full(6, (1 - NONE_PRIOR) / 6)
    assert believed(prior, {3: (4, 0), 4: (0, 4)}).feared_rates(4, 4) == (0.2, 0.6)
    assert believed(prior, {3: (1, 0), 6: (0, 9)}).feared_rates(4, 4) == (0.01, 0.9)
    assert believed(prior, dict.fromkeys(range(7), (9, 1))).feared_rates(6, 6) is None


def test_what_is_dreaded_takes_more_caution_while_verdicts_agree():
    prior = np.full(6, (1 - NONE_PRIOR) / 6)
    agreeing, contradicting = believed(prior, {2: (2, 0), 4: (0, 2)}), believed(prior, {2: (2, 1), 4: (0, 2)})
    assert np.all(agreeing.dreaded > agreeing.feared)
    assert np.allclose(contradicting.dreaded, contradicting.feared)


@given(counts=COUNTS, point=st.integers(0, 6))
def test_the_next_verdict_is_as_likely_as_the_evidence_says(counts, point):
    prior = np.full(6, (1 - NONE_PRIOR) / 6)
    good, bad = counts.get(point, (0, 0))
    now, then = written_out(prior, counts), written_out(prior, counts | {point: (good, bad + 1)})
    assert believed(prior, counts).p_bad(point) == pytest.approx(then.sum() / now.sum())


@given(counts=COUNTS)
@settings(max_examples=30)
def test_luck_is_what_known_rates_would_leave_open(counts):
    belief = believed(np.full(6, (1 - NONE_PRIOR) / 6), counts)
    uncertain = -belief.bad_after * np.log(belief.bad_after) - (1 - belief.bad_after) * np.log(1 - belief.bad_after)
    assert np.all(belief.luck_after <= uncertain + 1e-12)


def test_verdicts_that_never_lie_and_contradict_are_impossible():
    grid = Rates.deterministic().grid()
    prior = np.full(6, (1 - NONE_PRIOR) / 6)
    assert believed(prior, {2: (0, 1), 4: (1, 0)}, grid).impossible
    assert not believed(prior, {2: (900, 0), 4: (0, 900)}, grid).impossible


def test_hundreds_of_verdicts_do_not_underflow():
    belief = believed(np.full(6, 0.15), {2: (400, 300), 4: (300, 400)})
    assert belief.change.sum() + belief.idle == pytest.approx(1)
