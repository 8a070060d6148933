"""Sentences for people: why, and what to try. Pure text; no decision is made here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from patchbisect.model import Milestone, Outcome, Role, Stage, Verdict
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
    # A stage and its only cause share a name: once is enough.
    named = "" if cause == failure.stage else f" ({cause})"
    sentence = f"{head}{named}: {what + ': ' if what else ''}{said}"
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
    "comm-buffer": "too little memory before the weights: look with nvidia-smi who else holds some",
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
    "bad-setting": "change the flag or variable that the message names",
    "context-length": "lower --context-length to what the model's configuration allows",
    "unsupported-model": "this release does not know the architecture: take a newer one, or check config.json",
    "rendezvous-timeout": "the ranks never met: check that all nodes started, their addresses, ports, interfaces",
    "collective-timeout": "look at the ranks that did not time out; raise --dist-timeout if they were at work",
    "scheduler-watchdog": "a forward pass never returned: see where the ranks stand (py-spy dump)",
    "warmup-timeout": "the first request was never answered: look where the ranks stand (py-spy dump)",
    "warmup-failed": "the first request was refused: its answer stands above the deciding line",
    "deepgemm-warmup": "compile beforehand (sglang.compile_deep_gemm), or wait longer",
    "cuda-init": "CUDA could not be used at all: check nvidia-smi, the driver and CUDA_VISIBLE_DEVICES there",
    "cuda-error": "run again with CUDA_LAUNCH_BLOCKING=1: the call that fails is then the one in the traceback",
    "gpu-fault": "the driver reported a fault: look it up in dmesg -T (Xid), and try without that GPU",
    "triton-shared-memory": "the kernel needs more shared memory than this GPU has: choose another backend",
    "permission": "give the user of the server the right that the message names",
    "segfault": "run again with PYTHONFAULTHANDLER=1, and look for a kernel package that does not fit torch",
    "bus-error": "often a small /dev/shm: give the container a larger --shm-size",
    "illegal-instruction": "a package was built for another CPU: install a build for this one",
    "terminated": "somebody stopped it before it was ready (SIGTERM or SIGINT): start it again and let it run",
    "stopped": "somebody stopped it before it was ready: start it again and let it run",
    "peer-lost": "look into the log of the rank or node that closed the connection: the reason is there",
    "unfinished": "the log ends without an error: let it run on, or tell how the server ended (--exit-code, --signals)",
    "killed": "somebody or something killed it: look for the kernel's OOM killer (dmesg -T | grep -i oom)",
}  # fmt: skip


def advise(verdict: Verdict) -> str:
    """One sentence on what to try; "" only where nothing failed.

    An OOM at sizing wants a larger fraction, one after it a smaller one; no verdict is told both.
    """
    cause = verdict.cause or ""
    if verdict.outcome in (Outcome.READY, Outcome.KV_ALLOCATED):
        return ""
    if verdict.outcome is Outcome.OOM and cause == "kv-profile":
        return _raise(verdict.facts)
    if wants_smaller_fraction(verdict):
        waited = "a rank had no memory for a buffer and the others waited for it: "
        return f"{waited if verdict.outcome is Outcome.HANG else ''}{_lower(verdict)}"
    return _ADVICE.get(cause) or _where_to_look(verdict)


def wants_smaller_fraction(verdict: Verdict) -> bool:
    """Whether GPU memory ran out once the target's pool was filled: then a smaller fraction leaves more.

    A draft model loads its weights there up to 0.5.13.
    """
    if verdict.outcome is Outcome.HANG:
        return verdict.cause == "comm-buffer"
    if verdict.outcome is not Outcome.OOM or verdict.cause in ("kv-profile", "host-ram"):
        return False
    if verdict.stage in (Stage.IMPORT, Stage.DIST_INIT, Stage.WEIGHT_LOAD):
        pool = "kv_gb" in verdict.facts or Milestone(Role.TARGET, Stage.KV_ALLOC) in verdict.passed
        return verdict.role is Role.DRAFT and pool
    return True


def _lower(verdict: Verdict) -> str:
    now = verdict.facts.get("mem_fraction")
    below = f" below {now:g} (`explain` works out how far)" if isinstance(now, float) else ""
    if verdict.role is Role.DRAFT and verdict.stage is not Stage.GRAPH_CAPTURE:
        return (
            f"lower --mem-fraction-static{below}: what the draft model takes must fit beside the target's pool; "
            "or speculate fewer steps (--speculative-num-steps), or without it"
        )
    return f"lower --mem-fraction-static{below}, {_LESS}"


def _where_to_look(verdict: Verdict) -> str:
    """What to do about a failure of which only the place is known."""
    if verdict.outcome is Outcome.HANG:
        return (
            f"look where the ranks stand in {verdict.stage} (py-spy dump), first those that came least far; "
            "if they were at work, wait longer"
        )
    frame = verdict.signature.frame if verdict.signature else ""
    if not frame:
        return "the lines above the deciding one say the most; run again with --log-level debug if they say nothing"
    draft = (
        "the draft model's settings and backend may not fit where the target's do: "
        if verdict.role is Role.DRAFT
        else ""
    )
    return f"{draft}read {frame} in the traceback; a patch that touches it comes first, then flags that lead there"


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
