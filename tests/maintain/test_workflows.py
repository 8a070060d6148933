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


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone of this repository, whose tasks are those under test."""
    folder = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--no-hardlinks", str(ROOT), str(folder))
    (folder / "patchbisect").write_text(f'#!/bin/sh\nexec {SCRIPTS / "patchbisect"} "$@"\n')
    return folder


def reviewed(clone: Path, *, workflow: Path = ROOT / ".github/workflows/queue.yml") -> dict[str, int]:
    """Commit what was changed, and run the review's steps as they are written; gives their exit codes by name."""
    env = {
        **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
        "BASE": git(clone, "rev-parse", "HEAD"),
        "GITHUB_STEP_SUMMARY": str(clone.parent / "summary.md"),
        "PATCHBISECT_HOME": str(ROOT / ".patchbisect"),
        "PATH": f"{SCRIPTS}:{os.environ['PATH']}",
    }
    git(clone, "add", "-A")
    git(clone, "commit", "-q", "-m", "The pull request")
    statuses = {}
    for step in yaml.safe_load(workflow.read_text())["jobs"]["review"]["steps"]:
        if "run" in step and step["name"] not in ("Install", "Apply the queue"):
            # What GitHub runs a step with that names no shell.
            (clone.parent / "step.sh").write_text(step["run"])
            shell = ["bash", "-e", str(clone.parent / "step.sh")]
            done = subprocess.run(shell, cwd=clone, env=env, capture_output=True, text=True, check=False)
            statuses[step["name"]] = done.returncode
    assert (clone / "review.md").read_text() == (clone.parent / "summary.md").read_text()
    return statuses


def test_the_steps_of_a_review_do_what_they_say(clone: Path) -> None:
    (clone / "patches" / "0004-not-enough-memory-numbers.patch").unlink()
    assert reviewed(clone) == {"Lint": 0, "Review": 0}
    told = (clone / "review.md").read_text()
    assert "| `0004-not-enough-memory-numbers`" in told
    assert "| removed |" in told


def test_the_steps_that_init_writes_do_it_too(started: Path, clone: Path) -> None:
    (clone / "patches" / "0004-not-enough-memory-numbers.patch").unlink()
    assert reviewed(clone, workflow=started / ".github/workflows/queue.yml") == {"Lint": 0, "Review": 0}
    assert "| removed |" in (clone / "review.md").read_text()


def test_a_queue_that_cannot_be_read_is_told_in_the_review_too(clone: Path) -> None:
    path = clone / "patches" / "0002-memory-probe.patch"
    path.write_bytes(path.read_bytes().replace(b"Kind: instrumentation", b"Kind: ```@everyone"))
    assert reviewed(clone) == {"Lint": 1, "Review": 2}
    told = (clone / "review.md").read_text()
    assert "It cannot be read" in told
    assert "patches/0002-memory-probe.patch:" in told
    assert "````text\n" in told


def test_both_workflows_are_one(started: Path) -> None:
    """But for how the program gets there."""
    ours, theirs = (
        yaml.safe_load((root / ".github/workflows/queue.yml").read_text().replace("./patchbisect", "patchbisect"))
        for root in (ROOT, started)
    )
    assert theirs["jobs"]["comment"] == ours["jobs"]["comment"]
    assert [step for step in theirs["jobs"]["review"]["steps"] if step.get("name") != "Install"] == ours["jobs"][
        "review"
    ]["steps"]
    assert theirs["permissions"] == ours["permissions"] == {}


def test_a_started_queue_is_one(started: Path) -> None:
    names = {str(path.relative_to(started)) for path in started.rglob("*") if path.is_file()}
    assert names == {
        *(".gitignore", ".pre-commit-config.yaml", "invoke.yaml", "patches/pin.toml", "tasks.py"),
        *(".github/CODEOWNERS", ".github/pull_request_template.md", ".github/workflows/queue.yml"),
    }
    env = {**os.environ, "PATCHBISECT_HOME": str(ROOT / ".patchbisect")}
    done = subprocess.run(
        [str(SCRIPTS / "invoke"), "lint"], cwd=started, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "0 patches: 0 wrong" in done.stdout


def test_the_default_pin_is_that_of_this_queue() -> None:
    from patchbisect.patchqueue import parse_pin

    assert parse_pin((ROOT / "patches" / "pin.toml").read_bytes(), filename="pin.toml") == SGLANG
