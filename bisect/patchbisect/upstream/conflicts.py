"""What a failed ``git apply --3way`` left in the index: settled where that is certain, else told as a conflict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from patchbisect.model import Patch
from patchbisect.patchqueue import FileDiff, diff_of
from patchbisect.upstream.git import Git
from patchbisect.upstream.merging import Clash, merged

_THERE, _BEFORE, _WANTED = "2", "1", "3"
"""The stages of git's index: what is there, what the patch was made on, and what it makes of that."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """One conflict: ``line`` counts from 1 in the file as it is there; the texts are whole lines."""

    path: str
    hunk: int
    line: int
    there: tuple[str, ...]
    before: tuple[str, ...]
    wanted: tuple[str, ...]

    def __str__(self) -> str:
        place = f"{self.path}, hunk {self.hunk}: in conflict at line {self.line}"
        added = [line for line in self.wanted if line not in self.before]
        there = f"there is {_first(self.there)}" if self.there else f"{_first(self.before)} is not there"
        return f"{place}: the patch makes it {_first(added or self.wanted)}, but {there}"


def settle(store: Git, patch: Patch, *, env: Mapping[str, str]) -> Conflict | bool:
    """Finish the merge in the index that ``env`` names: True where that is done, False where none was begun there.

    Else the first conflict; the index is to be thrown away then.
    """
    unmerged = _unmerged(store, env)
    for path, stages in unmerged.items():
        if not {_THERE, _BEFORE, _WANTED} <= stages.keys():
            return False
        there, before, wanted = store.blobs([stages[stage][1] for stage in (_THERE, _BEFORE, _WANTED)])
        text = merged(store, path=path, there=there, before=before, wanted=wanted)
        if isinstance(text, Clash):
            return _conflict(patch, text, path=path, there=there)
        blob = store.text("hash-object", "-w", "--stdin", stdin=text)
        store.output("update-index", "--cacheinfo", f"{stages[_THERE][0]},{blob},{path}", env=env)
    return bool(unmerged)


def _unmerged(store: Git, env: Mapping[str, str]) -> dict[str, dict[str, tuple[str, str]]]:
    """Mode and blob of each stage, by path."""
    found: dict[str, dict[str, tuple[str, str]]] = {}
    for entry in store.output("ls-files", "--unmerged", "-z", env=env).decode("utf-8", "surrogateescape").split("\0"):
        meta, _, path = entry.partition("\t")
        if path:
            mode, blob, stage = meta.split(" ")
            found.setdefault(path, {})[stage] = (mode, blob)
    return found


def _conflict(patch: Patch, clash: Clash, *, path: str, there: bytes) -> Conflict:
    now = there.decode("utf-8", "surrogateescape").split("\n")
    [file] = [file for file in diff_of(patch).files if path in (file.old_path, file.new_path)]
    hunk = _hunk_of(file, before=clash.before, wanted=clash.wanted)
    # What the patch's earlier hunks added stands above the mark, and not in the file as it is there.
    estimate = clash.at - sum(h.new_count - h.old_count for h in file.hunks if h.number < hunk)
    size = len(clash.there)
    starts = [at for at in range(len(now)) if tuple(now[at : at + size]) == clash.there]
    line = min(starts, key=lambda at: abs(at - estimate), default=estimate) + 1
    return Conflict(path=path, hunk=hunk, line=line, there=clash.there, before=clash.before, wanted=clash.wanted)


def _hunk_of(file: FileDiff, *, before: Sequence[str], wanted: Sequence[str]) -> int:
    """The hunk that adds what is wanted, or takes away what was before."""
    added = {f"+{line}\n" for line in wanted if line not in before}
    removed = {f"-{line}\n" for line in before if line not in wanted}
    return next((hunk.number for hunk in file.hunks if (added | removed) & set(hunk.body)), 1)


def _first(lines: Sequence[str]) -> str:
    return repr(next((line.strip() for line in lines if line.strip()), "(nothing)"))
