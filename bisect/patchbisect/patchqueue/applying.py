"""A patch onto files in memory, exactly: every hunk at its line, no offset, no fuzz, no white space repaired."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from patchbisect.patchqueue.diff import SYMLINK, Diff, FileDiff, split_lines

FOLDER = "040000"
PLAIN = "100644"


@dataclass(frozen=True, slots=True)
class File:
    """A file as git keeps it: mode in octal, text with surrogate escapes for bytes that are not UTF-8."""

    mode: str
    text: str


def apply_exactly(
    diff: Diff, *, mode_of: Callable[[str], str | None], read: Callable[[str], str]
) -> Mapping[str, File | None] | None:
    """The files that a diff leaves changed (None: deleted), or None where it does not apply exactly.

    ``mode_of`` gives the mode of a path (``040000`` for a folder, None where nothing is there), ``read`` its text.
    What is None here may still be one of git's finer cases: its answer then counts.
    """
    changed: dict[str, File | None] = {}
    for file in diff.files:
        after = _applied(file, mode_of=mode_of, read=read)
        if after is None:
            return None
        changed.update(after)
    return changed


def _applied(
    file: FileDiff, *, mode_of: Callable[[str], str | None], read: Callable[[str], str]
) -> Mapping[str, File | None] | None:
    before = File(mode=file.new_mode or PLAIN, text="")
    if file.old_path is not None:
        mode = mode_of(file.old_path)
        if mode is None or mode == FOLDER or (mode == SYMLINK) != ((file.old_mode or mode) == SYMLINK):
            return None
        before = File(mode=mode, text=read(file.old_path))
    text = _patched(file, before.text)
    if text is None:
        return None
    if file.new_path is None:
        return {file.path: None} if text == "" else None
    if file.new_path != file.old_path and not _is_free(file.new_path, mode_of=mode_of):
        return None
    mode = file.new_mode if file.new_mode != file.old_mode else before.mode
    after = {file.new_path: File(mode=mode or before.mode, text=text)}
    moved = file.old_path not in (None, file.new_path) and not file.copied
    return {file.old_path or "": None, **after} if moved else after


def _is_free(path: str, *, mode_of: Callable[[str], str | None]) -> bool:
    """Nothing is at the path, and no file or link where its folders would be."""
    parents = [path[:at] for at, character in enumerate(path) if character == "/"]
    return mode_of(path) is None and all(mode_of(parent) in (None, FOLDER) for parent in parents)


def _patched(file: FileDiff, text: str) -> str | None:
    lines = split_lines(text)
    result: list[str] = []
    done = 0
    for hunk in file.hunks:
        before = hunk.before
        start = hunk.first_old_line - 1
        end = start + len(before)
        # As git has it: without context after it, a hunk ends where the file does.
        at_end_only = hunk.body[-1][0] != " "
        if start < done or lines[start:end] != before or end > len(lines) or (at_end_only and end != len(lines)):
            return None
        result += lines[done:start] + hunk.after
        done = end
    return "".join(result + lines[done:])
