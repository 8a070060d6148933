"""The workflows: well-formed, safe, and their steps do what they say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from patchbisect.maintain.starting import SGLANG, start_queue
from tests.maintain.conftest import ROOT
from tests.tiny_upstream import git

pytestmark = pytest.mark.ci

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
SCRIPTS = Path(sys.executable).parent


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The workflow that `init` writes."""
    folder = tmp_path_factory.mktemp("started")
    start_queue(folder, pin=SGLANG)
    return folder


def test_they_are_workflows(started: Path) -> None:
    files = [*map(str, WORKFLOWS), str(started / ".github/workflows/queue.yml")]
    check = [str(SCRIPTS / "check-jsonschema"), "--builtin-schema", "vendor.github-workflows", *files]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_an_attacker_finds_nothing(started: Path) -> None:
    done = subprocess.run(
        [
            str(SCRIPTS / "zizmor"),
            "--offline",
            "--persona=auditor",
            "--no-progress",
            str(ROOT / ".github"),
            str(started),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_job_that_runs_the_pull_request_may_write() -> None:
    for path in WORKFLOWS:
        workflow = yaml.safe_load(path.read_text())
        # YAML 1.1 reads the key `on` as True.
        assert "pull_request_target" not in str(workflow[True])
        assert workflow["permissions"] == {}
        for job in workflow["jobs"].values():
            runs_code = any("actions/checkout" in step.get("uses", "") for step in job["steps"])
            assert not runs_code or job["permissions"] == {"contents": "read"}
            assert "secrets." not in str(job)


def test_the_steps_of_a_review_do_what_they_say(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--no-hardlinks", str(ROOT), str(clone))
    (clone / "patchbisect").write_text(f'#!/bin/sh\nexec {SCRIPTS / "patchbisect"} "$@"\n')
    (clone / "patches" / "0004-not-enough-memory-numbers.patch").unlink()
    summary = tmp_path / "summary.md"
    env = {
        **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
        "BASE": git(clone, "rev-parse", "HEAD"),
        "GITHUB_STEP_SUMMARY": str(summary),
        "PATCHBISECT_HOME": str(ROOT / ".patchbisect"),
    }
    git(clone, "commit", "-q", "-a", "-m", "Drop one")
    steps = yaml.safe_load((clone / ".github/workflows/queue.yml").read_text())["jobs"]["review"]["steps"]
    for step in steps:
        if "run" in step and step["name"] != "Apply the queue":
            shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
            done = subprocess.run(shell, cwd=clone, env=env, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{step['name']}: {done.stdout}{done.stderr}"
    assert "| `0004-not-enough-memory-numbers`" in summary.read_text()
    assert "| removed |" in summary.read_text()
    assert (clone / "review.md").read_text() == summary.read_text()


def test_a_started_queue_is_one(started: Path) -> None:
    names = {str(path.relative_to(started)) for path in started.rglob("*") if path.is_file()}
    assert names == {".gitignore", ".github/workflows/queue.yml", "invoke.yaml", "patches/pin.toml", "tasks.py"}
    env = {**os.environ, "PATCHBISECT_HOME": str(ROOT / ".patchbisect")}
    done = subprocess.run(
        [str(SCRIPTS / "invoke"), "lint"], cwd=started, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "0 patches: 0 wrong" in done.stdout


def test_the_default_pin_is_that_of_this_queue() -> None:
    from patchbisect.patchqueue import parse_pin

    assert parse_pin((ROOT / "patches" / "pin.toml").read_bytes(), filename="pin.toml") == SGLANG
