"""A launch forked from a warm process, from the inside: what it spawns is forked too, by its zygote."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import multiprocessing.util
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import types
from collections.abc import Callable, Sequence
from typing import Any

from .handing import MOST_FDS, Json, receive, send
from .noticing import Reads

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
prctl = ctypes.CDLL(None, use_errno=True).prctl


class Spawner:
    """In place of ``multiprocessing.util.spawnv_passfds``: the zygote forks where a Python like this one is wanted."""

    def __init__(self, zygote: socket.socket, *, env: Json, reads: Reads) -> None:
        self._zygote = zygote
        self._python = sys.executable
        self._env = env
        self._reads = reads
        self._one_at_a_time = threading.Lock()
        self._flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
        self._cold = multiprocessing.util.spawnv_passfds

    def __call__(self, path: Any, args: Sequence[Any], passfds: Sequence[int]) -> int:
        code = self._code(os.fsdecode(path), [os.fsdecode(word) for word in args])
        if code and len(passfds) < MOST_FDS and not self._reads.touched_by(self._env, dict(os.environ)):
            with self._one_at_a_time, contextlib.suppress(OSError):
                pid = self._forked(code, passfds)
                if pid:
                    return pid
        return int(self._cold(path, args, passfds))

    def _code(self, path: str, words: list[str]) -> str:
        """What a spawned child runs; empty for any other program (``numa_utils.py`` puts numactl in front)."""
        if path != self._python or words[1:-2] != [*self._flags, "-c"] or words[-1] != "--multiprocessing-fork":
            return ""
        return words[-2]

    def _forked(self, code: str, passfds: Sequence[int]) -> int:
        fds = sorted(set(passfds))
        asked = {"code": code, "fds": fds, "env": dict(os.environ), "cwd": os.getcwd(), "inherited": inherited()}
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        try:
            send(self._zygote, asked, fds)
            answer = receive(self._zygote)
        finally:
            prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        return int(answer[0].get("pid", 0)) if answer else 0


class Zygote:
    """A child of the launch in which nothing of SGLang was imported; forks what the launch spawns."""

    def __init__(self, link: socket.socket, *, launcher: int) -> None:
        self._link = link
        self._launcher = launcher

    def serve(self) -> Callable[[], object]:
        """Returns in a forked child only, with what is to run there."""
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != self._launcher:
            os._exit(0)
        while True:
            try:
                asked = receive(self._link)
            except OSError:
                asked = None
            if asked is None:
                os._exit(0)
            request, fds = asked
            between = os.fork()
            if between == 0:
                between = os.getpid()
                if os.fork():
                    os._exit(0)
                return self._child(request, fds, between)
            os.waitpid(between, 0)
            for fd in fds:
                os.close(fd)

    def _child(self, request: Json, fds: list[int], between: int) -> Callable[[], object]:
        """Make this process what ``python -c CODE --multiprocessing-fork`` would be at its first line."""
        try:
            while os.getppid() == between:
                time.sleep(0.0005)
            mine = os.getppid() == self._launcher
            send(self._link, {"pid": os.getpid()} if mine else {"lost": os.getppid()})
            if not mine:
                os._exit(0)
            self._link.close()
            place_files(fds, request["fds"])
            os.chdir(request["cwd"])
            take_environment(request["env"])
            inherit(request["inherited"])
        except BaseException:
            os._exit(70)
        forget_the_warm_process()
        if not is_safe_path():
            sys.path[0] = ""
        sys.argv, code = ["-c", "--multiprocessing-fork"], request["code"]
        sys.orig_argv = [sys.executable, "-c", code, "--multiprocessing-fork"]
        return lambda: exec(compile(code, "<string>", "exec"), vars(sys.modules["__main__"]))


def place_files(received: Sequence[int], numbers: Sequence[int]) -> None:
    """Give each open file the number that it has in the launcher, inheritable as after an exec."""
    out_of_the_way = [dup_above(fd, 1024) for fd in received]
    for fd in received:
        os.close(fd)
    for fd, number in zip(out_of_the_way, numbers):
        os.dup2(fd, number, inheritable=True)
        os.close(fd)


def dup_above(fd: int, number: int) -> int:
    import fcntl

    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, number)


def inherited() -> Json:
    """What a child has from its parent, and SGLang may have changed since the zygote was forked."""
    import resource

    limits = {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")}
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        umask = next((line.split()[1] for line in file if line.startswith("Umask:")), "022")
    return {
        "limits": limits,
        "umask": int(umask, 8),
        "affinity": sorted(os.sched_getaffinity(0)),
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
    }


def inherit(state: Json) -> None:
    import resource

    for name, limit in state["limits"].items():
        resource.setrlimit(getattr(resource, name), tuple(limit))
    os.umask(state["umask"])
    os.sched_setaffinity(0, state["affinity"])
    if os.getpriority(os.PRIO_PROCESS, 0) != state["nice"]:
        os.setpriority(os.PRIO_PROCESS, 0, state["nice"])


def take_environment(env: Json) -> None:
    os.environ.clear()
    os.environ.update(env)
    tempfile.tempdir = None


def in_front_of(warm: str, launch: str) -> list[str]:
    """The entries by which a launch's PYTHONPATH is longer than that of the warm process. Raises ValueError."""
    ours, theirs = (path.split(":") if path else [] for path in (warm, launch))
    extra = len(theirs) - len(ours)
    if extra < 0 or theirs[extra:] != ours:
        raise ValueError("the launch has another PYTHONPATH than the warm process")
    return theirs[:extra]


def begin_path(in_front: Sequence[str], cwd: str) -> None:
    """``sys.path`` as ``python -m`` has it: the working directory, PYTHONPATH, and what site made of the rest."""
    first = 0 if is_safe_path() else 1
    sys.path[first:first] = in_front
    if not is_safe_path():
        sys.path[0] = cwd
    importlib.invalidate_caches()


def is_safe_path() -> bool:
    """Whether Python was told to put no directory of the program's own in front (3.11)."""
    return bool(getattr(sys.flags, "safe_path", False))


def forget_the_warm_process() -> None:
    """What a process of its own would have by itself."""
    main = types.ModuleType("__main__")
    vars(main).update(__builtins__=sys.modules["builtins"], __annotations__={})
    BEFORE.append(sys.modules["__main__"])
    sys.modules["__main__"] = main
    random.seed()
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        numpy.seed()
    tracker = getattr(sys.modules.get("multiprocessing.resource_tracker"), "_resource_tracker", None)
    if tracker is not None:
        tracker._fd = tracker._pid = None


BEFORE: list[Any] = []
"""Modules that were ``__main__``: this code is in one, and must not be taken down with it."""
