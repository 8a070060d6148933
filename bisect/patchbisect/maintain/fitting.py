"""How each patch fits another base: exactly, merged, not at all, or there already."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from patchbisect.errors import PointUnbuildable
from patchbisect.maintain.exporting import diff_between
from patchbisect.model import Base, Patch
from patchbisect.upstream import Git, Mirror


class Fit(StrEnum):
    """What becomes of a patch on another base. A closed list."""

    CLEAN = "clean"
    MOVED = "moved"
    """Its text stands in one other place each."""
    THREE_WAY = "3-way"
    CONFLICT = "conflict"
    UPSTREAM = "already upstream"
    """By patch id, or because it would change nothing."""
    BUILDS_ON = "builds on another"
    """A patch before it that it shares files with did not fit."""
    DISABLED = "disabled"
    OUT_OF_RANGE = "not for this base"
    """By its ``Upstream:`` trailer."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """One patch on the new base; ``why`` names file, hunk, and the upstream commit where it is known."""

    patch: Patch
    fit: Fit
    why: str = ""


def fit_all(mirror: Mirror, base: Base, patches: Sequence[Patch], *, clone: Path | None = None) -> list[Fitted]:
    """Try each patch in order on top of those that fitted; those that do not are left out. Raises as Mirror.base does.

    ``clone``: a clone of SGLang, whose history tells which patch was merged.
    """
    mirror.remember(base.pin, [patch for patch in patches if patch.enabled])
    store = Git(mirror.path)
    history = History(mirror, base, clone)
    done: list[Patch] = []
    lost: set[str] = set()
    fitted: list[Fitted] = []
    for patch in patches:
        found = _fit(mirror, store, base, patch, done=done, history=history)
        if found.fit is Fit.CONFLICT and lost & set(patch.files):
            names = ", ".join(sorted(lost & set(patch.files)))
            found = Fitted(patch, Fit.BUILDS_ON, why=f"a patch before it that changes {names} does not fit")
        if found.fit in (Fit.CLEAN, Fit.MOVED, Fit.THREE_WAY):
            done.append(patch)
        elif found.fit in (Fit.CONFLICT, Fit.BUILDS_ON):
            lost |= set(patch.files)
        fitted.append(found)
    return fitted


def _fit(mirror: Mirror, store: Git, base: Base, patch: Patch, *, done: Sequence[Patch], history: History) -> Fitted:
    if not patch.enabled:
        return Fitted(patch, Fit.DISABLED)
    before = mirror.materialize(base, done)
    try:
        code = mirror.materialize(base, [*done, patch])
    except PointUnbuildable as error:
        if commit := history.merged_as(patch):
            return Fitted(patch, Fit.UPSTREAM, why=f"as {commit}")
        if is_there_already(store, patch, commit=before.commit):
            return Fitted(patch, Fit.UPSTREAM, why="its effect is there")
        return Fitted(patch, Fit.CONFLICT, why=error.message.partition(": ")[2] or error.message)
    if patch.name not in code.patches:
        return Fitted(patch, Fit.OUT_OF_RANGE, why=f"Upstream: {patch.trailer('Upstream')}")
    if not diff_between(store, before.commit, code.commit):
        return Fitted(patch, Fit.UPSTREAM, why="it would change nothing")
    moved = [note for note in code.shifted if note.startswith(f"{patch.name}:")]
    if not moved:
        return Fitted(patch, Fit.CLEAN)
    why = "; ".join(note.partition(": ")[2] for note in moved)
    return Fitted(patch, Fit.THREE_WAY if "merged 3-way" in why else Fit.MOVED, why=why)


def is_there_already(store: Git, patch: Patch, *, commit: str) -> bool:
    """Whether taking the patch away from a commit works exactly: then all of it is in there."""
    with tempfile.TemporaryDirectory(prefix="patchbisect-") as scratch:
        env = {"GIT_INDEX_FILE": str(Path(scratch) / "index")}
        store.output("read-tree", commit, env=env)
        diff = patch.diff.encode("utf-8", "surrogateescape")
        return store.run("apply", "--cached", "--check", "--reverse", "-", stdin=diff, env=env).status == 0


class History:
    """What a clone of SGLang tells about the commits from the pin to the base. Without one it knows nothing."""

    def __init__(self, mirror: Mirror, base: Base, clone: Path | None) -> None:
        self.git = Git(clone, worktree=True) if clone else None
        self.span = ""
        if self.git:
            target = mirror.freeze(base).rev
            pin = base.pin.commit
            if self.git.run("merge-base", "--is-ancestor", pin, target).status == 0:
                self.span = f"{pin}..{target}"
        self._patch_ids: dict[str, str] | None = None

    def merged_as(self, patch: Patch) -> str:
        """The commit that has the patch's patch id, ``""`` where there is none."""
        if not (self.git and self.span):
            return ""
        if self._patch_ids is None:
            shown = self.git.output("log", "-p", "--no-color", "--format=commit %H", self.span)
            pairs = (line.split() for line in self.git.text("patch-id", "--stable", stdin=shown).splitlines())
            self._patch_ids = {pair[0]: pair[1] for pair in pairs}
        diff = patch.diff.encode("utf-8", "surrogateescape")
        own = self.git.text("patch-id", "--stable", stdin=diff).partition(" ")[0]
        return self._patch_ids.get(own, "")[:12]


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest revision of a range at which something applies; ``""`` where it applies at none."""

    name: str
    rev: str
    why_not_newer: str = ""


def where_applies(
    mirror: Mirror, base: Base, patches: Sequence[Patch], *, revisions: Sequence[str], clone: Path | None = None
) -> list[Newest]:
    """For each patch (with those before it that it shares files with), and the whole queue: the newest revision.

    ``revisions``: newest first. Revisions at which the files concerned are the same are tried once.
    """
    enabled = [patch for patch in patches if patch.enabled]
    mirror.remember(base.pin, enabled)
    subjects = [(patch.name, [*_builds_on(patch, enabled), patch]) for patch in enabled]
    if len(enabled) > 1:
        subjects.append(("the whole queue", enabled))
    return [_newest(mirror, base, name, series, revisions=revisions, clone=clone) for name, series in subjects]


def _newest(
    mirror: Mirror, base: Base, name: str, series: Sequence[Patch], *, revisions: Sequence[str], clone: Path | None
) -> Newest:
    why = ""
    tried: set[tuple[str, ...]] = set()
    paths = sorted({path for patch in series for path in patch.files})
    for rev in revisions:
        if clone:
            blobs = tuple(Git(clone, worktree=True).ids([f"{rev}:{path}" for path in paths]))
            if blobs in tried:
                continue
            tried.add(blobs)
        there = Base(pin=base.pin, rev=rev)
        if mirror.applies(there, series):
            return Newest(name=name, rev=rev, why_not_newer=why)
        why = why or _why_not(mirror, there, series)
    return Newest(name=name, rev="", why_not_newer=why)


def _why_not(mirror: Mirror, base: Base, series: Sequence[Patch]) -> str:
    try:
        mirror.materialize(base, series)
    except PointUnbuildable as error:
        return error.message
    return ""


def _builds_on(patch: Patch, patches: Sequence[Patch]) -> list[Patch]:
    """The patches before it that change a file which it changes, and what those build on in turn."""
    files = set(patch.files)
    needed: list[Patch] = []
    for other in reversed(patches[: patches.index(patch)]):
        if files & set(other.files):
            files |= set(other.files)
            needed.insert(0, other)
    return needed
