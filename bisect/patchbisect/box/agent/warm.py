"""The warm process: a Python that has imported what launches import, and forks where a new Python would be started.

This file runs by itself in the server's own Python, in the environment of the launches that it serves:

    agent ── two pipes ──> warm process ── fork ──> supervisor (by exec); its child, forked before: the server
                                                      server ── fork, before SGLang ──> zygote
                                                      zygote ── fork ──> what the server spawns, as its children

What it imports it learns: every launch writes down which modules it had to look for, and when that launch is over the
warm process imports them too, but for SGLang's own. SGLang starts its ranks with multiprocessing's "spawn" (0.5.9,
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
import pathlib
import random
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
MOST_FDS = 64
PER_LAUNCH = ("PYTHONPATH", "TMPDIR", "PATCHBISECT_LAUNCH")
"""Variables that differ between launches that may share a warm process."""

OWN = frozenset({"sglang", "__main__", "__mp_main__", "sitecustomize", "usercustomize"})
"""What is never imported ahead: the code under test, and what belongs to a process of its own."""

READ_BY_C = ("LD_", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "MALLOC_", "PYTHON", "PYTORCH_")
"""Variables that are read while a library is loaded, where no Python sees it."""

MOST_SKIPPED = 12
"""A Python in which so many modules may not be imported ahead is not worth a warm process."""

GOES_AWAY = ("/dev/nvidia", "socket:", "anon_inode:", "pipe:", "/memfd:")
"""Open files that two processes must not share."""

Json = dict[str, Any]
prctl = ctypes.CDLL(None, use_errno=True).prctl


# -- talking over a socket: one JSON line, and with it open files


def send(link: socket.socket, message: Json, fds: Sequence[int] = ()) -> None:
    data = json.dumps(message).encode() + b"\n"
    sent = socket.send_fds(link, [data[:1]], list(fds)) if fds else 0
    link.sendall(data[sent:])


def receive(link: socket.socket) -> tuple[Json, list[int]] | None:
    """None when the other end has gone."""
    data, fds = b"", []
    while not data.endswith(b"\n"):
        part, more, _, _ = socket.recv_fds(link, 1 if not data else 1 << 16, MOST_FDS)
        if not part:
            return None
        data += part
        fds += more
    message: Json = json.loads(data)
    return message, fds


# -- what is noticed while modules are imported


class Reads:
    """The names of environment variables that were asked for one by one; a copy of all of them asks for none."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self._copied: set[str] = set()

    @contextlib.contextmanager
    def noticed(self) -> Iterator[None]:
        kind = type(os.environ)
        get, walk = kind.__getitem__, kind.__iter__

        def noticing_get(environ: Any, name: str) -> str:
            if name in self._copied:
                self._copied.discard(name)
            else:
                self.names.add(name)
            return get(environ, name)

        def noticing_walk(environ: Any) -> Iterator[str]:
            self._copied = set(walk(environ))
            return walk(environ)

        kind.__getitem__, kind.__iter__ = noticing_get, noticing_walk  # type: ignore[method-assign]
        try:
            yield
        finally:
            self._copied = set()
            kind.__getitem__, kind.__iter__ = get, walk  # type: ignore[method-assign]

    def touched_by(self, before: Json, after: Json) -> list[str]:
        """Variables in which two environments differ, and whose value was used already."""
        names = (before.keys() | after.keys()).difference(PER_LAUNCH)
        differ = {name for name in names if before.get(name) != after.get(name)}
        return sorted(name for name in differ if name in self.names or name.startswith(READ_BY_C))


class Observer:
    """First on ``sys.meta_path``: writes down what is looked for, and finds nothing itself."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        with contextlib.suppress(OSError):
            os.write(self._handle, name.encode("utf-8", "replace") + b"\n")


def open_files() -> dict[int, str]:
    found = {}
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found[int(number)] = os.readlink(f"/proc/self/fd/{number}")
    return found


def shared_memory() -> list[str]:
    """Memory that a fork would share for writing: a lock in there, held by a launch that is killed, stays held."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        lines = [line.split(None, 5) for line in file]
    return [(line[5:] or ["anonymous memory"])[0].strip() for line in lines if line[1].startswith("rw-s")]


def native_threads() -> int:
    return len(os.listdir("/proc/self/task"))


def holds_cuda() -> bool:
    """Asked of torch in a way that makes no context."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return bool(cuda is not None and cuda.is_initialized())


def keepers(names: Iterable[str], place: str) -> list[tuple[str, str]]:
    """Modules that have kept a path below ``place`` (dill keeps the directory for temporary files), and its name."""
    return [(name, key) for name in names for key, value in values_of(name) if is_below(value, place)]


def values_of(name: str) -> list[tuple[str, object]]:
    module = sys.modules.get(name)
    return list(vars(module).items()) if isinstance(module, types.ModuleType) else []


def is_below(value: object, place: str) -> bool:
    return issubclass(type(value), (str, pathlib.PurePath)) and str(value).startswith(place)


# -- the warm process


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
        self._learn(known.get("names", []))
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
        for number, name in enumerate(news, 1):
            fault = self._imported(name)
            if fault:
                self._names.update(dict.fromkeys(news[number:]))  # to be imported by this one's successor
                self._skip(name, fault)
        self._packages = packages()
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
        command = [sys.executable, *subprocess._args_from_interpreter_flags(), "-c", LOAD, SOURCE]  # type: ignore[attr-defined]
        os.execve(sys.executable, [*command, self._place, str(self._listener.fileno())], self._env)

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


LOAD = "import sys; exec(compile(open(sys.argv[1], encoding='utf-8').read(), '<warm>', 'exec'))"
"""Runs this file as ``__main__`` without its directory on the path: modules beside it are named like Python's own."""

if __name__ == "__main__":
    SOURCE = sys.argv[1]
    # Returns in a forked child, with an empty stack: what runs there ends as it would in a Python of its own.
    Warm(sys.argv[2], int(sys.argv[3])).serve()()
else:
    SOURCE = __file__
