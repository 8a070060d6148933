"""Records, logs and findings to look at, without a box: what a trial would have left behind."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from patchbisect.records import Attachments, PatchEntry, PointEntry, Record, Store

PIN = "bbe9c7eeb520b0a67e92d133dfc137a3688dc7f2"
CASES = Path(__file__).parent.parent / "startup" / "cases"

READY: dict[str, Any] = {
    "outcome": "ready",
    "stage": "serving",
    "cause": None,
    "role": None,
    "signature": "ready/serving/target/-/-/-",
    "reached_ready": True,
    "deciding": {"line": 80, "text": "The server is fired up and ready to roll!", "rank": ""},
    "facts": {"kv_tokens": 4096, "kv_gb": 0.01, "avail_gb": 21.4, "total_gb": 22.1, "mem_fraction": 0.05, "tp": 1},
    "passed": [],
    "why": "the server answered its first request",
    "advice": "",
}
OOM: dict[str, Any] = {
    "outcome": "oom",
    "stage": "kv-profile",
    "cause": "kv-profile",
    "role": "target",
    "signature": "oom/kv-profile/target/kv-profile/RuntimeError/model_runner_kv_cache_mixin.py:init_memory_pool",
    "reached_ready": False,
    "deciding": {"line": 89, "text": "RuntimeError: Not enough memory. Please try to increase", "rank": ""},
    "facts": {"avail_gb": 21.53, "total_gb": 22.06, "mem_fraction": 0.02, "tp": 1},
    "passed": ["target:import", "target:dist-init", "target:weight-load"],
    "why": "the weights leave no room for a KV pool",
    "advice": "raise --mem-fraction-static",
}


def patch_text(name: str, *, body: str = "Say what the sizing saw.", code: str = "print('sizing')") -> str:
    """A patch file that adds one line."""
    number, _, slug = name.partition("-")
    return (
        f"From {'0' * 40} Mon Sep 17 00:00:00 2001\nFrom: Ada <ada@example.org>\n"
        f"Date: Sun, 29 Nov 2026 12:00:00 +0000\nSubject: [PATCH {int(number)}] {slug}\n\n{body}\n\n"
        "Kind: instrumentation\nForwarded: not-needed\n---\n"
        "diff --git a/python/sglang/srt/x.py b/python/sglang/srt/x.py\n"
        "--- a/python/sglang/srt/x.py\n+++ b/python/sglang/srt/x.py\n"
        f"@@ -1,2 +1,3 @@\n import os\n+{code}\n import sys\n"
    )


def record(
    identifier: str,
    *,
    point: str = "HEAD",
    patches: Iterable[str] = (),
    verdict: Mapping[str, Any] = READY,
    flags: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
    box: str = "local",
    profile: str = "tiny",
    tags: tuple[str, ...] = (),
    created: str = "2026-11-29T18:00:00+00:00",
    tree: str = "",
    machine: Mapping[str, Any] | None = None,
    versions: Mapping[str, str] | None = None,
) -> Record:
    names = tuple(patches)
    tree = tree or hashlib.sha1("".join(names).encode()).hexdigest()
    entries = tuple(
        PatchEntry(
            name=name, subject=name.partition("-")[2], sha256=hashlib.sha256(patch_text(name).encode()).hexdigest()
        )
        for name in names
    )
    return Record(
        id=identifier,
        created=created,
        box=box,
        point=PointEntry(
            name=point,
            profile=profile,
            until="serving",
            upstream="https://github.com/sgl-project/sglang.git",
            pin=PIN,
            tag="v0.5.9",
            patches=entries,
            flags=flags or {"mem-fraction-static": "0.05", "tp-size": 1},
            env=env or {},
        ),
        content_id=hashlib.sha256(tree.encode()).hexdigest(),
        code={"commit": tree, "tree": tree, "base_commit": PIN, "source": "release 0.5.9", "shifted": []},
        provenance={
            "tree": tree,
            "import_path": f"/srv/box/trees/{tree[:8]}/python/sglang",
            "versions": versions or {"torch": "2.9.1", "transformers": "4.57.1"},
        },
        machine=machine or {},
        command=("python", "-m", "sglang.launch_server", "--port", "31000"),
        by_hand="PYTHONPATH=/srv/box/trees/python python -m sglang.launch_server --port 31000",
        verdict=verdict,
        timings={"prepare": 0.4, "decide": 9.1, "stop": 0.2, "total": 9.9},
        tags=tags,
    )


def save(store: Store, made: Record, *, log: bytes = b"", **more: Any) -> Record:
    """Keep it, with the texts of its patches."""
    patches = {entry.name: patch_text(entry.name).encode() for entry in made.point.patches}
    store.save(made, Attachments(log=log, patches=patches, **more))
    return made


def case(name: str) -> bytes:
    """One of the handed logs, like ``cpu/02-mem-too-low``."""
    return (CASES / f"{name}.log").read_bytes()
