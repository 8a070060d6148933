"""What a patch makes of each file, in memory: hunks applied to texts, and lines of the file found in the patch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from patchbisect.patchqueue import FileDiff, Misfit, misfits
from patchbisect.patchqueue.diff import split_lines

Read = Callable[[str], str | None]
"""The text of a file by its path in SGLang's repository, None where there is none."""


@dataclass(frozen=True, slots=True)
class Effect:
    """One file before and after one patch; None is "not there". ``misfits``: hunks that do not stand where they say."""

    diff: FileDiff
    before: str | None
    after: str | None
    misfits: tuple[Misfit, ...] = ()
    missing: bool = False
    """The file to be changed is not there, or the one to be created is."""

    @property
    def path(self) -> str:
        return self.diff.path

    def patch_line(self, line: int, *, old: bool = False) -> int:
        """The line of the patch file that shows this line of the new file (or, with ``old``, the old one); else 0."""
        for hunk in self.diff.hunks:
            at = hunk.first_old_line if old else hunk.first_new_line
            for offset, text in enumerate(hunk.body, start=1):
                if text[0] in (" -" if old else " +"):
                    if at == line:
                        return hunk.line + offset
                    at += 1
        return 0


class Texts:
    """The files of SGLang's tree while patches are applied one after the other."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._changed: dict[str, str | None] = {}

    def get(self, path: str) -> str | None:
        if path not in self._changed:
            self._changed[path] = self._read(path)
        return self._changed[path]

    def apply(self, diff: FileDiff) -> Effect:
        """Apply one file of a patch, and keep the result for the next patches where it can be built at all."""
        before = self.get(diff.old_path) if diff.old_path is not None else None
        if (before is None) == (diff.old_path is not None) or (
            diff.old_path is None and self.get(diff.path) is not None
        ):
            return Effect(diff=diff, before=before, after=None, missing=True)
        wrong = misfits(diff, before or "")
        after = None if diff.new_path is None else _applied(diff, before or "", wrong)
        if after is None and diff.new_path is not None:
            return Effect(diff=diff, before=before, after=None, misfits=wrong)
        if diff.old_path is not None and diff.old_path != diff.new_path:
            self._changed[diff.old_path] = None
        if diff.new_path is not None:
            self._changed[diff.new_path] = after
        return Effect(diff=diff, before=before, after=after, misfits=wrong)


def _applied(diff: FileDiff, text: str, wrong: tuple[Misfit, ...]) -> str | None:
    """The new text; hunks that stand in exactly one other place are put there. None where one stands nowhere."""
    moved = {misfit.hunk: misfit.places for misfit in wrong}
    if any(len(places) != 1 for places in moved.values()):
        return None
    lines = split_lines(text)
    result: list[str] = []
    at = 0
    for hunk in diff.hunks:
        start = moved.get(hunk.number, (hunk.first_old_line,))[0] - 1
        if start < at:
            return None
        result += [*lines[at:start], *hunk.after]
        at = start + len(hunk.before)
    return "".join([*result, *lines[at:]])
