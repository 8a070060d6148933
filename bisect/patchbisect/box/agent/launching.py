"""Starting a server below a supervisor that outlives the link, and telling a client what it does."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from . import HOME, PACKAGE
from .base import Json, Refused, locked, read_json, write_json
from .code import CodeStore
from .gpus import Gpus
from .rundir import RunDir, remove_tmpdir, short_tmpdir
from .warmth import Warmth
from .wire import Wire

LOG_POLL_S = 0.02
SIGNALS_EVERY_S = 0.15
"""More often than they are measured: a client whose server has got where it should looks at the clock when it hears."""
CHUNK_BYTES = 1 << 18
ORPHANED_RUN_EVERY_S = 1.0
SUPERVISOR_ENDS_S = 10.0
SILENT_CLIENT_S = 90.0
"""A follower that hears nothing from its client for this long ends: behind a black hole nobody closes it."""

LOADER = (
    "import sys, importlib; sys.path.insert(0, sys.argv[1]); "
    "sys.exit(importlib.import_module(sys.argv[2] + '.main').main(sys.argv[3:]))"
)

CLEAN_ENV = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|LANG|LC_\w+|TZ|LD_LIBRARY_PATH|CUDA_HOME|CUDA_PATH|NVIDIA_\w+|XDG_RUNTIME_DIR"
    r"|(?:http|https|no|HTTP|HTTPS|NO)_(?:proxy|PROXY)|SSL_CERT_(?:FILE|DIR)"
)
"""What a server inherits from the login. All else comes from the profile, so that two trials see the same."""


class Launcher:
    """Starts launches in one directory, on the GPUs that ``box`` names, under the lease ``fence``."""

    def __init__(self, directory: str, *, box: Json, fence: int) -> None:
        self._dir = directory
        self._box = box
        self._fence = fence

    def start(self, spec: Json) -> Json:
        """Start a server. The same launch id twice is the same launch: a repeated request changes nothing."""
        run = RunDir(self._dir, spec["launch_id"])
        os.makedirs(run.path, mode=0o700, exist_ok=True)
        with locked(run.file("starting")):
            if run.exists:
                return {"path": run.path, "tree": run.state()["tree"]}
            try:
                prove_own_gpus(spec["env"].get("CUDA_VISIBLE_DEVICES", ""), gpus=self._box["gpus"])
                self._prove_code(spec["tree"])
                write_json(run.file("spec.json"), spec["shown"])
                if not spec["warm"]:  # a normal start finds no warm process beside it
                    Warmth(self._dir, fence=self._fence).end_ours()
                self._start_supervisor(run, self._order(spec, run))
            except Refused:
                remove_tmpdir(run)
                shutil.rmtree(run.path, ignore_errors=True)
                raise
        return {"path": run.path, "tree": spec["tree"]}

    def _prove_code(self, tree: str) -> None:
        store = CodeStore(self._dir)
        proven = store.proven(tree) if tree else ""
        if proven != tree:
            raise Refused("wrong-code", f"the code in {store.path(tree)} has the tree id {proven}")

    def _order(self, spec: Json, run: RunDir) -> Json:
        same = {name: spec[name] for name in ("argv", "port", "python", "tree", "keep")}
        more = {"abandon_s": self._box["abandon_s"], "fence": self._fence}
        own = {"warm": spec["warm"], "in_front": 1 if spec["tree"] else 0}
        return {**same, **more, **own, **self._watched(), "env": server_env(spec, run), "adopt": False}

    def _watched(self) -> Json:
        return {"gpus": self._box["gpus"], "residents": self._box["gpu_residents"]}

    def adopt(self, run: RunDir) -> None:
        """Give a launch whose supervisor was killed a new one. Two who try at once are told apart by a lock."""
        if run.supervisor() is None and run.exit() is None:
            order = {name: run.state()[name] for name in ("port", "keep", "abandon_s")}
            self._start_supervisor(run, {**order, **self._watched(), "warm": False, "adopt": True})

    def _start_supervisor(self, run: RunDir, order: Json) -> None:
        words = [sys.executable, "-I", "-c", LOADER, HOME, PACKAGE, "supervise", self._dir, run.id]
        its_stdin, to_stdin = os.pipe()
        from_stdout, its_stdout = os.pipe()
        with open(to_stdin, "wb") as stdin, open(from_stdout, "rb") as stdout:
            supervisor = None
            try:
                if order["warm"]:
                    self._fork(words, run, order, fds=(its_stdin, its_stdout))
                else:
                    supervisor = subprocess.Popen(
                        words, stdin=its_stdin, stdout=its_stdout, cwd=run.path, start_new_session=True
                    )
            finally:
                os.close(its_stdin)
                os.close(its_stdout)
            stdin.write(json.dumps(order).encode())
            stdin.close()
            answer = stdout.readline()
        said = json.loads(answer) if answer else {"error": "the supervisor did not start"}
        if "error" in said:
            with contextlib.suppress(subprocess.TimeoutExpired):
                if supervisor is not None:
                    supervisor.wait(SUPERVISOR_ENDS_S)
            message = f"the server could not be started on the box: {said['error']}"
            if order["warm"]:
                raise Refused("not-warm", message)
            if says_no_program(said, order):
                raise Refused(
                    "no-program", message, "correct `python` of the box: it is the server's interpreter there"
                )
            raise Refused("os", message, "invoke doctor looks the box over")
        if not said["ok"]:  # an agent that was killed started one just before us: it has not written its state yet
            wait_for(lambda: run.exists)

    def _fork(self, words: list[str], run: RunDir, order: Json, *, fds: tuple[int, int]) -> None:
        """Have a warm process fork the supervisor and, below it, the server. Raises Refused ``not-warm``."""
        if order["argv"][1:2] != ["-m"]:
            raise Refused("not-warm", "only `python -m MODULE` can be started from a warm process")
        warmth = Warmth(self._dir, fence=self._fence)
        about = {"python": order["argv"][0], "env": order["env"], "in_front": order["in_front"]}
        write_json(run.file("warm.json"), warmth.fork(words, **about, cwd=run.path, fds=fds))

    def follow(self, run: RunDir, *, offset: int, wire: Wire) -> Json:
        """Stream log chunks and signals until the server has exited and its log is drained.

        Signals are read before the log, and told once it is told to its end: one that says how the server died must
        not overtake the lines that say why.
        """
        heard = sampled = looked = time.monotonic()
        with open(run.log, "rb", buffering=0) as log:
            log.seek(offset)
            while True:
                now = time.monotonic()
                exited = run.exit()
                due = now - sampled >= SIGNALS_EVERY_S
                signals = read_json(run.file("signals.json")) if due else None
                data = log.read(CHUNK_BYTES)
                if data:
                    wire.send({"chunk": offset, "size": len(data)}, data)
                    offset += len(data)
                if exited and not data:
                    return {"exited": exited, "offset": offset}
                if now - looked > ORPHANED_RUN_EVERY_S:
                    looked = now
                    self.adopt(run)
                    run.note_follower()
                if due and len(data) < CHUNK_BYTES:
                    sampled = now
                    wire.send({"signals": signals or {}})
                if not data:
                    said = wire.heartbeat(LOG_POLL_S)
                    if said is None or now - heard > SILENT_CLIENT_S:
                        raise BrokenPipeError
                    heard = now if said else heard


def prove_own_gpus(visible: str, *, gpus: Sequence[int]) -> None:
    """Raises Refused where the server would see a GPU that is not the box's own: nobody looks whether that is free."""
    if not gpus or not visible:
        return
    reader = Gpus(gpus)
    own = [gpu.uuid for gpu in reader.read()]
    for name in filter(None, map(str.strip, visible.split(","))):
        if name.isdigit():
            foreign = int(name) not in gpus
        else:
            whole = bool(own) and not reader.incomplete
            foreign = name.startswith("GPU-") and whole and not any(uuid.startswith(name) for uuid in own)
        if foreign:
            message = f"CUDA_VISIBLE_DEVICES={visible} names {name}, which is not among `gpus` of the box"
            raise Refused("usage", message, "leave it out (the server sees the box's GPUs alone), or change `gpus`")


def says_no_program(said: Json, order: Json) -> bool:
    """Whether the program is at fault, which trying again does not mend; a full disk or table of processes is not."""
    missing = (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ENOEXEC, errno.ELOOP)
    return said.get("errno") in missing and said.get("file") == order.get("argv", [""])[0]


def wait_for(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10.0
    while not happened() and time.monotonic() < deadline:
        time.sleep(0.01)


def server_env(spec: Json, run: RunDir) -> dict[str, str]:
    env = {name: value for name, value in os.environ.items() if CLEAN_ENV.fullmatch(name)}
    env.update(spec["env"])
    env["PYTHONPATH"] = ":".join(spec["pythonpath"])
    env["TMPDIR"] = short_tmpdir(run)
    env["PATCHBISECT_LAUNCH"] = run.id
    return env


def provenance(run: RunDir) -> Json:
    """What the server's own Python sees; waits for the probe that was started beside the server.

    Its answer is whole once it is JSON; the supervisor, if it lives, gives it its last name, also when it is empty.
    """
    began = time.monotonic()
    while True:
        told = os.path.exists(run.file("provenance.json"))
        found = read_json(run.file("provenance.json")) or read_json(run.file("provenance.tmp"))
        if found is not None:
            return {**found, "tree": run.state()["tree"]}
        patience_s = 60.0 if run.supervisor() else 15.0 if run.of_this_boot else 0.0
        if told or time.monotonic() - began > patience_s:
            said = last_line(run.file("provenance.err"))
            raise Refused("no-provenance", f"the server's Python could not tell its packages: {said}")
        time.sleep(0.02)


def last_line(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return (file.read().strip().splitlines() or [""])[-1]
    except OSError:
        return ""
