"""Edits of a folder of files, each all-or-nothing, and undone one by one.

An edit is first written down in full (what each file was and will be), then made visible by one rename, then
carried out. Whoever finds an edit that was written down and not finished puts the files back, so an edit that was
killed at any step has not happened. Finished edits stay, and are what ``undo`` goes by.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from patchbisect.errors import UsageError


class Disk:
    """The steps that change something on disk. Each is atomic: a test stops the process before any of them."""

    def write(self, path: Path, data: bytes) -> None:
        """Put a whole file in place. On any crash there is the old one or the new one."""
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_name(f".{path.name}.new")
        with scratch.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def rename(self, old: Path, new: Path) -> None:
        old.rename(new)


@dataclass(frozen=True, slots=True)
class Edit:
    """One finished edit: its number in the log and what it did, in words."""

    number: int
    title: str
    files: tuple[str, ...]


class Folder:
    """The files right under ``folder``, changed only through edits that are written down below ``log``."""

    def __init__(self, folder: Path, *, log: Path, disk: Disk | None = None) -> None:
        self.folder = folder
        self.log = log
        self.disk = disk or Disk()

    def read(self) -> dict[str, bytes]:
        """Every file by name, after putting right what a killed edit left."""
        with self._locked():
            return self._files()

    def change(self, title: str, files: Mapping[str, bytes | None]) -> Edit | None:
        """Give the named files these contents; None takes one away. All or none; None where nothing differs."""
        with self._locked():
            now = self._files()
            wanted = {name: data for name, data in files.items() if now.get(name) != data}
            return self._carry_out(title, {name: now.get(name) for name in wanted}, wanted) if wanted else None

    def undo(self) -> str:
        """Take back the last edit that was not taken back. Gives its title.

        Raises UsageError where there is none, or where one of its files was changed by other means since.
        """
        with self._locked() as interrupted:
            if interrupted:
                return interrupted
            number, order = self._last_standing()
            before, after = self._contents(number, "before"), self._contents(number, "after")
            now = self._files()
            foreign = [name for name, data in after.items() if now.get(name) != data]
            if foreign:
                raise UsageError(
                    f"{', '.join(sorted(foreign))} changed since '{order['title']}', and not by an edit of ours",
                    remedy="git diff shows it. Put it back, or keep it and do not undo.",
                )
            self._carry_out(f"undo: {order['title']}", after, before, undoes=number)
            return str(order["title"])

    def history(self) -> list[Edit]:
        """The finished edits, oldest first."""
        with self._locked():
            return [
                Edit(number=number, title=str(order["title"]), files=tuple(order["files"]))
                for number, order in self._finished()
            ]

    # How an edit is kept: NNNN/{order.json, before/NAME, after/NAME}; NNNN.open until it is finished.

    def _carry_out(
        self,
        title: str,
        before: Mapping[str, bytes | None],
        after: Mapping[str, bytes | None],
        *,
        undoes: int | None = None,
    ) -> Edit:
        number = max((number for number, _ in self._finished()), default=0) + 1
        draft, order = self.log / f"{number:06d}.draft", {"title": title, "files": sorted(after), "undoes": undoes}
        for side, contents in (("before", before), ("after", after)):
            for name, data in contents.items():
                if data is not None:
                    self.disk.write(draft / side / name, data)
        self.disk.write(draft / "order.json", json.dumps(order).encode())
        running = self.log / f"{number:06d}.open"
        self.disk.rename(draft, running)
        self._put(after)
        self.disk.rename(running, self.log / f"{number:06d}")
        return Edit(number=number, title=title, files=tuple(sorted(after)))

    def _put(self, contents: Mapping[str, bytes | None]) -> None:
        for name, data in contents.items():
            if data is None:
                self.disk.remove(self.folder / name)
            else:
                self.disk.write(self.folder / name, data)

    @contextmanager
    def _locked(self) -> Iterator[str]:
        """One edit at a time; gives the title of an edit that was found interrupted and was put back, or ``""``."""
        self.log.mkdir(parents=True, exist_ok=True)
        with (self.log / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield self._recover()

    def _recover(self) -> str:
        for scratch in self.folder.glob(".*.new"):
            scratch.unlink()
        for draft in self.log.glob("*.draft"):
            shutil.rmtree(draft)
        title = ""
        for running in sorted(self.log.glob("*.open")):
            order = json.loads((running / "order.json").read_bytes())
            self._put({name: _read(running / "before" / name) for name in order["files"]})
            self.disk.rename(running, running.with_suffix(".draft"))
            shutil.rmtree(running.with_suffix(".draft"))
            title = f"{order['title']} (it was interrupted)"
        return title

    def _files(self) -> dict[str, bytes]:
        if not self.folder.is_dir():
            return {}
        return {path.name: path.read_bytes() for path in sorted(self.folder.iterdir()) if path.is_file()}

    def _contents(self, number: int, side: str) -> dict[str, bytes | None]:
        place = self.log / f"{number:06d}"
        order = json.loads((place / "order.json").read_bytes())
        return {name: _read(place / side / name) for name in order["files"]}

    def _finished(self) -> list[tuple[int, dict[str, Any]]]:
        places = sorted(path for path in self.log.glob("[0-9]*") if path.name.isdigit())
        return [(int(place.name), json.loads((place / "order.json").read_bytes())) for place in places]

    def _last_standing(self) -> tuple[int, dict[str, Any]]:
        finished = self._finished()
        gone = {order["undoes"] for _, order in finished}
        for number, order in reversed(finished):
            if order["undoes"] is None and number not in gone:
                return number, order
        raise UsageError("there is no edit to undo", remedy="git log -- patches shows what was committed.")


def _read(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None
