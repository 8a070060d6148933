"""Whether what the box says of its GPUs is true: against a known allocation, after a kill, and when memory runs out.

Runs where a GPU is, with the server's own Python and its torch; everything it starts is an ordinary launch.
"""

from __future__ import annotations

import re
import time
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
PATIENCE_S = 120.0
"""torch's import and the first CUDA call, on a slow disk and a machine with many GPUs."""
SETTLED_S = {"nvml": 2.0, "nvidia-smi": 12.0}
"""So long after the allocation a reading of it is there: NVML is asked twice a second, nvidia-smi every 5 s."""
DONE = b"allocated"
REMEDIES = {
    b"No module named 'torch'": "set `python` of the box to the interpreter that has torch",
    b"not compiled with CUDA": "that torch is built for the CPU: set `python` of the box to that of the server",
    b"no kernel image": "that torch is not built for this GPU: a newer one, or one for a newer CUDA, is needed",
    b"driver on your system is too old": "that torch needs a newer driver, or another torch is needed",
    b"system not yet initialized": "start nvidia-fabricmanager on the box",
    b"CUDA unknown error": "load the driver's other half on the box (modprobe nvidia-uvm), or reboot it",
}
"""By what torch says."""
REMEDY_CLEAN = "end what holds the GPUs, or name the box's own with `gpus`; where they cannot be read: invoke doctor"

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


def gpu_check(
    box: Box,
    *,
    new_id: Callable[[], str],
    wait_s: float = 0.0,
    say: Callable[[str], None] | None = None,
    allocate: str = ALLOCATE,
    exhaust: str = EXHAUST,
) -> GpuCheck:
    """Needs the lease, and a box that is clean within ``wait_s`` seconds; ``say`` is told for whom it waits.

    Takes half a minute, and the first GPU of the box. Raises BoxError.
    """
    clean = box.prove_clean(wait_s=wait_s, say=say)
    if not clean.clean:
        return GpuCheck((Check("clean", False, "; ".join(clean.faults), REMEDY_CLEAN),), b"", None)
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
    log, exited = _hear(run, settled_s=SETTLED_S[facts.gpu_source])
    used = _used(run, facts.gpus[0].index)
    report = run.stop(0.0)
    return _allocated(log, exited, used), _whose(facts, report), _given_back("after a kill", report)


def _whose(facts: BoxFacts, report: StopReport) -> Check:
    if report.box_changed:
        return Check("whose it is", False, "; ".join(report.box_changed), "end it, or name other `gpus` for the box")
    if facts.gpu_source != "nvml":
        return Check("whose it is", True, "not looked at while it ran: nvidia-smi is too slow for that")
    return Check("whose it is", True, "nobody else came to the GPUs")


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
    log, exited = _hear(run)
    report = run.stop(0.0)
    right = exited is not None and exited.exit_code != 0 and b"out of memory" in log.lower()
    said = _last_line(log) if exited else f"memory did not run out within two minutes: {_last_line(log)}"
    ran_out = Check("out of memory", right, said, "" if right else _mend(log))
    return (ran_out, _given_back("after that", report)), log, exited


def _hear(run: Run, *, settled_s: float | None = None) -> tuple[bytes, Exited | None]:
    """Listen to its end, or for ``settled_s`` after it said that it is done, or until patience is over."""
    log = b""
    began = time.monotonic()
    done: float | None = None
    for item in run.events():
        now = time.monotonic()
        if isinstance(item, LogChunk):
            log += item.data
        elif not isinstance(item, Signals):
            return log, item
        if done is None and DONE in log:
            done = now
        settled = done is not None and settled_s is not None and now - done >= settled_s
        if settled or now - began > PATIENCE_S:
            break
    return log, None


def _used(run: Run, index: int) -> list[float]:
    """GiB in use on that GPU, reading by reading."""
    return [used for sample in run.samples() for number, used, _ in sample["gpus"] if number == index]


def _mend(log: bytes) -> str:
    return next(
        (remedy for said, remedy in REMEDIES.items() if said in log), "invoke doctor, and nvidia-smi on the box"
    )


def _last_line(log: bytes) -> str:
    """The last that names an error, for torch has advice behind it; else the last."""
    lines = log.decode("utf-8", "replace").strip().splitlines()
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)]
    return (errors or lines or ["it printed nothing"])[-1][:300]
