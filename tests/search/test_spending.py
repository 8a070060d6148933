"""Only what was asked for is spent."""

from __future__ import annotations

import pytest

from patchbisect.search import Budget
from patchbisect.search.spending import Spending


def test_verdicts_that_nobody_asked_for_are_free():
    spending: Spending[int] = Spending(Budget(launches=1, seconds=10))
    spending.settle(3, seconds=50, launched=True)
    assert (spending.launches, spending.seconds, spending.spent) == (0, 0, False)


def test_asks_under_way_are_not_affordable_twice_but_not_spent_either():
    spending: Spending[int] = Spending(Budget(launches=2))
    spending.ask([3, 3])
    assert spending.affordable == 0
    assert not spending.spent
    spending.settle(3, seconds=0, launched=True)
    spending.settle(3, seconds=0, launched=True)
    assert spending.spent


def test_a_void_launch_spends_seconds_alone():
    spending: Spending[int] = Spending(Budget(launches=1, seconds=100))
    spending.ask([3])
    spending.settle(3, seconds=60, launched=False)
    assert (spending.launches, spending.seconds_left, spending.affordable) == (0, 40, 1)


@pytest.mark.parametrize("limits", [{"launches": -1}, {"seconds": -0.5}])
def test_a_budget_is_not_negative(limits):
    with pytest.raises(ValueError, match="not negative"):
        Budget(**limits)
