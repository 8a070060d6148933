"""What was asked for and what it cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Generic, TypeVar

from patchbisect.search.values import Budget

Point = TypeVar("Point", bound=Hashable)


class Spending(Generic[Point]):
    """Asks under way, and what those that came back have cost. A verdict that nobody asked for is free."""

    def __init__(self, budget: Budget | None) -> None:
        self.budget = budget or Budget()
        self.launches = 0
        self.seconds = 0.0
        self.pending: Counter[Point] = Counter()

    def ask(self, points: list[Point]) -> None:
        self.pending.update(points)

    def settle(self, point: Point, *, seconds: float, launched: bool) -> None:
        """An ask came back: with an observation (``launched``), or void, which spends seconds alone."""
        if self.pending[point] <= 0:
            return
        self.pending[point] -= 1
        self.launches += launched
        self.seconds += seconds

    @property
    def affordable(self) -> int | None:
        """How many more launches may be asked for now; None is "no limit"."""
        if self.budget.launches is None:
            return None
        return max(0, self.budget.launches - self.launches - self.pending.total())

    @property
    def seconds_left(self) -> float:
        return float("inf") if self.budget.seconds is None else self.budget.seconds - self.seconds

    @property
    def spent(self) -> bool:
        launches = self.budget.launches
        return (launches is not None and self.launches >= launches) or self.seconds_left <= 0

    def fork(self) -> Spending[Point]:
        """The same money, with nothing out."""
        twin: Spending[Point] = Spending(self.budget)
        twin.launches, twin.seconds = self.launches, self.seconds
        return twin
