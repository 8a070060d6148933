"""What the agent can be asked."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from .base import Json, Refused, locked, read_json, shortage, write_json
from .cleaning import Cleaner
from .code import CodeStore
from .doctor import agent_about, examine
from .dossier import collect
from .environments import PROGRESS_EVERY_S, Environments, installed
from .facts import hello
from .git import checkout_of
from .gpus import Gpus
from .launching import Launcher, provenance
from .lease import LeaseBook, lease_dir
from .processes import listeners
from .rundir import RunDir, samples_of, unfinished_runs
from .warmth import Warmth
from .wire import Wire
from .worktree import WorkTree

TICK_EVERY_S = 2.0
QUIET_CLIENT_S = 3600.0
PORTS_A_GPU = 750
"""A conversation in which nothing is asked for this long ends."""


@contextlib.contextmanager
def to_the_end() -> Iterator[None]:
    """What must not be left half done is finished although the client, hanging up, ends us with SIGTERM."""
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def at_home(settings: Json, name: str) -> Json:
    """The path of that name with the home for ``~``."""
    return {name: os.path.expanduser(settings[name])} if name in settings else {}


def os_error(problem: OSError, verb: str) -> Json:
    return {"kind": "os", "message": f"{verb} on the box: {problem}", "remedy": "invoke doctor looks the box over"}


class Agent:
    """One conversation with a client. Every public method is a verb; its keyword arguments come from the request."""

    def __init__(self, directory: str) -> None:
        self._dir = directory
        self._wire = Wire()
        self._working = False
        self._fence = 0
        self._box: Json = {}

    # .. the conversation

    def serve(self) -> None:
        self._wire.greet({"agent": self._dir})
        threading.Thread(target=self._tick, daemon=True).start()
        while True:
            request = self._wire.receive(timeout_s=QUIET_CLIENT_S)
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
        self._box = {**request.get("box", {}), **at_home(request.get("box", {}), "python")}
        try:
            verb: Callable[..., Json] = getattr(self, "do_" + request["verb"])
            answer = verb(**request.get("args", {}))
        except Refused as refused:
            error = {"kind": refused.kind, "message": refused.message, "remedy": refused.remedy}
            self._wire.send({"error": error})
        except BrokenPipeError:
            raise
        except OSError as problem:
            self._wire.send({"error": shortage(problem) or os_error(problem, request["verb"])})
        except Exception:
            said = traceback.format_exc().strip().splitlines()
            message = f"the agent failed at {request['verb']}: {said[-1]} ({said[-3].strip()})"
            self._wire.send({"error": {"kind": "internal", "message": message, "remedy": "please report this"}})
        else:
            self._wire.send({"ok": answer})
        finally:
            self._wire.skip_payload()

    def _leases(self) -> LeaseBook:
        return LeaseBook(lease_dir(self._dir, self._box))

    # .. facts

    def do_hello(self) -> Json:
        return hello(self._dir, gpus=Gpus(self._box["gpus"]))

    def do_doctor(self) -> Json:
        return {"checks": [agent_about(), *examine(self._dir, self._box)]}

    def do_free_port(self) -> Json:
        """A port that nobody listens on, below the range from which connections take theirs."""
        for _ in range(200):
            port = random.SystemRandom().choice(self._ports())
            if not listeners(port):
                with contextlib.suppress(OSError), socket.socket() as probe:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind(("0.0.0.0", port))
                    return {"port": port}
        raise Refused("no-port", f"no free port in {self._ports()}")

    def _ports(self) -> range:
        """Boxes that have other GPUs of this machine draw from other ports: each finds its own free, both at once."""
        gpus = self._box["gpus"]
        if not gpus:
            return range(20000, 32000)
        first = 20000 + PORTS_A_GPU * (min(gpus) % 16)
        return range(first, first + PORTS_A_GPU)

    # .. the lease

    def do_lease_acquire(self, **wanted: Any) -> Json:
        return self._leases().acquire(gpus=self._box["gpus"] or [], **wanted)

    def do_lease_renew(self, ttl_s: float) -> Json:
        return self._leases().renew(fence=self._fence, ttl_s=ttl_s)

    def do_lease_release(self) -> Json:
        Warmth(self._dir, fence=self._fence).end_ours()
        return self._leases().release(fence=self._fence)

    def do_lease_status(self) -> Json:
        return self._leases().status()

    # .. code

    def _store(self) -> CodeStore:
        store = CodeStore(self._dir, checkout=checkout_of(self._box))
        store.ensure()
        return store

    def do_place(self, commit: str, tree: str) -> Json:
        """Code on disk, from what the box has; else ``missing`` and the commits that it has."""
        with locked(f"{self._dir}/code.lock"):
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
            with locked(f"{self._dir}/code.lock"):
                store.unbundle(bundle, commit, shallow=shallow)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(bundle)
        return {}

    def do_apply(self, commit: str, patches: list[str], rescue: bool, in_place: bool) -> Json:
        """Bring the directory that the user looks at, or their own checkout, to ``commit``, and read it back."""
        self._leases().check(self._fence)
        with locked(f"{self._dir}/code.lock"), to_the_end():
            return self._apply(commit, patches=patches, rescue=rescue, in_place=in_place)

    def _apply(self, commit: str, *, patches: list[str], rescue: bool, in_place: bool) -> Json:
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

    # .. environments

    def _environments(self) -> Environments:
        return Environments(self._dir, limit_gb=self._box["environments_gb"])

    def do_installed(self) -> Json:
        """What the server's Python has."""
        return installed(self._box["python"])

    def do_environments(self) -> Json:
        """Those that were built and are whole, the one used last first."""
        return {"environments": self._environments().all()}

    def do_environment(self, order: Json) -> Json:
        """The environment of that order; frames with ``progress`` while it is built."""
        self._leases().check(self._fence)
        told = 0.0

        def progress(about: Json) -> None:
            nonlocal told
            if "detail" in about or time.monotonic() - told > PROGRESS_EVERY_S:
                told = time.monotonic()
                self._wire.send({"progress": about})

        return self._environments().ensure(order, progress)

    def do_environments_drop(self, limit_gb: float) -> Json:
        """Drop the ones not used for longest until the rest takes at most ``limit_gb``; none that is in use."""
        return {"dropped": self._environments().collect(limit_gb=limit_gb)}

    # .. clean

    def _cleaner(self) -> Cleaner:
        return Cleaner(self._dir, box=self._box, leases=self._leases(), fence=self._fence)

    def do_prove_clean(self, port: int) -> Json:
        with to_the_end():
            return self._cleaner().prove_clean(port)

    def do_stop(self, launch_id: str, grace_s: float) -> Json:
        with to_the_end():
            return self._cleaner().end(self._run(launch_id), grace_s=grace_s)

    # .. launches

    def _launcher(self) -> Launcher:
        return Launcher(self._dir, box=self._box, fence=self._fence)

    def _run(self, launch_id: str) -> RunDir:
        run = RunDir(self._dir, launch_id)
        if not run.exists:
            raise Refused("no-run", f"the box knows no launch {launch_id}")
        return run

    def do_start(self, spec: Json) -> Json:
        self._leases().check(self._fence)
        program, *words = spec["argv"]
        paths = [os.path.expanduser(path) for path in spec["pythonpath"]]
        own = {"argv": [os.path.expanduser(program), *words], "pythonpath": paths}
        return self._launcher().start({**spec, **own, **at_home(spec, "python")})

    def do_follow(self, launch_id: str, offset: int) -> Json:
        return self._launcher().follow(self._run(launch_id), offset=offset, wire=self._wire)

    def do_provenance(self, launch_id: str) -> Json:
        return provenance(self._run(launch_id))

    def do_samples(self, launch_id: str) -> Json:
        return {"samples": samples_of(self._run(launch_id))}

    def do_launch_state(self, launch_id: str) -> Json:
        run = self._run(launch_id)
        return {
            "path": run.path,
            "exited": run.exit(),
            "ended": run.ended,
            "port": run.state()["port"],
            "warm": run.warm,
        }

    def do_launches(self) -> Json:
        """Launches that are not proven ended."""
        found = []
        for run in unfinished_runs(self._dir):
            state = run.state()
            about = {"launch_id": run.id, "port": state["port"], "keep": state["keep"], "started": state["started"]}
            found.append({**about, "processes": len(run.members())})
        return {"launches": found}

    def do_warm(self) -> Json:
        """Warm processes that are alive."""
        return {"warm": Warmth(self._dir, fence=self._fence).status()}

    def do_dossier(self, launch_id: str) -> Json:
        run = self._run(launch_id)
        found = collect(run, python=self._box["python"])
        write_json(run.file("dossier.json"), found)
        return found
