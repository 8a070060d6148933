"""What a live view is told while a log is read."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from patchbisect.model import EMPTY, Role, Stage
from patchbisect.startup.vocabulary import Kind, Milestone


class What(StrEnum):
    """The kinds of events."""

    LIFE = "life"
    """A server begins; ``values`` may hold ``number`` (from 1)."""
    STAGE = "stage"
    """``stage`` begins or goes on, or has ended (``values["edge"]``), with the memory numbers of that line."""
    POOL = "pool"
    PROBE = "probe"
    ERROR = "error"
    HTTP = "http"
    READY = "ready"


class Event(NamedTuple):
    """One thing that a line said. A tuple, because most lines of a fast log make one."""

    what: What
    line: int
    time: str
    rank: str
    role: Role | None
    stage: Stage | None
    text: str
    row: Milestone | None = None
    more: Mapping[str, str] = EMPTY

    @property
    def values(self) -> dict[str, str]:
        """The numbers of the line as text, by name: ``avail``, ``used`` (GiB), ``tokens``, a probe's own …"""
        return {**(self.row.read(self.text) if self.row is not None else {}), **self.more}

    @property
    def tells_totals(self) -> bool:
        """Whether a scheduler sums up here what it has got. Until then its pool may yet be refused as too small.

        (0.5.9: srt/managers/tp_worker.py asserts that, and then srt/managers/scheduler.py prints the line.)
        """
        return self.row is not None and self.row.kind is Kind.TOTALS

    def document(self) -> dict[str, Any]:
        """The event as JSON, for a record and for who watches from another process."""
        return {
            "what": self.what.value,
            "line": self.line,
            "rank": self.rank,
            "role": self.role.value if self.role else None,
            "stage": self.stage.value if self.stage else None,
            "text": self.text,
            "values": self.values,
        }
