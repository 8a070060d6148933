"""Which SGLang releases print a log like this one: SGLang never says its version, its formats do."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from patchbisect.startup.life import Life
from patchbisect.startup.ranks import Mark
from patchbisect.startup.vocabulary import Kind

Number = tuple[int, int, int]

OLDEST: Number = (0, 4, 0)
NEWEST: Number = (0, 5, 23)
"""The releases whose messages were read. A newer one may print the same."""


@dataclass(frozen=True, slots=True)
class Releases:
    """From ``low`` to ``high``, both included."""

    low: Number = OLDEST
    high: Number = NEWEST

    def __and__(self, other: Releases) -> Releases:
        """The overlap; ``self`` where there is none, for then one of the two was misread."""
        low, high = max(self.low, other.low), min(self.high, other.high)
        return Releases(low, high) if low <= high else self

    def __str__(self) -> str:
        low, high = ".".join(map(str, self.low)), ".".join(map(str, self.high))
        if self.low == self.high:
            return low
        return f"{low} or newer" if self.high == NEWEST else f"{low} to {high}"


def _between(low: str, high: str = "") -> Releases:
    return Releases(_number(low), _number(high) if high else NEWEST)


def _number(text: str) -> Number:
    major, minor, patch = text.split(".")
    return int(major), int(minor), int(patch)


# (kind, pattern that the message must have, pattern that it must not have, releases)
_FORMATS: tuple[tuple[Kind, str, str, Releases], ...] = (
    (Kind.DIST_BEGIN, "Init parallel", "", _between("0.5.21")),
    (Kind.DIST_BEGIN, "Init torch", "", _between("0.4.0", "0.5.20")),
    (Kind.DIST_END, "Init torch.*mem usage", "elapsed=", _between("0.4.4", "0.5.8")),
    (Kind.DIST_END, "Init torch.*elapsed=", "", _between("0.5.9", "0.5.20")),
    (Kind.DIST_END, "Memory baseline|Init parallel", "", _between("0.5.21")),
    (Kind.LOAD_END, "dtype=", "mem usage=", _between("0.4.0", "0.4.3")),
    (Kind.LOAD_END, "dtype=.*mem usage=", "elapsed=", _between("0.4.4", "0.5.8")),
    (Kind.LOAD_END, "elapsed=.*dtype=", "", _between("0.5.9", "0.5.9")),
    (Kind.LOAD_END, "elapsed=", "dtype=", _between("0.5.10")),
    (Kind.SIZING, "Using KV cache dtype", "", _between("0.5.3", "0.5.12")),
    (Kind.SIZING, "DSV4", "", _between("0.5.12")),
    (Kind.POOL, "KV Cache is.*K size", "#tokens", _between("0.4.2", "0.4.3")),
    (Kind.POOL, "^KV Cache is allocated.*#tokens", "dtype:", _between("0.4.4", "0.5.12")),
    (Kind.POOL, "KV Cache (?:is|VA).*dtype:", "", _between("0.5.13")),
    (Kind.POOL, "^(?:Full|SWA) KV Cache", "", _between("0.5.17")),
    (Kind.POOL, "VA upper bound", "", _between("0.5.18")),
    (Kind.POOL, "Mamba", "", _between("0.5.2")),
    (Kind.CAPTURE_BEGIN, "cuda graph begin", "avail mem", _between("0.4.0", "0.4.3")),
    (Kind.CAPTURE_BEGIN, "cuda graph begin.*avail mem", "", _between("0.4.4", "0.5.13")),
    (Kind.CAPTURE_BEGIN, "piecewise CUDA", "", _between("0.5.6", "0.5.13")),
    (Kind.CAPTURE_BEGIN, "num_tokens_per_bs=", "", _between("0.5.14", "0.5.15")),
    (Kind.CAPTURE_BEGIN, r"num_tokens_per_req=.*\bbs=", "", _between("0.5.16", "0.5.21")),
    (Kind.CAPTURE_BEGIN, "num_tokens_per_req=", r"\bbs=", _between("0.5.22")),
    (Kind.CAPTURE_END, "cuda graph end.*avail mem.*mem usage", "", _between("0.4.4", "0.4.6")),
    (Kind.CAPTURE_END, "cuda graph end.*mem usage.*avail mem", "", _between("0.4.7", "0.5.13")),
    (Kind.CAPTURE_END, r"^Capture (?:target|draft) \w+ CUDA graph end", "", _between("0.5.14")),
    (Kind.CAPTURE_END, r"CUDA graph end.*\bbs=", "", _between("0.5.22")),
    (Kind.TOTALS, "max_total", "chunked_prefill_size", _between("0.4.0", "0.4.1")),
    (Kind.TOTALS, "chunked_prefill_size", "available_", _between("0.4.2", "0.4.6")),
    (Kind.TOTALS, "available_[cg]pu_mem", "", _between("0.4.7")),
)
_COMPILED = [(kind, re.compile(has), re.compile(lacks) if lacks else None, span) for kind, has, lacks, span in _FORMATS]


def releases_of(life: Life, marks: Iterable[Mark]) -> Releases:
    """The releases that print every line as it stands here."""
    span = Releases()
    if life.args_line.startswith("server_args={"):
        span &= _between("0.5.19")
    elif life.args_line:
        span &= _between("0.4.0", "0.5.18")
    for mark in marks:
        for kind, has, lacks, releases in _COMPILED:
            if kind is mark.kind and has.search(mark.message) and not (lacks and lacks.search(mark.message)):
                span &= releases
    return span
