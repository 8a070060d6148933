"""The whole story of the README on a real server over a real sshd; its client is killed on the way and resumed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from patchbisect import embedded
from patchbisect.config import load_project
from patchbisect.tasks.lab import SetupLines
from tests.box.lab import none_left
from tests.fake_project import PROGRAM, clean_environment

pytestmark = [pytest.mark.full, pytest.mark.real, pytest.mark.sshd]

ROOT = Path(__file__).parents[2]


@pytest.fixture
def project(tmp_path: Path, home: Path) -> Path:
    """A repository of the user's own: the queue of the demo, and a box over SSH that can run SGLang."""
    ours = load_project(ROOT)
    here = embedded.find(ours.state) or embedded.setup(
        ours.state, settings=ours.settings.embedded, progress=SetupLines()
    )
    root = tmp_path / "queue"
    shutil.copytree(ROOT / "tests" / "queues" / "observer-effect", root / "patches")
    shutil.copy(ROOT / "patches" / "pin.toml", root / "patches")
    box = {
        "host": "rig",
        "dir": str(tmp_path / "box"),
        "lease-dir": str(tmp_path / "lease"),
        "python": str(here.python),
        "pythonpath": [str(path) for path in here.pythonpath],
        "env": dict(here.env),
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
        "box": "rig",
        "profile": "tiny",
        "upstream": {"source": "release"},
        "boxes": {"rig": box},
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


def bisecting(root: Path, *words: str) -> subprocess.Popen[bytes]:
    command = [str(PROGRAM), "bisect", *words, "--json"]
    return subprocess.Popen(command, cwd=root, env=clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_the_debug_print_is_named_and_proven(
    project: Path, tmp_path: Path, count_launch: Callable[[str], None]
) -> None:
    first = bisecting(project, "--good", "clean", "--bad", "HEAD")
    while first.poll() is None:
        logs = sorted((tmp_path / "box" / "runs").glob("*/log"), key=os.path.getmtime)
        if len(logs) >= 3 and b"Load weight begin" in logs[-1].read_bytes():
            break
        time.sleep(0.01)
    assert first.poll() is None, first.communicate()[1].decode()
    first.kill()
    first.communicate()
    second = bisecting(project, "--resume")
    out, said = second.communicate(timeout=600)
    assert out, said.decode()
    found = json.loads(out)
    for trial in found["trials"]:
        count_launch(f"story over ssh: {trial['purpose']} {trial['point']}")
    assert found["answer"] == "found"
    assert found["culprit"]["id"] == "log-rest-memory"
    assert {step["status"] for step in found["proof"].values()} == {"confirmed"}
    assert none_left(tmp_path / "box")
