"""What is wrong with a patch file or a queue, with its place."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from patchbisect.errors import UsageError


class Severity(StrEnum):
    ERROR = "error"
    """The queue is refused."""
    WARNING = "warning"
    """Said, and gone on with."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong: ``line`` counts from 1 in ``file``; 0 is the file as a whole."""

    rule: str
    file: str
    line: int
    message: str
    remedy: str = ""
    severity: Severity = Severity.ERROR

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.message}"


class PatchFault(UsageError):
    """A patch file that is refused; ``fault`` says why and where."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(str(fault), remedy=fault.remedy)
        self.fault = fault


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`` (did you mean X?)``, or nothing when no known name is near."""
    by_lower = {other.lower(): other for other in known}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return f" (did you mean {by_lower[close[0]]}?)" if close else ""
