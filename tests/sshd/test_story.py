"""The whole story of the README on a real server over a real sshd; its client is killed on the way and resumed."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.box.lab import none_left
from tests.fake_project import PROGRAM, clean_environment
from tests.sshd.rig import story_repository

pytestmark = [pytest.mark.full, pytest.mark.real, pytest.mark.sshd]


@pytest.fixture
def project(tmp_path: Path, home: Path) -> Path:
    """A repository of the user's own: the queue of the demo, and a box over SSH that can run SGLang."""
    return story_repository(tmp_path, ["rig"])


def bisecting(root: Path, *words: str) -> subprocess.Popen[bytes]:
    command = [str(PROGRAM), "bisect", *words, "--json"]
    return subprocess.Popen(command, cwd=root, env=clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)


STAGES = (
    b"",
    b"server_args=",
    b"Init torch distributed begin",
    b"Load weight begin",
    b"KV Cache is allocated",
    b"fired up",
)


def wait_for_log(box: Path, text: bytes, *, process: subprocess.Popen[bytes]) -> None:
    """Until a launch that had not printed it before prints ``text``."""
    before = {path for path in box.glob("runs/*/log") if text in path.read_bytes()}
    while process.poll() is None:
        if any(path not in before and text in path.read_bytes() for path in box.glob("runs/*/log")):
            return
        time.sleep(0.01)
    raise AssertionError(process.communicate()[1].decode())


def test_the_debug_print_is_named_and_proven_although_the_client_is_killed_at_every_stage(
    project: Path, tmp_path: Path, count_launch: Callable[[str], None]
) -> None:
    words = ("--good", "clean", "--bad", "HEAD")
    for stage in STAGES:
        process = bisecting(project, *words)
        wait_for_log(tmp_path / "box-rig", stage, process=process)
        process.kill()
        process.communicate()
        words = ("--resume",)
    last = bisecting(project, *words)
    out, said = last.communicate(timeout=600)
    assert out, said.decode()
    found = json.loads(out)
    journal = (project / ".patchbisect" / "bisections" / found["id"] / "journal.jsonl").read_text().splitlines()
    noted = {
        event: [e["record"] for e in map(json.loads, journal) if e["event"] == event] for event in ("intent", "trial")
    }
    assert noted["intent"] == noted["trial"], "what ran when the client was killed was joined again, and none was lost"
    for trial in found["trials"]:
        count_launch(f"story over ssh: {trial['purpose']} {trial['point']}")
    assert found["answer"] == "found"
    assert found["culprit"]["id"] == "log-rest-memory"
    assert {step["status"] for step in found["proof"].values()} == {"confirmed"}
    assert none_left(tmp_path / "box-rig")


def test_short_starts_over_ssh_come_from_a_warm_process_that_the_lease_takes_along(
    project: Path, tmp_path: Path, count_launch: Callable[[str], None]
) -> None:
    out, said = bisecting(project, "--good", "clean", "--bad", "HEAD", "--fast").communicate(timeout=900)
    assert out, said.decode()
    found = json.loads(out)
    for trial in found["trials"]:
        count_launch(f"short starts over ssh: {trial['purpose']} {trial['point']}")
    assert found["answer"] == "found"
    assert found["culprit"]["id"] == "log-rest-memory"
    assert {step["status"] for step in found["proof"].values()} == {"confirmed"}
    warm = [trial for trial in found["trials"] if trial["warm"]]
    assert len(warm) > len(found["trials"]) / 2, said.decode()
    assert none_left(tmp_path / "box-rig")
