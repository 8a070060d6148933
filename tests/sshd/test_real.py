"""A real SGLang server over a real sshd: one fault of each class."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from patchbisect import embedded
from patchbisect.box import BoxSettings, open_box
from patchbisect.config import load_project
from patchbisect.model import Outcome, Stage
from patchbisect.points import PointResolver
from patchbisect.records import Store
from patchbisect.tasks.lab import SetupLines, story
from patchbisect.trial import Rig, Silent, Trial, prepare, run_trial
from patchbisect.trial.wheels import Wheels
from patchbisect.upstream import Mirror
from tests.box.lab import children_of_our_launches, none_left
from tests.sshd.openssh import Proxy
from tests.sshd.rig import SUPERVISOR, Moment

pytestmark = [pytest.mark.real, pytest.mark.sshd, pytest.mark.ci]

ROOT = Path(__file__).parents[2]


@pytest.fixture
def rig(tmp_path: Path, settings: BoxSettings) -> Iterator[Rig]:
    project = load_project(ROOT)
    here = embedded.find(project.state) or embedded.setup(
        project.state, settings=project.settings.embedded, progress=SetupLines()
    )
    real = replace(settings, python=str(here.python), link_timeout_s=10.0, min_free_gb=1.0)
    _, config = project.settings.box_named("local")
    with open_box("rig", real, state=tmp_path) as box, box.lease("tests"):
        store = Store(tmp_path / "records")
        yield Rig(
            project=project,
            mirror=Mirror.of(project),
            store=store,
            box=box,
            box_name="rig",
            config=config,
            embedded=here,
            wheels=Wheels(box, policy=config.wheels_policy),
        )
    assert none_left(tmp_path / "box")


def launch(rig: Rig, point: str, *, queue: str = "", watcher: Silent | None = None) -> Trial:
    home = story(rig.project, queue) if queue else rig.project
    resolved = PointResolver.of(home, mirror=rig.mirror).resolve(point)
    here = replace(rig, project=home)
    return run_trial(here, prepare(here, resolved.point), until=Stage.SERVING, watcher=watcher)


def test_link_cut_while_weights_load(rig: Rig, proxy: Proxy, count_launch: Callable[[str], None]) -> None:
    count_launch("over ssh: observer-effect HEAD, link cut")
    cut = Moment("weight-load", proxy.cut)
    verdict = launch(rig, "HEAD", queue="observer-effect", watcher=cut).verdict
    assert cut.struck
    assert (verdict.outcome, verdict.cause) == (Outcome.CRASH, "unbound-name"), verdict
    assert verdict.patch == "0006-log-rest-memory"


def test_server_killed_while_it_starts(rig: Rig, tmp_path: Path, count_launch: Callable[[str], None]) -> None:
    count_launch("over ssh: clean, scheduler killed")

    def kill() -> None:
        found = [line for line in children_of_our_launches(tmp_path / "box") if "sglang::scheduler" in line]
        os.kill(int(found[0].split()[0]), signal.SIGKILL)

    verdict = launch(rig, "clean", watcher=Moment("dist-init", kill)).verdict
    assert (verdict.outcome, verdict.cause) == (Outcome.CRASH, "killed"), verdict


def test_supervisor_killed_and_the_server_still_gets_ready_and_ends(
    rig: Rig, tmp_path: Path, count_launch: Callable[[str], None]
) -> None:
    count_launch("over ssh: clean, supervisor killed")

    def kill() -> None:
        found = [line for line in children_of_our_launches(tmp_path / "box") if SUPERVISOR in line]
        os.kill(int(found[0].split()[0]), signal.SIGKILL)

    trial = launch(rig, "clean", watcher=Moment("dist-init", kill))
    assert trial.verdict.outcome is Outcome.READY, trial.verdict
    stop = rig.store.load(trial.record).stop
    assert stop["ended"]
    assert stop["faults"] == []
    assert len(stop["killed"]) >= 3
