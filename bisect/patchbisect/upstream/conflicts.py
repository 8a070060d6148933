"""Where a 3-way merge failed: file, line, and both sides, read from the stages that git leaves in the index."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from patchbisect.model import Patch
from patchbisect.patchqueue import FileDiff, diff_of
from patchbisect.upstream.git import Git

_MARK = 31
"""Length of conflict marks: longer than any line of code is made of one character."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """One conflict: ``line`` counts from 1 in the file as it is there; the texts are whole lines."""

    path: str
    hunk: int
    line: int
    there: tuple[str, ...]
    wanted: tuple[str, ...]

    def __str__(self) -> str:
        there, wanted = (lines[0].strip() if lines else "(nothing)" for lines in (self.there, self.wanted))
        place = f"{self.path}, hunk {self.hunk}: in conflict at line {self.line}"
        return f"{place}: the patch makes it {wanted!r}, but there is {there!r}"


def first_conflict(store: Git, patch: Patch, *, env: Mapping[str, str]) -> Conflict | None:
    """The first conflict of a failed ``git apply --3way`` in the index that ``env`` names."""
    stages: dict[str, dict[str, str]] = {}
    for entry in store.output("ls-files", "--unmerged", "-z", env=env).decode("utf-8", "surrogateescape").split("\0"):
        meta, _, path = entry.partition("\t")
        if path:
            _, blob, stage = meta.split(" ")
            stages.setdefault(path, {})[stage] = blob
    for path, blobs in stages.items():
        if len(blobs) == 3:
            return _in_file(store, patch, path=path, blobs=[blobs[stage] for stage in "213"])
    return None


def _in_file(store: Git, patch: Patch, *, path: str, blobs: Sequence[str]) -> Conflict | None:
    """``blobs`` are what is there, what the patch was made on, and what it makes of that."""
    contents = store.blobs(blobs)
    with tempfile.TemporaryDirectory(prefix="patchbisect-") as scratch:
        names = [str(Path(scratch) / name) for name in ("there", "base", "wanted")]
        for name, content in zip(names, contents, strict=True):
            Path(name).write_bytes(content)
        merged = store.run("merge-file", "-p", "--diff3", f"--marker-size={_MARK}", *names)
    now, lines = (data.decode("utf-8", "surrogateescape").split("\n") for data in (contents[0], merged.out))
    marks = [at for at, line in enumerate(lines) if line[:_MARK] in {mark * _MARK for mark in "<|=>"}][:4]
    if len(marks) < 4:
        return None
    there, before, wanted = (tuple(lines[first + 1 : last]) for first, last in pairwise(marks))
    [file] = [file for file in diff_of(patch).files if path in (file.old_path, file.new_path)]
    hunk = _hunk_of(file, before=before, wanted=wanted)
    # What the patch's earlier hunks added stands above the mark, and not in the file as it is there.
    estimate = marks[0] - sum(h.new_count - h.old_count for h in file.hunks if h.number < hunk)
    starts = [at for at in range(len(now)) if tuple(now[at : at + len(there)]) == there]
    line = min(starts, key=lambda at: abs(at - estimate), default=estimate) + 1
    return Conflict(path=path, hunk=hunk, line=line, there=there, wanted=wanted)


def _hunk_of(file: FileDiff, *, before: Sequence[str], wanted: Sequence[str]) -> int:
    """The hunk that adds what is wanted, or takes away what was before."""
    added = {f"+{line}\n" for line in wanted if line not in before}
    removed = {f"-{line}\n" for line in before if line not in wanted}
    return next((hunk.number for hunk in file.hunks if (added | removed) & set(hunk.body)), 1)
