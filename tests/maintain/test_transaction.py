"""Edits of a folder: whole or not at all, whenever the process dies."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from patchbisect.errors import UsageError
from patchbisect.maintain.transaction import Disk, Folder

BEFORE = {"a": b"1", "b": b"2", "c": b"3"}
AFTER: dict[str, bytes | None] = {"a": b"one", "b": None, "d": b"4"}
WHOLE = {"a": b"one", "c": b"3", "d": b"4"}


class Killer(Disk):
    """Kills the process, as the kernel does, before step number ``at``."""

    def __init__(self, at: int) -> None:
        self.left = at

    def _step(self) -> None:
        self.left -= 1
        if self.left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def write(self, path: Path, data: bytes) -> None:
        self._step()
        super().write(path, data)

    def remove(self, path: Path) -> None:
        self._step()
        super().remove(path)

    def rename(self, old: Path, new: Path) -> None:
        self._step()
        super().rename(old, new)


def killed_at(at: int, work: Callable[[Disk], object]) -> bool:
    """Do the work in a process that is killed before its step ``at``; whether it came that far."""
    child = os.fork()
    if child == 0:
        work(Killer(at))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def steps_of(work: Callable[[Disk], object], fresh: Callable[[], None]) -> list[int]:
    """The numbers of the steps that the work has."""
    at = 0
    while killed_at(at, work):
        fresh()
        at += 1
    fresh()
    return list(range(at))


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return filled(tmp_path)


def filled(where: Path, disk: Disk | None = None) -> Folder:
    place = where / "patches"
    if not place.exists():
        place.mkdir(parents=True)
        for name, data in BEFORE.items():
            (place / name).write_bytes(data)
    return Folder(place, log=where / "edits", disk=disk)


def test_an_edit_and_its_undo(folder: Folder) -> None:
    edit = folder.change("an edit", AFTER)
    assert edit is not None
    assert folder.read() == WHOLE
    assert folder.undo() == "an edit"
    assert folder.read() == BEFORE


def test_nothing_to_change_is_no_edit(folder: Folder) -> None:
    assert folder.change("nothing", {"a": b"1", "x": None}) is None
    assert folder.history() == []


def test_undo_goes_back_edit_by_edit(folder: Folder) -> None:
    folder.change("first", {"a": b"one"})
    folder.change("second", {"a": b"two"})
    assert (folder.undo(), folder.read()["a"]) == ("second", b"one")
    folder.change("third", {"b": b"three"})
    assert (folder.undo(), folder.undo()) == ("third", "first")
    assert folder.read() == BEFORE
    with pytest.raises(UsageError, match="no edit to undo"):
        folder.undo()


def test_undo_destroys_no_work_of_others(folder: Folder) -> None:
    folder.change("an edit", AFTER)
    (folder.folder / "a").write_bytes(b"by hand")
    with pytest.raises(UsageError, match="a changed since 'an edit'"):
        folder.undo()
    assert folder.read() == {**WHOLE, "a": b"by hand"}


def test_undo_leaves_files_alone_that_the_edit_did_not_touch(folder: Folder) -> None:
    folder.change("an edit", AFTER)
    (folder.folder / "c").write_bytes(b"by hand")
    folder.undo()
    assert folder.read() == {**BEFORE, "c": b"by hand"}


@pytest.mark.ci
def test_an_edit_killed_at_any_step_is_whole_or_has_not_happened(tmp_path: Path) -> None:
    runs = iter(range(1000))
    where = [tmp_path / "run-0"]

    def fresh() -> None:
        where[0] = tmp_path / f"run-{next(runs) + 1}"
        filled(where[0])

    filled(where[0])
    steps = steps_of(lambda disk: filled(where[0], disk).change("an edit", AFTER), fresh)
    assert len(steps) >= 8
    for at in steps:
        fresh()
        assert killed_at(at, lambda disk: filled(where[0], disk).change("an edit", AFTER))
        assert filled(where[0]).read() in (BEFORE, WHOLE), f"step {at}"
        filled(where[0]).change("an edit", AFTER)
        assert filled(where[0]).read() == WHOLE, f"step {at}: a second call"
        fresh()
        killed_at(at, lambda disk: filled(where[0], disk).change("an edit", AFTER))
        try:
            filled(where[0]).undo()
        except UsageError as error:
            assert "no edit to undo" in error.message
        assert filled(where[0]).read() == BEFORE, f"step {at}: undo"


def test_an_undo_killed_at_any_step_is_whole_or_has_not_happened(tmp_path: Path) -> None:
    runs = iter(range(1000))
    where = [tmp_path / "run-0"]

    def fresh() -> None:
        where[0] = tmp_path / f"run-{next(runs) + 1}"
        filled(where[0]).change("an edit", AFTER)

    filled(where[0]).change("an edit", AFTER)
    for at in steps_of(lambda disk: filled(where[0], disk).undo(), fresh):
        fresh()
        assert killed_at(at, lambda disk: filled(where[0], disk).undo())
        assert filled(where[0]).read() in (BEFORE, WHOLE), f"step {at}"


def test_a_recovery_that_is_killed_is_done_by_the_next(tmp_path: Path) -> None:
    filled(tmp_path)
    assert killed_at(6, lambda disk: filled(tmp_path, disk).change("an edit", AFTER))
    at = 0
    while killed_at(at, lambda disk: filled(tmp_path, disk).read()):
        at += 1
    assert filled(tmp_path).read() == BEFORE
