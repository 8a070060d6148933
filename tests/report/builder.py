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
            "sglang": f"/srv/box/trees/{tree[:8]}/python/sglang/__init__.py",
            "packages": versions or {"torch": "2.9.1", "transformers": "4.57.1"},
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


UNBOUND: dict[str, Any] = {
    "outcome": "crash",
    "stage": "kv-profile",
    "cause": "unbound-name",
    "role": "target",
    "signature": "crash/kv-profile/target/unbound-name/UnboundLocalError/"
    "model_runner_kv_cache_mixin.py:profile_max_num_token",
    "reached_ready": False,
    "deciding": {
        "line": 93,
        "text": "UnboundLocalError: cannot access local variable 'rest_memory' where it is not associated with a value",
        "rank": "",
    },
    "facts": {"avail_gb": 22.07, "total_gb": 22.07, "mem_fraction": 0.05, "tp": 1},
    "passed": ["target:import", "target:dist-init", "target:weight-load"],
    "why": "the server failed in kv-profile (unbound-name): UnboundLocalError: cannot access local variable",
    "advice": "",
}

SLUGS = ("log-sizes", "time-imports", "print-ranks", "count-tokens", "print-rest", "log-env", "dump-args", "say-hello")
CULPRIT = 5


def queue(length: int = len(SLUGS)) -> list[str]:
    """Names of patches; the fifth is the guilty one."""
    return [f"{n:04d}-{SLUGS[n - 1] if n <= len(SLUGS) else f'more-{n}'}" for n in range(1, length + 1)]


def bisection(store: Store, *, length: int = len(SLUGS), identifier: str = "20261129-190000-b15e") -> dict[str, Any]:
    """A finding over a queue in which patch 5 breaks the start, with a record for each launch."""
    names = queue(length)
    trials: list[dict[str, Any]] = []

    def launch(purpose: str, position: int | None, *, patches: list[str], point: str) -> str:
        bad = names[CULPRIT - 1] in patches
        run = f"20261129-19{len(trials):02d}00-{len(trials):04x}"
        made = record(run, point=point, patches=patches, verdict=UNBOUND if bad else READY)
        save(store, made, log=case("cpu/04-unbound" if bad else "cpu/03-patch-good"))
        shown = ("outcome", "stage", "cause", "signature", "deciding", "why", "facts")
        trials.append(
            {
                "purpose": purpose,
                "why": "halves what is left" if purpose == "search" else "",
                "position": position,
                "point": point,
                "run": run,
                "observation": "bad" if bad else "good",
                "verdict": {key: made.verdict[key] for key in shown},
                "seconds": 9.9,
            }
        )
        return run

    def at(position: int, purpose: str) -> str:
        return launch(purpose, position, patches=names[:position], point=str(position) if position else "clean")

    at(length, "bad end")
    at(0, "good end")
    low, high = 0, length
    while high - low > 1:
        middle = (low + high) // 2
        at(middle, "search")
        low, high = (low, middle) if middle >= CULPRIT else (middle, high)
    runs = {trial["position"]: trial["run"] for trial in trials}
    without = launch("proof", None, patches=[n for n in names if n != names[CULPRIT - 1]], point=f"HEAD-{CULPRIT}")
    changes = [
        {"position": k, "kind": "queue", "id": name, "title": f"add {name}: {name.partition('-')[2]}"}
        for k, name in enumerate(names, start=1)
    ]
    by_hand = (
        "SGLANG_USE_CPU_ENGINE=1 PYTHONPATH=/srv/box/trees/{}/python /srv/venv/bin/python -m sglang.launch_server "
        "--model-path /srv/models/tiny --load-format dummy --device cpu --mem-fraction-static 0.05 --port 31000"
    )
    return {
        "id": identifier,
        "answer": "found",
        "reason": f"{names[CULPRIT - 1]} breaks the start: with it kv-profile fails, without it the server is ready",
        "culprit": changes[CULPRIT - 1],
        "candidates": [changes[CULPRIT - 1]],
        "confidence": 1.0,
        "assumed_deterministic": True,
        "target": UNBOUND["signature"],
        "launches": len(trials),
        "proof": {
            "culprit_bad": {"status": "confirmed", "run": runs[CULPRIT]},
            "parent_good": {"status": "confirmed", "run": runs[CULPRIT - 1]},
            "without_culprit_good": {"status": "confirmed", "run": without},
            "alone_bad": {"status": f"not testable: {names[CULPRIT - 1]} builds on 0004", "run": None},
        },
        "good": "clean",
        "bad": "HEAD",
        "timeline": changes,
        "trials": trials,
        "reproduce": {
            "culprit": {"task": f"invoke launch --point run:{runs[CULPRIT]}", "by_hand": by_hand.format("c0ffee")},
            "parent": {"task": f"invoke launch --point run:{runs[CULPRIT - 1]}", "by_hand": by_hand.format("beef")},
        },
    }
