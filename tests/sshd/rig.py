"""A whole rig over SSH: a queue repository, the fake server, the real trial; and faults that strike at a moment."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import yaml

from patchbisect import embedded
from patchbisect.box import BoxSettings, open_box
from patchbisect.config import BoxConfig, load_project
from patchbisect.model import Stage
from patchbisect.points import PointResolver
from patchbisect.records import Store
from patchbisect.startup import Event
from patchbisect.tasks.lab import SetupLines
from patchbisect.trial import Rig, Silent, Trial, prepare, run_trial
from patchbisect.trial.wheels import Wheels
from patchbisect.upstream import Mirror
from tests.box.lab import children_of_our_launches
from tests.fake_project import FakeProject

ROOT = Path(__file__).parents[2]

AGENT = '["serve",d]'
SUPERVISOR = " supervise "
"""What tells the command lines of our two programs on the box."""

Strike = Callable[[], None]


@contextmanager
def rig_over_ssh(fake: FakeProject, settings: BoxSettings) -> Iterator[Rig]:
    project = load_project(fake.root)
    with open_box("rig", settings, state=project.state) as box, box.lease("test"):
        yield Rig(
            project=project,
            mirror=Mirror.of(project),
            store=Store(project.state / "runs"),
            box=box,
            box_name="rig",
            config=BoxConfig(host="rig", python=sys.executable),
            embedded=None,
            wheels=Wheels(box, policy="refuse"),
        )


class Moment(Silent):
    """A watcher that strikes once, at the first step or stage of that name."""

    def __init__(self, name: str, strike: Strike) -> None:
        self._name = name
        self._strike: Strike | None = strike

    def step(self, text: str) -> None:
        self._at(text.split()[0])

    def event(self, event: Event, elapsed_s: float) -> None:
        self._at(str(event.stage or event.what))

    def _at(self, name: str) -> None:
        if name == self._name and self._strike is not None:
            strike, self._strike = self._strike, None
            strike()

    @property
    def struck(self) -> bool:
        return self._strike is None


class OnceNoticed(logging.Handler):
    """Does something as soon as the client has noticed that its link is lost."""

    def __init__(self, action: Callable[[], None]) -> None:
        super().__init__(level=logging.WARNING)
        self._action = action
        self.seen = 0

    def emit(self, record: logging.LogRecord) -> None:
        if "connecting again" in record.getMessage():
            self.seen += 1
            self._action()


@contextmanager
def once_noticed(action: Callable[[], None]) -> Iterator[OnceNoticed]:
    handler = OnceNoticed(action)
    logger = logging.getLogger("patchbisect.box")
    logger.addHandler(handler)
    try:
        yield handler
    finally:
        logger.removeHandler(handler)


def trial_of(rig: Rig, point: str, watcher: Silent | None = None) -> Trial:
    resolved = PointResolver.of(rig.project, mirror=rig.mirror).resolve(point).point
    return run_trial(rig, prepare(rig, resolved), until=Stage.SERVING, watcher=watcher)


def kill_ours(folder: Path, word: str) -> int:
    """SIGKILL every process under the box's directory whose command line has ``word``. Returns how many."""
    found = [line for line in children_of_our_launches(folder) if word in line]
    for line in found:
        os.kill(int(line.split()[0]), signal.SIGKILL)
    return len(found)


def story_repository(folder: Path, hosts: Sequence[str]) -> Path:
    """A repository of the user's own: the queue of the demo, and boxes over SSH, by host, that can run SGLang."""
    ours = load_project(ROOT)
    here = embedded.find(ours.state) or embedded.setup(
        ours.state, settings=ours.settings.embedded, progress=SetupLines()
    )
    root = folder / "queue"
    shutil.copytree(ROOT / "tests" / "queues" / "observer-effect", root / "patches")
    shutil.copy(ROOT / "patches" / "pin.toml", root / "patches")
    boxes = {
        host: {
            "host": host,
            "dir": str(folder / f"box-{host}"),
            "lease-dir": str(folder / f"lease-{host}"),
            "python": str(here.python),
            "pythonpath": [str(path) for path in here.pythonpath],
            "env": dict(here.env),
            "link-patience-s": 5.0,
        }
        for host in hosts
    }
    flags = {
        "model-path": here.variables["tiny-model"],
        "load-format": "dummy",
        "device": "cpu",
        "attention-backend": "torch_native",
        "skip-tokenizer-init": True,
        "mem-fraction-static": "0.05",
        "max-total-tokens": 4096,
    }
    settings = {
        "box": hosts[0],
        "profile": "tiny",
        "upstream": {"source": "release"},
        "boxes": boxes,
        "profiles": {"tiny": {"until": "ready", "flags": flags}},
    }
    (root / "invoke.yaml").write_text(yaml.safe_dump({"patchbisect": settings}))
    (root / ".patchbisect").mkdir()
    (root / ".patchbisect" / "wheels").symlink_to(ours.state / "wheels")
    (root / ".gitignore").write_text(".patchbisect/\n")
    for words in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "queue"],
    ):
        subprocess.run(["git", "-C", str(root), *words], check=True)
    return root
