"""What the tests of a box share: a server that behaves as told, and reading its events."""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from patchbisect.box import Box, BoxSettings, Exited, LaunchSpec, LogChunk, Run, open_box
from patchbisect.model import Signals
from patchbisect.testing.fake_server import __file__ as FAKE_SERVER

_NUMBERS = itertools.count(1)


def settings_for(folder: Path, **more: object) -> BoxSettings:
    return BoxSettings(**{"directory": str(folder / "box"), "python": sys.executable, "min_free_gb": 0.01, **more})


@contextmanager
def leased(settings: BoxSettings, state: Path) -> Iterator[Box]:
    with open_box("local", settings, state=state) as box, box.lease("test"):
        yield box


def launch(box: Box, *arguments: str, port: int = 0, **more: object) -> Run:
    """Start the fake server with these arguments; when this returns, only its own processes are left to count."""
    listen = ("--port", str(port)) if port else ()
    argv = (sys.executable, FAKE_SERVER, *arguments, *listen)
    run = box.start(LaunchSpec(launch_id=f"launch-{next(_NUMBERS)}", argv=argv, port=port, **more))
    run.provenance()
    return run


@dataclass
class Story:
    """What a run told until it was stopped being listened to."""

    log: bytes = b""
    exited: Exited | None = None
    signals: Signals | None = None

    def take(self, item: LogChunk | Signals | Exited) -> None:
        if isinstance(item, LogChunk):
            assert item.offset == len(self.log), "the log is told once and without a gap"
            self.log += item.data
        elif isinstance(item, Exited):
            assert item.offset == len(self.log)
            self.exited = item
        else:
            self.signals = item


def listen(run: Run, *, until: Callable[[Story], object] = lambda story: False, story: Story | None = None) -> Story:
    """Follow until ``until`` holds, or to the end."""
    story = story or Story()
    for item in run.events(len(story.log)):
        story.take(item)
        if until(story):
            break
    return story


def until_log(text: bytes) -> Callable[[Story], bool]:
    return lambda story: text in story.log


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def links_into(folder: Path) -> list[Path]:
    """Short TMPDIRs of launches under ``folder`` that are still there."""
    return [
        path for path in Path("/tmp").glob("pb-*") if path.is_symlink() and str(path.readlink()).startswith(str(folder))
    ]


def none_left(folder: Path, *, within_s: float = 10.0) -> bool:
    """Whether all of them end by themselves: a connection that is closed takes a moment to reach the agent."""
    deadline = time.monotonic() + within_s
    while (found := children_of_our_launches(folder)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert found == []
    return True


def children_of_our_launches(folder: Path) -> list[str]:
    """Every process on this machine whose command line, working directory or open log is under ``folder``."""
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit() and int(path.name) != os.getpid():
            try:
                command = (path / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
                where = str((path / "cwd").readlink())
            except OSError:
                continue
            if str(folder) in command or where.startswith(str(folder)):
                found.append(f"{path.name} {command}")
    return found
