"""A launch in one shell, watched from another. The server is the fake one that ships with the package."""

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fake_project import MUTE, PROGRAM, FakeProject, clean_environment, fake_project

pytestmark = pytest.mark.ci


@pytest.fixture
def project(tmp_path: Path) -> FakeProject:
    return fake_project(tmp_path, guilty=0, patches=1, base=MUTE)


@pytest.fixture
def launching(project: FakeProject) -> Iterator[subprocess.Popen[str]]:
    """A launch whose server says nothing, from the moment that it was started."""
    words = [str(PROGRAM), "launch", "--point", "clean", "--wait-for-box", "120"]
    process = subprocess.Popen(
        words, cwd=project.root, env=clean_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.strip().startswith("launching on port"):
            break
    yield process
    process.send_signal(signal.SIGINT)
    process.stderr.read()
    process.wait()


def test_another_shell_sees_what_goes_on(project: FakeProject, launching: subprocess.Popen[str]) -> None:
    (running,) = project.json("watch")["running"]
    assert running["pid"] == launching.pid
    assert running["what"].startswith("launch of clean on local")
    assert running["launches"][0]["ranks"] == {"": "import"}
    once = project.run("watch", "--once")
    assert "launch of clean on local" in once.stdout.splitlines()[0]
    assert sum(line.startswith("  ") and "launching on port" in line for line in once.stdout.splitlines()) == 1
    assert re.search(r"^rank +stage .*\n- +import ", once.stdout, re.MULTILINE)
    assert once.returncode == 0


def watcher_of(project: FakeProject) -> subprocess.Popen[str]:
    """A shell that watches, from its first line on."""
    watcher = subprocess.Popen(
        [str(PROGRAM), "watch"], cwd=project.root, env=clean_environment(), stderr=subprocess.PIPE, text=True
    )
    assert watcher.stderr is not None
    assert "launch of clean" in watcher.stderr.readline()
    return watcher


def test_who_stops_watching_is_told_that_the_launch_goes_on(
    project: FakeProject, launching: subprocess.Popen[str]
) -> None:
    watcher = watcher_of(project)
    watcher.send_signal(signal.SIGINT)
    _, said = watcher.communicate()
    assert watcher.returncode == 130
    assert said.splitlines()[-1].startswith("stopped watching; this goes on: launch of clean on local")
    assert launching.poll() is None


def test_a_watcher_leaves_with_the_launch(project: FakeProject, launching: subprocess.Popen[str]) -> None:
    watcher = watcher_of(project)
    assert watcher.stderr is not None
    launching.send_signal(signal.SIGINT)
    assert "stopping" in watcher.stderr.read()
    assert watcher.wait() == 0
    assert json.loads(project.run("watch", "--json").stdout) == {"running": []}
