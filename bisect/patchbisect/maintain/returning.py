"""Patches that come back from another tool: each is matched with the one that it was, and what is the same stays."""

from __future__ import annotations

from collections.abc import Sequence

from patchbisect.errors import PointUnbuildable
from patchbisect.maintain.exporting import with_diff
from patchbisect.maintain.importing import NO_REASON, Imported
from patchbisect.model import Base, Patch
from patchbisect.patchqueue import FileDiff, Queue, diff_of, renamed
from patchbisect.patchqueue.diff import SYMLINK, split_lines
from patchbisect.upstream import Git, Mirror

_EXECUTABLE = "100755"


def come_back(mirror: Mirror, base: Base, queue: Queue, imported: Sequence[Imported]) -> list[Imported]:
    """The imported patches as the queue that they were: old numbers and names, and byte for byte where nothing changed.

    A patch is known by its file's name, else by its subject. Where the other tool keeps no modes (quilt), those of the
    old patch stay, and that is told.
    """
    left = list(queue.patches)
    done: list[Patch] = []
    result: list[Imported] = []
    for one in imported:
        old = _match(one.patch, left)
        if old is not None:
            left.remove(old)
            one = _kept(mirror, base, done, old, one)
        result.append(one)
        done += [one.patch] if one.patch.enabled else []
    return result


def already_there(queue: Queue, imported: Sequence[Imported]) -> list[Patch]:
    """The patches of the queue that are among the imported ones, known as in ``come_back``."""
    matches = (_match(one.patch, queue.patches) for one in imported)
    return [old for old in matches if old is not None]


def _match(patch: Patch, old: Sequence[Patch]) -> Patch | None:
    by_slug = (other for other in old if other.slug == patch.slug)
    by_subject = (other for other in old if other.subject == patch.subject)
    return next(by_slug, None) or next(by_subject, None)


def _kept(mirror: Mirror, base: Base, done: Sequence[Patch], old: Patch, one: Imported) -> Imported:
    diff, told = _with_modes(old, one)
    new = renamed(with_diff(one.patch, diff), number=old.number, slug=old.slug)
    account = (*(line for line in one.account if not _says_nothing(line)), *told)
    if _said(new) != _said(old):
        return Imported(patch=new, account=account)
    if _tree(mirror, base, [*done, old]) == _tree(mirror, base, [*done, new]) != "":
        return Imported(patch=old, account=())
    return Imported(patch=with_diff(old, diff), account=account)


def _said(patch: Patch) -> tuple[object, ...]:
    body = "" if patch.body == NO_REASON else patch.body
    return patch.subject, body, patch.trailers, patch.author, patch.date


def _tree(mirror: Mirror, base: Base, patches: Sequence[Patch]) -> str:
    """The tree with these patches, ``""`` where it cannot be built."""
    try:
        commit = mirror.materialize(base, [patch for patch in patches if patch.enabled]).commit
    except PointUnbuildable:
        return ""
    return Git(mirror.path).ids([f"{commit}^{{tree}}"])[0]


def _with_modes(old: Patch, one: Imported) -> tuple[str, tuple[str, ...]]:
    """The new diff with the modes and links of the old one, for files that came without; and what was done."""
    before = {file.path: (file, text) for file, text in _parts(old)}
    parts = {file.path: text for file, text in _parts(one.patch)}
    told = []
    for path, (file, text) in before.items():
        special = file.new_mode in (_EXECUTABLE, SYMLINK) or (file.old_mode != file.new_mode and file.old_mode != "")
        if not special or not one.modeless or (path in parts and path not in one.modeless) or file.new_path is None:
            continue
        if path not in parts and file.hunks:
            # It was taken out of the patch.
            continue
        told.append(f"{path}: its mode, {file.new_mode}, is taken from the patch that was there")
        parts[path] = text if file.new_mode == SYMLINK or path not in parts else _remoded(text, parts[path])
    return "".join(parts[path] for path in sorted(parts)) if told else one.patch.diff, tuple(told)


def _remoded(old: str, new: str) -> str:
    """``new`` with the lines about modes of ``old``."""
    modes = [line for line in split_lines(old)[1:4] if line.startswith(("old mode ", "new mode ", "new file mode "))]
    lines = [line for line in split_lines(new) if not line.startswith("new file mode ")]
    return "".join([lines[0], *modes, *lines[1:]])


def _parts(patch: Patch) -> list[tuple[FileDiff, str]]:
    """Each file of a patch with its part of the diff."""
    files = diff_of(patch).files
    lines = split_lines(patch.diff)
    starts = [file.line - files[0].line for file in files] + [len(lines)]
    return [(file, "".join(lines[start:end])) for file, start, end in zip(files, starts, starts[1:], strict=False)]


def _says_nothing(line: str) -> bool:
    """That a patch of ours comes back under the names of another tool's folders is no news."""
    return " is " in line and line.endswith(" in SGLang's repository")
