"""Where the hunks of a patch fit in a file: what git does not say when it refuses, or when it shifts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from patchbisect.patchqueue.diff import FileDiff, Hunk, split_lines


@dataclass(frozen=True, slots=True)
class Misfit:
    """A hunk that does not stand where it says. Lines count from 1 in the file that the patch is applied to.

    ``places`` are the lines where its text stands in full, nearest first. Where there are none, ``line`` is the
    first that differs, with ``wanted`` and ``found``.
    """

    path: str
    hunk: int
    expected: int
    places: tuple[int, ...]
    line: int = 0
    wanted: str = ""
    found: str = ""

    def __str__(self) -> str:
        head = f"{self.path}, hunk {self.hunk}: wanted at line {self.expected}"
        if self.places:
            others = f" (also at {', '.join(map(str, self.places[1:4]))})" if self.places[1:] else ""
            return f"{head}, fits at line {self.places[0]}{others}"
        return f"{head}, fits nowhere: line {self.line} should be {self.wanted!r}, but is {self.found!r}"


def misfits(file: FileDiff, text: str) -> tuple[Misfit, ...]:
    """The hunks of ``file`` that do not stand exactly where they say in ``text``."""
    lines = split_lines(text)
    return tuple(
        misfit for hunk in file.hunks if (misfit := _misfit(hunk, lines=lines, path=file.old_path or file.path))
    )


def _misfit(hunk: Hunk, *, lines: Sequence[str], path: str) -> Misfit | None:
    before = hunk.before
    expected = hunk.first_old_line
    if lines[expected - 1 : expected - 1 + len(before)] == before and expected - 1 <= len(lines):
        return None
    places = _places(before, lines=lines, expected=expected)
    if places:
        return Misfit(path=path, hunk=hunk.number, expected=expected, places=places)
    line, wanted, found = _first_difference(before, lines=lines, expected=expected)
    return Misfit(path=path, hunk=hunk.number, expected=expected, places=(), line=line, wanted=wanted, found=found)


def _places(before: Sequence[str], *, lines: Sequence[str], expected: int) -> tuple[int, ...]:
    if not before:
        return ()
    size = len(before)
    found = [
        at + 1
        for at in range(len(lines) - size + 1)
        if lines[at] == before[0] and list(lines[at : at + size]) == before
    ]
    return tuple(sorted(found, key=lambda at: abs(at - expected)))


def _first_difference(before: Sequence[str], *, lines: Sequence[str], expected: int) -> tuple[int, str, str]:
    for offset, wanted in enumerate(before):
        at = expected - 1 + offset
        found = lines[at] if at < len(lines) else "(end of file)"
        if found != wanted:
            return at + 1, wanted.rstrip("\n"), found.rstrip("\n")
    return expected, "(nothing)", "(more lines than the file has)"
