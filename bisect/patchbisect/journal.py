"""A bisection's append-only file: one JSON object a line, each on disk before the next step is taken.

The file is the whole state. An intent is written before a launch and the trial after it, so that a client
killed at any point loses at most the running trial, and knows which one that was.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from patchbisect.errors import UsageError

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Entry:
    """One line: what happened (``begin``, ``intent``, ``trial``, ``told``, ``answer`` …) and its data."""

    event: str
    at: str
    data: dict[str, Any]


class Journal:
    """Reads and appends; never rewrites."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, directory: Path, identifier: str) -> Journal:
        """A new journal ``directory/identifier/journal.jsonl``. Raises FileExistsError when it is there."""
        home = directory / identifier
        home.mkdir(parents=True, exist_ok=False)
        return cls(home / "journal.jsonl")

    @property
    def identifier(self) -> str:
        return self.path.parent.name

    def append(self, event: str, **data: Any) -> None:
        """Write one entry and wait until it is on disk. Raises UsageError where that has no room for it."""
        line = json.dumps({"event": event, "at": datetime.now(UTC).isoformat(timespec="milliseconds"), **data})
        fresh = not self.path.exists()
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                # A torn last line of a killed client must not swallow the next entry.
                size = os.lseek(descriptor, 0, os.SEEK_END)
                torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
                rest = (b"\n" if torn else b"") + line.encode() + b"\n"
                while rest:  # a disk that is nearly full takes a part
                    rest = rest[os.write(descriptor, rest) :]
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as problem:
            raise UsageError(
                f"{self.path}: cannot be written: {problem.strerror or problem}",
                remedy=f"make room there, then invoke bisect --resume --of {self.identifier}",
            ) from problem
        if fresh:
            _sync_directory(self.path.parent)

    def entries(self) -> Iterator[Entry]:
        """Every whole entry, oldest first. Raises UsageError on damage other than torn lines left by a kill."""
        if not self.path.exists():
            return
        lines = self.path.read_bytes().split(b"\n")
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                document = json.loads(line)
            except ValueError as error:
                if _is_torn(line):
                    continue
                raise UsageError(f"{self.path}:{number}: not a journal entry", remedy="restore the file") from error
            yield Entry(event=document.pop("event"), at=document.pop("at"), data=document)


class Sealed(Journal):
    """A journal that is only read: what would be written is let go."""

    def append(self, event: str, **data: Any) -> None:
        """Nothing."""


def _is_torn(line: bytes) -> bool:
    return line.startswith(b"{") and not line.rstrip().endswith(b"}")


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def identifiers(directory: Path) -> list[str]:
    """Every bisection's id, oldest first: they begin with the time."""
    return sorted(path.parent.name for path in directory.glob("*/journal.jsonl"))


def newest_first(directory: Path) -> list[Journal]:
    """Every journal, the one that was begun last first."""
    return [Journal(directory / name / "journal.jsonl") for name in reversed(identifiers(directory))]


def newest(directory: Path) -> Journal | None:
    """The journal that was begun last."""
    return next(iter(newest_first(directory)), None)


def named(directory: Path, identifier: str) -> Journal | None:
    """The journal of that id, or of its unambiguous beginning; None where there is none.

    Raises UsageError for the beginning of several.
    """
    known = identifiers(directory)
    beginning = [name for name in known if name.startswith(identifier)] if identifier else []
    hits = [identifier] if identifier in known else beginning
    if len(hits) > 1:
        raise UsageError(
            f"'{identifier}' begins {len(hits)} bisections", remedy=f"say more of it: {', '.join(hits[:5])}"
        )
    return Journal(directory / hits[0] / "journal.jsonl") if hits else None
