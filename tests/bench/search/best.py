"""How near the search is to the best policy of all: ``python -m tests.bench.search.best`` (``--changes``).

With a handful of changes every policy can be tried, by dynamic programming over all that verdicts can come to. Three
worlds, equally many changes in each: 0/1, 0/.9 and 0/.5. The best policy knows that there are no others, how dear a
launch is in each and what a wrong answer costs there; the search is given the same three pairs of rates.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import cache
from math import comb
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from patchbisect.search import CulpritSearch, belief, rates
from patchbisect.search.rates import CAUTION, PAIRS, RateGrid

AFTER = np.array([1.0, 0.9, 0.5])
"""P(BAD) after the culprit in each world; before it no launch fails."""
LAUNCH = np.array([1.0, 1.0, 0.2])
"""What a launch costs in each: 0/.5 is rare, and must be right above all."""
ERROR = np.array([0.1, 0.1, 1.0])
"""What a wrong answer costs in each, in units of the price."""
OURS = ((0.002, 0.998), (0.002, 0.90), (0.002, 0.50))
PRICES = (40, 50, 60)
CAUTIONS = (0.7, 1.0, 1.4)
"""Times that of the search."""
WARINESSES = (belief.WARINESS, 1.0)
"""The second: no more caution while verdicts agree than later."""

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Rule = Callable[[int, Ints], Ints]
"""(launches so far, states) -> what is done in each: the point to launch, or minus the change to blame.

A state is a row: how often BAD was seen (one was told), then how often each of the points 1..m was GOOD, m being the
lowest point that was BAD. What lies past m counts as m, since the culprit is no later.
"""


@cache
def states(launches: int, width: int) -> NDArray[np.int8]:
    """All rows of ``width`` counts that add up to ``launches``, in lexicographic order."""
    if width == 1:
        return np.array([[launches]], dtype=np.int8)
    parts = [
        np.pad(states(launches - first, width - 1), ((0, 0), (1, 0)), constant_values=first)
        for first in range(launches + 1)
    ]
    return np.concatenate(parts)


def place(rows: Ints) -> Ints:
    """Where each row stands among ``states``."""
    width, left = rows.shape[1], rows.sum(axis=1)
    where = np.zeros(len(rows), dtype=np.int64)
    for column in range(width - 1):
        k = width - 1 - column
        table = np.array([comb(total + k, k) for total in range(int(left.max()) + 1)])
        where += table[left] - table[left - rows[:, column]]
        left = left - rows[:, column]
    return where


def likelihood(rows: Ints, *, changes: int) -> Floats:
    """P(these verdicts in this order, this culprit) for each world, row and culprit 1..m."""
    goods = np.cumsum(rows[:, :0:-1], axis=1)[:, ::-1]
    after = AFTER[:, None, None]
    return np.where(goods > 0, (1 - after) ** goods, 1.0) * after ** rows[:, :1] / changes


def seen(rows: Ints, point: int, *, bad: bool) -> Ints:
    """The rows after one more verdict at ``point``."""
    last = rows.shape[1] - 1
    after = rows.copy()
    if not bad:
        after[:, point] += 1
        return after
    after[:, 0] += 1
    return np.column_stack([after[:, :point], after[:, point:].sum(axis=1)]) if point < last else after


def best(price: float, *, changes: int, budget: int) -> Rule:
    """The policy that costs least, launches and wrong answers together, in at most ``budget`` launches."""
    does: dict[tuple[int, int], Ints] = {}
    later: dict[int, Floats] = {}
    for launches in range(budget, -1, -1):
        costs: dict[int, Floats] = {}
        for suspects in range(1, changes + 1):
            rows = states(launches, suspects + 1).astype(np.int64)
            chance = likelihood(rows, changes=changes)
            reach = chance.sum(axis=2)
            choices = {-c: price * ERROR @ (reach - chance[:, :, c - 1]) for c in range(1, suspects + 1)}
            for point in range(1, suspects + 1) if later else ():
                good, bad = (seen(rows, point, bad=bad) for bad in (False, True))
                choices[point] = LAUNCH @ reach + later[suspects][place(good)] + later[bad.shape[1] - 1][place(bad)]
            costs[suspects] = np.min(list(choices.values()), axis=0)
            does[launches, suspects] = np.array(list(choices))[np.argmin(list(choices.values()), axis=0)]
        later = costs
    return lambda launches, rows: does[launches, rows.shape[1] - 1][place(rows)]


def ours(caution: float, wariness: float, *, changes: int) -> Rule:
    """The search, with so many times its caution at 0/.5, and so wary while verdicts agree."""
    fears = CAUTION | {(0.002, 0.50): caution * CAUTION[0.002, 0.50]}
    grid = RateGrid.of(pairs={pair: PAIRS[pair] for pair in OURS}, idle={0.1: 1.0}, caution=fears)

    def does(row: Ints) -> int:
        search = CulpritSearch(changes=changes, none_prior=0.0)
        search.tally(0, good=1)
        for point, goods in enumerate(row[1:], start=1):
            search.tally(point, good=int(goods))
        search.tally(len(row) - 1, bad=int(row[0]) + 1)
        answer = search.answer()
        return min(max(search.ask()[0], 1), len(row) - 1) if answer is None else -(answer.culprit or 1)

    def rule(_: int, rows: Ints) -> Ints:
        with patch.object(rates, "_unknown_grid", return_value=grid), patch.object(belief, "WARINESS", wariness):
            return np.array([does(row) for row in rows])

    return rule


def outcome(rule: Rule, *, changes: int, budget: int) -> tuple[Floats, Floats]:
    """Mean launches and share of wrong answers in each world, exactly. When the budget is spent, somebody is blamed."""
    launched, right = np.zeros(len(AFTER)), np.zeros(len(AFTER))
    ways = {changes: np.ones(1)}
    for launches in range(budget + 1):
        after = {m: np.zeros(comb(launches + 1 + m, m)) for m in range(1, changes + 1)}
        for suspects, courses in ways.items():
            reached = np.flatnonzero(courses)
            if not len(reached):
                continue
            rows, count = states(launches, suspects + 1)[reached].astype(np.int64), courses[reached]
            chance = likelihood(rows, changes=changes)
            choice = rule(launches, rows)
            if launches == budget:
                choice = np.where(choice > 0, -1 - np.argmax(chance[-1], axis=1), choice)
            for point in range(1, suspects + 1):
                asked, blamed = choice == point, choice == -point
                right += chance[:, blamed, point - 1] @ count[blamed]
                launched += chance[:, asked].sum(axis=2) @ count[asked]
                for bad in (False, True) if asked.any() else ():
                    to = seen(rows[asked], point, bad=bad)
                    np.add.at(after[to.shape[1] - 1], place(to), count[asked])
        ways = after
    return launched, 1 - right


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--changes", type=int, default=6)
    parser.add_argument("--budget", type=int, default=20, help="launches after which a policy must answer")
    asked = parser.parse_args(argv)
    size = {"changes": asked.changes, "budget": asked.budget}
    rules = {
        f"ours, wariness {wariness:g}, caution x {times:g}": ours(times, wariness, changes=asked.changes)
        for wariness in WARINESSES
        for times in CAUTIONS
    }
    rules |= {f"best, an error costs {price}": best(price, **size) for price in PRICES}
    print(f"{'mean launches at':34}{'0/1':>8}{'0/.9':>8}{'0/.5':>8}{'wrong at 0/.9':>16}{'at 0/.5':>10}")
    for name, rule in rules.items():
        launches, wrong = outcome(rule, **size)
        print(
            f"{name:34}" + "".join(f"{mean:8.2f}" for mean in launches) + f"{wrong[1]:16.2%}{wrong[2]:10.1%}",
            flush=True,
        )


if __name__ == "__main__":
    main()
