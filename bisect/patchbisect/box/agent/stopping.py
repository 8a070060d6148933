"""Ending everything of one launch."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Mapping

from .processes import open_files, process_table, send_signal, shared_memory, wait_gone
from .rundir import RunDir

KILL_BUDGET_S = 120.0
"""A process that pinned hundreds of GiB of the machine's memory gives them back for a minute, and dies only then."""


def sweep_shared_memory(paths: set[str]) -> list[str]:
    """Remove what a launch left in /dev/shm: ours by owner, and used by nobody who is alive."""
    left = {path for path in paths if owned_by_us(path)}
    if left:
        used = {path for pid in process_table() for path in shared_memory(pid)}
        left -= used
    for path in left:
        with contextlib.suppress(OSError):
            os.unlink(path)
    return sorted(left)


def build_folders(env: Mapping[str, str]) -> list[str]:
    """Where torch builds extensions just in time, in a server with that environment."""
    cache = env.get("XDG_CACHE_HOME") or f"{env.get('HOME') or os.path.expanduser('~')}/.cache"
    return [env.get("TORCH_EXTENSIONS_DIR") or f"{cache}/torch_extensions"]


def sweep_build_locks(folders: Iterable[str], *, since: float) -> list[str]:
    """Remove the lock files of builds that our kill interrupted; whoever finds one waits for it for ever.

    ``torch.utils.cpp_extension`` guards a build with a file named ``lock`` (``FileBaton``: it exists, so it is
    held). It is stale when it was made after the launch began and no living process has it open.
    """
    locks = {os.path.join(folder, "lock") for top in folders for folder, _, files in os.walk(top) if "lock" in files}
    stale = {path for path in locks if owned_by_us(path) and made_since(path, since)}
    if stale:
        stale -= {path for pid in process_table() for path in open_files(pid)}
    for path in stale:
        with contextlib.suppress(OSError):
            os.unlink(path)
    return sorted(stale)


def made_since(path: str, since: float) -> bool:
    """Not so where it is gone: a build of somebody else ends when it likes."""
    try:
        return os.stat(path).st_mtime >= since
    except OSError:
        return False


def owned_by_us(path: str) -> bool:
    try:
        return os.lstat(path).st_uid == os.getuid()
    except OSError:
        return False


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
    """It ends by itself once its last child is gone, and it has asked the GPUs once more; else it is ours to end."""
    supervisor = run.supervisor()
    if supervisor and wait_gone([supervisor], 10.0):
        send_signal(supervisor, signal.SIGKILL)
        wait_gone([supervisor], 2.0)
