"""A whole rig over SSH: a queue repository, the fake server, the real trial; and faults that strike at a moment."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from patchbisect.box import BoxSettings, open_box
from patchbisect.config import BoxConfig, load_project
from patchbisect.model import Stage
from patchbisect.points import PointResolver
from patchbisect.records import Store
from patchbisect.startup import Event
from patchbisect.trial import Rig, Silent, Trial, prepare, run_trial
from patchbisect.trial.wheels import Wheels
from patchbisect.upstream import Mirror
from tests.box.lab import children_of_our_launches
from tests.fake_project import FakeProject

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
