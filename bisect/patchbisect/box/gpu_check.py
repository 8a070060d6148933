"""Whether what the box says of its GPUs is true: against a known allocation, after a kill, and when memory runs out.

Runs where a GPU is, with the server's own Python and its torch; everything it starts is an ordinary launch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from patchbisect.box.box import Box
from patchbisect.box.run import Run
from patchbisect.box.values import BoxFacts, Check, Exited, LaunchSpec, LogChunk, StopReport
from patchbisect.model import Signals

ALLOCATED_GB = 4.0
CONTEXT_GB = 1.5
"""A CUDA context with torch's kernels takes up to so much beside what was asked for."""
TOLERANCE_GB = 0.1
PATIENCE_SIGNALS = 240
"""About two minutes of signals: torch's import and the first CUDA call on a slow disk."""
SETTLED_SIGNALS = {"nvml": 4, "nvidia-smi": 16}
"""So many after the allocation a reading of it must be among them: NVML is asked with each, nvidia-smi every 5 s."""
DONE = b"allocated"
STRANGER = "if that is this very check: a container with pids of its own; run it with --pid=host"

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
    """``checks`` as ``doctor`` has them; log and exit of a CUDA out-of-memory, if there was one, to be classified."""

    checks: tuple[Check, ...]
    oom_log: bytes
    oom_exit: Exited | None


def gpu_check(box: Box, *, new_id: Callable[[], str], allocate: str = ALLOCATE, exhaust: str = EXHAUST) -> GpuCheck:
    """Needs the lease, and a clean box. Takes half a minute, and the first GPU of the box. Raises BoxError."""
    clean = box.prove_clean()
    if not clean.clean:
        return GpuCheck((Check("clean", False, "; ".join(clean.faults), "end what holds the GPUs"),), b"", None)
    facts = box.hello()
    if not facts.gpus:
        return GpuCheck((Check("GPUs", False, f"none can be read: {facts.gpu_why}", "invoke doctor"),), b"", None)
    told = Check("GPUs", True, f"{len(facts.gpus)} x {facts.gpus[0].name} through {facts.gpu_source}")
    allocation = _allocation(box, facts, launch_id=new_id(), program=allocate)
    exhaustion, log, exited = _exhaustion(box, facts, launch_id=new_id(), program=exhaust)
    ran_out = exhaustion[0].ok
    return GpuCheck((told, *allocation, *exhaustion), log if ran_out else b"", exited if ran_out else None)


def _start(box: Box, facts: BoxFacts, launch_id: str, program: str) -> Run:
    """By the GPU's own name: CUDA counts GPUs in another order than NVML."""
    env = {"CUDA_VISIBLE_DEVICES": facts.gpus[0].uuid}
    return box.start(LaunchSpec(launch_id=launch_id, argv=(box.settings.python, "-c", program), env=env))


def _allocation(box: Box, facts: BoxFacts, *, launch_id: str, program: str) -> tuple[Check, ...]:
    """What a known allocation adds, whether it is known as ours, and whether it is given back after a kill."""
    run = _start(box, facts, launch_id, program)
    log, exited = _hear(run, settled=SETTLED_SIGNALS[facts.gpu_source])
    used = _used(run, facts.gpus[0].index)
    report = run.stop(0.0)
    whose = "; ".join(report.box_changed) or "nobody else came to the GPUs"
    ours = Check("whose it is", not report.box_changed, whose, "" if not report.box_changed else STRANGER)
    return _allocated(log, exited, used), ours, _given_back("after a kill", report)


def _allocated(log: bytes, exited: Exited | None, used: Sequence[float]) -> Check:
    if DONE not in log:
        what = "the program ended" if exited else "two minutes passed"
        return Check("allocation", False, f"{what} before it had allocated: {_last_line(log)}", _mend(log))
    if not used:
        return Check("allocation", False, "the GPU could not be read meanwhile", "invoke doctor")
    added = max(used) - min(used)
    right = ALLOCATED_GB - TOLERANCE_GB <= added <= ALLOCATED_GB + CONTEXT_GB
    said = f"{ALLOCATED_GB:.1f} GiB allocated, {added:.2f} GiB more in use ({min(used):.2f} -> {max(used):.2f})"
    remedy = "" if right else "compare with nvidia-smi: is it another GPU, or somebody else's memory?"
    return Check("allocation", right, said, remedy)


def _given_back(check: str, report: StopReport) -> Check:
    if report.faults:
        return Check(check, False, "; ".join(report.faults), "is somebody else on the GPU?")
    return Check(check, True, f"memory back at its baseline {report.seconds:.2f} s after the kill")


def _exhaustion(
    box: Box, facts: BoxFacts, *, launch_id: str, program: str
) -> tuple[tuple[Check, Check], bytes, Exited | None]:
    run = _start(box, facts, launch_id, program)
    log, exited = _hear(run, settled=0)
    report = run.stop(0.0)
    right = exited is not None and exited.exit_code != 0 and b"out of memory" in log.lower()
    said = _last_line(log) if exited else f"memory did not run out within two minutes: {_last_line(log)}"
    ran_out = Check("out of memory", right, said, "" if right else _mend(log))
    return (ran_out, _given_back("after that", report)), log, exited


def _hear(run: Run, *, settled: int) -> tuple[bytes, Exited | None]:
    """Listen to its end, or for ``settled`` signals after it said that it is done, or until patience is over."""
    log, since, signals = b"", 0, 0
    for item in run.events():
        if isinstance(item, LogChunk):
            log += item.data
        elif isinstance(item, Signals):
            signals += 1
            since += DONE in log
        else:
            return log, item
        if signals > PATIENCE_SIGNALS or (settled and since >= settled):
            break
    return log, None


def _used(run: Run, index: int) -> list[float]:
    """GiB in use on that GPU, reading by reading."""
    return [used for sample in run.samples() for number, used, _ in sample["gpus"] if number == index]


def _mend(log: bytes) -> str:
    if b"No module named 'torch'" in log:
        return "set `python` of the box to the interpreter that has torch"
    if b"not compiled with CUDA" in log:
        return "that torch is built for the CPU: set `python` of the box to the interpreter of the server"
    return "invoke doctor, and nvidia-smi on the box"


def _last_line(log: bytes) -> str:
    lines = log.decode("utf-8", "replace").strip().splitlines()
    return lines[-1][:300] if lines else "it printed nothing"
