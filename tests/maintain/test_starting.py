"""A queue in somebody's own repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchbisect.errors import UsageError
from patchbisect.maintain.starting import SGLANG, _address, start_queue
from tests.maintain.test_transaction import killed_at
from tests.tiny_upstream import repository

pytestmark = pytest.mark.ci

SPEC = "patchbisect[lint] @ git+https://git.example.org/p.git@0123"


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("https://github.com/o/r.git", "https://github.com/o/r.git"),
        ("https://ada:ghp_secret@git.example.org:8443/o/r", "https://git.example.org:8443/o/r"),
        ("git@github.com:o/r.git", "https://github.com/o/r.git"),
        ("ssh://git@git.example.org:2222/o/r.git", "https://git.example.org/o/r.git"),
        ("/srv/git/r.git", ""),
        ("../r", ""),
        ("file:///srv/r", ""),
        ("http://plain.example.org/r.git", ""),
        ("", ""),
    ],
)
def test_where_this_was_installed_from_without_names_and_tokens(url: str, address: str) -> None:
    assert _address(url) == address


def test_the_workflow_installs_what_it_is_told(tmp_path: Path) -> None:
    start_queue(tmp_path, pin=SGLANG, install=SPEC)
    assert f'PATCHBISECT: "{SPEC}"\n' in (tmp_path / ".github/workflows/queue.yml").read_text()


def test_what_is_there_stays_and_is_named(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text("mine\n")
    (tmp_path / ".gitignore").write_text("*.log")
    started = start_queue(tmp_path, pin=SGLANG)
    assert started.kept == ("tasks.py",)
    assert (tmp_path / "tasks.py").read_text() == "mine\n"
    assert (tmp_path / ".gitignore").read_text() == "*.log\n.patchbisect/\n"
    with pytest.raises(UsageError, match="has a queue already"):
        start_queue(tmp_path, pin=SGLANG)


def test_killed_at_any_step_it_can_be_run_again(tmp_path: Path) -> None:
    whole = start_queue(tmp_path / "whole", pin=SGLANG, install=SPEC).written
    for step in range(len(whole)):
        folder = tmp_path / f"killed-{step}"
        assert killed_at(step, lambda disk, folder=folder: start_queue(folder, pin=SGLANG, install=SPEC, disk=disk))
        start_queue(folder, pin=SGLANG, install=SPEC)
        assert {name: (folder / name).read_bytes() for name in whole} == {
            name: (tmp_path / "whole" / name).read_bytes() for name in whole
        }


def test_a_file_in_the_way_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(UsageError, match="taken cannot hold a queue"):
        start_queue(tmp_path / "taken", pin=SGLANG)
    (tmp_path / "patches").write_text("")
    with pytest.raises(UsageError, match="cannot hold a queue"):
        start_queue(tmp_path, pin=SGLANG)


def test_a_folder_inside_a_repository_is_told_that_github_reads_only_its_root(tmp_path: Path) -> None:
    top = repository(tmp_path / "top")
    notes = start_queue(top / "below", pin=SGLANG, install=SPEC).notes
    assert [note.partition(":")[0] for note in notes] == [".github is only read at the root of a repository"]
    assert start_queue(top, pin=SGLANG, install=SPEC).notes == ()
