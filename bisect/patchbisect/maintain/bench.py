"""An open edit: a patch as a real work tree of the mirror, to be changed with any editor and any git command."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from patchbisect.errors import BoxError, UsageError
from patchbisect.maintain.editing import Editor
from patchbisect.maintain.exporting import diff_between, has_renames, message_of, patch_of_commit, with_diff
from patchbisect.maintain.rebuilding import Rebuilt
from patchbisect.maintain.shop import Outcome, Shop
from patchbisect.model import Patch
from patchbisect.patchqueue import commit_message, compose
from patchbisect.upstream import Git

_OURS = {
    "GIT_COMMITTER_NAME": "patchbisect",
    "GIT_COMMITTER_EMAIL": "patchbisect@patchbisect.invalid",
}
_AS_IT_IS = ("-c", "core.autocrlf=false", "-c", "core.fileMode=true", "-c", "core.symlinks=true")
_NOT_GENERATED = ":(exclude,glob)**/__pycache__/**"
"""Byte-code that running something in the work tree leaves there."""
_LEFT = "refs/patchbisect/left"


@dataclass(frozen=True, slots=True)
class Opened:
    """What an open edit is about. ``number`` is 0 for a new patch, which goes behind ``after`` (-1: at the end).

    ``start`` is the commit of the patch as it was when it was opened.
    """

    parent: str
    start: str = ""
    number: int = 0
    after: int = -1
    slug: str = ""
    kind: str = ""
    subject: str = ""
    author: str = ""
    date: str = ""


class Bench:
    """At most one open edit of a repository, in ``.patchbisect/edit``."""

    def __init__(self, shop: Shop) -> None:
        self.shop = shop
        self.tree = shop.bench
        self.note = shop.project.state / "edit.json"
        self.store = Git(shop.mirror.path)

    @property
    def opened(self) -> Opened | None:
        if not self.note.is_file():
            return None
        return Opened(**json.loads(self.note.read_bytes()))

    def open(self, number: int) -> Path:
        """A patch to be edited: a work tree with it and those before it applied.

        Raises UsageError for one that is disabled or not there, and while another edit is open.
        """
        self._refuse_second()
        editor = self.shop.editor()
        patch = editor.queue.patch(number)
        if not patch.enabled:
            raise UsageError(f"{patch.name} is disabled (Enabled: no)", remedy="Take that trailer away first.")
        before = [other for other in editor.queue.enabled if other.number < number]
        start = self._tip(editor, [*before, patch])
        return self._start(Opened(parent=self._tip(editor, before), start=start, number=number), at=start)

    def open_new(self, new: Opened) -> Path:
        """A new patch: a work tree with the queue applied, up to ``after`` where that is given. Sets ``parent``.

        Raises UsageError for a slug that the queue has, and while another edit is open.
        """
        self._refuse_second()
        editor = self.shop.editor()
        if editor.queue.slug(new.slug):
            raise UsageError(f"the queue has a patch {new.slug} already", remedy="Choose another name.")
        before = [patch for patch in editor.queue.enabled if new.after < 0 or patch.number <= new.after]
        parent = self._tip(editor, before)
        return self._start(Opened(**{**asdict(new), "parent": parent}), at=parent)

    def refresh(self) -> Outcome:
        """Take the work tree into the queue, and close the edit. Several commits become several patches.

        Raises UsageError where nothing was changed in a new patch, a later patch no longer fits, or the patch itself
        is another one than was opened; then the edit stays open and the queue as it was.
        """
        opened = self.opened
        if opened is None:
            return self.shop.edit("refresh the queue", lambda editor: editor.refresh())
        commits = self._committed(opened)
        title = f"edit {opened.number:04d}" if opened.number else f"new patch {opened.slug}"
        if opened.number:
            outcome = self.shop.edit(title, lambda editor: self._replaced(editor, opened, commits))
        else:
            patches = [self._new_patch(opened, commit, first=i == 0) for i, commit in enumerate(commits)]
            after = None if opened.after < 0 else opened.after
            outcome = self.shop.edit(title, lambda editor: editor.insert(patches, after=after))
        self._close()
        return outcome

    def abandon(self) -> str:
        """Close the edit without taking it in. What was in the work tree is kept under the ref that is given back.

        Raises UsageError where none is open.
        """
        opened = self.opened
        if opened is None:
            raise UsageError("no edit is open", remedy="invoke edit N opens one.")
        [*_, last] = self._committed(opened, may_be_empty=True)
        ref = f"{_LEFT}/{last[:12]}"
        self.store.update_refs([(ref, last)])
        self._close()
        return ref

    # Work tree

    def _start(self, opened: Opened, *, at: str) -> Path:
        self._remove_tree()
        ran = self.store.run("worktree", "add", "--detach", "--quiet", str(self.tree), at)
        if ran.status:
            raise BoxError(f"cannot make a work tree at {self.tree}: {ran.reason}", remedy="Check the disk there.")
        self.shop.folder.disk.write(self.note, json.dumps(asdict(opened)).encode())
        return self.tree

    def _refuse_second(self) -> None:
        if self.opened:
            raise UsageError(
                f"an edit is open in {self.tree}",
                remedy="Finish it with `invoke refresh`, or close it with `invoke abandon`.",
            )

    def _close(self) -> None:
        self.shop.folder.disk.remove(self.note)
        self._remove_tree()

    def _remove_tree(self) -> None:
        shutil.rmtree(self.tree, ignore_errors=True)
        if self.shop.mirror.path.is_dir():
            self.store.run("worktree", "prune")

    def _tree(self, commit: str) -> str:
        return self.store.text("rev-parse", f"{commit}^{{tree}}")

    def _tip(self, editor: Editor, patches: Sequence[Patch]) -> str:
        return self.shop.mirror.materialize(editor.base, patches, exact=True).commit

    def _committed(self, opened: Opened, *, may_be_empty: bool = False) -> list[str]:
        """The commits on top of ``parent``, with what is not committed in one more or in the last."""
        inside = Git(self.tree, worktree=True)
        self._refuse_half_done(inside)
        # The work tree's own index may be behind; a fresh one sees what is there, generated files left out.
        stage_all(inside)
        tree = inside.text("write-tree")
        head = inside.text("rev-parse", "HEAD")
        commits = self.store.text("rev-list", "--reverse", f"{opened.parent}..{head}").split()
        if self._tree(head) != tree or not commits:
            commits = [*commits[:-1], self._commit_of(tree, commits, opened)]
        if not may_be_empty and self._tree(opened.parent) == tree:
            raise UsageError(
                f"nothing is changed in {self.tree}", remedy="Edit files there, or close it: invoke abandon."
            )
        return commits

    def _commit_of(self, tree: str, commits: Sequence[str], opened: Opened) -> str:
        """The tree as one commit in the place of the last one, with its message."""
        last = commits[-1] if commits else ""
        parent = self.store.text("rev-parse", f"{last}^") if last else opened.parent
        message = self.store.output("show", "-s", "--format=%B", last) if last else opened.subject.encode()
        who = self.store.text("show", "-s", "--format=%an%n%ae%n%ad", "--date=raw", last).split("\n") if last else []
        author = dict(zip(("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_AUTHOR_DATE"), who, strict=False))
        return self.store.text(
            "commit-tree", tree, "-p", parent, stdin=message or b"edit\n", env={**_OURS, **(author or _author(opened))}
        )

    @staticmethod
    def _refuse_half_done(inside: Git) -> None:
        unmerged = inside.text("ls-files", "--unmerged")
        if unmerged:
            paths = sorted({line.partition("\t")[2] for line in unmerged.splitlines()})
            raise UsageError(
                f"conflicts are left in {', '.join(paths)}", remedy="Resolve them and `git add` the files there."
            )

    # Patches

    def _replaced(self, editor: Editor, opened: Opened, commits: Sequence[str]) -> Rebuilt:
        old = editor.queue.patch(opened.number)
        before = [other for other in editor.queue.enabled if other.number < opened.number]
        tree = self._tree(self._tip(editor, [*before, old]))
        # A patch that was folded into it meanwhile is not in the work tree, and would be lost without a word. One that
        # holds the work already is what a refresh that was killed has left.
        if tree not in (self._tree(opened.start), self._tree(commits[0])):
            raise UsageError(
                f"{old.name} is not what it was when this edit was opened",
                remedy=f"`invoke abandon` keeps what was done here under a ref; then `invoke edit {old.number}` again.",
            )
        if len(commits) == 1:
            [commit] = commits
            return editor.replace(opened.number, [self._edited(old, commit, opened)])
        inherited = [pair for pair in old.trailers if pair[0].lower() in ("kind", "forwarded")]
        patches = [self._edited(old, commits[0], opened)]
        patches += [
            patch_of_commit(self.store, commit, number=opened.number, trailers=inherited) for commit in commits[1:]
        ]
        return editor.replace(opened.number, patches)

    def _edited(self, old: Patch, commit: str, opened: Opened) -> Patch:
        """The patch with the commit's changes; its message too where that was edited."""
        diff = diff_between(self.store, opened.parent, commit, renames=has_renames(old))
        if not diff:
            raise UsageError(f"{old.name} would change nothing any more", remedy="Drop it: invoke drop N.")
        message = self.store.output("show", "-s", "--format=%B", commit).decode("utf-8", "replace").strip()
        if message == commit_message(old).strip():
            return with_diff(old, diff)
        subject, body, trailers = message_of(self.store, commit)
        return compose(
            number=old.number,
            slug=old.slug,
            author=old.author,
            date=old.date,
            subject=subject,
            body=body,
            trailers=trailers or list(old.trailers),
            diff=diff,
        )

    def _new_patch(self, opened: Opened, commit: str, *, first: bool) -> Patch:
        trailers = [("Kind", opened.kind), ("Forwarded", "not-needed" if opened.kind == "instrumentation" else "no")]
        slug = opened.slug if first else ""
        return patch_of_commit(self.store, commit, number=1, slug=slug, trailers=trailers)


def stage_all(inside: Git) -> None:
    """Put the files of a work tree into its index, byte for byte. Raises UsageError for what git cannot take."""
    added = inside.run(*_AS_IT_IS, "add", "--all", "--", ".", _NOT_GENERATED)
    if added.status:
        raise UsageError(
            f"git cannot take what is in {inside.where}: {added.err.strip().partition(chr(10))[0]}",
            remedy="A patch changes files alone: take repositories and unreadable files away from there.",
        )


def _author(opened: Opened) -> dict[str, str]:
    name, _, address = opened.author.rpartition(" <")
    return {"GIT_AUTHOR_NAME": name, "GIT_AUTHOR_EMAIL": address.rstrip(">"), "GIT_AUTHOR_DATE": opened.date}
