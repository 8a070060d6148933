"""The table of the search: ``python -m tests.bench.search --seed 1`` (``--share 0.1`` for a tenth of the worlds)."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np

from tests.bench.search.table import HEADER, OURS, play, rows


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--share", type=float, default=1.0, help="share of the worlds to play")
    parser.add_argument("--ours", action="store_true", help="leave the other tools out")
    asked = parser.parse_args(argv)
    print(HEADER)
    accuracies = []
    for row in rows():
        if row.player in OURS or not asked.ours:
            score = play(row, seed=asked.seed, share=asked.share)
            print(score.line(row), flush=True)
            if row.player == "unknown()":
                accuracies.append(score.right)
    print(f"right over the mix, rates unknown, each row once: {np.mean(accuracies):.1%}")


if __name__ == "__main__":
    main()
