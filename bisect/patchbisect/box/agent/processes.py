"""Processes and ports, as /proc shows them. A process is its pid and its start time, never the pid alone."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import signal
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from .base import boot_id

RANK = re.compile(r"sglang::scheduler(?:_(?:DP\d+|PP\d+|ATTN_CP\d+|MOE_DP\d+))*(?:_TP(\d+))?")
"""The process title of a scheduler (0.5.9, srt/managers/scheduler.py); without ``_TPn`` it is the only rank."""


class Proc(NamedTuple):
    """One line of the process table. ``start`` (ticks since boot) makes a reused pid another process."""

    pid: int
    ppid: int
    session: int
    start: int
    state: str
    ticks: int
    threads: int

    @property
    def alive(self) -> bool:
        """A zombie holds neither memory nor a port: it is gone. But not while other threads than its first live on."""
        return self.state not in "ZX" or self.threads > 1


def read_proc(pid: int) -> Proc | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            raw = file.read()
    except OSError:
        return None
    fields = raw[raw.rindex(b")") + 2 :].split()
    return Proc(
        pid=pid,
        ppid=int(fields[1]),
        session=int(fields[3]),
        start=int(fields[19]),
        state=fields[0].decode(),
        ticks=int(fields[11]) + int(fields[12]),
        threads=int(fields[17]),
    )


def life_id() -> str:
    """The time for which a pid means something: until this machine, or this container, is started anew."""
    first = read_proc(1)
    return f"{boot_id()}/{first.start if first else 0}"


def process_table() -> dict[int, Proc]:
    found = (read_proc(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return {proc.pid: proc for proc in found if proc is not None}


def descendants(roots: Iterable[int], table: dict[int, Proc]) -> list[Proc]:
    """Everything below ``roots``, without the roots themselves."""
    children: dict[int, list[Proc]] = {}
    for proc in table.values():
        children.setdefault(proc.ppid, []).append(proc)
    found: dict[int, Proc] = {}
    open_pids = list(roots)
    while open_pids:
        for child in children.get(open_pids.pop(), ()):
            if child.pid not in found:
                found[child.pid] = child
                open_pids.append(child.pid)
    return list(found.values())


def title(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read().rstrip(b"\0").split(b"\0")
    except OSError:
        return ""
    return " ".join(word.decode("utf-8", "replace") for word in words)


def program(pid: int) -> str:
    """What it is called in a process list: ``nvidia-cuda-mps-server``."""
    return os.path.basename(title(pid).partition(" ")[0])


def rank_of(name: str) -> str | None:
    """The rank of the scheduler with that title; None for another process."""
    found = RANK.match(name)
    return (found.group(1) or "0") if found else None


def process_of(thread: int) -> int:
    """The process that a thread belongs to; itself where it is not there. Some drivers (560) name threads as pids."""
    with contextlib.suppress(OSError):
        with open(f"/proc/{thread}/status", encoding="utf-8", errors="replace") as file:
            return next((int(line.split()[1]) for line in file if line.startswith("Tgid:")), thread)
    return thread


HOSTS_PIDS = "pid:[4026531836]"
"""The first pid namespace of a machine (Linux, proc_ns.h: PROC_PID_INIT_INO)."""


def pids_of_our_own() -> bool:
    """Whether this is a container with a pid namespace of its own: what runs beside it is not seen from here."""
    try:
        return os.readlink("/proc/self/ns/pid") != HOSTS_PIDS
    except OSError:
        return False


def hides_others() -> bool:
    """Whether /proc shows this user only what is their own (mounted with ``hidepid``)."""
    return not os.path.exists("/proc/1/stat")


CUDA_FILE = "/dev/nvidia-uvm"


def on_gpu(number: int) -> int | None:
    """The process here that a driver means by ``number``; None where it is none of those that can be seen.

    To a container with pids of its own some drivers tell those of the host. One here that has the same by accident is
    not meant: it does not have the file open through which CUDA works. (Who only reads GPUs, as we do, has others.)
    """
    pid = process_of(number)
    if not os.path.exists(f"/proc/{pid}"):
        return None
    files = open_files(pid) if pids_of_our_own() else set()
    return pid if not files or CUDA_FILE in files else None


def whose(number: int) -> str:
    """Who is meant by a driver's ``number``, in words."""
    pid = on_gpu(number)
    if pid is None and pids_of_our_own():
        return f"pid {number} (outside of this container: not visible from here)"
    return describe(number if pid is None else pid)


def owner(pid: int) -> str:
    try:
        uid = os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return "?"
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def describe(pid: int) -> str:
    """``pid 4242 (alice: python -m sglang.launch_server)``."""
    return f"pid {pid} ({owner(pid)}: {harmless(title(pid))[:80] or 'not visible from here'})"


def harmless(command: str) -> str:
    """The program of a command line, and what it runs. Whatever else stands there may be a secret."""
    shown: list[str] = []
    for word in command.split(" ")[:4]:
        flag_of_python = bool(shown) and "python" in shown[0] and re.fullmatch("-[mubBEIsSO]+", word)
        if "=" in word or (word.startswith("-") and not flag_of_python):
            break
        shown.append(word)
        if len(shown) > 1 and not flag_of_python:
            break
    return " ".join(shown)


def send_signal(proc: Proc, number: int) -> str | None:
    """Signal exactly that process, never a successor of its pid. Returns what went wrong, if anything did."""
    open_pidfd = getattr(os, "pidfd_open", None)
    try:
        handle = open_pidfd(proc.pid) if open_pidfd else -1
    except OSError:
        handle = -1
    try:
        now = read_proc(proc.pid)
        if now is None or now.start != proc.start:
            return None
        if handle >= 0:
            signal.pidfd_send_signal(handle, number)
        else:
            os.kill(proc.pid, number)
    except ProcessLookupError:
        return None
    except PermissionError:
        return f"{describe(proc.pid)} may not be signalled by {owner(os.getpid())}"
    finally:
        if handle >= 0:
            os.close(handle)
    return None


def still_alive(procs: Iterable[Proc]) -> list[Proc]:
    found = []
    for proc in procs:
        now = read_proc(proc.pid)
        if now is not None and now.start == proc.start and now.alive:
            found.append(now)
    return found


def wait_gone(procs: Sequence[Proc], timeout_s: float) -> list[Proc]:
    """Those of ``procs`` that are still there after ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    left = still_alive(procs)
    pause = 0.001
    while left and time.monotonic() < deadline:
        time.sleep(pause)
        pause = min(pause * 2, 0.02)
        left = still_alive(left)
    return left


def listeners(port: int) -> dict[str, str]:
    """Inode of each TCP socket that listens on ``port`` → the address it is bound to (hex, as in /proc/net)."""
    found = {}
    wanted = f"{port:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table, encoding="ascii") as file:
                lines = file.read().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            address, _, number = fields[1].rpartition(":")
            if number == wanted and fields[3] == "0A":
                found[fields[9]] = address
    return found


def socket_inodes(pid: int) -> set[str]:
    return {target[8:-1] for target in open_files(pid) if target.startswith("socket:[")}


def shared_memory(pid: int) -> set[str]:
    """The files in /dev/shm that a process has mapped or open. What has a folder there was put there by a person."""
    found = set()
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:
            found = {line.rstrip("\n").partition("/dev/shm/")[2] for line in file if "/dev/shm/" in line}
    found |= {target[len("/dev/shm/") :] for target in open_files(pid) if target.startswith("/dev/shm/")}
    return {f"/dev/shm/{name}" for name in found if name and "/" not in name and not name.endswith(" (deleted)")}


def all_shared_memory() -> list[str]:
    try:
        return sorted(f"/dev/shm/{name}" for name in os.listdir("/dev/shm"))
    except OSError:
        return []


def open_files(pid: int) -> set[str]:
    found = set()
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                found.add(os.readlink(f"/proc/{pid}/fd/{name}"))
    return found


def port_holder(port: int) -> str | None:
    """Who listens on ``port``, in words; None when it is free."""
    inodes = listeners(port)
    if not inodes:
        return None
    for name in os.listdir("/proc"):
        if name.isdigit() and socket_inodes(int(name)) & inodes.keys():
            return describe(int(name))
    return "a process that is not visible from here"
