"""What a live view is told while a log is read."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from patchbisect.model import Role, Stage


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
    """One thing that a line said. A tuple, because most lines of a fast log make one.

    ``values`` holds the numbers of the line as text, by name: ``avail``, ``used`` (GiB), ``tokens`` …
    """

    what: What
    line: int
    time: str
    rank: str
    role: Role | None
    stage: Stage | None
    text: str
    values: Mapping[str, str]
