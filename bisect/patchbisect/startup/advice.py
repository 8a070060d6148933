"""Sentences for people: why, and what to try. Pure text; no decision is made here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from patchbisect.model import Outcome, Stage, Verdict
from patchbisect.startup.failure import Failure
from patchbisect.startup.sizing import STEP, smallest_fraction

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


_LESS = "capture fewer graph sizes (--cuda-graph-max-bs) or use a smaller --chunked-prefill-size"
_ADVICE: Mapping[str, str] = {
    "weight-load": "the weights do not fit: more GPUs (--tp-size), a smaller quantization, or check offloading",
    "host-ram": "give the container more memory, or shrink host pools (--hicache-size) and parallel loading",
    "syntax-error": "mend the file that the line names",
    "unbound-name": "a name is read before it is assigned: move the line below the assignment, or initialise the name",
    "name-error": "a name is not defined there: import it, or mend the spelling",
    "import-error": "the packages do not fit together: compare torch, the kernel package and SGLang with the pin",
    "package-version": "install the version that the message asks for",
    "bad-flag": "this release does not know the flag or the value: compare with --help of this release",
    "port-in-use": "stop the process that holds the port, or take another port",
    "missing-model": "check the model path as the server sees it (mounts, spelling), or the hub name and token",
    "download-failed": "the hub could not be reached: check the network or download beforehand",
    "nccl-error": "run again with NCCL_DEBUG=INFO; in a container give it a larger --shm-size",
    "memory-unbalanced": "other processes hold memory on some GPUs; before a draft model the target itself may",
    "pool-too-small": "the pool holds less than one request: raise --max-total-tokens or --mem-fraction-static",
    "token-pool-exhausted": "token slots ran out, not GPU memory: fewer running requests, or a larger fraction",
    "unsupported-arch": "the kernel was not built for this GPU: choose another backend or a build for it",
    "jit-compile": "the compiler failed, not the GPU: check nvcc, its headers and the compile cache",
    "torch-compile": "torch.compile failed: install a C compiler, or turn --enable-torch-compile off",
    "weight-mismatch": "checkpoint and model code disagree about a shape: check quantization and parallel sizes",
    "assertion-shape": "a dimension cannot be divided by this parallel size: choose another --tp-size",
    "disk-full": "make room on the disk or in /dev/shm",
    "rendezvous-failed": "check addresses, names and interfaces (GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME) of all nodes",
    "nccl-init": "the ranks never met: check P2P (NCCL_P2P_DISABLE=1), the interface and that all ranks started",
    "load-barrier-timeout": "look at the missing ranks' logs: they were slow or died while loading weights",
    "stuck-after-load": "look at the missing ranks: the others wait for them at the barrier after loading",
    "stuck-download": "nothing is received: check the network, or download the weights beforehand",
    "allreduce-fusion-rendezvous": "try --enforce-disable-flashinfer-allreduce-fusion",
    "deepgemm-warmup-timeout": "compile beforehand (sglang.compile_deep_gemm) or raise --dist-timeout",
    "killed": "somebody or something killed it: look for the kernel's OOM killer (dmesg -T | grep -i oom)",
}  # fmt: skip
_TOO_LARGE = frozenset({"kv-alloc", "graph-capture", "comm-buffer", "warmup", "runtime"})


def advise(verdict: Verdict, facts: Mapping[str, Any]) -> str:
    """One sentence on what to try; "" where nothing general can be said.

    An OOM at sizing wants a larger fraction, one after it a smaller one; no verdict is told both.
    """
    cause = verdict.cause or ""
    if verdict.outcome is Outcome.OOM and cause == "kv-profile":
        return _raise(facts)
    if verdict.outcome is Outcome.OOM and cause in _TOO_LARGE:
        now = facts.get("mem_fraction")
        below = f" below {now:g}" if isinstance(now, float) else ""
        return f"lower --mem-fraction-static{below}, {_LESS}"
    return _ADVICE.get(cause, "")


def _raise(facts: Mapping[str, Any]) -> str:
    available, total, now = facts.get("avail_gb"), facts.get("total_gb"), facts.get("mem_fraction")
    fits_nowhere = "use more GPUs, a smaller quantization or no draft model"
    if not isinstance(available, float) or not isinstance(total, float) or total <= 0:
        return f"raise --mem-fraction-static; if graphs then run out of memory, {fits_nowhere}"
    least = smallest_fraction(available=available, total=total)
    if isinstance(now, float):
        least = max(least, now + STEP)
    if least >= 0.98:
        return f"no fraction leaves a KV pool beside the weights (it would take {least:.3f}): {fits_nowhere}"
    return f"raise --mem-fraction-static to {least:.3f} at least; if graphs then run out of memory, {fits_nowhere}"
