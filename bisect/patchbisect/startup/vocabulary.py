"""The milestone messages of SGLang 0.4.0 ... 0.5.23, one row each.

Facts read from the released packages; the comment of a row names the releases that print it. Numbers called
GB there are GiB, except host memory of the hierarchical cache (1e9 bytes).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from patchbisect.startup.ranks import Kind

_NUMBER = r"-?\d+(?:\.\d+)?"


@dataclass(frozen=True, slots=True)
class Milestone:
    """A message that begins with ``head`` (which picks the row cheaply) and matches ``pattern``."""

    head: str
    pattern: re.Pattern[str]
    kind: Kind


def _row(kind: Kind, head: str, pattern: str) -> Milestone:
    return Milestone(head, re.compile(pattern.replace("NUM", _NUMBER)), kind)


MILESTONES: tuple[Milestone, ...] = (
    # begin: all; "Init parallel" from 0.5.21. end: from 0.4.4
    _row(Kind.DIST_BEGIN, "Init torch distributed begin", r"Init torch distributed begin\."),
    _row(Kind.DIST_BEGIN, "Init parallel begin", r"Init parallel begin\."),
    _row(
        Kind.DIST_END,
        "Init torch distributed ends",
        r"Init torch distributed ends\.(?: elapsed=(?P<elapsed>NUM) s,)? mem usage=(?P<used>NUM) GB",
    ),
    _row(Kind.DIST_END, "Init parallel ends", r"Init parallel ends\.(?: elapsed=(?P<elapsed>NUM) s)?"),
    _row(Kind.DIST_END, "Memory baseline taken", r"Memory baseline taken\. mem usage=(?P<used>NUM) GB"),
    # all; "mem usage" from 0.4.4, "elapsed" from 0.5.9, no dtype from 0.5.10
    _row(Kind.LOAD_BEGIN, "Load weight begin", r"Load weight begin\. avail mem=(?P<avail>NUM) GB"),
    _row(
        Kind.LOAD_END,
        "Load weight end",
        r"Load weight end\. (?:elapsed=(?P<elapsed>NUM) s, )?type=(?P<type>\w+),(?: dtype=(?P<dtype>[\w.]+),)?"
        r".*?avail mem=(?P<avail>NUM) GB(?:, mem usage=(?P<used>NUM) GB)?",
    ),
    # from 0.5.3 to 0.5.12
    _row(Kind.SIZING, "Using KV cache dtype", r"Using KV cache dtype: (?P<dtype>[\w.]+)"),
    # DeepSeek-V4, from 0.5.12
    _row(
        Kind.SIZING,
        "DSV4 memory calculation",
        r"DSV4 memory calculation: bytes_per_full_token=(?P<cell>NUM), available_bytes=(?P<budget>NUM) GB",
    ),
    _row(Kind.POOL, "DSV4 pool sizes", r"DSV4 pool sizes: full=(?P<full>\d+), swa=(?P<swa>\d+)"),
    _row(Kind.POOL, "Initialize DeepSeekV4TokenToKVPool", r"Initialize DeepSeekV4TokenToKVPool with (?P<name>DSV4)?"),
    # hybrid sliding window
    _row(
        Kind.POOL,
        "Use sliding window memory pool",
        r"Use sliding window memory pool(?: \(all SWA\))?\. "
        r"(?:full_layer_tokens=(?P<full>\d+), )?swa_layer_tokens=(?P<swa>\d+)",
    ),
    # from 0.4.2; "#tokens" from 0.4.4, MLA from 0.4.6, dtype from 0.5.13, pool names from 0.5.17
    *(
        _row(
            Kind.POOL,
            head,
            r"(?P<name>(?:\w[\w -]* )?KV Cache) (?:is allocated|VA upper bound)\.(?: dtype: (?P<dtype>[\w.]+),)?"
            r"(?: #tokens: (?P<tokens>\d+),)? (?:K size: (?P<k>NUM) GB, V size: (?P<v>NUM) GB|KV size: (?P<kv>NUM) GB)",
        )
        for head in ("KV Cache is", "KV Cache VA", "Full KV Cache", "SWA KV Cache", "Draft KV Cache")
    ),
    _row(
        Kind.POOL,
        "KV Cache skipped",
        r"KV Cache skipped \(no-op pool\)\. Logical #tokens: (?P<tokens>\d+), physical K/V size: ~(?P<kb>NUM) KB",
    ),
    # from 0.5.2; "5.86GB" and "5.86 GB" both occur
    _row(Kind.POOL, "Mamba Cache is allocated", r"(?P<mamba>Mamba Cache is allocated\..*)"),
    _row(Kind.POOL_END, "Memory pool end", r"Memory pool end\. avail mem=(?P<avail>NUM) GB"),
    _row(Kind.HOST_POOL, "Allocating ", r"Allocating (?P<host>NUM) GB host memory for (?:hierarchical|mamba|the \w+)"),
    _row(Kind.KERNELS, "Running FlashInfer autotune", r"Running FlashInfer autotune"),
    _row(Kind.KERNELS, "FlashInfer autotune completed", r"FlashInfer autotune completed"),
    # decode, draft, piecewise and prefill graphs; names from 0.5.14
    _row(
        Kind.CAPTURE_BEGIN,
        "Capture ",
        r"Capture (?P<what>(?:[a-z]+ )*?)(?P<modern>CUDA|cuda) graph begin\b"
        r"(?:.*?\bbs=(?P<bs>\[[^\]]*\]))?(?:.*avail mem=(?P<avail>NUM) GB)?",
    ),
    _row(
        Kind.CAPTURE_END,
        "Capture ",
        r"Capture (?P<what>(?:[a-z]+ )*?)(?P<modern>CUDA|cuda) graph end\b"
        r"(?=(?:.*mem usage=(?P<used>NUM) GB)?)(?=(?:.*(?:elapsed=|Time elapsed: )(?P<elapsed>NUM) s)?)"
        r"(?:.*avail mem=(?P<avail>NUM) GB)?",
    ),
    # every rank up to 0.4.6, TP rank 0 only from 0.4.7; available_cpu_mem on a CPU
    _row(
        Kind.TOTALS,
        "max_total_num_tokens=",
        r"max_total_num_tokens=(?P<tokens>\d+),(?=(?:.*context_len=(?P<context>\d+))?)"
        r"(?:.*max_running_requests=(?P<requests>\d+))?(?:.*available_[cg]pu_mem=(?P<avail>NUM) GB)?",
    ),
)

HEAD_LENGTH = 8

HEADS: Mapping[str, tuple[Milestone, ...]] = {
    key: tuple(row for row in MILESTONES if row.head[:HEAD_LENGTH] == key)
    for key in {row.head[:HEAD_LENGTH] for row in MILESTONES}
}


def milestone(message: str) -> tuple[Milestone, re.Match[str]] | None:
    """The row that ``message`` (without its prefix) belongs to."""
    for row in HEADS.get(message[:HEAD_LENGTH], ()):
        found = row.pattern.match(message)
        if found is not None:
            return row, found
    return None


# A milestone behind a prefix of an unknown format (SGLANG_LOGGING_CONFIG_PATH): the words must follow the
# end of a prefix, and a number must be there, so that a source line in a traceback is not taken for it.
EMBEDDED = re.compile(
    r"(?:^|[\]\"'|:>)-] ?|\s)(?P<message>(?:"
    + "|".join(re.escape(head) for head in sorted({row.head for row in MILESTONES if len(row.head) > 10}))
    + r"|Capture [\w ]*(?:cuda|CUDA) graph (?:begin|end)"
    + r"|server_args=(?:ServerArgs\(|\{)|The server is fired up and ready to roll!|[A-Za-z]+ hit an exception: Traceback"
    + r"|Received sigquit from a child proces|Uvicorn running on http)"
    + r".*)"
)
RANK_WORDS = re.compile(r"(?<![\w-])(?:DP|TP|PP|EP|ATTN_CP|MOE_DP)\d+(?![\w.])")
ANY_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?")

HTTP_UP = re.compile(r"Uvicorn running on |Starting embedded Granian HTTP/2 server on |Granian.*[Ll]istening (?:at|on)")
FIRED_UP = "The server is fired up and ready to roll!"
MAMBA_GB = re.compile(r"(\d+(?:\.\d+)?) ?GB")
