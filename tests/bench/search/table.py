"""The rows of the table: who plays in which world, what is wanted of it, and how it went."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from patchbisect.search import Rates
from tests.bench.search import others, worlds
from tests.bench.search.worlds import Run, World

Player = Callable[[np.random.Generator], Run]


@dataclass(frozen=True)
class Row:
    """One line of the table: who plays in which world, how often, and what is wanted of it."""

    world: str
    player: str
    play: Player
    worlds: int
    launches: float | None = None
    right: float = 0.9
    rounds: bool = False


def rows() -> Iterator[Row]:
    for before, after, told, unknown in (
        (0, 1, None, 9.5),
        (0, 0.9, 10, 13),
        (0, 0.5, 23, 48),
        (0.05, 0.95, 11.5, 13.5),
        (0.1, 0.9, 15, 19),
    ):
        world = World(128, before, after)
        name = f"n=128, {before:g}/{after:g}"
        if told is None:
            yield Row(name, "deterministic()", timeline(world, Rates.deterministic()), 400, 7.0, right=1.0)
        else:
            yield Row(name, "told", timeline(world, Rates.told(before, after)), 400, told)
        yield Row(name, "unknown()", timeline(world, Rates.unknown()), 400, unknown)
        yield from beside(name, world, 400)
    large = World(1024, 0.2, 0.8)
    yield Row("n=1024, .2/.8", "told", timeline(large, Rates.told(0.2, 0.8)), 200, 40)
    yield Row("n=1024, .2/.8", "unknown()", timeline(large, Rates.unknown()), 200, 55)
    yield from beside("n=1024, .2/.8", large, 200)
    idle = World(128, 0.1, 0.1, guilty=False)
    yield Row("n=128, nothing guilty, p=.1", "unknown()", timeline(idle, Rates.unknown()), 400, 60)
    yield from beside("n=128, nothing guilty, p=.1", idle, 400)
    for name, skips in (("band of 20 % SKIPs", worlds.band), ("20 % SKIPs, scattered", worlds.scattered)):
        world = World(128, 0, 1, skips=skips)
        yield Row(f"n=128, 0/1, {name}", "deterministic()", timeline(world, Rates.deterministic()), 400, 11, right=1.0)
        yield Row(f"n=128, 0/1, {name}", "unknown()", timeline(world, Rates.unknown()), 400, 14)
    four = World(1024, 0.05, 0.95, parallel=4)
    told = Rates.told(0.05, 0.95)
    yield Row("n=1024, .05/.95, 4 at once: rounds", "told", timeline(four, told), 200, 6.8, rounds=True)
    yield Row("n=1024, .05/.95, 4 at once: rounds", "unknown()", timeline(four, Rates.unknown()), 200, 7.5, rounds=True)
    suspect = World(16, 0, 1, prior_on_culprit=0.8)
    yield Row("n=16, prior 80 % right", "deterministic()", timeline(suspect, Rates.deterministic()), 400, 3, right=1.0)
    yield Row("n=16, prior 80 % right", "unknown()", timeline(suspect, Rates.unknown()), 400, 4.5)
    for toggles, size, clean, unknown in ((40, 2, 12, 18), (64, 3, 18.5, 27)):
        name = f"{toggles} toggles, {size} guilty together"
        yield Row(name, "deterministic()", sets(toggles, size, Rates.deterministic()), 200, clean, right=1.0)
        yield Row(name, "unknown()", sets(toggles, size, Rates.unknown()), 200, unknown)


def beside(name: str, world: World, count: int) -> Iterator[Row]:
    """The same world for plain binary search, majority of 5, and git_bayesect where it is installed."""
    yield Row(name, "binary search", lambda rng: others.binary_search(world, rng, votes=1), count)
    yield Row(name, "majority of 5", lambda rng: others.binary_search(world, rng, votes=5), count)
    if importlib.util.find_spec("git_bayesect"):
        yield Row(name, "git_bayesect", lambda rng: others.bayesect(world, rng), count // 4)


def timeline(world: World, rates: Rates) -> Player:
    return lambda rng: worlds.run(world, rates, rng)


def sets(toggles: int, size: int, rates: Rates) -> Player:
    return lambda rng: worlds.run_set(toggles=toggles, size=size, rates=rates, rng=rng)


OURS = ("deterministic()", "told", "unknown()")


@dataclass(frozen=True)
class Score:
    """What a row came to."""

    right: float
    claimed: float
    mean: float
    error: float
    p95: float
    milliseconds: float
    """Of thinking, for each launch."""

    def line(self, row: Row) -> str:
        wanted = "" if row.launches is None else f"<= {row.launches:g}"
        met = "" if row.launches is None else ("yes" if self.meets(row) else "NO")
        return (
            f"{row.world:36} {row.player:16} {self.right:7.1%} {self.claimed:8.3f} {self.mean:8.2f} ±{self.error:4.2f}"
            f" {self.p95:5.0f} {wanted:>8} {met:4} {self.milliseconds:7.2f}"
        )

    def meets(self, row: Row) -> bool:
        return row.launches is None or (self.mean <= row.launches and self.right >= row.right)


HEADER = (
    f"{'world':36} {'who':16} {'right':>7} {'claimed':>8} {'launches':>14} {'p95':>5} {'wanted':>8} {'met':4}"
    f" {'ms each':>7}"
)


def play(row: Row, *, seed: int, share: float = 1.0) -> Score:
    """Play a ``share`` of the row's worlds. Each world has its own seed, so its culprit is the same for everybody."""
    started = time.perf_counter()
    runs = [row.play(np.random.default_rng([seed, world])) for world in range(max(1, round(row.worlds * share)))]
    spent = time.perf_counter() - started
    counts = [run.rounds if row.rounds else run.launches for run in runs]
    claimed = [run.answer.confidence for run in runs if run.answer]
    return Score(
        right=float(np.mean([run.right for run in runs])),
        claimed=float(np.mean(claimed)) if claimed else float("nan"),
        mean=float(np.mean(counts)),
        error=float(np.std(counts) / np.sqrt(len(counts))),
        p95=float(np.percentile(counts, 95)),
        milliseconds=1e3 * spent / max(1, sum(run.launches for run in runs)),
    )
