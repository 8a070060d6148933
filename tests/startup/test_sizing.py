"""The KV sizing formula, forwards and backwards."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchbisect.startup import sizing
from patchbisect.startup.versions import Releases
from tests.startup.formats import RELEASES, Release, name

gib = st.floats(1.0, 300.0)


def test_the_formula_backwards() -> None:
    """The numbers of the story: a pool of 10 GiB cannot come from the fraction 0.55 that the log claims."""
    assert sizing.implied_fraction(available=21.7, total=94.0, pool=10.0) == pytest.approx(0.876, abs=0.001)
    assert sizing.budget_gb(available=21.7, total=94.0, fraction=0.55) < 0


@given(available=gib, total=gib, fraction=st.floats(0.01, 0.99))
def test_backwards_undoes_forwards(available: float, total: float, fraction: float) -> None:
    pool = sizing.budget_gb(available=available, total=total, fraction=fraction)
    assert sizing.implied_fraction(available=available, total=total, pool=pool) == pytest.approx(fraction)


@given(total=gib, share=st.floats(0.05, 1.0), page=st.floats(0.0, 0.5))
def test_the_smallest_fraction_leaves_a_page_and_less_does_not(total: float, share: float, page: float) -> None:
    available = total * share
    least = sizing.smallest_fraction(available=available, total=total, one_page_gb=page)
    assert sizing.budget_gb(available=available, total=total, fraction=least) >= page
    less = least - sizing.SMALLEST_MARGIN - 2 * sizing.STEP
    assert sizing.budget_gb(available=available, total=total, fraction=less) < page


@given(total=gib, need=st.floats(0.0, 50.0))
def test_the_largest_fraction_leaves_what_is_needed(total: float, need: float) -> None:
    most = sizing.largest_fraction(total=total, needed_after_pool=need)
    assert total * (1.0 - most) >= need - 1e-9
    assert total * (1.0 - most - 2 * sizing.STEP) < need


def test_sglangs_own_reserve() -> None:
    """8192 tokens, 256 graphs, 8 ranks: 512 + 12288 + 512 + 1024 MiB."""
    assert sizing.own_reserve_gb(chunked_prefill=8192, graph_max_bs=256, ranks=8) == pytest.approx(14336 / 1024)
    assert sizing.default_chunk(total=95.0) == 8192
    assert sizing.default_graph_bs(total=95.0, tp=8) == 512


@pytest.mark.parametrize("release", RELEASES, ids=name)
def test_each_release_has_its_formula(release: Release) -> None:
    formula = sizing.formula_of(Releases(release, release))
    assert formula.releases.low <= release <= formula.releases.high
    assert ("slack_gb" in formula.lines[0]) is (release >= (0, 5, 16))
    assert any("cell_size" in line for line in formula.lines)
