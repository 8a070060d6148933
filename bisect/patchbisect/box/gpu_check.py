"""Whether what the box says of its GPUs is true: against a known allocation, after a kill, and when memory runs out.

Runs where a GPU is, with the server's own Python and its torch; everything it starts is an ordinary launch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from patchbisect.box.box import Box
from patchbisect.box.run import Run
from patchbisect.box.values import Check, Exited, LaunchSpec, LogChunk, StopReport
from patchbisect.model import Signals

ALLOCATED_GB = 4.0
CONTEXT_GB = 1.5
"""A CUDA context with torch's kernels takes up to so much beside what was asked for."""
TOLERANCE_GB = 0.1
PATIENCE_SIGNALS = 240
"""About two minutes of signals: torch's import and the first CUDA call on a slow disk."""

ALLOCATE = f"""
import time, torch
held = torch.ones(int({ALLOCATED_GB} * 2**30), dtype=torch.uint8, device="cuda")
torch.cuda.synchronize()
print("allocated", flush=True)
time.sleep(600)
"""

EXHAUST = """
import torch
held = []
while True:
    held.append(torch.empty(2**30, dtype=torch.uint8, device="cuda"))
"""


@dataclass(frozen=True, slots=True)
class GpuCheck:
    """``checks`` as ``doctor`` has them; log and exit of a real CUDA out-of-memory, to be classified."""

    checks: tuple[Check, ...]
    oom_log: bytes
    oom_exit: Exited | None


def gpu_check(box: Box, *, new_id: Callable[[], str], allocate: str = ALLOCATE, exhaust: str = EXHAUST) -> GpuCheck:
    """Needs the lease, and a clean box. Takes half a minute. Raises BoxError."""
    clean = box.prove_clean()
    if not clean.clean:
        return GpuCheck((Check("clean", False, "; ".join(clean.faults), "end what holds the GPUs"),), b"", None)
    facts = box.hello()
    if not facts.gpus:
        return GpuCheck((Check("GPUs", False, f"none can be read: {facts.gpu_why}", "invoke doctor"),), b"", None)
    told = Check("GPUs", True, f"{len(facts.gpus)} x {facts.gpus[0].name} through {facts.gpu_source}")
    held, stopped = _allocation(box, launch_id=new_id(), program=allocate)
    log, exited = _exhaustion(box, launch_id=new_id(), program=exhaust)
    died = exited is not None and exited.exit_code not in (0, None)
    right = died and b"out of memory" in log.lower()
    out = Check("out of memory", right, _last_line(log), "" if right else "see the launch's log on the box")
    return GpuCheck((told, held, stopped, out), log, exited)


def _start(box: Box, launch_id: str, program: str) -> Run:
    gpus = {"CUDA_VISIBLE_DEVICES": str(box.settings.gpus[0])} if box.settings.gpus else {}
    argv: Sequence[str] = (box.settings.python, "-c", program)
    return box.start(LaunchSpec(launch_id=launch_id, argv=tuple(argv), env=gpus))


def _allocation(box: Box, *, launch_id: str, program: str) -> tuple[Check, Check]:
    """What a known allocation adds to the fullest GPU, and whether it is given back after a kill."""
    run = _start(box, launch_id, program)
    before, during = _used(run)
    report = run.stop(0.0)
    added = during - before
    right = ALLOCATED_GB - TOLERANCE_GB <= added <= ALLOCATED_GB + CONTEXT_GB
    said = f"{ALLOCATED_GB:.1f} GiB allocated, {added:.2f} GiB more in use ({before:.2f} -> {during:.2f})"
    return Check("allocation", right, said, "" if right else "see the launch's log on the box"), _given_back(report)


def _given_back(report: StopReport) -> Check:
    if report.faults:
        return Check("after a kill", False, "; ".join(report.faults), "is somebody else on the GPU?")
    return Check("after a kill", True, f"memory back at its baseline {report.seconds:.2f} s after the kill")


def _used(run: Run) -> tuple[float, float]:
    """GiB in use on the fullest GPU before the program had allocated, and the most after it said so."""
    before: list[float] = []
    after: list[float] = []
    allocated = False
    for item in run.events():
        if isinstance(item, LogChunk):
            allocated = allocated or b"allocated" in item.data
        elif isinstance(item, Signals) and item.gpu_used_gb is not None:
            (after if allocated else before).append(item.gpu_used_gb)
        if isinstance(item, Exited) or len(after) >= 3 or len(before) > PATIENCE_SIGNALS:
            break
    return min(before, default=0.0), max(after, default=0.0)


def _exhaustion(box: Box, *, launch_id: str, program: str) -> tuple[bytes, Exited | None]:
    run = _start(box, launch_id, program)
    log, exited = b"", None
    for item in run.events():
        if isinstance(item, LogChunk):
            log += item.data
        elif isinstance(item, Exited):
            exited = item
    run.stop(0.0)
    return log, exited


def _last_line(log: bytes) -> str:
    lines = log.decode("utf-8", "replace").strip().splitlines()
    return lines[-1][:300] if lines else "it printed nothing"
