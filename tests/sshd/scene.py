"""Where faults strike: a box behind a real sshd, and the server that runs on it, the shipped fake or a real SGLang."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from patchbisect import embedded
from patchbisect.box import Box, BoxSettings, Lease, open_box
from patchbisect.config import BoxConfig, Project, load_project
from patchbisect.model import Stage
from patchbisect.points import PointResolver
from patchbisect.records import Store
from patchbisect.startup import Event
from patchbisect.tasks.lab import SetupLines, story
from patchbisect.trial import Rig, Silent, Trial, prepare, run_trial
from patchbisect.trial.desk import pin_of
from patchbisect.trial.wheels import Wheels
from patchbisect.upstream import Mirror
from tests.box.lab import children_of_our_launches
from tests.fake_project import GOOD, OOM, fake_project
from tests.sshd.openssh import Proxy, Sshd

ROOT = Path(__file__).parents[2]
PACE = ("--pace", "0.01")
AGENT = '["serve",d]'
SUPERVISOR = " supervise "
"""What tells the command lines of our two programs on the box."""

Judged = tuple[str, str, str]
"""Outcome, stage and cause of a verdict."""


class Server(Protocol):
    """What is started on the box."""

    failure: Judged
    """How ``HEAD`` ends without a fault; ``clean`` becomes ready."""
    disk_mb: int
    """A disk on which a launch just fits."""

    def settings(self, python: str) -> BoxSettings:
        """Of a box that can run it, with an agent run by ``python``; where the box is is not said."""

    def rig(self, box: Box, lease: Lease, state: Path) -> Rig: ...

    def check_out(self, place: Path) -> None:
        """The user's own checkout of its code."""


@dataclass(frozen=True)
class FakeServer:
    """Prints the log of a real start, a line every few milliseconds."""

    place: Path
    base: Sequence[str] = GOOD
    pace: Sequence[str] = PACE
    failure: Judged = ("oom", "kv-profile", "kv-profile")
    disk_mb: int = 24

    def __post_init__(self) -> None:
        fake_project(self.place, patches=2, guilty=2, base=(*self.base, *self.pace), bad=(*OOM, *self.pace))

    def settings(self, python: str) -> BoxSettings:
        return BoxSettings(python=python, link_timeout_s=2.0, link_patience_s=60.0, min_free_gb=0.01)

    def rig(self, box: Box, lease: Lease, state: Path) -> Rig:
        config = BoxConfig(host="rig", python=box.settings.python)
        return _rig(load_project(self.place / "queue"), box, lease, state=state, config=config, here=None)

    def check_out(self, place: Path) -> None:
        shutil.copytree(self.place / "upstream", place)


@dataclass(frozen=True)
class RealServer:
    """SGLang itself, in the embedded environment, with a queue whose sixth patch breaks the start."""

    failure: Judged = ("crash", "kv-profile", "unbound-name")
    disk_mb: int = 400

    @property
    def project(self) -> Project:
        return story(load_project(ROOT), "observer-effect")

    @property
    def here(self) -> embedded.Embedded:
        project = load_project(ROOT)
        settings = project.settings.embedded
        return embedded.find(project.state) or embedded.setup(project.state, settings=settings, progress=SetupLines())

    def settings(self, python: str) -> BoxSettings:
        own = str(self.here.python)
        return BoxSettings(python=own, agent_python=python, link_timeout_s=6.0, link_patience_s=120.0, min_free_gb=0.1)

    def rig(self, box: Box, lease: Lease, state: Path) -> Rig:
        _, config = self.project.settings.box_named("local")
        here = replace(self.here, python=Path(box.settings.python))
        return _rig(self.project, box, lease, state=state, config=config, here=here)

    def check_out(self, place: Path) -> None:
        mirror = Mirror.of(self.project)
        point = PointResolver.of(self.project, mirror=mirror).resolve("clean").point
        commit = mirror.materialize(point.base, point.patches).commit
        git = ["git", "-C", str(place)]
        subprocess.run(["git", "init", "--quiet", str(place)], check=True)
        refs = "+refs/patchbisect/*:refs/patchbisect/*"
        subprocess.run([*git, "fetch", "--quiet", str(mirror.path), refs], check=True)
        subprocess.run([*git, "checkout", "--quiet", "--detach", commit], check=True)


def _rig(
    project: Project, box: Box, lease: Lease, *, state: Path, config: BoxConfig, here: embedded.Embedded | None
) -> Rig:
    return Rig(
        project=project,
        mirror=Mirror.of(project),
        store=Store(state / "records"),
        box=box,
        box_name="rig",
        config=config,
        embedded=here,
        wheels=Wheels(box, policy=config.wheels_policy),
        pin=pin_of(project),
        lease=lease,
    )


@dataclass(frozen=True)
class Scene:
    """One box, and what can be struck of it. ``settings`` are those with which the client reaches it."""

    folder: Path
    server: Server
    sshd: Sshd
    proxy: Proxy
    settings: BoxSettings

    @classmethod
    def over(cls, folder: Path, *, server: Server, sshd: Sshd, proxy: Proxy) -> Scene:
        """A box below ``folder`` that is reached through ``proxy``, and can run ``server``."""
        settings = replace(server.settings(sys.executable), host="rig", directory=str(folder / "box"))
        return cls(folder=folder, server=server, sshd=sshd, proxy=proxy, settings=settings)

    @property
    def box(self) -> Path:
        return Path(self.settings.directory)

    def changed(self, **settings: Any) -> Scene:
        return replace(self, settings=replace(self.settings, **settings))

    @contextmanager
    def another_client(self) -> Iterator[Box]:
        with open_box("rig", self.settings, state=self.folder) as box:
            yield box

    @contextmanager
    def rig(self) -> Iterator[Rig]:
        with self.another_client() as box, box.lease("test") as lease:
            yield self.server.rig(box, lease, self.folder)

    def processes(self, word: str) -> list[int]:
        """Those of the box whose command line has ``word``."""
        return [int(line.split()[0]) for line in children_of_our_launches(self.box) if word in line]

    def launchers(self) -> list[int]:
        """The first process of each server that was started on the box."""
        return [json.loads(path.read_text())["server"] for path in self.box.glob("runs/*/state.json")]

    def log(self, trial: Trial) -> bytes:
        """The log as the box has it."""
        return (self.box / "runs" / trial.record / "log").read_bytes()


def kill(pids: Iterable[int]) -> int:
    """SIGKILL them. Returns how many there were."""
    pids = list(pids)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    return len(pids)


class Moments(Silent):
    """A watcher that strikes at the first step or stage of each of these names."""

    def __init__(self, names: Iterable[str], strike: Callable[[], object]) -> None:
        self.to_come = set(names)
        self._strike = strike

    def step(self, text: str) -> None:
        self._at(text.split()[0])

    def event(self, event: Event, elapsed_s: float) -> None:
        self._at(str(event.stage or event.what))

    def _at(self, name: str) -> None:
        if name in self.to_come:
            self.to_come.discard(name)
            self._strike()


def trial_of(rig: Rig, point: str, watcher: Silent | None = None) -> Trial:
    resolved = PointResolver.of(rig.project, mirror=rig.mirror).resolve(point).point
    return run_trial(rig, prepare(rig, resolved), until=Stage.SERVING, watcher=watcher)
