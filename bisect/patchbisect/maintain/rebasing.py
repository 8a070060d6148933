"""The queue onto another pin: patch by patch, stopping at a conflict in a work tree, to be continued."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from patchbisect.config import PIN_FILE
from patchbisect.errors import BoxError, PointUnbuildable, UsageError
from patchbisect.maintain.bench import stage_all
from patchbisect.maintain.exporting import diff_between, has_renames, with_diff
from patchbisect.maintain.fitting import Fit, History, is_there_already
from patchbisect.maintain.shop import Outcome, Shop
from patchbisect.model import Base, Patch, Pin
from patchbisect.patchqueue import format_patch, format_pin, parse_patch
from patchbisect.upstream import Git

_REMEMBER = ("-c", "rerere.enabled=true", "-c", "rerere.autoupdate=true")
_WHO = (
    *("-c", "user.name=patchbisect", "-c", "user.email=patchbisect@patchbisect.invalid"),
    *("-c", "core.hooksPath=/dev/null", "-c", "commit.gpgSign=false", "-c", "core.editor=true"),
)


@dataclass(frozen=True, slots=True)
class Stopped:
    """A conflict that a person has to resolve: in these files of ``tree``."""

    patch: str
    why: str
    tree: Path
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Moved:
    """The queue stands on the new pin.

    ``fits``: how each patch of the old queue fitted, by name. ``range_diff`` compares the patches before and after.
    """

    fits: tuple[tuple[str, str], ...]
    outcome: Outcome
    range_diff: str


@dataclass(frozen=True, slots=True)
class _State:
    """A rebase under way: the new pin, how many patches of the old queue are dealt with, and how each fitted."""

    pin: Pin
    dealt_with: int = 0
    fits: tuple[tuple[str, str], ...] = ()
    conflict: str = ""


class Rebase:
    """At most one rebase of a repository under way, in ``.patchbisect/rebase``."""

    def __init__(self, shop: Shop) -> None:
        self.shop = shop
        self.folder = shop.project.state / "rebase"
        self.tree = self.folder / "tree"
        self.store = Git(shop.mirror.path)
        self._known: History | None = None

    @property
    def under_way(self) -> bool:
        return (self.folder / "state.json").is_file()

    def start(self, pin: Pin) -> Moved | Stopped:
        """Begin to move the queue to another pin. Raises UsageError while an edit or a rebase is open."""
        if self.under_way:
            raise UsageError("a rebase is under way", remedy="invoke rebase-queue --continue, or --abort.")
        if (self.shop.project.state / "edit.json").is_file():
            raise UsageError("an edit is open", remedy="Finish it with `invoke refresh`, or `invoke abandon`.")
        queue = self.shop.queue()
        self.shop.mirror.remember(self.shop.pin, queue.enabled)
        self._save(_State(pin=pin), [])
        return self._go_on()

    def resume(self) -> Moved | Stopped:
        """Take the resolved work tree in, and go on. Raises UsageError while conflicts are left."""
        state, done = self._load()
        if state.conflict:
            patch = self._patches()[state.dealt_with]
            done = [*done, *self._resolved(state, done, patch)]
            fit = (patch.name, "resolved by hand")
            self._save(replace(state, dealt_with=state.dealt_with + 1, fits=(*state.fits, fit), conflict=""), done)
        return self._go_on()

    def abort(self) -> None:
        """Forget the rebase; queue and pin are as they were. What was resolved is remembered all the same.

        Raises UsageError where none is under way.
        """
        if not self.under_way:
            raise UsageError("no rebase is under way")
        self._clear()

    # Steps

    def _go_on(self) -> Moved | Stopped:
        state, done = self._load()
        base = Base(pin=state.pin)
        if self.shop.pin == state.pin:
            return self._finish(state, done)
        for patch in self._patches()[state.dealt_with :]:
            fit, fresh = self._take(base, done, patch)
            if fresh is None and fit is Fit.CONFLICT:
                stopped = self._stop(state, base, done, patch)
                if isinstance(stopped, Stopped):
                    return stopped
                fit, fresh = Fit.THREE_WAY, stopped
            done += [fresh] if fresh else []
            state = replace(state, dealt_with=state.dealt_with + 1, fits=(*state.fits, (patch.name, str(fit))))
            self._save(state, done)
        return self._finish(state, done)

    def _take(self, base: Base, done: Sequence[Patch], patch: Patch) -> tuple[Fit, Patch | None]:
        """How a patch fits, and what it is then; None where it is left out or does not fit."""
        if not patch.enabled:
            return Fit.DISABLED, patch
        enabled = [other for other in done if other.enabled]
        before = self.shop.mirror.materialize(base, enabled)
        try:
            code = self.shop.mirror.materialize(base, [*enabled, patch])
        except PointUnbuildable:
            merged = self._history(base.pin).merged_as(patch)
            there = merged or is_there_already(self.store, patch, commit=before.commit)
            return (Fit.UPSTREAM, None) if there else (Fit.CONFLICT, None)
        if patch.name not in code.patches:
            return Fit.OUT_OF_RANGE, patch
        diff = diff_between(self.store, before.commit, code.commit, renames=has_renames(patch))
        if not diff:
            return Fit.UPSTREAM, None
        moved = [note for note in code.shifted if note.startswith(f"{patch.name}:")]
        fit = Fit.CLEAN if not moved else Fit.THREE_WAY if "merged 3-way" in moved[0] else Fit.MOVED
        return fit, with_diff(patch, diff)

    def _stop(self, state: _State, base: Base, done: Sequence[Patch], patch: Patch) -> Stopped | Patch | None:
        """Lay the conflict out in a work tree, as `git cherry-pick` does. A Patch where it was resolved before."""
        tip = self.shop.mirror.materialize(base, [other for other in done if other.enabled]).commit
        picked = self._old_commit(patch)
        shutil.rmtree(self.tree, ignore_errors=True)
        self.store.run("worktree", "prune")
        self.store.output("worktree", "add", "--detach", "--quiet", str(self.tree), tip)
        inside = Git(self.tree, worktree=True)
        ran = inside.run(*_WHO, *_REMEMBER, "cherry-pick", "--no-commit", picked)
        inside.run(*_REMEMBER, "rerere")
        files = _unmerged(inside)
        if ran.status and not files and not inside.text("diff", "--cached", "--name-only"):
            self._clear_tree()
            raise BoxError(f"git cannot lay out the conflict of {patch.name}: {ran.reason}")
        if not files:
            tree = inside.text("write-tree")
            self._clear_tree()
            return self._from_tree(patch, tip=tip, tree=tree)
        self._save(replace(state, conflict=tip), list(done))
        try:
            self.shop.mirror.materialize(base, [*(other for other in done if other.enabled), patch])
            why = ""
        except PointUnbuildable as error:
            why = error.message
        return Stopped(patch=patch.name, why=why, tree=self.tree, files=tuple(files))

    def _resolved(self, state: _State, done: Sequence[Patch], patch: Patch) -> list[Patch]:
        """The patch as the work tree has it now; none where it is empty."""
        inside = Git(self.tree, worktree=True)
        marked = [
            path
            for path in _unmerged(inside)
            if (self.tree / path).is_file() and b"\n<<<<<<< " in b"\n" + (self.tree / path).read_bytes()
        ]
        if marked:
            raise UsageError(
                f"conflict markers are left in {', '.join(marked)}",
                remedy=f"Resolve them in {self.tree}, then invoke rebase-queue --continue.",
            )
        stage_all(inside)
        inside.run(*_REMEMBER, "rerere")
        fresh = self._from_tree(patch, tip=state.conflict, tree=inside.text("write-tree"))
        self._clear_tree()
        return [fresh] if fresh else []

    def _from_tree(self, patch: Patch, *, tip: str, tree: str) -> Patch | None:
        diff = diff_between(self.store, f"{tip}^{{tree}}", tree, renames=has_renames(patch))
        return with_diff(patch, diff) if diff else None

    def _finish(self, state: _State, done: Sequence[Patch]) -> Moved:
        old_pin, old = self.shop.pin, self.shop.queue()
        title = f"rebase onto {state.pin.tag or state.pin.commit[:12]}"
        if old_pin == state.pin:
            # Killed after the queue was written: only the tidying up is left.
            self._clear()
            return Moved(fits=state.fits, outcome=Outcome(title=title), range_diff="")
        more = {PIN_FILE.name: format_pin(state.pin)}
        old_tip = self.shop.mirror.materialize(Base(pin=old_pin), old.enabled)
        new_tip = self.shop.mirror.materialize(Base(pin=state.pin), [patch for patch in done if patch.enabled])
        ran = self.store.run(
            "range-diff",
            "--no-color",
            f"{old_tip.base_commit}..{old_tip.commit}",
            f"{new_tip.base_commit}..{new_tip.commit}",
        )
        outcome = self.shop.put(title, done, more=more)
        self._clear()
        return Moved(fits=state.fits, outcome=outcome, range_diff=ran.out.decode("utf-8", "replace"))

    def _history(self, pin: Pin) -> History:
        """What the settings' clone knows of the commits between the two pins."""
        if self._known is None:
            self._known = History(self.shop.mirror, Base(pin=self.shop.pin, rev=pin.commit), self.shop.clone)
        return self._known

    # Keeping

    def _patches(self) -> tuple[Patch, ...]:
        return self.shop.queue().patches

    def _old_commit(self, patch: Patch) -> str:
        """The patch's commit on the old pin."""
        queue = self.shop.queue()
        upto = [other for other in queue.enabled if other.number <= patch.number]
        return self.shop.mirror.materialize(Base(pin=self.shop.pin), upto).commit

    def _save(self, state: _State, done: Sequence[Patch]) -> None:
        disk = self.shop.folder.disk
        for number, patch in enumerate(done):
            disk.write(self.folder / "done" / f"{number:04d}" / f"{patch.name}.patch", format_patch(patch))
        content = {**asdict(state), "done": [patch.name for patch in done]}
        disk.write(self.folder / "state.json", json.dumps(content).encode())

    def _load(self) -> tuple[_State, list[Patch]]:
        if not self.under_way:
            raise UsageError("no rebase is under way", remedy="invoke rebase-queue --onto REV begins one.")
        content = json.loads((self.folder / "state.json").read_bytes())
        names = content.pop("done")
        state = _State(
            pin=Pin(**content.pop("pin")), fits=tuple((name, fit) for name, fit in content.pop("fits")), **content
        )
        done = [
            parse_patch(
                (self.folder / "done" / f"{number:04d}" / f"{name}.patch").read_bytes(), filename=f"{name}.patch"
            )
            for number, name in enumerate(names)
        ]
        return state, done

    def _clear_tree(self) -> None:
        shutil.rmtree(self.tree, ignore_errors=True)
        self.store.run("worktree", "prune")

    def _clear(self) -> None:
        self.shop.folder.disk.remove(self.folder / "state.json")
        self._clear_tree()
        shutil.rmtree(self.folder, ignore_errors=True)


def _unmerged(inside: Git) -> list[str]:
    return sorted({line.partition("\t")[2] for line in inside.text("ls-files", "--unmerged").splitlines()})
