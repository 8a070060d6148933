"""Edits of the queue as a whole: what the patches are afterwards. Nothing here writes a file of the queue.

Numbers are places: ``move`` and ``split`` shift those in between, ``drop`` leaves a gap, so that the number of a
patch in an old record still means that patch.
"""

from __future__ import annotations

from collections.abc import Sequence

from patchbisect.errors import UsageError
from patchbisect.maintain.exporting import diff_between, has_renames
from patchbisect.maintain.rebuilding import Rebuilt, rebuild
from patchbisect.model import Base, Patch
from patchbisect.patchqueue import Queue, compose, diff_of, renamed, requires
from patchbisect.patchqueue.diff import split_lines
from patchbisect.patchqueue.patchfile import TRAILERS
from patchbisect.upstream import Git, Mirror

_ADD_UP = ("probe", "waive", "requires")
"""Trailers of which a folded patch keeps both sides'."""


class Editor:
    """The queue as it was read, on its pin; each verb gives the queue as it would be, every patch exact.

    They raise UsageError for what cannot be, and leave everything as it was.
    """

    def __init__(self, mirror: Mirror, base: Base, queue: Queue) -> None:
        self.mirror = mirror
        self.base = base
        self.queue = queue
        # The blobs that 3-way merges start from exist only once the queue was built as it is.
        mirror.remember(base.pin, queue.enabled)

    def drop(self, number: int) -> Rebuilt:
        gone = self.queue.patch(number)
        users = [patch.name for patch in self.queue.patches if gone.slug in requires(patch)]
        if users:
            raise UsageError(
                f"cannot drop {gone.name}: {', '.join(users)} requires it", remedy="Drop that one first, or fold them."
            )
        rest = [patch for patch in self.queue.patches if patch is not gone]
        return self._rebuilt(rest, doing=f"drop {gone.name}", about=gone)

    def move(self, number: int, *, to: int) -> Rebuilt:
        moved = self.queue.patch(number)
        target = self.queue.patch(to)
        order = [patch for patch in self.queue.patches if patch is not moved]
        at = order.index(target) + (number < to) if moved is not target else len(order)
        if moved is target:
            raise UsageError(f"{moved.name} is at {to} already")
        order.insert(at, moved)
        numbers = [patch.number for patch in self.queue.patches]
        return self._rebuilt(_numbered(order, numbers), doing=f"move {moved.name} to {to:04d}")

    def fold(self, number: int, *, into: int) -> Rebuilt:
        """One patch of two: both messages and both changes, at the place of ``into``."""
        extra, keeper = self.queue.patch(number), self.queue.patch(into)
        if extra is keeper:
            raise UsageError(f"cannot fold {extra.name} into itself")
        doing = f"fold {extra.name} into {keeper.name}"
        order = [patch for patch in self.queue.patches if patch is not extra]
        at = order.index(keeper)
        pair = [keeper, extra] if keeper.number < extra.number else [extra, keeper]
        side_by_side = self._rebuilt([*order[:at], *pair, *order[at + 1 :]], doing=doing, strict=False)
        parent = side_by_side.tips[at - 1] if at else self.mirror.base(self.base).commit
        diff = diff_between(
            Git(self.mirror.path), parent, side_by_side.tips[at + 1], renames=has_renames(keeper) or has_renames(extra)
        )
        if not diff:
            raise UsageError(f"cannot {doing}: together they change nothing", remedy="Drop both.")
        body = "\n\n".join(part for part in (keeper.body, f"{extra.subject}.", extra.body) if part)
        folded = _with_message(keeper, diff=diff, body=body, trailers=_folded_trailers(keeper, extra))
        return self._rebuilt([*order[:at], folded, *order[at + 1 :]], doing=doing)

    def split(self, number: int, *, paths: Sequence[str], slug: str) -> Rebuilt:
        """The changes of some files leave a patch and become one of their own, right after it."""
        whole = self.queue.patch(number)
        files = diff_of(whole).files
        chosen = [file for file in files if any(file.path.endswith(path) for path in paths)]
        strangers = [path for path in paths if not any(file.path.endswith(path) for file in files)]
        if strangers:
            raise UsageError(
                f"{whole.name} does not change {', '.join(strangers)}",
                remedy=f"It changes {', '.join(file.path for file in files)}.",
            )
        if len(chosen) == len(files):
            raise UsageError(f"{whole.name} would be left with nothing", remedy="Name some of its files, not all.")
        parts = {False: "", True: ""}
        lines = split_lines(whole.diff)
        starts = [file.line - files[0].line for file in files] + [len(lines)]
        for file, start, end in zip(files, starts, starts[1:], strict=False):
            parts[file in chosen] += "".join(lines[start:end])
        rest = _with_message(whole, diff=parts[False], trailers=list(whole.trailers))
        new = compose(
            number=number,
            slug=slug,
            author=whole.author,
            date=whole.date,
            subject=f"{whole.subject} ({slug})",
            body=whole.body,
            trailers=[pair for pair in whole.trailers if pair[0].lower() != "requires"],
            diff=parts[True],
        )
        at = self.queue.patches.index(whole)
        order = [*self.queue.patches[:at], rest, new, *self.queue.patches[at + 1 :]]
        return self._rebuilt(self.shifted(order), doing=f"split {whole.name}")

    def insert(self, patches: Sequence[Patch], *, after: int | None = None) -> Rebuilt:
        """More patches, at the end or behind the patch of that number (0: before all)."""
        order = list(self.queue.patches)
        at = len(order) if after is None else (order.index(self.queue.patch(after)) + 1 if after else 0)
        order[at:at] = patches
        return self._rebuilt(self.shifted(order), doing=f"add {', '.join(patch.slug for patch in patches)}")

    def replace(self, number: int, patches: Sequence[Patch]) -> Rebuilt:
        """Other patches in the place of one."""
        old = self.queue.patch(number)
        at = self.queue.patches.index(old)
        order = [*self.queue.patches[:at], *patches, *self.queue.patches[at + 1 :]]
        return self._rebuilt(self.shifted(order), doing=f"refresh {old.name}", about=old)

    def become(self, patches: Sequence[Patch], *, doing: str) -> Rebuilt:
        """These patches instead, old and new ones, numbered in this order."""
        return self._rebuilt(self.shifted(patches), doing=doing)

    def refresh(self) -> Rebuilt:
        """The same patches, each made exact."""
        return self._rebuilt(self.queue.patches, doing="refresh the queue")

    def shifted(self, order: Sequence[Patch]) -> list[Patch]:
        """Numbers for an order of old and new patches: an old one keeps its own where it can.

        Where old ones changed places, they share out the numbers that they had.
        """
        old = [patch.number for patch in order if self._is_old(patch)]
        if old != sorted(old):
            free = max(old)
            numbers = sorted(old) + [free + extra for extra in range(1, len(order) - len(old) + 1)]
            return _numbered(order, numbers)
        last = 0
        result: list[Patch] = []
        for patch in order:
            known = patch.number if self._is_old(patch) else 0
            last = known if known > last else last + 1
            result.append(patch if patch.number == last else renamed(patch, number=last))
        return result

    def _is_old(self, patch: Patch) -> bool:
        same = self.queue.slug(patch.slug)
        return same is not None and same.number == patch.number

    def _rebuilt(
        self, patches: Sequence[Patch], *, doing: str, strict: bool = True, about: Patch | None = None
    ) -> Rebuilt:
        if strict:
            _refuse_double_slugs(patches)
        return rebuild(self.mirror, self.base, patches, doing=doing, about=about)


def _numbered(order: Sequence[Patch], numbers: Sequence[int]) -> list[Patch]:
    return [
        patch if patch.number == number else renamed(patch, number=number)
        for patch, number in zip(order, numbers, strict=True)
    ]


def _refuse_double_slugs(patches: Sequence[Patch]) -> None:
    seen: dict[str, Patch] = {}
    for patch in patches:
        if patch.slug in seen:
            raise UsageError(
                f"the queue has a patch {patch.slug} already", remedy="Rename the file, or the patch that is there."
            )
        seen[patch.slug] = patch


def _folded_trailers(keeper: Patch, extra: Patch) -> list[tuple[str, str]]:
    trailers = list(keeper.trailers)
    known = {(key.lower(), value) for key, value in trailers}
    for key, value in extra.trailers:
        adds = key.lower() in _ADD_UP or key.title() not in TRAILERS
        if adds and (key.lower(), value) not in known and value != keeper.slug:
            trailers.append((key, value))
    return trailers


def _with_message(patch: Patch, *, diff: str, trailers: Sequence[tuple[str, str]], body: str = "") -> Patch:
    return compose(
        number=patch.number,
        slug=patch.slug,
        author=patch.author,
        date=patch.date,
        subject=patch.subject,
        body=body or patch.body,
        trailers=trailers,
        diff=diff,
    )
