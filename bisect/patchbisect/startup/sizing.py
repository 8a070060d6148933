"""SGLang's KV sizing as arithmetic, forwards and backwards. All sizes are GiB unless a name says otherwise.

All releases share one core (srt/model_executor/model_runner.py up to 0.5.6, model_runner_kv_cache_mixin.py to
0.5.15, mem_cache/kv_cache_configurator.py after that)::

    rest   = available - total * (1 - mem_fraction_static)
    tokens = int(rest * 2**30) // cell_size

``available`` is free memory after the weights, ``total`` free memory before them; both the minimum over ranks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from patchbisect.startup.versions import Releases

GIB = 2**30
STEP = 0.001
"""Fractions are answered to this grain, rounded to the safe side."""

SMALLEST_MARGIN = 0.002
"""Added to the smallest fraction: log lines have two decimals, and the reduction over ranks is float32."""

IMPLIED_TOLERANCE = 0.01
"""Two decimals of three numbers, page alignment and float32 stay well below this on any card."""


def budget_gb(*, available: float, total: float, fraction: float) -> float:
    """What is left for KV pools; negative when the weights have eaten it."""
    return available - total * (1.0 - fraction)


def smallest_fraction(*, available: float, total: float, one_page_gb: float = 0.0) -> float:
    """The smallest fraction that leaves a pool of one page. May be above 1: then nothing fits."""
    exact = 1.0 - (available - one_page_gb) / total
    return math.ceil((exact + SMALLEST_MARGIN) / STEP) * STEP


def largest_fraction(*, total: float, needed_after_pool: float) -> float:
    """The largest fraction that leaves ``needed_after_pool`` free once the pools are filled."""
    return math.floor((1.0 - needed_after_pool / total) / STEP) * STEP


def needed_beside_pool(*, fixed: float, per_pool: float, available: float) -> float:
    """What the largest fraction must leave free, where ``fixed`` is needed and ``per_pool`` for each GiB of pool.

    The pool is ``available - needed``, so ``needed = fixed + per_pool * (available - needed)``.
    """
    return (fixed + per_pool * max(available, fixed)) / (1.0 + per_pool)


def implied_fraction(*, available: float, total: float, pool: float) -> float:
    """The fraction from which a pool of that size comes: the formula backwards."""
    return 1.0 - (available - pool) / total


# (cards below this many GiB, --chunked-prefill-size, largest graph up to tp 3, from tp 4 on): srt/server_args.py of
# 0.5.3 to 0.5.13, _handle_gpu_memory_settings
_DEFAULTS: tuple[tuple[float, int, int, int], ...] = (
    (20.0, 2048, 8, 8),
    (35.0, 2048, 24, 80),
    (60.0, 4096, 32, 160),
    (160.0, 8192, 256, 512),
    (math.inf, 16384, 512, 512),
)


def default_chunk(*, total: float) -> int:
    """``--chunked-prefill-size`` where it is not given, in tokens, by the card's memory."""
    return next(chunk for limit, chunk, _, _ in _DEFAULTS if total < limit)


def default_graph_bs(*, total: float, tp: int) -> int:
    """The largest batch that gets a graph where none is given."""
    return next(large if tp >= 4 else small for limit, _, small, large in _DEFAULTS if total < limit)


def own_reserve_gb(*, chunked_prefill: int, graph_max_bs: int, ranks: int) -> float:
    """What SGLang itself keeps free when no fraction is given (0.5.3 and later, srt/server_args.py), without its
    terms for DP attention and speculation: 512 MiB, 1.5 MiB per token of a prefill chunk, 2 MiB per graph size,
    128 MiB per rank."""
    mib = 512 + max(chunked_prefill, 2048) * 1.5 + graph_max_bs * 2 + ranks / 8 * 1024
    return mib / 1024


@dataclass(frozen=True, slots=True)
class Formula:
    """How one range of releases writes the sizing."""

    releases: Releases
    lines: tuple[str, ...]


_CORE = "rest_memory = available_gpu_memory - total_gpu_memory * (1 - mem_fraction_static)"
_FORMULAS: tuple[Formula, ...] = (
    Formula(Releases((0, 4, 0), (0, 5, 6)), (_CORE, "tokens = int(rest_memory * 2**30 // cell_size)")),
    Formula(Releases((0, 5, 7), (0, 5, 9)), (_CORE, "tokens = int(rest_memory * 2**30) // cell_size")),
    Formula(
        Releases((0, 5, 10), (0, 5, 13)),
        (
            "rest_memory = post_model_load_memory - pre_model_load_memory * (1 - mem_fraction_static)",
            "tokens = int(rest_memory * 2**30) // cell_size",
        ),
    ),
    Formula(
        Releases((0, 5, 14), (0, 5, 15)),
        (
            "rest_memory = available_gpu_memory - pre_model_load_memory * (1 - mem_fraction_static)"
            "    # the draft's weights count",
            "tokens = int(rest_memory * 2**30) // cell_size    # a pool configurator divides",
        ),
    ),
    Formula(
        Releases((0, 5, 16), (0, 5, 17)),
        (
            "slack_gb = pre_model_load_memory * (1 - mem_fraction_static)",
            "rest_memory = available - slack_gb",
            "tokens = int(rest_memory * 2**30) // cell_size",
        ),
    ),
    Formula(
        Releases((0, 5, 18), (0, 5, 23)),
        (
            "slack_gb = pre_model_load_memory * (1 - mem_fraction_static)",
            "rest_memory = available - slack_gb - mm_reservation_gb    # the last is 0 for text models",
            "tokens = int(rest_memory * 2**30) // cell_size",
        ),
    ),
)


def formula_of(releases: Releases) -> Formula:
    """The newest formula that a release of the range uses."""
    fits = [f for f in _FORMULAS if f.releases.low <= releases.high and f.releases.high >= releases.low]
    return fits[-1] if releases.low == releases.high else fits[0]
