"""What being right at 0/.5 costs everywhere else: ``python -m tests.bench.search.front`` (``--seed``, ``--share``).

The caution with which a culprit that fails every other time is feared is the one number that trades them: this plays
the rows with unknown rates for less of it and for more.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from unittest.mock import patch

from patchbisect.search import rates
from patchbisect.search.rates import CAUTION, IDLE, PAIRS, RateGrid
from tests.bench.search.table import play, rows

FEARED_MOST = (0.002, 0.50)
FACTORS = (0.5, 0.7, 1.0, 1.4, 2.0)
ROWS = ("n=128, 0/1", "n=128, 0/0.9", "n=128, 0/0.5", "n=128, 0.05/0.95", "n=128, 0.1/0.9", "n=1024, .2/.8")


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--share", type=float, default=1.0, help="share of the worlds to play; above 1, more worlds")
    asked = parser.parse_args(argv)
    print(f"{'caution':>8}" + "".join(f"{world.removeprefix('n=128, '):>22}" for world in ROWS))
    for factor in FACTORS:
        caution = CAUTION | {FEARED_MOST: CAUTION[FEARED_MOST] * factor}
        grid = RateGrid.of(pairs=PAIRS, idle=IDLE, caution=caution)
        cells = []
        with patch.object(rates, "_unknown_grid", return_value=grid):
            for row in rows():
                if row.world in ROWS and row.player == "unknown()":
                    score = play(row, seed=asked.seed, share=asked.share)
                    cells.append(f"{score.mean:9.2f} ±{score.error:4.2f} {score.right:6.1%}")
        print(f"{caution[FEARED_MOST]:8.1f}" + " ".join(cells), flush=True)


if __name__ == "__main__":
    main()
