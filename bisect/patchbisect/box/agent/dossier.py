"""What is worth knowing of a server that hangs, collected before it is ended."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import time
from typing import Optional

from .base import Json
from .processes import Proc, rank_of, title
from .rundir import RunDir

STACKS_BUDGET_S = SMI_BUDGET_S = 20.0
DYING_S = 1.0
TAIL_BYTES = 1 << 20
LINE_RANK = re.compile(rb"\bTP(\d+)\b")


def collect(run: RunDir, *, python: str) -> Json:
    """Process tree, stacks (py-spy where it is there), last line per rank, ranks that are missing, nvidia-smi."""
    members = run.members()
    last = last_lines(run.log)
    alive = sorted({int(rank) for rank in (rank_of(title(proc.pid)) for proc in members) if rank is not None})
    return {
        "processes": [about(proc) for proc in members],
        "stacks": stacks(members, python=python),
        "last_lines": last,
        "ranks_alive": alive,
        "ranks_missing": sorted({int(name) for name in last if name} - set(alive)),
        "nvidia_smi": nvidia_smi(),
    }


def about(proc: Proc) -> Json:
    """One process: what it is, what it waits for in the kernel, and how much it has worked (seconds of CPU)."""
    found: Json = {"pid": proc.pid, "parent": proc.ppid, "title": title(proc.pid)[:200], "state": proc.state}
    found["cpu_s"] = proc.ticks / os.sysconf("SC_CLK_TCK")
    with contextlib.suppress(OSError):
        found["threads"] = len(os.listdir(f"/proc/{proc.pid}/task"))
        with open(f"/proc/{proc.pid}/wchan", encoding="ascii") as file:
            found["waits_in"] = file.read()
    return found


def py_spy(python: str) -> Optional[str]:
    """py-spy on PATH, or beside the server's Python."""
    found = shutil.which(python)
    beside = os.path.join(os.path.dirname(found), "py-spy") if found else ""
    return shutil.which("py-spy") or (beside if os.access(beside, os.X_OK) else None)


def stacks(members: list[Proc], *, python: str) -> Json:
    """pid → where its threads are. Without py-spy there is one entry that says so."""
    program = py_spy(python)
    if program is None:
        return {"": "py-spy is not on the box: pip install py-spy"}
    started = {proc.pid: asked(program, "dump", "--nonblocking", "--pid", str(proc.pid)) for proc in members}
    deadline = time.monotonic() + STACKS_BUDGET_S
    return {str(pid): answer(one, within_s=max(0.1, deadline - time.monotonic())) for pid, one in started.items()}


def asked(*words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def answer(process: subprocess.Popen[bytes], *, within_s: float) -> str:
    """What it says. One that waits in a driver does not even die of a kill, and must not be waited for."""
    try:
        said, late = process.communicate(timeout=within_s)[0], ""
    except subprocess.TimeoutExpired:
        process.kill()
        late = f"no answer within {within_s:.0f} s"
        try:
            said, _ = process.communicate(timeout=DYING_S)
        except subprocess.TimeoutExpired:
            said = b""
    return said.decode("utf-8", "replace") + late


def last_lines(path: str) -> Json:
    """The last line of each rank in the end of the log; the rank without a name is ``""``."""
    with open(path, "rb") as file:
        file.seek(max(0, os.path.getsize(path) - TAIL_BYTES))
        lines = file.read().splitlines()
    found = {}
    for line in lines:
        rank = LINE_RANK.search(line[:80])
        found[rank.group(1).decode() if rank else ""] = line.decode("utf-8", "replace")[:2000]
    return found


def nvidia_smi() -> str:
    return answer(asked("nvidia-smi"), within_s=SMI_BUDGET_S) if shutil.which("nvidia-smi") else ""
