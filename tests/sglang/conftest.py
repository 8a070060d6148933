"""A real SGLang server on this machine, launched as a user would launch it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from patchbisect import embedded
from patchbisect.config import Project, load_project
from patchbisect.model import Stage
from patchbisect.points import PointResolver
from patchbisect.tasks.lab import SetupLines, story
from patchbisect.trial import Rig, Trial, Watcher, open_rig, prepare, run_trial
from patchbisect.upstream import Mirror

ROOT = Path(__file__).parents[2]

Launch = Callable[..., Trial]


@pytest.fixture(scope="session")
def project() -> Project:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    return load_project(ROOT)


@pytest.fixture(scope="session")
def mirror(project: Project) -> Mirror:
    return Mirror.of(project)


@pytest.fixture(scope="module")
def rig(project: Project, mirror: Mirror) -> Iterator[Rig]:
    box = embedded.find(project.state) or embedded.setup(
        project.state, settings=project.settings.embedded, progress=SetupLines()
    )
    with open_rig(project, mirror=mirror, box="local", embedded=box, reason="tests", wait_s=600) as opened:
        yield opened


@pytest.fixture
def launch(rig: Rig, mirror: Mirror, project: Project, count_launch: Callable[[str], None]) -> Launch:
    """Launch a point by its name; ``queue`` is one of tests/queues instead of the shipped one."""

    def run(
        point: str,
        *,
        queue: str = "",
        profile: str = "tiny",
        until: Stage = Stage.SERVING,
        settings: tuple[str, ...] = (),
        watcher: Watcher | None = None,
        keep: bool = False,
        warm: bool = False,
    ) -> Trial:
        home = story(project, queue) if queue else project
        resolved = PointResolver.of(home, mirror=mirror).resolve(point, profile=profile, settings=settings)
        count_launch(f"{queue or 'shipped queue'} {point} @{profile} {' '.join(settings)}")
        here = replace(rig, project=home)
        return run_trial(here, prepare(here, resolved.point, warm=warm), until=until, watcher=watcher, keep=keep)

    return run
