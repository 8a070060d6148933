"""The warm process: a Python that has imported what launches import, and forks where a new Python would be started.

It is the server's own Python, in the environment of the launches that it serves:

    agent ── two pipes ──> warm process ── fork ──> supervisor (by exec); its child, forked before: the server
                                                      server ── fork, before SGLang ──> zygote
                                                      zygote ── fork ──> what the server spawns, as its children

It begins with the libraries that every launch of SGLang imports and that take longest. What else it imports it learns:
every launch writes down which modules it had to look for, and when that launch is over the warm process imports them
too, but for SGLang's own. SGLang starts its ranks with multiprocessing's "spawn" (0.5.9,
srt/entrypoints/engine.py) and ``numa_utils.py`` asserts that. So "spawn" it stays: what would be a new Python for
such a child is forked by the launch's zygote, which has imported nothing of SGLang, and comes to the launcher as its
own child. Every process of a launch imports SGLang anew, and none is forked from one that has used a GPU.

A module that leaves something behind which a fork may not have (a thread, a CUDA context, an open device or socket) is
found out as it is imported: it is left to the launches, and this process begins anew.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import importlib.util
import itertools
import json
import multiprocessing.util
import os
import runpy
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence

from . import HOME, PACKAGE
from .handing import Json, receive, send
from .noticing import Observer, Reads, holds_cuda, keepers, native_threads, open_files, shared_memory
from .zygote import (
    PR_SET_CHILD_SUBREAPER,
    Spawner,
    Zygote,
    begin_path,
    forget_the_warm_process,
    in_front_of,
    prctl,
    take_environment,
)

LOAD = (
    "import sys, importlib; sys.path.insert(0, sys.argv[1]); "
    "begin = importlib.import_module(sys.argv[2] + '.warm').begin; del sys.path[0]; begin(*sys.argv[3:])()"
)
"""Runs ``begin``, and in a forked child what that returns, with a stack that is empty but for this: what runs there
ends as it would in a Python of its own."""

OWN = frozenset({"sglang", "__main__", "__mp_main__", "sitecustomize", "usercustomize"})
"""What is never imported ahead: the code under test, and what belongs to a process of its own."""

LONGEST = ("torch", "transformers", "compressed_tensors", "openai", "fastapi", "aiohttp", "networkx", "IPython")
"""What is imported where nothing was learned yet: nine tenths of the time that a launch imports anything but SGLang
(0.5.9, no GPU). What an environment does not have is passed over."""

MOST_SKIPPED = 12
"""A Python in which so many modules may not be imported ahead is not worth a warm process."""

GOES_AWAY = ("/dev/nvidia", "socket:", "anon_inode:", "pipe:", "/memfd:")
"""Open files that two processes must not share."""


def command(python: str, place: str, listener: int, flags: Sequence[str] = ()) -> list[str]:
    """What runs a warm process, in its directory ``place``, that is asked on the socket ``listener``."""
    return [python, *flags, "-c", LOAD, HOME, PACKAGE, place, str(listener)]


def begin(place: str, listener: str) -> Callable[[], object]:
    """Returns in a forked child only, with what is to run there."""
    return Warm(place, int(listener)).serve()


class Warm:
    """Serves requests on a socket in its own directory, until nobody wants it any more."""

    def __init__(self, place: str, listener: int) -> None:
        self._place = place
        with open(f"{place}/order.json", encoding="utf-8") as file:
            self._order: Json = json.load(file)
        self._listener = socket.socket(fileno=listener)
        self._env = dict(os.environ)
        self._reads = Reads()
        self._launches: dict[int, int] = {}
        """Supervisor → what its launch looked for."""
        self._names: dict[str, None] = {}
        self._skipped: dict[str, str] = {}
        self._failed: set[str] = set()
        self._keepers: list[tuple[str, str]] = []
        """Module and name of what holds a path of this process, and would hold the launch's."""
        self._unfit = ""
        self._base = set(open_files())
        self._packages: dict[str, str] = {}
        self._wanted = time.monotonic()
        self._pid = os.getpid()

    def serve(self) -> Callable[[], object]:
        """Returns in a forked child only, with what is to run there; the warm process itself ends in here."""
        known = self._known()
        self._skipped = dict(known.get("skipped", {}))
        self._learn(known.get("names", LONGEST))
        while True:
            self._reap()
            if self._launches:
                self._wanted = time.monotonic()
            ready, _, _ = select.select([self._listener], [], [], 0.05 if self._launches else 0.5)
            if ready:
                self._reap()  # the launch before this one is over: what it had to import is imported first
                run = self._answer()
                if run is not None:
                    return run
            elif time.monotonic() - self._wanted > self._order["idle_s"] or not os.path.isdir(self._place):
                say("nobody wants it any more")
                sys.exit(0)

    # .. learning

    def _known(self) -> Json:
        with contextlib.suppress(OSError, ValueError):
            with open(self._order["known"], encoding="utf-8") as file:
                known: Json = json.load(file)
                return known
        return {}

    def _reap(self) -> None:
        for supervisor, looked_for in list(self._launches.items()):
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(supervisor, os.WNOHANG)[0] == 0:
                    continue
            del self._launches[supervisor]
            with open(looked_for, "rb") as file:
                file.seek(0)
                names = file.read().decode("utf-8", "replace").split()
            self._learn(names)

    def _learn(self, names: Iterable[str]) -> None:
        """Import what launches had to import. What may not be imported ahead is noted, and all begins anew."""
        news = [name for name in dict.fromkeys(names) if self._is_new(name)]
        if not news:
            self._packages = self._packages or packages()
            return
        began, before = time.monotonic(), len(sys.modules)
        gc.disable()  # what an import makes stays: to look for garbage in between takes time and finds none
        for number, name in enumerate(news, 1):
            if name in sys.modules:
                self._names[name] = None
                continue
            fault = self._imported(name)
            if fault:
                self._names.update(dict.fromkeys(news[number:]))  # to be imported by this one's successor
                self._skip(name, fault)
        self._packages = packages()
        gc.enable()
        gc.collect()
        gc.freeze()
        self._unfit = self._unfit_for_forks()
        self._keep()
        said = f"{len(sys.modules) - before} modules in {time.monotonic() - began:.2f} s"
        say(f"{said}; unfit: {self._unfit}" if self._unfit else said)

    def _is_new(self, name: str) -> bool:
        parents = itertools.accumulate(name.split("."), "{}.{}".format)
        known = name in sys.modules or name in self._failed or not self._skipped.keys().isdisjoint(parents)
        return not known and name.partition(".")[0] not in OWN

    def _imported(self, name: str) -> str:
        """Import it. Returns what it left behind that a fork may not have."""
        before = len(sys.modules)
        try:
            with self._reads.noticed():
                importlib.import_module(name)
        except (Exception, SystemExit):
            self._failed.add(name)
        else:
            self._names[name] = None
        return self._left_behind(list(sys.modules)[before:])

    def _left_behind(self, news: Sequence[str]) -> str:
        if threading.active_count() > 1:
            return "starts a thread"
        if holds_cuda():
            return "makes a CUDA context"
        own = self._base.union(self._launches.values())
        opened = [what for number, what in open_files().items() if number not in own and what.startswith(GOES_AWAY)]
        if opened:
            return f"opens {opened[0]}"
        if any(name.partition(".")[0] == "sglang" for name in news):
            return "imports sglang"
        self._keepers += keepers(news, self._place)
        return ""

    def _skip(self, name: str, why: str) -> None:
        """This process is spoilt: another one takes its place, under the same pid, and leaves that module alone."""
        say(f"{name} {why}: it is left to the launches")
        self._skipped[name] = why
        self._keep()
        self._listener.set_inheritable(True)
        flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
        os.execve(sys.executable, command(sys.executable, self._place, self._listener.fileno(), flags), self._env)

    def _unfit_for_forks(self) -> str:
        if len(self._skipped) >= MOST_SKIPPED:
            return f"{len(self._skipped)} modules may not be imported ahead, like {next(iter(self._skipped))}"
        shared = shared_memory()
        if shared:
            return f"a module shares memory for writing: {shared[0]}"
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        # OpenBLAS and the like end their threads before a fork, and begin them again when they are used.
        return "a module's threads live on through a fork" if native_threads() > 1 else ""

    def _keep(self) -> None:
        partial = f"{self._order['known']}.{os.getpid()}"
        with open(partial, "w", encoding="utf-8") as file:
            json.dump({"names": list(self._names), "skipped": self._skipped}, file)
        os.replace(partial, self._order["known"])

    # .. forking

    def _answer(self) -> Callable[[], object] | None:
        """Fork a launch, unless this process is not fit for it; in the forked child, what is to run there."""
        self._wanted = time.monotonic()
        connection, _ = self._listener.accept()
        connection.settimeout(10.0)
        fds: list[int] = []
        try:
            asked = receive(connection)
            if asked is None:
                return None
            request, fds = asked
            fault = self._unfit or ("it holds a CUDA context" if holds_cuda() else "")
            if fault:
                send(connection, {"error": fault})
                return None
            looked_for = os.memfd_create("looked-for")
            flush()
            pid = os.fork()
            if pid:
                self._launches[pid] = looked_for
                send(connection, {"ok": {"modules": len(self._names), "skipped": sorted(self._skipped)}})
        except (OSError, ValueError) as problem:
            say(f"a request was not served: {problem}")
            return None
        finally:
            if os.getpid() == self._pid:
                connection.close()
                for fd in fds:
                    os.close(fd)
        return None if pid else self._child(request, fds, looked_for, connection)

    def _child(self, request: Json, fds: list[int], looked_for: int, connection: socket.socket) -> Callable[[], object]:
        """The supervisor to be, which first forks the server to be. Only the latter returns."""
        ours, theirs = socket.socketpair()
        try:
            os.setsid()
            prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
            server = os.fork()
            if server:
                os.dup2(fds[0], 0)
                os.dup2(fds[1], 1)
                ours.set_inheritable(True)
                os.chdir(request["cwd"])
                os.execve(request["argv"][0], [*request["argv"], str(server), str(ours.fileno())], request["env"])
            os.setsid()
            for mine in (self._listener, connection, ours):
                mine.close()
            for fd in fds:
                os.close(fd)
            for other in self._launches.values():
                os.close(other)
            order = receive(theirs)
            if order is None:
                os._exit(0)
            return self._server(order[0], looked_for, theirs)
        except BaseException as problem:  # nothing of this may go on as if it were the warm process
            with contextlib.suppress(OSError):
                say(f"a launch was not begun: {problem!r}")
                send(theirs, {"error": f"{type(problem).__name__}: {problem}"})
            os._exit(70)

    def _server(self, order: Json, looked_for: int, supervisor: socket.socket) -> Callable[[], object]:
        """Make this process what ``python -m MODULE ARGUMENTS`` would be at its first line."""
        python, dash_m, module, *arguments = order["argv"]
        if dash_m != "-m":
            raise ValueError(f"{python} {dash_m} is not python -m")
        nothing = os.open(os.devnull, os.O_RDONLY)
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for handle, number in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(handle, number)
        os.close(nothing)
        os.close(log)
        os.chdir(order["cwd"])
        made = {name: value for name, value in os.environ.items() if self._env.get(name) != value}
        take_environment({**order["env"], **made})  # what modules set as they are imported, they would set here too
        for name, key in self._keepers:
            value = vars(sys.modules[name])[key]
            setattr(sys.modules[name], key, type(value)(order["env"]["TMPDIR"] + str(value)[len(self._place) :]))
        in_front = in_front_of(self._env.get("PYTHONPATH", ""), order["env"].get("PYTHONPATH", ""))
        begin_path(in_front, os.getcwd())
        sys.meta_path.insert(0, Observer(looked_for))
        forget_the_warm_process()
        sys.argv, sys.orig_argv = ["-m", *arguments], list(order["argv"])
        here, there = socket.socketpair()
        me = os.getpid()
        zygote = os.fork()
        if zygote == 0:
            here.close()
            supervisor.close()
            return Zygote(there, launcher=me).serve()
        there.close()
        multiprocessing.util.spawnv_passfds = Spawner(here, env=dict(os.environ), reads=self._reads)
        spec = importlib.util.find_spec("sglang")
        places = list(spec.submodule_search_locations or []) if spec else []
        about = {
            "sglang": (spec.origin or (places or [""])[0]) if spec else "",
            "python": sys.version.split()[0],
            "executable": sys.executable,
            "packages": self._packages,
        }
        with open(order["provenance"], "w", encoding="utf-8") as file:
            json.dump(about, file)
        send(supervisor, {"ok": True})
        supervisor.close()
        return lambda: runpy._run_module_as_main(module)  # type: ignore[attr-defined]


def packages() -> dict[str, str]:
    from importlib.metadata import distributions

    return {one.metadata["Name"]: one.version for one in distributions() if one.metadata["Name"]}


def flush() -> None:
    """What is written before a fork must not be written twice."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    ctypes.CDLL(None).fflush(None)


def say(text: str) -> None:
    os.write(2, f"{time.strftime('%H:%M:%S')} {text}\n".encode("utf-8", "replace"))
