"""One patch onto one tree, without a work tree: exactly, else by a 3-way merge, else not at all.

``git apply`` moves a hunk to another line without a word unless ``--verbose`` is given; a patch that lands in
the wrong one of two equal places is the worst kind of wrong answer. So each move is seen, and refused or told.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from patchbisect.errors import PointUnbuildable
from patchbisect.model import Patch
from patchbisect.patchqueue import FileDiff, Misfit, diff_of, misfits
from patchbisect.upstream.conflicts import Conflict, settle
from patchbisect.upstream.git import Git, Ran
from patchbisect.upstream.sources import PACKAGE

_MOVED = re.compile(r"^Hunk #\d+ succeeded at \d+ \(offset|^Context reduced to", re.MULTILINE)
_FELL_BACK = "Falling back to direct application"
_SEARCHED = "Make the patch again on that code: what is found by search may be the wrong place."
_TAKEN_AWAY = "Another change took its context away: make the patch again there, or take it out of this point."


@dataclass(frozen=True, slots=True)
class Applied:
    """The tree with the patch; ``shifted`` tells each hunk that does not stand where the patch says."""

    tree: str
    shifted: tuple[str, ...] = ()


class Workbench:
    """A temporary index that patches are applied to, one after the other. ``onto`` names the base in messages."""

    def __init__(self, store: Git, *, index: Path, tree: str, onto: str) -> None:
        self.store = store
        self.onto = onto
        self.tree = tree
        self._env: Mapping[str, str] = {"GIT_INDEX_FILE": str(index)}
        self._reset()

    def apply(self, patch: Patch, *, exact: bool) -> Applied:
        """Apply a patch; with ``exact`` no hunk may move. Raises PointUnbuildable and leaves the tree as it was."""
        ran = self._git_apply(patch)
        if ran.status == 0 and not _MOVED.search(ran.err):
            return self._done()
        directly = ran.status == 0
        self._reset()
        faults = self._misfits(patch)
        if exact:
            raise self._refusal(patch, ran=ran, faults=faults, exact=True)
        if self._merge(patch):
            return self._done(_told(patch, faults, how="merged 3-way") or (f"{patch.name}: merged 3-way",))
        if directly and all(len(fault.places) == 1 for fault in faults):
            self._git_apply(patch)
            return self._done(_told(patch, faults, how="moved"))
        raise self._refusal(patch, ran=ran, faults=faults, exact=False)

    def _merge(self, patch: Patch) -> bool:
        """3-way against the blobs that the patch was made from. False, and nothing changed, where that is no way.

        Raises PointUnbuildable for a conflict: then the same lines were changed there, and no other place is right.
        Without those blobs git applies directly and still exits 0, so its words count and not its status.
        """
        blobs = [file.old_blob for file in diff_of(patch).files if file.old_blob.strip("0")]
        if not blobs or not all(self.store.ids(blobs)):
            return False
        ran = self._git_apply(patch, "--3way")
        if ran.status == 0 and _FELL_BACK not in ran.err:
            return True
        settled = settle(self.store, patch, env=self._env)
        if settled is True:
            return True
        self._reset()
        if isinstance(settled, Conflict):
            raise PointUnbuildable(
                f"{patch.name} does not apply to {self.onto}: {settled}",
                patch=patch.name,
                place=f"{settled.path}, hunk {settled.hunk}",
                remedy=_TAKEN_AWAY,
            )
        return False

    def _git_apply(self, patch: Patch, *options: str) -> Ran:
        diff = patch.diff.encode("utf-8", "surrogateescape")
        return self.store.run(
            "apply", "--cached", "--verbose", "--whitespace=nowarn", *options, "-", stdin=diff, env=self._env
        )

    def _done(self, shifted: tuple[str, ...] = ()) -> Applied:
        tree = self.store.text("write-tree", env=self._env)
        if tree == self.tree and shifted:
            shifted = (f"{shifted[0].partition(':')[0]}: changes nothing on {self.onto}, it is there already",)
        self.tree = tree
        return Applied(tree=tree, shifted=shifted)

    def _reset(self) -> None:
        self.store.output("read-tree", self.tree, env=self._env)

    def _text(self, path: str) -> str | None:
        ran = self.store.run("cat-file", "blob", f"{self.tree}:{path}")
        return ran.out.decode("utf-8", "surrogateescape") if ran.status == 0 else None

    def _misfits(self, patch: Patch) -> tuple[Misfit, ...]:
        found: list[Misfit] = []
        for file in diff_of(patch).files:
            text = self._text(file.old_path) if file.old_path is not None else None
            if text is not None:
                found += misfits(file, text)
        return tuple(found)

    def _refusal(self, patch: Patch, *, ran: Ran, faults: tuple[Misfit, ...], exact: bool) -> PointUnbuildable:
        for file in diff_of(patch).files:
            if why := self._in_the_way(file):
                return PointUnbuildable(
                    f"{patch.name} does not apply to {self.onto}: {why}",
                    patch=patch.name,
                    place=file.path,
                    remedy=_remedy(file.path),
                )
        worst = next((fault for fault in faults if not fault.places), faults[0] if faults else None)
        if worst is None:
            return PointUnbuildable(
                f"{patch.name} does not apply to {self.onto}: {ran.reason}",
                patch=patch.name,
                remedy="Make the patch again with git format-patch and at least one line of context.",
            )
        how = "applies only with an offset" if exact and ran.status == 0 else "does not apply"
        return PointUnbuildable(
            f"{patch.name} {how} to {self.onto}: {worst}",
            patch=patch.name,
            place=f"{worst.path}, hunk {worst.hunk}",
            remedy=_SEARCHED if worst.places else _TAKEN_AWAY,
        )

    def _in_the_way(self, file: FileDiff) -> str:
        """A file that should be there and is not, or the other way round."""
        if file.old_path is not None and self._text(file.old_path) is None:
            return f"there is no {file.old_path}"
        if file.new_path not in (None, file.old_path) and self._text(file.new_path or "") is not None:
            return f"{file.new_path} is there already"
        return ""


def _told(patch: Patch, faults: tuple[Misfit, ...], *, how: str) -> tuple[str, ...]:
    return tuple(f"{patch.name}: {_stood(fault)} ({how})" for fault in faults)


def _stood(fault: Misfit) -> str:
    """What a hunk that went in had wanted: one that a merge placed is not said to fit nowhere."""
    if fault.places:
        return str(fault)
    return f"{fault.path}, hunk {fault.hunk}: wanted at line {fault.expected}, where its context is another"


def _remedy(path: str) -> str:
    if path.startswith(f"{PACKAGE}/"):
        return "Make the patch again on that code, or take it out of this point."
    return f"Releases hold {PACKAGE} alone: for other files set upstream.clone to a clone of SGLang."
