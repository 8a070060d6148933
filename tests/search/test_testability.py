"""The chance of a verdict agrees with a two-state chain written out, and SKIPs reach as far as bands do."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchbisect.search.testability import BANDS, SHARES, chance_of_verdict

POINTS = 6


def written_out(seen):
    """Every sequence of states of every chain, weighed; the share in which a point can be tested."""
    fine, total = np.zeros(POINTS), 0.0
    for share, band in itertools.product(SHARES, BANDS):
        leave = min(1.0, 1 / max(1.0, band * POINTS))
        memory = max(0.0, 1 - leave / (1 - share))
        for states in itertools.product((0, 1), repeat=POINTS):
            if any(states[k] == verdict for k, verdict in seen.items()):
                continue
            weight = share if states[0] else 1 - share
            for before, after in itertools.pairwise(states):
                skip = share + (before - share) * memory
                weight *= skip if after else 1 - skip
            total += weight
            fine += weight * (1 - np.array(states))
    return fine / total


@given(seen=st.dictionaries(st.integers(0, POINTS - 1), st.booleans(), min_size=1))
@settings(max_examples=40)
def test_agrees_with_the_chain_written_out(seen):
    expected = np.ones(POINTS) if all(seen.values()) else written_out(seen)
    assert chance_of_verdict(points=POINTS, seen=seen) == pytest.approx(expected, abs=1e-9)


def test_next_to_a_skip_little_can_be_tested_and_far_from_it_most():
    chance = chance_of_verdict(points=129, seen={0: True, 64: False, 128: True})
    assert chance[64] == 0
    assert chance[65] < 0.5 < chance[100]


def test_lone_skips_among_verdicts_do_not_frighten_off():
    seen = {k: k not in (20, 61, 90) for k in range(0, 128, 3)} | {20: False, 61: False, 90: False}
    assert chance_of_verdict(points=128, seen=seen)[22] > 0.8
