# ruff: noqa: E501  (messages stand whole)
"""Each milestone message, with the releases that print it and the numbers that it holds."""

from __future__ import annotations

import pytest

from patchbisect.model import Role, Signals, Stage
from patchbisect.startup import Classifier, classify
from patchbisect.startup.vocabulary import Kind, embedded, milestone
from tests.startup.formats import Server

ROWS = (
    # (releases, message, kind, fields)
    ("0.4.0-0.5.20", "Init torch distributed begin.", Kind.DIST_BEGIN, {}),
    ("0.5.21-", "Init parallel begin.", Kind.DIST_BEGIN, {}),
    ("0.4.4-0.5.8", "Init torch distributed ends. mem usage=0.40 GB", Kind.DIST_END, {"used": "0.40"}),
    ("0.5.9-0.5.20", "Init torch distributed ends. elapsed=4.10 s, mem usage=-0.01 GB", Kind.DIST_END, {"elapsed": "4.10", "used": "-0.01"}),
    ("0.5.21-", "Init parallel ends. elapsed=4.10 s", Kind.DIST_END, {"elapsed": "4.10"}),
    ("0.5.21-", "Memory baseline taken. mem usage=0.40 GB", Kind.DIST_END, {"used": "0.40"}),
    ("all", "Load weight begin. avail mem=94.30 GB", Kind.LOAD_BEGIN, {"avail": "94.30"}),
    ("a report", "Load weight begin. avail mem=78.8 GB", Kind.LOAD_BEGIN, {"avail": "78.8"}),
    ("0.4.0-0.4.3", "Load weight end. type=A, dtype=torch.bfloat16, avail mem=7.61 GB", Kind.LOAD_END, {"type": "A", "dtype": "torch.bfloat16", "avail": "7.61"}),
    ("0.4.4-0.5.8", "Load weight end. type=A, dtype=torch.bfloat16, avail mem=7.61 GB, mem usage=36.44 GB.", Kind.LOAD_END, {"type": "A", "dtype": "torch.bfloat16", "avail": "7.61", "used": "36.44"}),
    ("0.5.9", "Load weight end. elapsed=5.00 s, type=A, dtype=torch.bfloat16, avail mem=7.61 GB, mem usage=36.44 GB.", Kind.LOAD_END, {"elapsed": "5.00", "type": "A", "dtype": "torch.bfloat16", "avail": "7.61", "used": "36.44"}),
    ("0.5.10-", "Load weight end. elapsed=5.00 s, type=A, quant=fp8, avail mem=7.61 GB, mem usage=36.44 GB.", Kind.LOAD_END, {"elapsed": "5.00", "type": "A", "quant": "fp8", "avail": "7.61", "used": "36.44"}),
    ("0.5.18-, overlap", "Load weight end. Committed real weights after CUDA graph capture in 1.00 s (capture overlap window 2.00 s, startup overlap total 3.00 s)", Kind.CAPTURE_NOTE, {}),
    ("0.5.3-0.5.12", "Using KV cache dtype: torch.bfloat16", Kind.SIZING, {"dtype": "torch.bfloat16"}),
    ("0.4.2-0.4.3", "KV Cache is allocated. K size: 1.00 GB, V size: 2.00 GB.", Kind.POOL, {"k": "1.00", "v": "2.00", "name": "KV Cache"}),
    ("0.4.4-0.5.12", "KV Cache is allocated. #tokens: 7, K size: 1.00 GB, V size: 2.00 GB", Kind.POOL, {"tokens": "7", "k": "1.00", "v": "2.00", "name": "KV Cache"}),
    ("0.4.6-0.5.12, MLA", "KV Cache is allocated. #tokens: 7, KV size: 3.00 GB", Kind.POOL, {"tokens": "7", "kv": "3.00", "name": "KV Cache"}),
    ("0.5.13-0.5.16", "KV Cache is allocated. dtype: torch.float8_e4m3fn, #tokens: 7, K size: 1.00 GB, V size: 2.00 GB", Kind.POOL, {"dtype": "torch.float8_e4m3fn", "tokens": "7", "k": "1.00", "v": "2.00", "name": "KV Cache"}),
    ("0.5.17-", "Full KV Cache is allocated. dtype: torch.bfloat16, #tokens: 7, KV size: 3.00 GB", Kind.POOL, {"dtype": "torch.bfloat16", "tokens": "7", "kv": "3.00", "name": "Full KV Cache"}),
    ("0.5.17-", "SWA KV Cache is allocated. dtype: torch.bfloat16, #tokens: 7, K size: 1.00 GB, V size: 2.00 GB", Kind.POOL, {"dtype": "torch.bfloat16", "tokens": "7", "k": "1.00", "v": "2.00", "name": "SWA KV Cache"}),
    ("0.5.18-", "KV Cache VA upper bound. dtype: torch.bfloat16, #tokens: 7, K size: 1.00 GB, V size: 2.00 GB", Kind.POOL, {"dtype": "torch.bfloat16", "tokens": "7", "k": "1.00", "v": "2.00", "name": "KV Cache", "bound": "VA upper bound"}),
    ("0.5.12-", "KV Cache skipped (no-op pool). Logical #tokens: 7, physical K/V size: ~1.5 KB placeholder", Kind.POOL, {"tokens": "7"}),
    ("0.5.4-", "Mamba Cache is allocated. max_mamba_cache_size: 4, conv_state size: 0.11GB, ssm_state size: 5.86GB ", Kind.POOL, {"mamba": "Mamba Cache is allocated. max_mamba_cache_size: 4, conv_state size: 0.11GB, ssm_state size: 5.86GB "}),
    ("0.4.10-0.5.4", "Use Sliding window memory pool. full_layer_tokens=9, swa_layer_tokens=7", Kind.POOL, {"full": "9", "swa": "7"}),
    ("0.5.5-", "Use sliding window memory pool. full_layer_tokens=9, swa_layer_tokens=7", Kind.POOL, {"full": "9", "swa": "7"}),
    ("0.5.9, all SWA", "Use sliding window memory pool (all SWA). swa_layer_tokens=7", Kind.POOL, {"swa": "7"}),
    ("0.5.12-", "DSV4 memory calculation: bytes_per_full_token=11213.71, available_bytes=30.52 GB, c128_state_fixed=0.41 GB, full_token=9", Kind.SIZING, {"cell": "11213.71", "budget": "30.52"}),
    ("0.5.2x", "DSV4 memory calculation: unified=True, unified_fp8=False, dspark_draft_bf16=0, bytes_per_full_token=11213.71, available_bytes=30.52 GB", Kind.SIZING, {"cell": "11213.71", "budget": "30.52"}),
    ("0.5.12-", "DSV4 pool sizes: full=9, swa=7, c4=2, c128=1", Kind.POOL, {"full": "9", "swa": "7"}),
    ("all", "Memory pool end. avail mem=10.88 GB", Kind.POOL_END, {"avail": "10.88"}),
    ("0.5.x", "Allocating 30.00 GB host memory for hierarchical KV cache.", Kind.HOST_POOL, {"host": "30.00"}),
    ("0.5.2x", "Allocating MHA hierarchical KV host pool: 100 tokens, 30.00 GB host memory.", Kind.HOST_POOL, {"host": "30.00"}),
    ("0.4.0-0.4.3", "Capture cuda graph begin. This can take up to several minutes.", Kind.CAPTURE_BEGIN, {"what": "", "case": "cuda"}),
    ("0.4.4-0.5.13", "Capture cuda graph begin. This can take up to several minutes. avail mem=45.60 GB", Kind.CAPTURE_BEGIN, {"what": "", "case": "cuda", "avail": "45.60"}),
    ("0.4.4-0.5.13", "Capture draft cuda graph begin. This can take up to several minutes. avail mem=45.60 GB", Kind.CAPTURE_BEGIN, {"what": "draft ", "case": "cuda", "avail": "45.60"}),
    ("a report", "Capture draft extend cuda graph begin (step 2). This can take up to several minutes. avail mem=15.38 GB", Kind.CAPTURE_BEGIN, {"what": "draft extend ", "case": "cuda", "avail": "15.38"}),
    ("0.5.14-0.5.15", "Capture target decode CUDA graph begin. backend=full, num_tokens_per_bs=1, bs=[1, 2], avail mem=1.50 GB", Kind.CAPTURE_BEGIN, {"what": "target decode ", "case": "CUDA", "bs": "[1, 2]", "avail": "1.50"}),
    ("0.5.16-0.5.21", "Capture target verify CUDA graph begin. backend=full, num_tokens_per_req=6, bs=[1, 2], avail mem=1.50 GB", Kind.CAPTURE_BEGIN, {"what": "target verify ", "case": "CUDA", "bs": "[1, 2]", "avail": "1.50"}),
    ("0.5.22-", "Capture draft decode CUDA graph begin. backend=full, num_tokens_per_req=6, avail mem=1.50 GB", Kind.CAPTURE_BEGIN, {"what": "draft decode ", "case": "CUDA", "avail": "1.50"}),
    ("0.5.6-0.5.13", "Capture piecewise CUDA graph begin. avail mem=1.50 GB", Kind.CAPTURE_BEGIN, {"what": "piecewise ", "case": "CUDA", "avail": "1.50"}),
    ("0.5.14-", "Capture target prefill CUDA graph begin. backend=breakable, num_tokens=[4, 8], avail mem=1.50 GB", Kind.CAPTURE_BEGIN, {"what": "target prefill ", "case": "CUDA", "avail": "1.50"}),
    ("0.5.2x", "Capture Frozen-KV MTP draft cuda graph begin.", Kind.CAPTURE_BEGIN, {"what": "Frozen-KV MTP draft ", "case": "cuda"}),
    ("0.4.0-0.4.3", "Capture cuda graph end. Time elapsed: 12.50 s", Kind.CAPTURE_END, {"what": "", "case": "cuda", "elapsed": "12.50"}),
    ("0.4.4-0.4.6", "Capture cuda graph end. Time elapsed: 12.50 s. avail mem=1.00 GB. mem usage=2.00 GB.", Kind.CAPTURE_END, {"what": "", "case": "cuda", "elapsed": "12.50", "avail": "1.00", "used": "2.00"}),
    ("0.4.7-0.5.13", "Capture cuda graph end. Time elapsed: 12.50 s. mem usage=-2.00 GB. avail mem=1.00 GB.", Kind.CAPTURE_END, {"what": "", "case": "cuda", "elapsed": "12.50", "avail": "1.00", "used": "-2.00"}),
    ("0.5.14-0.5.21", "Capture target verify CUDA graph end. elapsed=23.10 s, mem usage=0.92 GB, avail mem=9.79 GB.", Kind.CAPTURE_END, {"what": "target verify ", "case": "CUDA", "elapsed": "23.10", "used": "0.92", "avail": "9.79"}),
    ("0.5.22-", "Capture target decode CUDA graph end. bs=[1, 2], elapsed=23.10 s, mem usage=0.92 GB, avail mem=9.79 GB.", Kind.CAPTURE_END, {"what": "target decode ", "case": "CUDA", "bs": "[1, 2]", "elapsed": "23.10", "used": "0.92", "avail": "9.79"}),
    ("0.4.7-0.5.13", "Capture cuda graph bs [1, 2, 4]", Kind.CAPTURE_NOTE, {}),
    ("0.4.0-0.4.1", "max_total_num_tokens=7, max_prefill_tokens=16384, max_running_requests=48, context_len=8192", Kind.TOTALS, {"tokens": "7", "requests": "48", "context": "8192"}),
    ("0.4.2-0.4.6", "max_total_num_tokens=7, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=48, context_len=8192", Kind.TOTALS, {"tokens": "7", "chunk": "8192", "requests": "48", "context": "8192"}),
    ("0.4.7-", "max_total_num_tokens=7, chunked_prefill_size=-1, max_prefill_tokens=16384, max_running_requests=48, context_len=8192, available_gpu_mem=9.71 GB", Kind.TOTALS, {"tokens": "7", "chunk": "-1", "requests": "48", "context": "8192", "avail": "9.71"}),
    ("0.5.2-, CPU", "max_total_num_tokens=7, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=48, context_len=8192, available_cpu_mem=9.71 GB", Kind.TOTALS, {"tokens": "7", "chunk": "8192", "requests": "48", "context": "8192", "avail": "9.71"}),
)  # fmt: skip


@pytest.mark.parametrize(
    ("message", "kind", "fields"), [row[1:] for row in ROWS], ids=[f"{row[0]}: {row[1][:40]}" for row in ROWS]
)
def test_a_message_and_its_numbers(message: str, kind: Kind, fields: dict[str, str]) -> None:
    row = milestone(message)
    assert row is not None and row.kind is kind
    assert row.read(message) == fields


@pytest.mark.parametrize(
    "source",
    [
        'Memory pool end. avail mem={get_available_gpu_memory(self.device):.2f} GB"',
        'Load weight begin. avail mem={x:.2f} GB"',
        "max_total_num_tokens={self.max_total_num_tokens}, ",
        "Capture cuda graph failed: CUDA out of memory",
        "KV Cache is a dictionary",
    ],
)
def test_source_lines_are_no_milestones(source: str) -> None:
    assert milestone(source) is None


@pytest.mark.parametrize(
    ("prefix", "rank"),
    [
        ("[2025-01-31 12:00:00]", ""),
        ("[2025-01-31 12:00:00 TP0]", "TP0"),
        ("[2025-01-31 12:00:00 DP1 TP0]", "DP1 TP0"),
        ("[2025-01-31 12:00:00 DP1 TP0 PP2]", "DP1 TP0 PP2"),
        ("[2025-01-31 12:00:00 DP1 TP0 EP3 PP2]", "DP1 TP0 EP3 PP2"),
        ("[2025-01-31 12:00:00 DP1 PP2 TP0 EP3]", "DP1 PP2 TP0 EP3"),
        ("[2025-01-31 12:00:00 DP1 PP2 ATTN_CP4 MOE_DP5 TP0 EP3]", "DP1 PP2 ATTN_CP4 MOE_DP5 TP0 EP3"),
        ("[2025-01-31 12:00:00.123 TP0]", "TP0"),
        ("[2025-01-31 12:00:00,123 TP0]", "TP0"),
    ],
)
def test_the_prefixes_of_all_releases(prefix: str, rank: str) -> None:
    (event,) = Classifier().feed(f"{prefix} Memory pool end. avail mem=1.00 GB\n")
    assert (event.rank, event.role, event.stage) == (rank, Role.TARGET, Stage.KV_ALLOC)


def test_known_words_follow_a_prefix_and_not_a_word() -> None:
    assert embedded("x [a.py:1] Memory pool end. avail mem=1.00 GB") == 11
    assert embedded("xMemory pool end. avail mem=1.00 GB") is None
    assert embedded("x: Memory pool end. avail mem={y} GB") is None


def test_a_pool_that_was_only_reserved_is_not_counted() -> None:
    """Post-capture sizing: the upper bound is address space; the pool comes after the graphs."""
    server = Server((0, 5, 18), draft=True)
    text = server.args() + server.dist() + server.load()
    text += server.said(
        "KV Cache VA upper bound. dtype: torch.bfloat16, #tokens: 900000, K size: 60.00 GB, V size: 60.00 GB", 5
    )
    text += server.said("Memory pool end. avail mem=49.00 GB", 5) + server.graphs(before=49.0)
    text += server.said(
        "Post-capture KV sizing: KV cache allocated. dtype: torch.bfloat16, #tokens: 300000, KV size: 40.00 GB, avail mem=6.00 GB",
        20,
    )
    text += server.said(
        "Post-capture KV sizing: draft KV cache allocated. dtype: torch.bfloat16, #tokens: 300000, KV size: 2.00 GB", 20
    )
    facts = classify(text, Signals(alive=True)).facts
    assert (facts["kv_tokens"], facts["kv_gb"], facts["draft_kv_gb"]) == (300000, 40.0, 2.0)
