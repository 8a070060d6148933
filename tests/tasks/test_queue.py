"""apply-queue, as a user calls it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.fake_project import FakeProject, fake_project

pytestmark = [pytest.mark.ci]


@pytest.fixture
def project(tmp_path: Path) -> FakeProject:
    return fake_project(tmp_path, patches=2, guilty=0)


def test_in_place_brings_the_users_own_checkout_there(project: FakeProject, tmp_path: Path) -> None:
    checkout = tmp_path / "my checkout"
    subprocess.run(["git", "clone", "--quiet", str(project.upstream.path), str(checkout)], check=True)
    settings = project.root / "invoke.yaml"
    settings.write_text(settings.read_text().replace("lease-dir", f"checkout: {checkout}, lease-dir"))
    before = (checkout / "python" / "sglang" / "notes.py").read_text()
    told = project.json("apply-queue", "--in-place")
    assert told["path"] == f"{checkout}/python"
    assert told["placed"] is True
    assert len(told["patches"]) == 2
    head = subprocess.run(["git", "-C", str(checkout), "rev-parse", "HEAD"], capture_output=True, text=True).stdout
    assert head.strip() == told["commit"]
    assert (checkout / "python" / "sglang" / "notes.py").read_text() != before
    assert project.json("apply-queue", "--in-place")["placed"] is False


def test_in_place_is_refused_where_no_checkout_is_named(project: FakeProject) -> None:
    done = project.run("apply-queue", "--in-place")
    assert done.returncode == 2
    assert "box 'local' names no checkout of yours" in done.stderr
    assert "patchbisect.boxes.local.checkout" in done.stderr


def test_brackets_in_a_title_are_no_markup(project: FakeProject) -> None:
    (patch,) = (project.root / "patches").glob("0001-*")
    patch.write_text(patch.read_text().replace("Note 1", "Note [dim] 1 [/1]"))
    assert "Note [dim] 1 [/1]" in project.run("queue").stdout
