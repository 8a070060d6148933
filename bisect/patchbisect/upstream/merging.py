"""One file merged 3-way: as git does it, and beyond it where statements only stand side by side."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from patchbisect.patchqueue import placed_beside
from patchbisect.upstream.git import Git

_MARK = 31
"""Length of conflict marks: longer than any line of code is made of one character."""

_NO_TEXT = 128
"""Exit status of ``git merge-file`` from which on it merged nothing; below it is the number of conflicts."""


@dataclass(frozen=True, slots=True)
class Clash:
    """The first lines that both sides changed: ``at`` so many lines of the merged text."""

    at: int
    there: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    wanted: tuple[str, ...] = ()


def merged(store: Git, *, path: str, there: bytes, before: bytes, wanted: bytes) -> bytes | Clash:
    """``there`` with what leads from ``before`` to ``wanted``, or where the two are in conflict."""
    with tempfile.TemporaryDirectory(prefix="patchbisect-") as scratch:
        names = [str(Path(scratch) / name) for name in ("there", "before", "wanted")]
        for name, content in zip(names, (there, before, wanted), strict=True):
            Path(name).write_bytes(content)
        ran = store.run("merge-file", "-p", "--diff3", f"--marker-size={_MARK}", *names)
    if ran.status == 0:
        return ran.out
    if ran.status >= _NO_TEXT:
        return Clash(at=0)
    rest = iter(ran.out.decode("utf-8", "surrogateescape").split("\n"))
    lines: list[str] = []
    for line in rest:
        if not _marks(line, "<"):
            lines.append(line)
            continue
        clash = Clash(len(lines), *(_up_to(mark, rest) for mark in "|=>"))
        placed = placed_beside(there=clash.there, before=clash.before, wanted=clash.wanted)
        if placed is None or not path.endswith(".py"):
            return clash
        lines += placed
    return "\n".join(lines).encode("utf-8", "surrogateescape")


def _up_to(mark: str, rest: Iterator[str]) -> tuple[str, ...]:
    """The lines before a mark, which is taken with them."""
    return tuple(takewhile(lambda line: not _marks(line, mark), rest))


def _marks(line: str, mark: str) -> bool:
    return line[:_MARK] == mark * _MARK
