"""Where a task gets its parts from: the project, the mirror, a box that is ready."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from patchbisect.tasks.face import say

if TYPE_CHECKING:
    from patchbisect.box import Box
    from patchbisect.config import Project
    from patchbisect.embedded import Embedded, Progress
    from patchbisect.trial import Rig
    from patchbisect.upstream import Mirror

_SETUP_LINE_S = 3.0
STORIES = Path("tests") / "queues"
_DEMO = "observer-effect"


def mirror_of(project: Project) -> Mirror:
    from patchbisect.upstream import Mirror

    return Mirror.of(project, say=say)


@contextmanager
def rig_of(
    project: Project, *, mirror: Mirror, box: str = "", reason: str = "bisect", wait_s: float = 0.0
) -> Iterator[Rig]:
    """The box, ours until the end, with its environment made first where it is the embedded one."""
    from patchbisect.trial import open_rig

    _, config = project.settings.box_named(box or None)
    embedded = prepared(project) if config.embedded else None
    with open_rig(project, mirror=mirror, box=box or None, embedded=embedded, reason=reason, wait_s=wait_s) as rig:
        yield rig


@contextmanager
def box_of(project: Project, box: str = "") -> Iterator[Box]:
    """The box without a lease, to look at."""
    from patchbisect.trial import reach

    _, config = project.settings.box_named(box or None)
    with reach(project, box=box or None, embedded=prepared(project) if config.embedded else None) as opened:
        yield opened


def prepared(project: Project, *, repair: bool = False) -> Embedded:
    """This machine as a box, made ready where it is not; ``repair`` looks for damage too."""
    from patchbisect import embedded

    found = None if repair else embedded.find(project.state)
    return found or embedded.setup(project.state, settings=project.settings.embedded, progress=SetupLines())


class SetupLines:
    """Setup's progress: one line a step, and in between one a few seconds with the sizes."""

    def __init__(self) -> None:
        self._step = ""
        self._told_at = 0.0

    def __call__(self, progress: Progress) -> None:
        if progress.step == self._step and progress.seconds - self._told_at < _SETUP_LINE_S:
            return
        self._step, self._told_at = progress.step, progress.seconds
        done = f"  {progress.done_bytes / 2**20:.0f}" if progress.done_bytes else ""
        of = f" of {progress.total_bytes / 2**20:.0f}" if progress.total_bytes else ""
        say(f"setup {progress.seconds:5.1f} s  {progress.step:8}  {progress.detail}{done}{of}{' MiB' if done else ''}")


def demo_of(project: Project) -> Project:
    """The demo's queue as a project, with runs and bisections of its own."""
    return story(project, _DEMO).demo


def story(project: Project, name: str) -> Project:
    """A queue of ``tests/queues`` as a repository of its own that shares this project's state and settings.

    Made anew when the queue or the pin changed; committed, so that HEAD means the whole queue.
    Raises UsageError in a repository that has no such queue.
    """
    from patchbisect.errors import UsageError

    source = project.root / STORIES / name
    if not source.is_dir():
        raise UsageError(f"{source} is not there", remedy="run this in a clone of patchbisect, where that queue is")
    root = project.state / "stories" / name
    wanted = {path.name: path.read_bytes() for path in [*source.glob("*.patch"), project.patches / "pin.toml"]}
    patches = root / "patches"
    found = {path.name: path.read_bytes() for path in patches.glob("*")} if patches.is_dir() else {}
    if found != wanted or not (root / ".git").is_dir():
        shutil.rmtree(root, ignore_errors=True)
        patches.mkdir(parents=True)
        for file, content in wanted.items():
            (patches / file).write_bytes(content)
        for words in (
            ["init", "--quiet"],
            ["add", "patches"],
            [*_AS_US, "commit", "--quiet", "-m", f"The {name} queue"],
        ):
            subprocess.run(["git", "-C", str(root), *words], check=True)
    return replace(project, root=root)


_AS_US = ["-c", "user.name=patchbisect", "-c", "user.email=patchbisect@patchbisect.invalid"]
