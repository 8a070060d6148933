"""A queue in another order, or with another patch in it: every patch made anew where it does not stand exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from patchbisect.errors import PointUnbuildable, UsageError
from patchbisect.maintain.exporting import diff_between, has_renames, with_diff
from patchbisect.model import Base, Patch
from patchbisect.patchqueue import diff_of
from patchbisect.upstream import Git, Mirror


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """The patches, all exact on their base; ``notes`` tells what was moved or merged; ``tips`` holds their commits."""

    patches: tuple[Patch, ...]
    notes: tuple[str, ...]
    tips: tuple[str, ...]


def rebuild(mirror: Mirror, base: Base, patches: Sequence[Patch], *, doing: str, about: Patch | None = None) -> Rebuilt:
    """Make each enabled patch exact on those before it. ``doing`` is what the user asked for, for messages.

    ``about`` is the one patch that goes or changes: one that does not fit any more builds on it.

    Raises UsageError where one does not apply, or would change nothing: then nothing was changed.
    """
    store = Git(mirror.path)
    done: list[Patch] = []
    result: list[Patch] = []
    notes: list[str] = []
    tips: list[str] = []
    tip = mirror.base(base).commit
    for patch in patches:
        if not patch.enabled:
            result.append(patch)
            tips.append(tip)
            continue
        try:
            code = mirror.materialize(base, [*done, patch])
        except PointUnbuildable as error:
            raise UsageError(f"cannot {doing}: {error.message}", remedy=_way_out(patch, about)) from error
        if patch.name not in code.patches:
            # Its Upstream: range does not hold the pin: it is for other bases, and stays as it is.
            result.append(patch)
            tips.append(tip)
            continue
        moved = [note for note in code.shifted if note.startswith(f"{patch.name}:")]
        fresh = _exact(store, patch, parent=tip, commit=code.commit, moved=bool(moved))
        notes += moved
        if fresh != patch:
            code = mirror.materialize(base, [*done, fresh], exact=True)
        done.append(fresh)
        result.append(fresh)
        tip = code.commit
        tips.append(tip)
    return Rebuilt(patches=tuple(result), notes=tuple(dict.fromkeys(notes)), tips=tuple(tips))


def _way_out(misfit: Patch, about: Patch | None) -> str:
    if about is None or misfit.number <= about.number:
        return "Nothing was changed. `invoke edit N` opens a patch on the code that it has to fit."
    one = f"`invoke fold {misfit.number} --into {about.number}`"
    return (
        f"Nothing was changed. Drop the later one first (`invoke drop {misfit.number}`), or make one patch of both: "
        f"{one}, with no edit open (`invoke abandon` keeps its work)."
    )


def _exact(store: Git, patch: Patch, *, parent: str, commit: str, moved: bool) -> Patch:
    """The patch itself where its hunks and blob ids are right, else with its diff made anew."""
    fresh = diff_between(store, parent, commit, renames=has_renames(patch))
    if not fresh:
        raise UsageError(f"{patch.name} would change nothing any more", remedy="Drop it first: invoke drop N.")
    if moved or _is_stale(store, patch, parent=parent):
        return with_diff(patch, fresh)
    return patch


def _is_stale(store: Git, patch: Patch, *, parent: str) -> bool:
    """Whether the blobs that it names, from which a 3-way merge starts, are not those that it stands on."""
    files = [file for file in diff_of(patch).files if file.old_path is not None and file.hunks]
    blobs = store.ids([f"{parent}:{file.old_path}" for file in files])
    return any(not file.old_blob or not blob.startswith(file.old_blob) for file, blob in zip(files, blobs, strict=True))
