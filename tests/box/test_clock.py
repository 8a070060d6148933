"""Somebody sets the wall clock, on the box or here, while a lease is held and a server is followed."""

from __future__ import annotations

import ast
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import patchbisect.box
from patchbisect.box import Box, LaunchSpec, open_box
from patchbisect.box.failures import BoxBusy
from patchbisect.testing.fake_clock import FakeClock
from tests.box.lab import Story, launch, leased, listen, settings_for, until_log

HOUR = 3600.0
SET = Callable[[float], None]


@pytest.fixture
def clock(tmp_path: Path) -> FakeClock:
    return FakeClock(tmp_path)


@pytest.fixture
def rig(tmp_path: Path, clock: FakeClock) -> Iterator[Box]:
    with leased(settings_for(tmp_path, agent_python=str(clock.python), lease_s=60.0, abandon_s=600.0), tmp_path) as box:
        yield box


@pytest.fixture
def set_both(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> SET:
    now = time.time

    def set_to(ahead_s: float) -> None:
        clock.set(ahead_s)
        monkeypatch.setattr(time, "time", lambda: now() + ahead_s)

    return set_to


def test_the_clock_is_really_set(clock: FakeClock) -> None:
    clock.set(HOUR)
    code = "import os, time; open('f', 'w'); os.utime('f'); print(time.time(), os.stat('f').st_mtime)"
    said = subprocess.run(
        [str(clock.python), "-I", "-c", code], cwd=clock.file.parent, capture_output=True, text=True, check=True
    )
    assert all(float(word) > time.time() + HOUR / 2 for word in said.stdout.split())


@pytest.mark.ci
@pytest.mark.parametrize("ahead_s", [HOUR, -HOUR], ids=["forwards", "backwards"])
def test_a_jump_of_the_clock_changes_nothing(rig: Box, set_both: SET, tmp_path: Path, ahead_s: float) -> None:
    run = launch(rig, "--line", "up", "--end", "hang")
    story = listen(run, until=until_log(b"up"))
    set_both(ahead_s)
    seen: list[float] = []

    def enough(told: Story) -> bool:
        if told.signals is not None and told.signals.silent_for_s is not None:
            seen.append(told.signals.silent_for_s)
        return len(seen) > 3 and seen[-1] > seen[0]

    listen(run, until=enough, story=story)
    assert story.exited is None
    assert max(seen) < 60.0, "silence is not measured by that clock"
    (held,) = rig.leases()
    assert 0.0 < held.expires_in_s <= 60.0
    with (
        open_box("local", rig.settings, state=tmp_path) as other,
        pytest.raises(BoxBusy),
        other.lease("too early"),
    ):
        pass
    moments = [sample["t"] for sample in run.samples()]
    assert max(moments) - min(moments) < 60.0
    report = run.stop(0.0)
    assert report.killed
    assert report.box_changed == ()
    assert rig.prove_clean().clean


@pytest.mark.ci
def test_a_build_lock_is_found_although_the_clock_was_set_back(rig: Box, clock: FakeClock, tmp_path: Path) -> None:
    lock = tmp_path / "cache" / "torch_extensions" / "kernel" / "lock"
    lock.parent.mkdir(parents=True)
    clock.set(HOUR)
    code = f"f = open({str(lock)!r}, 'x'); print('building', flush=True); import time; time.sleep(60)"
    env = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    run = rig.start(LaunchSpec("jit", (sys.executable, "-c", code), env=env))
    listen(run, until=until_log(b"building"))
    clock.set(0.0)
    assert run.stop(0.0).swept == (str(lock),)


# The moment that a launch began, to be shown, and to be compared with the stamps of files; and when an environment was
# last asked for, by its stamp: a jump may drop it too soon, and then it is built again. A new lease book begins
# with it: a number that no earlier book of that place has given out.
ASKS_THE_WALL_CLOCK = {
    "agent/supervisor.py": 1,
    "agent/cleaning.py": 1,
    "agent/environments.py": 1,
    "agent/lease.py": 1,
}


def test_durations_are_measured_by_clocks_that_nobody_sets() -> None:
    package = Path(patchbisect.box.__file__).parent
    found = {}
    for path in package.rglob("*.py"):
        nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)]
        asks = [node for node in nodes if ast.unparse(node) in ("time.time", "time.time_ns", "datetime.now")]
        if asks:
            found[str(path.relative_to(package))] = len(asks)
    assert found == ASKS_THE_WALL_CLOCK
