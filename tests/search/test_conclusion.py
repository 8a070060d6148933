"""When a search may stop, and whom it blames."""

from __future__ import annotations

import numpy as np
import pytest

from patchbisect.search.belief import believe
from patchbisect.search.conclusion import Block, leading_block, likeliest, unconfirmed
from patchbisect.search.evidence import Evidence
from patchbisect.search.rates import RateGrid, Rates

NOTHING_CLOSED: frozenset[int] = frozenset()


CLEAN = Rates.told(0.0, 1.0).grid()


def suspicion(*shares, grid=CLEAN):
    """A belief with these shares and no verdict yet."""
    return believe(prior=np.array(shares), none_prior=0.0, grid=grid, counts={})


def test_without_skips_a_block_is_one_change():
    assert leading_block(suspicion(0.1, 0.6, 0.3), NOTHING_CLOSED) == Block(
        2, 2, pytest.approx(0.6), pytest.approx(0.4)
    )


def test_closed_points_join_the_changes_on_both_sides():
    assert leading_block(suspicion(0.3, 0.3, 0.4), frozenset({1})) == Block(
        1, 2, pytest.approx(0.6), pytest.approx(0.4)
    )
    assert leading_block(suspicion(0.3, 0.3, 0.4), frozenset({1, 2})).changes == (1, 2, 3)


def test_closed_ends_join_nothing():
    assert leading_block(suspicion(0.5, 0.3, 0.2), frozenset({0, 3})).changes == (1,)


def test_rates_that_ask_for_caution_leave_more_doubt():
    grid = RateGrid.of(pairs={(0.0, 1.0): 1.0, (0.0, 0.5): 1.0}, idle={0.0: 1.0}, caution={(0.0, 0.5): 3.0})
    block = leading_block(suspicion(0.1, 0.6, 0.3, grid=grid), NOTHING_CLOSED)
    assert block.probability == pytest.approx(0.6)
    assert block.doubt == pytest.approx(0.4 * (1 + 3) / 2)


def test_a_side_is_confirmed_by_its_own_verdict_alone():
    evidence = Evidence()
    evidence.add(1, bad=3)
    evidence.add(2, good=1)
    block = Block(2, 2, 0.99, 0.01)
    assert unconfirmed(block, evidence, NOTHING_CLOSED) == (1, 2)
    evidence.add(1, good=1)
    evidence.add(2, bad=1)
    assert unconfirmed(block, evidence, NOTHING_CLOSED) == ()


def test_a_side_that_cannot_be_tested_is_not_waited_for():
    assert unconfirmed(Block(2, 3, 0.99, 0.01), Evidence(), frozenset({1, 2})) == (3,)


def test_the_likeliest_are_as_few_as_hold_the_wanted_confidence():
    assert likeliest(suspicion(0.1, 0.6, 0.3), confidence=0.6) == (2,)
    assert likeliest(suspicion(0.1, 0.6, 0.3), confidence=0.85) == (2, 3)
    assert set(likeliest(suspicion(0.1, 0.6, 0.3), confidence=0.99)) == {1, 2, 3}
