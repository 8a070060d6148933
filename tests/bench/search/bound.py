"""How few launches a clean world can cost a search that is not to be fooled: ``python -m tests.bench.search.bound``.

Two worlds only, equally many changes in both: a verdict never lies (0/1), or the culprit fails every other time
(0/.5). A search that stops while every verdict agrees with its suspect is right in the first world and may have
been lucky in the second. This finds, by dynamic programming over all policies, the least mean number of launches at
0/1 for a given share of lucky wrong answers at 0/.5. Whatever else a search is asked for can only add to it.
"""

from __future__ import annotations

from functools import cache

import numpy as np

CHANGES = 128
MOST_CONFIRMATIONS = 14
MOST_BADS = 16
LUCK = np.concatenate([[0.0], np.geomspace(0.25, CHANGES, 40)])
"""Grid for the luck collected: the sum, over the changes already excluded, of the chance of the GOODs that did it,
in units of the chance of the BADs seen so far (each BAD halves that unit)."""


def policy(price: float) -> tuple[np.ndarray, np.ndarray]:
    """Least total cost of m changes after b BADs, and which one to test; a wrong answer costs ``price`` launches."""
    cost = np.zeros((CHANGES + 1, MOST_BADS + 1, len(LUCK)))
    best = np.zeros((CHANGES + 1, MOST_BADS + 1, len(LUCK)), dtype=int)
    confirmations = np.arange(MOST_CONFIRMATIONS)[:, None]
    for bads in range(MOST_BADS + 1):
        wrong = price * 2.0**-bads * LUCK[None, :] * 2.0**-confirmations
        cost[1, bads] = (confirmations + wrong).min(axis=0)
    for left in range(2, CHANGES + 1):
        for bads in range(MOST_BADS, -1, -1):
            totals = [
                left + cost[k, min(bads + 1, MOST_BADS)] + np.interp(LUCK / 2 + k / 2, LUCK, cost[left - k, bads])
                for k in range(1, left)
            ]
            cost[left, bads] = np.min(totals, axis=0)
            best[left, bads] = np.argmin(totals, axis=0) + 1
    return cost, best


def frontier(price: float) -> tuple[float, float]:
    """Mean launches at 0/1, and the share of lucky wrong answers at 0/.5, of the best policy at that price."""
    _, best = policy(price)

    @cache
    def walk(left: int, bads: int, luck: float, launches: int) -> tuple[float, float]:
        if left == 1:
            wrong = 2.0**-bads * luck * 2.0 ** -np.arange(MOST_CONFIRMATIONS)
            m = int(np.argmin(np.arange(MOST_CONFIRMATIONS) + price * wrong))
            return launches + m, float(wrong[m])
        k = int(best[left, bads, np.abs(LUCK - luck).argmin()])
        if_bad = walk(k, bads + 1, luck, launches + 1)
        if_good = walk(left - k, bads, luck / 2 + k / 2, launches + 1)
        return if_bad[0] + if_good[0], if_bad[1] + if_good[1]

    launches, wrong = walk(CHANGES, 0, 0.0, 0)
    return launches / CHANGES, wrong / CHANGES


def main() -> None:
    print("least mean launches at 0/1    lucky wrong answers at 0/.5")
    for price in (8, 10, 12, 14, 16, 20, 24, 32):
        launches, wrong = frontier(price)
        print(f"{launches:25.2f} {wrong:30.1%}")


if __name__ == "__main__":
    main()
