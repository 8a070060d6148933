"""Ending everything of one launch."""

from __future__ import annotations

import signal
import time

from .processes import send_signal, wait_gone
from .rundir import RunDir

KILL_BUDGET_S = 30.0


def end_processes(run: RunDir, *, grace_s: float) -> tuple[list[int], list[str]]:
    """SIGTERM and ``grace_s`` seconds, then SIGKILL until nothing is left. Returns pids and refusals."""
    touched: dict[int, None] = {}
    refusals: dict[str, None] = {}
    if grace_s > 0:
        members = run.members()
        for proc in members:
            touched[proc.pid] = None
            send_signal(proc, signal.SIGTERM)
        wait_gone(members, grace_s)
    deadline = time.monotonic() + KILL_BUDGET_S
    while time.monotonic() < deadline:
        members = run.members()
        if not members:
            break
        for proc in members:
            touched[proc.pid] = None
            problem = send_signal(proc, signal.SIGKILL)
            if problem:
                refusals[problem] = None
        if refusals:
            break
        wait_gone(members, min(1.0, deadline - time.monotonic()))
    return list(touched), list(refusals)


def end_supervisor(run: RunDir) -> None:
    """It ends by itself once its last child is gone; one that does not is ours to end."""
    supervisor = run.supervisor()
    if supervisor and wait_gone([supervisor], 2.0):
        send_signal(supervisor, signal.SIGKILL)
        wait_gone([supervisor], 2.0)
