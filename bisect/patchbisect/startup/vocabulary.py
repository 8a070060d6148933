"""The milestone messages of SGLang 0.4.0 ... 0.5.23, one row each.

Facts read from the released packages; the comment of a row names the releases that print it. Numbers called
GB there are GiB, except host memory of the hierarchical cache (1e9 bytes).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from patchbisect.model import Stage


class Kind(Enum):
    """What a milestone line says."""

    DIST_BEGIN = "dist-begin"
    DIST_END = "dist-end"
    LOAD_BEGIN = "load-begin"
    LOAD_END = "load-end"
    SIZING = "sizing"
    POOL = "pool"
    POOL_END = "pool-end"
    HOST_POOL = "host-pool"
    KERNELS = "kernels"
    CAPTURE_BEGIN = "capture-begin"
    CAPTURE_END = "capture-end"
    CAPTURE_NOTE = "capture-note"
    TOTALS = "totals"


# (the stage that a mark stands in, the last stage that it proves to be over in its role)
MEANING: Mapping[Kind, tuple[Stage, Stage | None]] = {
    Kind.DIST_BEGIN: (Stage.DIST_INIT, Stage.IMPORT),
    Kind.DIST_END: (Stage.DIST_INIT, Stage.DIST_INIT),
    Kind.LOAD_BEGIN: (Stage.WEIGHT_LOAD, Stage.DIST_INIT),
    Kind.LOAD_END: (Stage.WEIGHT_LOAD, Stage.WEIGHT_LOAD),
    Kind.SIZING: (Stage.KV_PROFILE, Stage.WEIGHT_LOAD),
    Kind.POOL: (Stage.KV_ALLOC, Stage.KV_PROFILE),
    Kind.POOL_END: (Stage.KV_ALLOC, Stage.KV_ALLOC),
    Kind.HOST_POOL: (Stage.KV_ALLOC, Stage.KV_PROFILE),
    Kind.KERNELS: (Stage.KERNEL_WARMUP, Stage.KV_ALLOC),
    Kind.CAPTURE_BEGIN: (Stage.GRAPH_CAPTURE, Stage.KERNEL_WARMUP),
    Kind.CAPTURE_END: (Stage.GRAPH_CAPTURE, Stage.GRAPH_CAPTURE),
    Kind.CAPTURE_NOTE: (Stage.GRAPH_CAPTURE, Stage.KERNEL_WARMUP),
    Kind.TOTALS: (Stage.GRAPH_CAPTURE, Stage.GRAPH_CAPTURE),
}


@dataclass(frozen=True, slots=True)
class Milestone:
    """A message that begins with ``head`` and matches ``gate``; ``fields`` are read from it only when asked for.

    The gate demands a number where the message has one, so that a source line quoted in a traceback, which has
    ``{placeholders}`` there, is not taken for the milestone.
    """

    kind: Kind
    head: str
    gate: re.Pattern[str]
    fields: Mapping[str, re.Pattern[str]] = field(default_factory=dict)
    stage: Stage = Stage.IMPORT
    """The stage that the message stands in."""

    def read(self, message: str) -> dict[str, str]:
        """The numbers and names in ``message``, as text, by name; absent ones are left out."""
        found = {name: pattern.search(message) for name, pattern in self.fields.items()}
        return {name: match[1] for name, match in found.items() if match is not None}


_NUMBER = r"(-?\d+(?:\.\d+)?)"
_FIELDS: Mapping[str, re.Pattern[str]] = {
    name: re.compile(pattern.replace("NUM", _NUMBER))
    for name, pattern in {
        "avail": r"(?:avail mem|available_[cg]pu_mem)=NUM GB",
        "used": r"mem usage=NUM GB",
        "elapsed": r"(?:elapsed=|Time elapsed: )NUM s",
        "type": r"type=(\w+)",
        "dtype": r"dtype(?:=|: )([\w.]+)",
        "quant": r"quant=(\w+)",
        "tokens": r"(?:#tokens: |max_total_num_tokens=)(\d+)",
        "k": r"K size: NUM GB",
        "v": r"(?<!K)V size: NUM GB",
        "kv": r"KV size: NUM GB",
        "name": r"^((?:\w[\w -]* )?KV Cache)",
        "full": r"(?:full|full_layer_tokens)=(\d+)",
        "swa": r"(?:swa|swa_layer_tokens)=(\d+)",
        "cell": r"bytes_per_full_token=NUM",
        "budget": r"available_bytes=NUM GB",
        "mamba": r"^(Mamba Cache is allocated\..*)",
        "bound": r"(VA upper bound)",
        "host": r"NUM GB host memory",
        "what": r"^Capture ((?:[\w-]+ )*?)(?:(?:CUDA|cuda|cpu) graph )?(?:begin|end)\b",
        "case": r"(CUDA|cuda) graph",
        "bs": r"\bbs=(\[[^\]]*\])",
        "context": r"context_len=(\d+)",
        "requests": r"max_running_requests=(\d+)",
        "chunk": r"chunked_prefill_size=(-?\d+)",
    }.items()
}


def _row(kind: Kind, head: str, gate: str, *fields: str) -> Milestone:
    return Milestone(kind, head, re.compile(gate), {name: _FIELDS[name] for name in fields}, MEANING[kind][0])


_POOL_FIELDS = ("tokens", "k", "v", "kv", "name", "dtype", "bound")

MILESTONES: tuple[Milestone, ...] = (
    # begin: all; "Init parallel" from 0.5.21. end: from 0.4.4, "elapsed" from 0.5.9
    _row(Kind.DIST_BEGIN, "Init torch distributed begin", r"Init torch distributed begin\."),
    _row(Kind.DIST_BEGIN, "Init parallel begin", r"Init parallel begin\."),
    _row(Kind.DIST_END, "Init torch distributed ends", r"Init torch distributed ends\. ", "elapsed", "used"),
    _row(Kind.DIST_END, "Init parallel ends", r"Init parallel ends\. elapsed=\d", "elapsed"),
    _row(Kind.DIST_END, "Memory baseline taken", r"Memory baseline taken\. mem usage=-?\d", "used"),
    # all; "mem usage" from 0.4.4, "elapsed" from 0.5.9, no dtype from 0.5.10
    _row(Kind.LOAD_BEGIN, "Load weight begin", r"Load weight begin\. avail mem=-?\d", "avail"),
    _row(
        Kind.LOAD_END,
        "Load weight end",
        r"Load weight end\. (?:elapsed=\d|type=\w)",
        *("elapsed", "type", "dtype", "quant", "avail", "used"),
    ),
    # from 0.5.3 to 0.5.12
    _row(Kind.SIZING, "Using KV cache dtype", r"Using KV cache dtype: \w", "dtype"),
    # DeepSeek-V4, from 0.5.12
    _row(
        Kind.SIZING, "DSV4 memory calculation", r"DSV4 memory calculation: .*bytes_per_full_token=\d", "cell", "budget"
    ),
    _row(Kind.POOL, "DSV4 pool sizes", r"DSV4 pool sizes: full=\d", "full", "swa"),
    _row(Kind.POOL, "Initialize DeepSeekV4TokenToKVPool", r"Initialize DeepSeekV4TokenToKVPool with \w+=\d"),
    # hybrid sliding window
    *(
        _row(
            Kind.POOL,
            f"Use {word} window memory pool",
            r"Use [Ss]liding window memory pool\b.*_tokens=\d",
            "full",
            "swa",
        )
        for word in ("sliding", "Sliding")
    ),
    _row(Kind.POOL, "SWAKVPool", r"SWAKVPool .*\d GB, swa size: \d"),
    # one pool for everything, and pools sized after the graphs: the newest releases, off by default
    _row(Kind.POOL, "[unified-memory-pool]", r"\[unified-memory-pool\]"),
    _row(
        Kind.POOL,
        "Post-capture KV sizing",
        r"Post-capture KV sizing: (?:(?:draft )?KV cache allocated\. .*#tokens: |full_layer_tokens=)\d",
        *("tokens", "kv", "full", "swa"),
    ),
    # from 0.4.2; "#tokens" from 0.4.4, MLA from 0.4.6, dtype from 0.5.13, pool names from 0.5.17,
    # "VA upper bound" from 0.5.18
    *(
        _row(Kind.POOL, head, r"(?:\w[\w -]* )?KV Cache (?:is allocated|VA upper bound)\. ", *_POOL_FIELDS)
        for head in ("KV Cache is", "KV Cache VA", "Full KV Cache", "SWA KV Cache", "Draft KV Cache")
    ),
    _row(Kind.POOL, "KV Cache skipped", r"KV Cache skipped \(no-op pool\)\. Logical #tokens: \d", "tokens"),
    # from 0.5.2; "5.86GB" and "5.86 GB" both occur
    _row(Kind.POOL, "Mamba Cache is allocated", r"Mamba Cache is allocated\.", "mamba"),
    _row(Kind.POOL_END, "Memory pool end", r"Memory pool end\. avail mem=-?\d", "avail"),
    _row(Kind.HOST_POOL, "Allocating ", r"Allocating (?:\d|\S+ hierarchical KV host pool).* GB host memory", "host"),
    # from 0.5.4
    _row(Kind.KERNELS, "Running FlashInfer autotune", r"Running FlashInfer autotune"),
    _row(Kind.KERNELS, "FlashInfer autotune completed", r"FlashInfer autotune completed"),
    # decode, draft, piecewise (0.5.6-0.5.13) and prefill graphs; two-word names from 0.5.14; "bs=" moves to the
    # end line in 0.5.22
    _row(Kind.CAPTURE_BEGIN, "Capture ", r"Capture [\w -]+? begin\b", "avail", "what", "case", "bs"),
    _row(Kind.CAPTURE_END, "Capture ", r"Capture [\w -]+? end\b", "avail", "used", "elapsed", "what", "case", "bs"),
    # 0.4.7-0.5.13, rank 0
    _row(Kind.CAPTURE_NOTE, "Capture ", r"Capture (?:cuda|cpu) graph (?:bs|num tokens) \S"),
    # from 0.5.18, only with --startup-weight-load-mode=overlap
    _row(Kind.CAPTURE_NOTE, "Load weight end. Committed", r"Load weight end\. Committed real weights", "elapsed"),
    # every rank up to 0.4.6, TP rank 0 only from 0.4.7; available_cpu_mem on a CPU
    _row(
        Kind.TOTALS,
        "max_total_num_tokens=",
        r"max_total_num_tokens=\d+, ",
        *("tokens", "context", "requests", "chunk", "avail"),
    ),
)

HEAD_LENGTH = 8

HEADS: Mapping[str, tuple[Milestone, ...]] = {
    key: tuple(row for row in MILESTONES if row.head[:HEAD_LENGTH] == key)
    for key in {row.head[:HEAD_LENGTH] for row in MILESTONES}
}
"""Milestones by the first characters of the message: a message of another head is none."""


NOISE_LENGTH = 9
NOISE_HEADS = frozenset({"Prefill b", "Decode ba", "Ignore im", "Custom al", "Attention", "Load chat"})
"""First characters of messages that a healthy server prints in masses and that mean nothing for its start."""


def milestone(message: str) -> Milestone | None:
    """The row that ``message`` (without its prefix) belongs to."""
    for row in HEADS.get(message[:HEAD_LENGTH], ()):
        if row.gate.match(message) is not None:
            return row
    return None


HTTP_UP = re.compile(r"Uvicorn running on |Starting embedded Granian HTTP/2 server on |Granian.*[Ll]istening (?:at|on)")
FIRED_UP = "The server is fired up and ready to roll!"
MAMBA_GB = re.compile(r"(\d+(?:\.\d+)?) ?GB")

# --- behind a prefix of an unknown format (SGLANG_LOGGING_CONFIG_PATH) ------------------------------

_EMBEDDED = tuple(
    dict.fromkeys(
        (
            *(row.head for row in MILESTONES if len(row.head) > HEAD_LENGTH + 1),
            *("Capture cuda graph", "Capture draft", "Capture target", "Capture piecewise", "Allocating "),
            "server_args=ServerArgs(",
            "server_args={",
            FIRED_UP,
            "Scheduler hit an exception: Traceback",
            "DataParallelController hit an exception: Traceback",
            "Received sigquit from a child proces",
        )
    )
)
_PREFIX_LIMIT = 250
_HINTS = (
    *("mem=", " begin", " end", "allocated", "max_total_num", "server_args=", "fired up", "hit an exc"),
    *("Received sig", "memory pool", "DSV4", "cache dtype", "autotune", "no-op pool"),
)


def embedded(text: str) -> int | None:
    """Where a known message begins behind a prefix of unknown form. It must follow the end of a prefix, not stand
    in the middle of a word."""
    for hint in _HINTS:
        if hint in text:
            break
    else:
        return None
    for words in _EMBEDDED:
        at = text.find(words, 0, _PREFIX_LIMIT + len(words))
        if at < 0 or (at and text[at - 1] not in " ]\"'|:>)-"):
            continue
        if milestone(text[at:]) is None and HEADS.get(text[at : at + HEAD_LENGTH]):
            continue
        return at
    return None
