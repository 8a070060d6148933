"""A bisection on several boxes of this machine, as a command line: killed at every kind of event, and refused."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest

from patchbisect.journal import newest
from patchbisect.testing.fake_gpus import FakeGpu, FakeGpus
from tests.box.lab import none_left
from tests.fake_project import GOOD, OOM, PROGRAM, FakeProject, clean_environment, fake_project, with_boxes

pytestmark = pytest.mark.ci

SLOW = ("--pace", "0.004")


@pytest.fixture
def project(tmp_path: Path) -> FakeProject:
    made = fake_project(tmp_path, guilty=5, patches=8, base=(*GOOD, *SLOW), bad=(*OOM, *SLOW))
    return with_boxes(made, "a", "b")


def records(project: FakeProject, *events: str) -> list[str]:
    journal = newest(project.root / ".patchbisect" / "bisections")
    return [entry.data["record"] for entry in journal.entries() if entry.event in events] if journal else []


@pytest.mark.parametrize("launches", [1, 2, 4, 6])
def test_a_client_that_is_killed_and_resumed_loses_nothing_that_runs(project: FakeProject, launches: int) -> None:
    """Killed when that many servers were started, the last of them running: that one, or both, are joined again."""
    place = project.root.parent
    words = [str(PROGRAM), "bisect", "--boxes", "a,b", "--fresh", "--plain", "--json"]
    client = subprocess.Popen(
        words, cwd=project.root, env=clean_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while client.poll() is None and len(list(place.glob("box-?/runs/*/log"))) < launches:
        time.sleep(0.005)
    client.kill()
    client.wait()
    tried = records(project, "trial")
    resumed = project.json("bisect", "--resume")
    assert resumed["culprit"]["id"] == "note-5"
    assert {step["status"] for step in resumed["proof"].values()} == {"confirmed"}
    assert records(project, "trial")[: len(tried)] == tried
    assert len(set(records(project, "intent")) - set(records(project, "trial"))) <= 2
    for box in ("a", "b"):
        assert none_left(place / f"box-{box}")


def test_a_box_that_a_colleague_has_is_left_out(project: FakeProject, tmp_path: Path) -> None:
    elsewhere = {"PATCHBISECT_HOME": str(tmp_path / "colleague")}
    taken = project.run("box.acquire", "--box", "b", "--reason", "Kimi baseline", env=elsewhere)
    assert taken.returncode == 0, taken.stderr
    done = project.run("bisect", "--boxes", "a,b", "--json")
    found = json.loads(done.stdout)
    assert found["culprit"]["id"] == "note-5"
    assert {trial["box"] for trial in found["trials"]} == {"a"}
    assert "note: box b is in use: " in done.stderr
    assert "(Kimi baseline)" in done.stderr
    alone = project.run("bisect", "--boxes", "b")
    assert alone.returncode == 3
    assert "(Kimi baseline)" in alone.stderr


def test_boxes_with_other_gpus_are_not_mixed(project: FakeProject, tmp_path: Path) -> None:
    for box, total_gb in (("a", 96.0), ("b", 141.0)):
        (tmp_path / f"gpus-{box}").mkdir()
        FakeGpus(tmp_path / f"gpus-{box}", FakeGpu(total_gb=total_gb))
    with_boxes(project, "a", "b", agent_python=str(tmp_path / "gpus-{box}" / "venv" / "bin" / "python"))
    refused = project.run("bisect", "--boxes", "a,b")
    assert refused.returncode == 2
    assert "gpus: 1x Fake RTX 96 GiB (a), 1x Fake RTX 141 GiB (b)" in refused.stderr
    assert records(project, "intent") == []


def test_a_colleague_on_the_gpus_is_waited_for(project: FakeProject, tmp_path: Path) -> None:
    (tmp_path / "gpus").mkdir()
    colleague = subprocess.Popen(["sleep", "600"])
    FakeGpus(tmp_path / "gpus", FakeGpu(processes=[(colleague.pid, 41.0)]))
    with_boxes(project, "a", agent_python=str(tmp_path / "gpus" / "venv" / "bin" / "python"))
    void = project.run("launch", "--box", "a", "--point", "clean", "--json")
    words = [str(PROGRAM), "launch", "--box", "a", "--point", "clean", "--wait-for-box", "120", "--json"]
    launching = subprocess.Popen(
        words,
        cwd=project.root,
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert launching.stderr is not None
    told = next((line for line in launching.stderr if "waiting" in line), "")
    colleague.kill()
    colleague.wait()
    out, _ = launching.communicate()
    assert void.returncode == 3
    assert "--wait-for-box" in json.loads(void.stdout)["advice"]
    assert f"waiting up to 120 s for the box: pid {colleague.pid} (" in told
    found = json.loads(out)
    assert found["outcome"] == "ready"
    assert found["timings"]["waited"] > 0
