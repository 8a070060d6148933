"""A box looked at, reserved, given back and taken, as a user does it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fake_project import FakeProject, fake_project

pytestmark = pytest.mark.ci


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> FakeProject:
    return fake_project(tmp_path_factory.mktemp("ours"), patches=1, guilty=0)


@pytest.fixture(scope="module")
def theirs(ours: FakeProject, tmp_path_factory: pytest.TempPathFactory) -> FakeProject:
    """Another project whose box is the same machine."""
    project = fake_project(tmp_path_factory.mktemp("theirs"), patches=1, guilty=0)
    lease = f"{ours.upstream.path}.lease"
    path = project.root / "invoke.yaml"
    path.write_text(path.read_text().replace(f"{project.upstream.path}.lease", lease))
    return project


def test_doctor_checks_what_a_trial_needs(ours: FakeProject) -> None:
    checks = {check["check"]: check["ok"] for check in ours.json("doctor")["checks"]}
    assert checks["link"]
    assert checks["git"]
    assert {"server's Python", "directory", "lease", "GPUs"} <= set(checks)


def test_doctor_says_what_is_missing_and_what_to_do(tmp_path: Path) -> None:
    project = fake_project(tmp_path, patches=1, guilty=0)
    path = project.root / "invoke.yaml"
    path.write_text(path.read_text().replace("lease-dir", "agent-python: /no/python, lease-dir"))
    done = project.run("doctor")
    assert done.returncode == 1
    assert "FAULT" in done.stdout
    assert "/no/python" in done.stdout


def test_brackets_in_what_doctor_says_are_no_markup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text("Host rig\n  HostName 127.0.0.1\n  Port 1\n  CertificateFile c\n")
    project = fake_project(tmp_path, patches=1, guilty=0)
    path = project.root / "invoke.yaml"
    path.write_text(path.read_text().replace("{python:", "{host: rig, python:"))
    assert "`prefix: [ssh, rig]`" in project.run("doctor", env={"HOME": str(tmp_path)}).stdout


def test_a_reservation_keeps_others_out_and_lets_its_owner_work(ours: FakeProject, theirs: FakeProject) -> None:
    assert ours.run("box.acquire", "--reason", "Kimi", "--minutes", "5").returncode == 0
    assert "Kimi" in theirs.run("box").stdout
    refused = theirs.run("launch", "--point", "clean")
    assert refused.returncode == 3
    assert "(Kimi)" in refused.stderr
    assert ours.run("launch", "--point", "clean").returncode == 0
    assert ours.json("box")["leases"][0]["reason"] == "Kimi"
    assert ours.run("box.release").returncode == 0
    assert ours.run("box.release").returncode == 1
    assert theirs.run("launch", "--point", "clean").returncode == 0


def test_a_stolen_box_is_no_longer_its_owners(ours: FakeProject, theirs: FakeProject) -> None:
    assert ours.run("box.acquire", "--reason", "asleep", "--minutes", "5").returncode == 0
    taken = theirs.run("box.steal", "--reason", "urgent")
    assert taken.returncode == 0
    assert "(asleep)" in taken.stdout
    refused = ours.run("launch", "--point", "clean")
    assert refused.returncode == 3
    assert "(urgent)" in refused.stderr
    assert theirs.run("box.release").returncode == 0
