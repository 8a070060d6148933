"""The parent of one server, which outlives the link: samples, the kept list of processes, the exit cause."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time

from .base import Json, reserve, since_boot, write_json, write_reserved
from .handing import receive, send
from .processes import (
    Proc,
    all_shared_memory,
    descendants,
    life_id,
    listeners,
    process_table,
    rank_of,
    read_proc,
    send_signal,
    shared_memory,
    socket_inodes,
    title,
    wait_gone,
)
from .rundir import RunDir
from .senses import GpuWatch, Health, LogWatch, kernel_kills, open_kernel_log, received_bytes
from .stopping import build_folders

SAMPLE_EVERY_S = 0.5
SHM_EVERY_S = 5.0
PROVENANCE_BYTES = 1 << 16
HEALTH_CHANGED = b"h"
"""On the pipe that wakes the watch; the others are signal numbers."""


FORKED_PATIENCE_S = 60.0

ORPHANS_SETTLE_S = 0.5
"""SGLang's children die of their launcher's death: give them this long before the exit is told."""


PROVENANCE_PROBE = r"""
import importlib.metadata, importlib.util, json, re, sys
spec = importlib.util.find_spec("sglang")
places = list(spec.submodule_search_locations or []) if spec else []
packages, seen = {}, set()
for found in importlib.metadata.distributions():
    name = found.metadata["Name"]
    if name and re.sub(r"[-_.]+", "-", name).lower() not in seen:  # of two, the first on the path is imported
        seen.add(re.sub(r"[-_.]+", "-", name).lower())
        packages[name] = found.version
print(json.dumps({"sglang": (spec.origin or (places or [""])[0]) if spec else "", "python": sys.version.split()[0],
                  "executable": sys.executable, "packages": packages}))
"""


class Supervisor:
    """Parent and subreaper of one server: knows its processes, samples them, and writes down how it ended.

    One whose predecessor was killed *adopts* the server: it knows the same, but cannot learn the exit code.
    """

    def __init__(self, run: RunDir, order: Json, *, forked: Forked | None = None) -> None:
        self._run = run
        self._forked = forked
        self._order = order
        self._changed: dict[str, None] = {}
        """What befell the launch and is not its doing, each once, in order."""
        self._gpus = GpuWatch(order["gpus"], residents=order["residents"], note=self._note)
        self._wake, self._wake_in = os.pipe()
        os.set_blocking(self._wake_in, False)
        self._health = Health(order["port"], changed=lambda: wake(self._wake_in, HEALTH_CHANGED))
        self._log = LogWatch(run.log)
        self._known: dict[tuple[int, int], str] = {}
        self._epoch = time.time() - since_boot()
        """The wall clock as it was when we began. Somebody may set it meanwhile; it is never asked again."""
        self._shm: set[str] = set()
        self._shm_before = all_shared_memory()
        self._server: tuple[int, int] = (0, 0)
        self._probe = 0
        self._children: list[subprocess.Popen[bytes]] = []
        """Kept only to be kept: subprocess waits for a Popen that was dropped, and its exit code is lost to us."""
        self._adopted = False
        self._code: int | None = None
        self._died_at: float | None = None
        self._told = False
        self._rank_exit: dict[str, int] = {}
        self._cpu = (time.monotonic(), 0)
        self._net = (time.monotonic(), received_bytes())
        self._shm_at = 0.0
        self._followed = (0, time.monotonic())
        self._mute = False
        self._kernel_log = open_kernel_log()

    def start(self) -> None:
        """Raises OSError when the program is not there."""
        ctypes.CDLL(None, use_errno=True).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
        env = self._order["env"]
        self._set_space_aside()
        server = self._begin(env)
        about = read_proc(server)
        self._server = (server, about.start if about else 0)
        try:
            self._save_state()
            if self._forked:
                self._forked.go(self._run, self._order)
            elif self._order["python"]:
                self._start_probe(env)
        except OSError:  # a launch that nobody knows of must not live
            end_session(server)
            raise

    def _begin(self, env: dict[str, str]) -> int:
        """The pid of the server: a process of our own, or one that a warm process forked for us."""
        log = os.open(self._run.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            self._save_state()
            if self._forked:
                return self._forked.pid
            server = subprocess.Popen(
                self._order["argv"],
                cwd=self._run.path,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        finally:
            os.close(log)
        self._children.append(server)
        return server.pid

    def _set_space_aside(self) -> None:
        """For what must be written even when the server fills the disk."""
        for name in ("exit.json", "ended.json"):
            reserve(self._run.file(name))
        with open(self._run.file("followed"), "wb"):
            pass
        with open(self._run.file("provenance.tmp"), "wb") as file:
            file.write(b" " * PROVENANCE_BYTES)

    def adopt(self) -> None:
        """Go on where a supervisor that was killed left off."""
        self._adopted = True
        state = self._run.state()
        self._server = (state["server"], state["server_start"])
        self._gpus.expected = set(state["gpus"])
        self._known = dict.fromkeys(self._run.known(), "")
        me = read_proc(os.getpid())
        write_json(
            self._run.file("state.json"),
            {**state, "supervisor": os.getpid(), "supervisor_start": me.start if me else 0},
        )

    def _start_probe(self, env: dict[str, str]) -> None:
        """Ask the server's Python what it sees."""
        with open(self._run.file("provenance.tmp"), "r+b") as out, open(self._run.file("provenance.err"), "wb") as err:
            with contextlib.suppress(OSError):
                probe = subprocess.Popen(
                    [self._order["python"], "-c", PROVENANCE_PROBE],
                    cwd=self._run.path,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                )
                self._children.append(probe)
                self._probe = probe.pid

    def _save_state(self) -> None:
        me = read_proc(os.getpid())
        write_json(
            self._run.file("state.json"),
            {
                "launch_id": self._run.id,
                "boot": life_id(),
                "supervisor": os.getpid(),
                "supervisor_start": me.start if me else 0,
                "server": self._server[0],
                "server_start": self._server[1],
                "started": self._epoch + since_boot(),
                "started_since_boot": since_boot(),
                "port": self._order["port"],
                "tree": self._order["tree"],
                "python": self._order["python"],
                "keep": self._order["keep"],
                "fence": self._order["fence"],
                "abandon_s": self._order["abandon_s"],
                "shm": self._shm_before,
                "builds": build_folders(self._order["env"]),
                **self._gpus.about,
            },
        )

    def watch(self) -> None:
        """Until the server and everything that it started is gone."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake_in, warn_on_full_buffer=False)
        next_sample = time.monotonic()
        while True:
            pause = max(0.0, min(next_sample - time.monotonic(), self._patience()))
            ready, _, _ = select.select([self._wake], [], [], pause)
            if ready and HEALTH_CHANGED in os.read(self._wake, 4096):
                next_sample = time.monotonic()
            if not self._run.exists:
                self._end_all()
                return
            self._reap()
            kin = self._kin()
            self._remember(kin)
            self._end_if_abandoned(kin)
            self._end_if_mute(kin)
            if time.monotonic() >= next_sample:
                self._sample(kin)
                next_sample = time.monotonic() + SAMPLE_EVERY_S
            if self._died_at is not None and not self._told and (not kin or self._patience() <= 0):
                self._tell_exit(kin)
            if self._told and not kin and not self._probe:
                self._say_gone()
                return

    def _end_all(self) -> None:
        """Somebody has removed our directory: nobody could find the server any more, to follow or to end it."""
        while True:
            table = process_table()
            below = {proc.pid for proc in descendants([os.getpid()], table)}
            kin = [proc for proc in table.values() if proc.pid in below or (proc.pid, proc.start) in self._known]
            left = [proc for proc in kin if proc.alive]
            if not left:
                return
            for proc in left:
                send_signal(proc, signal.SIGKILL)
            wait_gone(left, 1.0)

    def _say_gone(self) -> None:
        """Where the disk has no room for it, the stop's proof says it."""
        with contextlib.suppress(OSError), open(self._run.file("gone"), "wb"):
            pass

    def _end_if_abandoned(self, kin: list[Proc]) -> None:
        """A server that nobody follows any more must not hold a shared machine for ever.

        Counted in looks of ours at a file that followers touch, so that a jump of the wall clock ends nothing.
        """
        touched = os.stat(self._run.file("followed")).st_mtime_ns
        if touched != self._followed[0] or self._order["keep"]:
            self._followed = (touched, time.monotonic())
        if time.monotonic() - self._followed[1] > self._order["abandon_s"]:
            self._note(f"nobody followed the server for {self._order['abandon_s']:.0f} s: it was ended")
            for proc in kin:
                send_signal(proc, signal.SIGKILL)

    def _end_if_mute(self, kin: list[Proc]) -> None:
        """On a full disk neither the server nor we can say any more what happens: its trial would never be over."""
        if self._mute and not self._order["keep"]:
            for proc in kin:
                send_signal(proc, signal.SIGKILL)

    def _kin(self) -> list[Proc]:
        """The living processes of the launch, without our own question for the provenance."""
        if not self._adopted:
            if self._died_at is None and read_proc(self._server[0]) is None:  # waited for by somebody else
                self._died_at = time.monotonic()
            below = descendants([os.getpid()], process_table())
            return [proc for proc in below if proc.alive and proc.pid != self._probe]
        kin = self._run.members()
        if self._died_at is None and self._server not in {(proc.pid, proc.start) for proc in kin}:
            self._died_at = time.monotonic()
        return kin

    def _patience(self) -> float:
        """Seconds until the exit is told although processes are left."""
        if self._died_at is None or self._told:
            return SAMPLE_EVERY_S
        return self._died_at + ORPHANS_SETTLE_S - time.monotonic()

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            if pid == self._server[0]:
                self._code, self._died_at = code, time.monotonic()
            elif pid == self._probe:
                os.rename(self._run.file("provenance.tmp"), self._run.file("provenance.json"))
                self._probe = 0
            else:
                rank = next((rank_of(name) for (known, _), name in self._known.items() if known == pid), None)
                if rank is not None:
                    self._rank_exit[rank] = code

    def _remember(self, kin: list[Proc]) -> None:
        grown = False
        for proc in kin:
            key = (proc.pid, proc.start)
            if rank_of(self._known.get(key, "")) is None:
                grown = grown or key not in self._known
                self._known[key] = title(proc.pid)[:200]
        if time.monotonic() - self._shm_at > SHM_EVERY_S:
            self._shm_at = time.monotonic()
            found = {path for proc in kin for path in shared_memory(proc.pid)} - self._shm
            grown = grown or bool(found)
            self._shm |= found
        if grown:
            listed = [{"pid": pid, "start": start} for pid, start in self._known]
            self._try_write("known.json", {"processes": listed, "shm": sorted(self._shm)})

    def _try_write(self, name: str, value: Json) -> None:
        try:
            write_json(self._run.file(name), value)
        except OSError as problem:
            self._note(f"{self._run.path} cannot be written: {problem.strerror}")
            self._mute = True

    def _sample(self, kin: list[Proc]) -> None:
        now = time.monotonic()
        self._look_at_port(kin)
        ticks = sum(proc.ticks for proc in kin)
        cpu = max(0, ticks - self._cpu[1]) / os.sysconf("SC_CLK_TCK") / max(now - self._cpu[0], 1e-3) * 100
        received = received_bytes()
        net = max(0, received - self._net[1]) * 8 / 1000 / max(now - self._net[0], 1e-3)
        self._cpu, self._net = (now, ticks), (now, received)
        gpus = self._gpus.read(now)
        self._gpus.look_for_foreigners({pid for pid, _ in self._known}.union(proc.pid for proc in kin))
        ranks = {rank_of(self._known.get((proc.pid, proc.start), "")) for proc in kin} - {None}
        signals = {
            "alive": self._died_at is None,
            "exit_code": self._code,
            "http_ready": self._health.ready,
            "silent_for_s": round(self._log.silent_for_s(), 3),
            "cpu_util": round(cpu, 1),
            "cpu_busy": cpu > 20.0,
            "net_rx_kbps": round(net, 1),
            "alive_ranks": sorted(int(rank) for rank in ranks if rank is not None),
            "rank_exit": self._rank_exit,
        }
        if gpus:
            loads = [gpu.util for gpu in gpus if gpu.util is not None]
            signals.update({"gpu_util": max(loads)} if loads else {})
            signals["gpu_used_gb"] = round(max(gpu.used_gb for gpu in gpus), 3)
        self._try_write("signals.json", signals)
        moment = round(self._epoch + since_boot(), 3)
        line = {**signals, "t": moment, "gpus": [[g.number, round(g.used_gb, 3), g.util] for g in gpus]}
        with contextlib.suppress(OSError), open(self._run.file("samples.jsonl"), "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def _look_at_port(self, kin: list[Proc]) -> None:
        bound = listeners(self._order["port"]) if self._order["port"] else {}
        ours = {inode for proc in kin for inode in socket_inodes(proc.pid)} & bound.keys() if bound else set()
        if ours:
            self._health.owned(bound[ours.pop()])
        else:
            self._health.lost()

    def _note(self, text: str) -> None:
        self._changed[text] = None

    def _tell_exit(self, kin: list[Proc]) -> None:
        self._told = True
        self._sample(kin)
        record = {
            "exit_code": self._code,
            "rank_exit": self._rank_exit,
            "left": [proc.pid for proc in kin][:50],
            "changed": list(self._changed)[:10],
            "kernel": kernel_kills(self._kernel_log, {pid for pid, _ in self._known})[:5],
        }
        write_reserved(self._run.file("exit.json"), record)


class Forked:
    """A child of this process, forked from a warm one before this program began, that waits for its order."""

    def __init__(self, pid: int, handle: int) -> None:
        self.pid = pid
        self._link = socket.socket(fileno=handle)
        self._link.set_inheritable(False)

    def go(self, run: RunDir, order: Json) -> None:
        """Raises OSError when it is not at the server's first line within a while: nothing of the server ran then."""
        about = {"argv": order["argv"], "env": order["env"], "cwd": run.path, "log": run.log}
        with self._link:
            self._link.settimeout(FORKED_PATIENCE_S)
            send(self._link, {**about, "provenance": run.file("provenance.json")})
            answer = receive(self._link)
        if answer is None or "ok" not in answer[0]:
            raise OSError(0, answer[0]["error"] if answer else "the forked server ended at once", run.path)


def end_session(leader: int) -> None:
    """Kill our child that was just started, and what it started in its session."""
    for proc in process_table().values():
        if proc.session == leader:
            send_signal(proc, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(leader, 0)


def wake(pipe: int, what: bytes) -> None:
    with contextlib.suppress(BlockingIOError):
        os.write(pipe, what)


def supervise(directory: str, launch_id: str, *forked: str) -> int:
    """The supervisor's main program: the order comes on stdin, one line about the start goes to stdout.

    ``forked``: pid of a server that a warm process forked, and the number of the socket to it.
    """
    order = json.loads(sys.stdin.buffer.read())
    for unheeded in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(unheeded, lambda *_: None)  # SIG_IGN would be inherited by the server
    run = RunDir(directory, launch_id)
    held = os.open(run.file("supervised"), os.O_RDWR | os.O_CREAT, 0o600)
    last_words = os.open(run.file("supervisor.err"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print(json.dumps({"ok": False}), flush=True)  # somebody else was quicker
        return 0
    supervisor = Supervisor(run, order, forked=Forked(*map(int, forked)) if forked else None)
    try:
        if order["adopt"]:
            supervisor.adopt()
        else:
            supervisor.start()
    except OSError as problem:
        about = {"error": f"{problem.strerror}: {problem.filename}", "errno": problem.errno, "file": problem.filename}
        print(json.dumps(about), flush=True)
        return 1
    print(json.dumps({"ok": True}), flush=True)
    silent = os.open(os.devnull, os.O_RDWR)
    for stream, leads_to in enumerate((silent, silent, last_words)):
        os.dup2(leads_to, stream)
    supervisor.watch()
    return 0
