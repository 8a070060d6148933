"""Whole command lines over SSH: a bisection, its client killed at every stage, and resumed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.box.lab import none_left
from tests.fake_project import GOOD, OOM, PROGRAM, FakeProject, clean_environment, fake_project
from tests.sshd.openssh import Proxy

pytestmark = pytest.mark.sshd

PACE = ("--pace", "0.003")
GUILTY = 3
EACH_BYTES = 15_000
"""A link breaks after so many: enough for a login and for a part of what it is there for."""

BOX = """\
  boxes:
    local: {{python: {python}}}
    rig: {{host: rig, dir: {directory}, lease-dir: {directory}/lease, python: {python}}}
"""


@pytest.fixture
def project(tmp_path: Path, home: Path) -> Iterator[FakeProject]:
    fake = fake_project(tmp_path, patches=4, guilty=GUILTY, base=(*GOOD, *PACE), bad=(*OOM, *PACE))
    settings = fake.root / "invoke.yaml"
    lines = settings.read_text().splitlines(keepends=True)
    box = BOX.format(python=sys.executable, directory=tmp_path / "box")
    settings.write_text("".join(box if line.startswith("  boxes:") else line for line in lines))
    fake.git("commit", "--quiet", "--all", "-m", "a box")
    yield fake
    assert none_left(tmp_path / "box")


def bisecting(project: FakeProject, *more: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [str(PROGRAM), "bisect", *more, "--json"],
        cwd=project.root,
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def answer(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    out, said = process.communicate(timeout=300)
    assert out, said.decode()
    document: dict[str, Any] = json.loads(out)
    return document


def wait_for_log(box: Path, text: bytes, *, launches: int, process: subprocess.Popen[bytes]) -> None:
    """Until the ``launches``-th launch on the box has printed ``text``."""
    while process.poll() is None:
        logs = sorted((box / "runs").glob("*/log"), key=os.path.getmtime)
        if len(logs) >= launches and text in logs[-1].read_bytes():
            return
        time.sleep(0.002)


START = ("--good", "clean", "--bad", "HEAD", "--box", "rig")


def test_a_bisection_over_ssh_finds_the_guilty_patch(project: FakeProject) -> None:
    found = answer(bisecting(project, *START))
    assert found["answer"] == "found"
    assert found["culprit"]["id"] == f"note-{GUILTY}"


def test_a_bisection_over_a_link_that_keeps_breaking_finds_the_same(project: FakeProject, proxy: Proxy) -> None:
    process = bisecting(project, *START)
    cuts = carried = 0
    while process.poll() is None:
        time.sleep(0.01)
        if proxy.carried - carried > EACH_BYTES:
            proxy.cut()
            cuts, carried = cuts + 1, proxy.carried
    assert cuts > 2
    assert answer(process)["culprit"]["id"] == f"note-{GUILTY}"


@pytest.mark.parametrize(
    ("text", "launches"),
    [
        (b"", 1),
        (b"server_args=", 1),
        (b"Init torch distributed begin", 2),
        (b"Load weight begin", 2),
        (b"Not enough memory", 1),
        (b"fired up", 2),
    ],
)
def test_a_client_that_is_killed_and_resumed_finds_the_same(
    project: FakeProject, tmp_path: Path, text: bytes, launches: int
) -> None:
    process = bisecting(project, *START)
    wait_for_log(tmp_path / "box", text, launches=launches, process=process)
    process.kill()
    process.communicate()
    found = answer(bisecting(project, "--resume"))
    assert found["answer"] == "found"
    assert found["culprit"]["id"] == f"note-{GUILTY}"
