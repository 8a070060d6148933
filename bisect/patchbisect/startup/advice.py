"""Sentences for people: why, and what to try. Pure text; no decision is made here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from patchbisect.model import Outcome, Stage, Verdict
from patchbisect.startup.failure import Failure

_WHY: Mapping[str, str] = {
    "kv-profile": "after the weights, --mem-fraction-static leaves no memory for a KV pool",
    "weight-load": "the GPU ran out of memory while loading weights",
    "kv-alloc": "the GPU ran out of memory while allocating a KV pool",
    "graph-capture": "the GPU ran out of memory while capturing graphs",
    "comm-buffer": "no memory was left for a communication buffer",
    "host-ram": "the machine ran out of host memory",
    "warmup": "the GPU ran out of memory in a trial run of kernels",
    "runtime": "the GPU ran out of memory while serving",
}


def why_failed(failure: Failure, *, cause: str, note: str, patch: str) -> str:
    rank = f"rank {failure.sign.rank}" if failure.sign.rank else "the server"
    role = "the draft model's " if failure.role == "draft" else ""
    what = _WHY.get(cause, "") if failure.outcome is Outcome.OOM else ""
    text = failure.text.strip()
    said = text if len(text) <= 200 else text[:197] + "..."
    head = f"{rank} failed in {role}{failure.stage}"
    if failure.outcome is Outcome.HANG:
        head = f"{rank} waited in {role}{failure.stage} until a time-out ended the server"
    sentence = f"{head} ({cause}): {what + ': ' if what else ''}{said}"
    if note:
        sentence += f"; before that one rank had said: {note[:200]}"
    if patch:
        sentence += f"; the file belongs to patch {patch}"
    return sentence


def why_silent_death(cause: str, *, code: int | None, stage: Stage) -> str:
    told = "" if code is None else f" (exit code {code})"
    return f"the server ended in {stage} without saying why{told}: {cause}"


_LOWER = "lower --mem-fraction-static, capture fewer graph sizes (--cuda-graph-max-bs) or use a smaller --chunked-prefill-size"
_ADVICE: Mapping[str, str] = {
    "kv-profile": "raise --mem-fraction-static; if graphs then run out of memory the model does not fit: use more GPUs, a smaller quantization or no draft model",
    "weight-load": "the weights do not fit: more GPUs (--tp-size), a smaller quantization, or check that offloading is really on",
    "kv-alloc": "lower --mem-fraction-static or cap --max-total-tokens; draft pools come on top of the budget",
    "graph-capture": _LOWER,
    "comm-buffer": "lower --mem-fraction-static, or turn the feature off that wants the buffer",
    "host-ram": "give the container more memory, or shrink host pools (--hicache-size) and loading threads",
    "warmup": _LOWER,
    "runtime": _LOWER,
}


def advise(verdict: Verdict, facts: Mapping[str, Any]) -> str:
    """One sentence on what to try; "" where nothing general can be said."""
    if verdict.outcome is Outcome.OOM:
        return _ADVICE.get(verdict.cause or "", "")
    return ""
