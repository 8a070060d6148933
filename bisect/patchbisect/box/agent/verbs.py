"""What the agent can be asked."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import random
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

from .base import GIB, Json, Refused, boot_id, free_gb, read_json, write_json, write_reserved
from .code import CodeStore
from .doctor import agent_about, examine
from .dossier import collect
from .git import git
from .gpus import Gpus
from .lease import LeaseBook, default_lease_dir
from .processes import describe, listeners, owner, port_holder, shared_memory
from .rundir import RunDir, changed_at, remove_tmpdir, short_tmpdir, unfinished_runs
from .stopping import end_processes, end_supervisor, sweep_build_locks, sweep_shared_memory
from .supervisor import SAMPLE_EVERY_S
from .wire import Wire
from .worktree import WorkTree

LOG_POLL_S = 0.02
ORPHANED_RUN_EVERY_S = 1.0


CHUNK_BYTES = 1 << 18


TICK_EVERY_S = 2.0


LOADER = (
    "import sys, importlib; sys.path.insert(0, sys.argv[1]); "
    "sys.exit(importlib.import_module(sys.argv[2] + '.main').main(sys.argv[3:]))"
)
HOME, PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))), __name__.rpartition(".")[0]
"""Where this very package is imported from; the supervisor is the same code."""
SILENT_CLIENT_S = 90.0
"""A follower that hears nothing from its client for this long ends: behind a black hole nobody closes it."""


KEEP_RUNS = 60


CLEAN_ENV = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|LANG|LC_\w+|TZ|LD_LIBRARY_PATH|CUDA_HOME|CUDA_PATH|NVIDIA_\w+|XDG_RUNTIME_DIR"
    r"|(?:http|https|no|HTTP|HTTPS|NO)_(?:proxy|PROXY)|SSL_CERT_(?:FILE|DIR)"
)
"""What a server inherits from the login. All else comes from the profile, so that two trials see the same."""


class Agent:
    """One conversation with a client. Every public method is a verb; its keyword arguments come from the request."""

    def __init__(self, directory: str) -> None:
        self._dir = directory
        self._wire = Wire()
        self._children: list[subprocess.Popen[bytes]] = []
        self._working = False
        self._fence = 0
        self._box: Json = {}

    # .. the conversation

    def serve(self) -> None:
        self._wire.send({"agent": self._dir})
        threading.Thread(target=self._tick, daemon=True).start()
        while True:
            request = self._wire.receive(timeout_s=3600.0)
            if request is None:
                return
            self._answer(request)

    def _tick(self) -> None:
        """Tell the client that a long request is being worked on, so that silence means a lost link."""
        while True:
            time.sleep(TICK_EVERY_S)
            if self._working:
                with contextlib.suppress(OSError):
                    self._wire.send({"tick": 1})

    def _answer(self, request: Json) -> None:
        self._working = True
        try:
            self._carry_out(request)
        finally:
            self._working = False

    def _carry_out(self, request: Json) -> None:
        self._fence = request.get("fence", 0)
        self._box = request.get("box", {})
        try:
            verb: Callable[..., Json] = getattr(self, "do_" + request["verb"])
            answer = verb(**request.get("args", {}))
        except Refused as refused:
            error = {"kind": refused.kind, "message": refused.message, "remedy": refused.remedy}
            self._wire.send({"error": error})
        except OSError as problem:
            if problem.errno == 28:
                self._wire.send({"error": {"kind": "disk-full", "message": f"the disk of the box is full: {problem}"}})
            elif isinstance(problem, BrokenPipeError):
                raise
            else:
                self._wire.send({"error": {"kind": "os", "message": f"{request['verb']} on the box: {problem}"}})
        except Exception:
            said = traceback.format_exc().strip().splitlines()
            message = f"the agent failed at {request['verb']}: {said[-1]} ({said[-3].strip()})"
            self._wire.send({"error": {"kind": "internal", "message": message, "remedy": "please report this"}})
        else:
            self._wire.send({"ok": answer})
        finally:
            self._wire.skip_payload()
            self._children = [child for child in self._children if child.poll() is None]

    def _leases(self) -> LeaseBook:
        return LeaseBook(os.path.expanduser(self._box["lease_dir"]) or default_lease_dir(self._dir))

    def _runs(self, launch_id: str) -> RunDir:
        run = RunDir(self._dir, launch_id)
        if not run.exists:
            raise Refused("no-run", f"the box knows no launch {launch_id}")
        return run

    # .. facts

    def do_hello(self) -> Json:
        """What makes this machine this machine. Sizes in GiB."""
        gpus = Gpus(self._box["gpus"])
        about = platform.uname()
        return {
            "hostname": about.node,
            "boot_id": boot_id(),
            "kernel": about.release,
            "system": system_name(),
            "cpu": cpu_model(),
            "cores": len(os.sched_getaffinity(0)),
            "ram_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB, 2),
            "gpus": [{"index": g.number, "uuid": g.uuid, "name": g.name, "total_gb": g.total_gb} for g in gpus.read()],
            "gpu_source": gpus.source,
            "gpu_why": gpus.why,
            "driver": gpus.driver,
            "python": platform.python_version(),
            "git": git("--version").split()[2],
            "user": owner(os.getpid()),
            "directory": self._dir,
            "free_gb": round(free_gb(self._dir), 2),
        }

    def do_free_port(self) -> Json:
        """A port that nobody listens on, below the range from which connections take theirs."""
        for _ in range(200):
            port = random.SystemRandom().randrange(20000, 32000)
            if not listeners(port):
                with contextlib.suppress(OSError), socket.socket() as probe:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind(("0.0.0.0", port))
                    return {"port": port}
        raise Refused("no-port", "no free port between 20000 and 32000")

    # .. the lease

    def do_lease_acquire(self, **wanted: Any) -> Json:
        return self._leases().acquire(gpus=self._box["gpus"], **wanted)

    def do_lease_renew(self, ttl_s: float) -> Json:
        return self._leases().renew(fence=self._fence, ttl_s=ttl_s)

    def do_lease_release(self) -> Json:
        return self._leases().release(fence=self._fence)

    def do_lease_status(self) -> Json:
        return self._leases().status()

    # .. code

    def _store(self) -> CodeStore:
        store = CodeStore(self._dir, checkout=os.path.expanduser(self._box["checkout"]))
        store.ensure()
        return store

    def do_place(self, commit: str, tree: str) -> Json:
        """Code on disk, from what the box has; else ``missing`` and the commits that it has."""
        store = self._store()
        if not store.has(commit):
            return {"missing": True, "tips": store.tips()}
        written, note = store.place(commit, tree, build=self._box["build"], sources=self._box["build_sources"])
        return {"path": store.path(tree), "tree": tree, "placed": written, "note": note}

    def do_receive(self, commit: str, shallow: list[str]) -> Json:
        """The payload is a bundle with what the box lacks of ``commit``; ``shallow`` commits have no parents there."""
        store = self._store()
        bundle = f"{self._dir}/code.git/incoming.{os.getpid()}"
        try:
            with open(bundle, "wb") as file:
                for part in self._wire.payload():
                    file.write(part)
            store.unbundle(bundle, commit, shallow=shallow)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(bundle)
        return {}

    def do_apply(self, commit: str, patches: list[str], rescue: bool, in_place: bool) -> Json:
        """Bring the directory that the user looks at, or their own checkout, to ``commit``, and read it back."""
        self._leases().check(self._fence)
        store = self._store()
        if not store.has(commit):
            return {"missing": True, "tips": store.tips()}
        store.keep(commit)
        place = self._work_tree(store, in_place)
        written, note = place.bring_to(commit, rescue=rescue, objects=store.repo)
        tree = place.proven() if written else place.tree(commit)  # all bytes were compared when nothing was written
        answer = {"commit": place.commit(), "tree": tree, "path": f"{place.path}/python"}
        if answer["commit"] != commit or answer["tree"] != place.tree(commit):
            raise Refused("wrong-code", f"{place.path} holds tree {answer['tree']} of commit {answer['commit']}")
        write_json(f"{self._dir}/applied.json", {"patches": patches, "in_place": in_place})
        return {**answer, "placed": written, "note": note}

    def do_applied(self) -> Json:
        """What was applied last, as it is on disk now; ``changed`` are files that were changed by hand since."""
        kept = read_json(f"{self._dir}/applied.json")
        if kept is None:
            return {}
        place = self._work_tree(self._store(), kept["in_place"])
        about = {"commit": place.commit(), "tree": place.proven(), "path": f"{place.path}/python"}
        return {**about, "patches": kept["patches"], "changed": place.changed()}

    def _work_tree(self, store: CodeStore, in_place: bool) -> WorkTree:
        if not in_place:
            return WorkTree(f"{self._dir}/applied", repo=store.repo, index=f"{self._dir}/applied.index")
        if not store.checkout:
            raise Refused("usage", "this box names no checkout of yours", "set `checkout` of the box")
        return WorkTree(store.checkout)

    # .. clean

    def do_prove_clean(self, port: int) -> Json:
        """Sweep what earlier launches of this tool left; name everything else that would disturb a trial."""
        self._leases().check(self._fence)
        began = time.monotonic()
        swept, faults = [], []
        for run in unfinished_runs(self._dir):
            if run.state().get("keep") and run.members():
                faults.append(f"launch {run.id} was kept running on purpose (port {run.state()['port']})")
                continue
            was_running = bool(run.members())
            report = self._end(run, grace_s=0.0)
            faults += report["faults"]
            if was_running:
                swept.append(f"launch {run.id} had been left running: {len(report['killed'])} processes ended")
        self._drop_old_runs()
        holder = port_holder(port) if port else None
        if holder:
            faults.append(f"port {port} is held by {holder}")
        faults += self._gpu_faults(wait_s=0.0)
        free = free_gb(self._dir)
        if free < self._box["min_free_gb"]:
            faults.append(f"only {free:.2f} GiB are free in {self._dir} ({self._box['min_free_gb']} wanted)")
        return {"clean": not faults, "faults": faults, "swept": swept, "seconds": time.monotonic() - began}

    def _drop_old_runs(self) -> None:
        with contextlib.suppress(OSError):
            names = sorted(os.listdir(f"{self._dir}/runs"), key=lambda n: os.stat(f"{self._dir}/runs/{n}").st_mtime)
            for name in names[:-KEEP_RUNS]:
                if RunDir(self._dir, name).ended:
                    shutil.rmtree(f"{self._dir}/runs/{name}", ignore_errors=True)

    def _gpu_faults(self, *, wait_s: float) -> list[str]:
        """Foreign processes on the GPUs, and memory above the baseline after ``wait_s`` to let it fall."""
        gpus = Gpus(self._box["gpus"])
        if gpus.source == "none":
            return []
        deadline = time.monotonic() + wait_s
        while True:
            faults = self._gpu_faults_now(gpus)
            if not faults or time.monotonic() >= deadline:
                return faults
            time.sleep(0.1)

    def _gpu_faults_now(self, gpus: Gpus) -> list[str]:
        busy = gpus.processes()
        if busy:
            return [f"{describe(one.pid)} holds {one.used_gb:.1f} GiB of GPU {one.number}" for one in busy]
        book = f"{self._dir}/baseline.json"
        kept = read_json(book) or {}
        same = kept.get("boot") == boot_id() and kept.get("driver") == gpus.driver
        baseline = dict(kept["used_gb"]) if same else {}
        faults = []
        for gpu in gpus.read():
            usual = baseline.get(gpu.uuid, self._box["gpu_idle_gb"])
            if gpu.used_gb > usual + self._box["gpu_slack_gb"]:
                faults.append(f"GPU {gpu.number} holds {gpu.used_gb:.1f} GiB that no process owns (idle: {usual:.1f})")
            else:
                baseline[gpu.uuid] = min(gpu.used_gb, baseline.get(gpu.uuid, gpu.used_gb))
        if not faults:
            write_json(book, {"boot": boot_id(), "driver": gpus.driver, "used_gb": baseline})
        return faults

    # .. run

    def do_start(self, spec: Json) -> Json:
        """Start a server. The same launch id twice is the same launch: a repeated request changes nothing."""
        self._leases().check(self._fence)
        run = RunDir(self._dir, spec["launch_id"])
        if run.exists:
            return {"path": run.path, "tree": run.state()["tree"]}
        store = CodeStore(self._dir)
        if spec["tree"]:
            proven = store.proven(spec["tree"])
            if proven != spec["tree"]:
                raise Refused("wrong-code", f"the code in {store.path(spec['tree'])} has the tree id {proven}")
        os.makedirs(run.path, mode=0o700, exist_ok=True)
        write_json(run.file("spec.json"), spec["shown"])
        order = {
            "argv": spec["argv"],
            "env": self._server_env(spec, run),
            "port": spec["port"],
            "python": spec["python"],
            "tree": spec["tree"],
            "keep": spec["keep"],
            "gpus": self._box["gpus"],
            "fence": self._fence,
            "adopt": False,
        }
        self._start_supervisor(run, order)
        return {"path": run.path, "tree": spec["tree"]}

    def _server_env(self, spec: Json, run: RunDir) -> dict[str, str]:
        env = {name: value for name, value in os.environ.items() if CLEAN_ENV.fullmatch(name)}
        env.update(spec["env"])
        env["PYTHONPATH"] = ":".join(spec["pythonpath"])
        env["TMPDIR"] = short_tmpdir(run)
        env["PATCHBISECT_LAUNCH"] = run.id
        return env

    def _start_supervisor(self, run: RunDir, order: Json) -> None:
        child = subprocess.Popen(
            [sys.executable, "-I", "-c", LOADER, HOME, PACKAGE, "supervise", self._dir, run.id],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=run.path,
            start_new_session=True,
        )
        self._children.append(child)
        assert child.stdin is not None and child.stdout is not None
        with child.stdin as stdin, child.stdout as stdout:
            stdin.write(json.dumps(order).encode())
            stdin.close()
            answer = stdout.readline()
        said = json.loads(answer) if answer else {"error": "the supervisor did not start"}
        if "error" in said:
            remove_tmpdir(run)
            shutil.rmtree(run.path, ignore_errors=True)
            raise Refused("no-program", f"the server could not be started on the box: {said['error']}")

    def do_follow(self, launch_id: str, offset: int) -> Json:
        """Stream log chunks and signals until the server has exited and its log is drained."""
        run = self._runs(launch_id)
        heard = sampled = looked = time.monotonic()
        stamp = 0
        with open(run.log, "rb", buffering=0) as log:
            log.seek(offset)
            while True:
                exited = run.exit()
                data = log.read(CHUNK_BYTES)
                if data:
                    self._wire.send({"chunk": offset, "size": len(data)}, data)
                    offset += len(data)
                now = time.monotonic()
                if exited and not data:
                    return {"exited": exited, "offset": offset}
                if now - looked > ORPHANED_RUN_EVERY_S:
                    looked = now
                    self._adopt(run)
                if now - sampled >= SAMPLE_EVERY_S or (now - sampled >= 0.1 and stamp != changed_at(run)):
                    stamp, sampled = changed_at(run), now
                    self._wire.send({"signals": read_json(run.file("signals.json")) or {}})
                if not data:
                    said = self._wire.heartbeat(LOG_POLL_S)
                    if said is None or now - heard > SILENT_CLIENT_S:
                        raise BrokenPipeError
                    heard = now if said else heard

    def _adopt(self, run: RunDir) -> None:
        """Give a launch whose supervisor was killed a new one. Two who try at once are told apart by a lock."""
        if run.supervisor() is None and run.exit() is None:
            state = run.state()
            order = {"adopt": True, "port": state["port"], "gpus": self._box["gpus"]}
            self._start_supervisor(run, order)

    def do_provenance(self, launch_id: str) -> Json:
        """What the server's own Python sees; waits for the probe that was started beside the server."""
        run = self._runs(launch_id)
        deadline = time.monotonic() + 60.0
        while not os.path.exists(run.file("provenance.json")) and time.monotonic() < deadline:
            if run.supervisor() is None:
                break
            time.sleep(0.01)
        found = read_json(run.file("provenance.json"))
        if found is None:
            said = last_line(run.file("provenance.err"))
            raise Refused("no-provenance", f"the server's Python could not tell its packages: {said}")
        return {**found, "tree": run.state()["tree"]}

    def do_launch_state(self, launch_id: str) -> Json:
        run = self._runs(launch_id)
        return {"path": run.path, "exited": run.exit(), "ended": run.ended, "port": run.state()["port"]}

    def do_launches(self) -> Json:
        """Launches that are not proven ended."""
        found = []
        for run in unfinished_runs(self._dir):
            state = run.state()
            about = {"launch_id": run.id, "port": state["port"], "keep": state["keep"], "started": state["started"]}
            found.append({**about, "processes": len(run.members())})
        return {"launches": found}

    def do_dossier(self, launch_id: str) -> Json:
        run = self._runs(launch_id)
        found = collect(run, python=self._box["python"])
        write_json(run.file("dossier.json"), found)
        return found

    def do_doctor(self) -> Json:
        return {"checks": [agent_about(), *examine(self._dir, self._box)]}

    def do_stop(self, launch_id: str, grace_s: float) -> Json:
        run = self._runs(launch_id)
        return self._end(run, grace_s=grace_s)

    def _end(self, run: RunDir, *, grace_s: float) -> Json:
        """End everything of one launch and prove it. ``faults`` is empty when the proof holds."""
        began = time.monotonic()
        memory = run.shared_memory() | {path for proc in run.members() for path in shared_memory(proc.pid)}
        killed, refusals = end_processes(run, grace_s=grace_s)
        faults = list(refusals)
        left = run.members()
        faults += [f"{describe(proc.pid)} of launch {run.id} does not die (state {proc.state})" for proc in left]
        state = run.state()
        if not left:
            end_supervisor(run)
        gone_s = time.monotonic() - began
        holder = port_holder(state["port"]) if state["port"] else None
        if holder:
            faults.append(f"port {state['port']} is still held by {holder}")
        faults += self._gpu_faults(wait_s=self._box["gpu_budget_s"])
        changed = self._changed(run, state)
        exit_ = run.exit() or {}
        swept: list[str] = []
        if not left:
            swept = sweep_shared_memory(memory) + sweep_build_locks(build_folders(), since=state["started"])
            remove_tmpdir(run)
            write_reserved(run.file("ended.json"), {"killed": killed[:200]})
        return {
            "ended": not left,
            "killed": killed,
            "gone_s": gone_s,
            "seconds": time.monotonic() - began,
            "faults": faults,
            "changed": changed,
            "swept": swept,
            "exit_code": exit_.get("exit_code"),
            "kernel": exit_.get("kernel", []),
        }

    def _changed(self, run: RunDir, state: Json) -> list[str]:
        """How the box is another one than when the launch began."""
        found = list((run.exit() or {}).get("changed", []))
        if state["boot"] != boot_id():
            found.append("the box was rebooted")
        gpus = Gpus(self._box["gpus"]) if state["gpu_source"] != "none" else None
        if gpus is not None:
            if gpus.driver != state["driver"]:
                found.append(f"the driver was {state['driver']} and is now {gpus.driver or 'gone'}")
            missing = set(state["gpus"]) - {gpu.uuid for gpu in gpus.read()}
            found += [f"GPU {uuid} fell off ({gpus.why})" for uuid in sorted(missing)]
        taken = self._leases().taken_over(state["fence"])
        if taken:
            found.append(f"the lease of the box was taken over during the launch by {taken}")
        if free_gb(run.path) < 1 / 1024:
            found.append(f"the disk of {run.path} is full")
        return sorted(set(found))


def build_folders() -> list[str]:
    """Where torch builds extensions just in time."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return [f"{cache}/torch_extensions"]


def last_line(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return (file.read().strip().splitlines() or [""])[-1]
    except OSError:
        return ""


def system_name() -> str:
    with contextlib.suppress(OSError), open("/etc/os-release", encoding="utf-8") as file:
        for line in file:
            if line.startswith("PRETTY_NAME="):
                return line.partition("=")[2].strip().strip('"')
    return platform.system()


def cpu_model() -> str:
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()
