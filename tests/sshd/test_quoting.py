"""The same names with everything in them, over SSH and over ``ssh`` as a prefix, which joins words with blanks."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from patchbisect.box import BoxSettings
from patchbisect.testing.fake_sglang import FakeSglang
from tests.box.test_quoting import NASTY, full_cycle

pytestmark = pytest.mark.sshd


@pytest.mark.parametrize("nasty", NASTY)
@pytest.mark.parametrize("way", ["host", "prefix"])
def test_over_ssh(tmp_path: Path, settings: BoxSettings, home: Path, nasty: str, way: str) -> None:
    nasty_directory = dataclasses.replace(settings, directory=str(tmp_path / "box" / nasty))
    if way == "prefix":
        known = f"UserKnownHostsFile={home}/.ssh/known_hosts"
        prefix = ("ssh", "-F", str(home / ".ssh" / "config"), "-o", known, "rig")
        nasty_directory = dataclasses.replace(nasty_directory, host="", prefix=prefix)
    full_cycle(nasty_directory, tmp_path, FakeSglang(tmp_path / "upstream"), nasty)
    assert not list(tmp_path.rglob("pwned"))
    assert not (Path.home() / "pwned").exists()
