"""The faults of a box: when they strike, and what must become of the trial. One list for every kind of server."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from unittest.mock import patch

import pytest

from patchbisect.box import Box, Lease
from patchbisect.box.failures import BoxBusy
from patchbisect.model import Outcome, Persistence, Verdict
from patchbisect.testing.fake_clock import FakeClock
from patchbisect.testing.fake_gpus import FakeGpu, FakeGpus
from patchbisect.trial import Rig, Trial
from tests.box.lab import none_left
from tests.sshd.rig import once_noticed
from tests.sshd.scene import AGENT, SUPERVISOR, Moments, Scene, kill, trial_of

MOMENTS = ("proving", "placing", "launching", "dist-init", "weight-load", "kv-profile", "error", "stopping")
IN_THREE = (("proving", "placing", "launching", "dist-init", "stopping"), ("weight-load",), ("kv-profile", "error"))
"""All of them in three launches. A fault that takes seconds hides the stages that the server goes through meanwhile."""

Ends = Callable[[Scene, Verdict], None]


def as_without(scene: Scene, verdict: Verdict) -> None:
    assert (verdict.outcome, verdict.stage, verdict.cause) == scene.server.failure, verdict


def ready(scene: Scene, verdict: Verdict) -> None:
    assert verdict.outcome is Outcome.READY, verdict


def killed(scene: Scene, verdict: Verdict) -> None:
    assert (verdict.outcome, verdict.cause) == (Outcome.CRASH, "killed"), verdict


def void(why: str) -> Ends:
    def ends(scene: Scene, verdict: Verdict) -> None:
        assert (verdict.outcome, verdict.persistence) == (Outcome.VOID, Persistence.TRANSIENT), verdict
        assert why in verdict.why

    return ends


def nothing(scene: Scene) -> None:
    pass


@dataclass(frozen=True)
class Fault:
    """``strike`` at each of ``moments``; where a launch is dear, at all moments of a ``group`` in one launch.

    ``around`` arranges the box for the whole trial. A fault that ``heals`` is over once the client has noticed it.
    """

    name: str
    strike: Callable[[Scene], object] = nothing
    moments: tuple[str, ...] = ()
    groups: tuple[tuple[str, ...], ...] = ()
    around: Callable[[Scene], AbstractContextManager[Scene]] = nullcontext
    point: str = "HEAD"
    ends: Ends = as_without
    heals: bool = False
    launches: bool = True
    keeps_lease: bool = True

    @property
    def one_by_one(self) -> tuple[tuple[str, ...], ...]:
        return tuple((moment,) for moment in self.moments) or ((),)

    @property
    def together(self) -> tuple[tuple[str, ...], ...]:
        return self.groups or (self.moments,)

    def befalls(self, scene: Scene, moments: tuple[str, ...]) -> Trial:
        """A trial with the fault: it ends as it should, nothing of its log is lost, nothing of it is left."""
        with self.around(scene) as struck:
            with struck.rig() as rig:
                watcher = Moments(moments, lambda: self.strike(struck))
                with once_noticed(scene.proxy.heal) if self.heals else nullcontext() as noticed:
                    trial = trial_of(rig, self.point, watcher)
                assert not watcher.to_come
                assert noticed is None or noticed.seen
                self.ends(struck, trial.verdict)
                self._leaves_nothing(struck, rig, trial)
            if self.keeps_lease:
                with struck.changed(link_timeout_s=15.0).another_client() as box:  # nothing is tried twice at first
                    assert box.leases() == ()
            assert none_left(struck.box)
        return trial

    def _leaves_nothing(self, scene: Scene, rig: Rig, trial: Trial) -> None:
        record = rig.store.load(trial.record)
        assert bool(record.stop) is self.launches
        if self.launches:
            assert record.stop["ended"]
            assert scene.log(trial).startswith(rig.store.log(trial.record))
        assert none_left(scene.box / "runs")


# .. the link, sshd, our own programs


def restart_sshd(scene: Scene) -> None:
    scene.sshd.stop(sessions=True)
    scene.sshd.start()


def kill_agents(scene: Scene) -> None:
    assert kill(scene.processes(AGENT))


def kill_supervisor(scene: Scene) -> None:
    assert kill(scene.processes(SUPERVISOR)) == 1


# .. the server


@contextmanager
def another_python(scene: Scene, before: str) -> Iterator[Scene]:
    """The server's interpreter is a shell script that does something first."""
    script = scene.folder / "python"
    python = scene.settings.python
    script.write_text(f'#!/bin/sh\nif [ "$1" = -m ]; then\n{before}\nfi\nexec {python} "$@"\n')
    script.chmod(0o755)
    yield scene.changed(python=str(script), agent_python=scene.settings.agent_python or python)


def stubborn(scene: Scene) -> AbstractContextManager[Scene]:
    """Four processes that ignore SIGTERM: two of them re-parented, of which one left session, directory and log."""
    deaf = f"{sys.executable} -c 'import signal; signal.signal(15, signal.SIG_IGN); signal.pause()' {scene.box}/deaf"
    start = f"{deaf} &\n{deaf} &\n({deaf} &)\n(cd / && setsid {deaf} </dev/null >/dev/null 2>&1 &)"
    return another_python(scene, start)


def freeze(scene: Scene) -> None:
    """A process that is stopped does nothing on SIGTERM."""
    for pid in scene.launchers():
        os.kill(pid, signal.SIGSTOP)
    assert len(scene.processes("/deaf")) == 4


FLOOD = "import os\nfor _ in range(128): os.write(2, (b'flood ' + b'x' * 1017 + b'\\n') * 256)"
"""32 MiB."""


def flood(scene: Scene) -> AbstractContextManager[Scene]:
    return another_python(scene, f'{sys.executable} -c "{FLOOD}"')


def kill_launcher(scene: Scene) -> None:
    assert kill(scene.launchers()) == 1


# .. the machine, and colleagues


@contextmanager
def port_taken(scene: Scene) -> Iterator[Scene]:
    taken = socket.create_server(("127.0.0.1", 0))
    with taken, patch.object(Box, "free_port", lambda self: taken.getsockname()[1]):
        yield scene


@contextmanager
def colleague_elsewhere(scene: Scene) -> Iterator[Scene]:
    """A machine with one GPU, and somebody who does not use it yet."""
    gpus = FakeGpus(scene.folder, FakeGpu())
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", "colleague"])
    (scene.folder / "colleague").write_text(str(process.pid))
    shared = scene.changed(agent_python=str(gpus.python), lease_directory=str(scene.folder / "lease"), gpu_budget_s=0.5)
    try:
        yield shared
        assert process.poll() is None, "it is none of ours"
    finally:
        process.kill()
        process.wait()


@contextmanager
def colleague_there(scene: Scene) -> Iterator[Scene]:
    with colleague_elsewhere(scene) as shared:
        arrive(shared)
        yield shared


def arrive(scene: Scene) -> None:
    pid = int((scene.folder / "colleague").read_text())
    FakeGpus(scene.folder, FakeGpu(used_gb=40.0, processes=[(pid, 39.5)]))


@contextmanager
def small_disk(scene: Scene) -> Iterator[Scene]:
    disk = scene.folder / "disk"
    disk.mkdir()
    size = f"size={scene.server.disk_mb}m"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(disk)], check=True)
    try:
        yield scene.changed(directory=str(disk / "box"), lease_directory=str(scene.folder / "lease"))
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def fill_disk(scene: Scene) -> None:
    with (scene.box.parent / "ballast").open("wb", buffering=0) as file, pytest.raises(OSError, match="space"):
        for size in itertools.chain(itertools.repeat(1 << 20, scene.server.disk_mb), itertools.repeat(4096)):
            file.write(b"x" * size)


@contextmanager
def read_only_checkout(scene: Scene) -> Iterator[Scene]:
    checkout = scene.folder / "checkout"
    scene.server.check_out(checkout)
    subprocess.run(["mount", "--bind", str(checkout), str(checkout)], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(checkout)], check=True)
        yield scene.changed(checkout=str(checkout))
    finally:
        subprocess.run(["umount", "--lazy", str(checkout)], check=True)


HOUR = 3600.0


@contextmanager
def a_clock_of_its_own(scene: Scene) -> Iterator[Scene]:
    clock, now = FakeClock(scene.folder), time.time
    with patch.object(time, "time", lambda: now() + clock.ahead_s):
        yield scene.changed(agent_python=str(clock.python))


def set_clock(scene: Scene) -> None:
    """An hour forwards; the next time two hours back; and so on."""
    clock = FakeClock(scene.folder)
    clock.set(HOUR if clock.ahead_s <= 0 else -HOUR)


# .. the lease


@contextmanager
def nobody_renews(scene: Scene) -> Iterator[Scene]:
    with patch.object(Lease, "_renew", lambda self: None):
        yield scene.changed(lease_s=0.5)


@contextmanager
def a_thief(scene: Scene) -> Iterator[Scene]:
    yield scene
    with scene.another_client() as thief:
        (held,) = thief.leases()
        assert held.reason == "mine now"
        thief.release(held.fence)


def steal(scene: Scene) -> None:
    with scene.another_client() as thief:
        thief.acquire("mine now", steal=True)


def another_wants_it(scene: Scene) -> None:
    busy = pytest.raises(BoxBusy, match=r"\(test\)")
    with scene.another_client() as other, busy, other.lease("me too"):
        pass


PORT = f"is held by pid {os.getpid()}"
CAME = "came to GPU 0 during the trial"
AT_FIRST = (("dist-init",),)
LOADING = ("dist-init", "weight-load")

FAULTS = (
    Fault("link cut", lambda scene: scene.proxy.cut(), MOMENTS, IN_THREE),
    Fault("link away", lambda scene: scene.proxy.refuse(), MOMENTS, IN_THREE[1:2], heals=True),
    Fault("black hole", lambda scene: scene.proxy.black_hole(), MOMENTS, IN_THREE, heals=True),
    Fault("sshd restarted", restart_sshd, MOMENTS),
    Fault("agents killed", kill_agents, MOMENTS, IN_THREE[:2]),
    Fault("supervisor killed", kill_supervisor, (*LOADING, "kv-profile"), AT_FIRST),
    Fault("server killed", kill_launcher, LOADING, AT_FIRST, point="clean", ends=killed),
    Fault("server that will not die", freeze, ("stopping",), around=stubborn, point="clean", ends=ready),
    Fault("flood", around=flood),
    Fault("port taken", around=port_taken, ends=void(PORT), launches=False),
    Fault("colleague on the GPU", around=colleague_there, ends=void("39.5 GiB of GPU 0"), launches=False),
    Fault("colleague comes", arrive, LOADING, AT_FIRST, colleague_elsewhere, ends=void(CAME)),
    Fault("disk filled", fill_disk, LOADING, AT_FIRST, small_disk, point="clean", ends=void("disk")),
    Fault("read-only checkout", around=read_only_checkout),
    Fault("clock set", set_clock, MOMENTS, around=a_clock_of_its_own),
    Fault("lease expired", around=nobody_renews),
    Fault("lease stolen", steal, ("dist-init",), around=a_thief, ends=void("lease"), keeps_lease=False),
    Fault("two clients", another_wants_it, ("proving", "weight-load", "stopping")),
)
