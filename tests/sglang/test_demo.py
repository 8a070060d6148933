"""The story of the README, as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from patchbisect.config import Project
from tests.fake_project import clean_environment

pytestmark = [pytest.mark.real, pytest.mark.ci]

PROGRAM = Path(sys.executable).with_name("patchbisect")


def test_demo_names_the_debug_print_and_proves_it(project: Project, count_launch: Callable[[str], None]) -> None:
    done = subprocess.run(
        [PROGRAM, "demo", "--json"],
        cwd=project.root,
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    for trial in document["trials"]:
        assert not (project.runs / trial["run"]).exists(), "the demo's runs are kept apart from one's own"
        assert (project.demo.runs / trial["run"]).is_dir()
        count_launch(f"demo: {trial['purpose']} {trial['point']}")
    assert document["answer"] == "found"
    assert document["culprit"]["id"] == "log-rest-memory"
    assert {step["status"] for step in document["proof"].values()} == {"confirmed"}
    culprit = next(trial for trial in document["trials"] if trial["run"] == document["proof"]["culprit_bad"]["run"])
    assert "UnboundLocalError" in culprit["verdict"]["deciding"]["text"]
    assert culprit["verdict"]["patch"] == "0006-log-rest-memory"
    assert document["launches"] <= 8
    for who in ("culprit", "parent"):
        assert document["reproduce"][who]["task"].startswith("invoke launch --point run:")
        assert "sglang.launch_server" in document["reproduce"][who]["by_hand"]
