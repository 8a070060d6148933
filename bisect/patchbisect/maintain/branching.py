"""The queue as a branch, for any git tool, and back: what was not touched comes back byte for byte."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from patchbisect.errors import PointUnbuildable, UsageError
from patchbisect.maintain.exporting import (
    NAME_TRAILER,
    diff_between,
    has_renames,
    message_of,
    patch_of_commit,
    with_diff,
)
from patchbisect.model import Base, Patch
from patchbisect.patchqueue import Queue, author_of, commit_message, git_date
from patchbisect.upstream import Git, Mirror

_COMMITTER = {"GIT_COMMITTER_NAME": "patchbisect", "GIT_COMMITTER_EMAIL": "patchbisect@patchbisect.invalid"}


def export_branch(mirror: Mirror, base: Base, queue: Queue, *, name: str, to: Path | None = None) -> str:
    """Make ``name`` a branch of the mirror: the base, then one commit for each enabled patch. Gives its commit.

    With ``to`` it is checked out there as a work tree. Raises UsageError for a name that is no branch's, or taken.
    """
    store = Git(mirror.path)
    ref = f"refs/heads/{name}"
    if store.run("check-ref-format", ref).status:
        raise UsageError(f"{name!r} is no name for a branch")
    if to is not None and not is_free(to):
        raise UsageError(f"{to} is there already", remedy="Give an empty or new folder.")
    tip = mirror.base(base).commit
    done: list[Patch] = []
    for patch in queue.enabled:
        done.append(patch)
        tree = store.text("rev-parse", f"{mirror.materialize(base, done, exact=True).commit}^{{tree}}")
        tip = _commit(store, patch, tree=tree, parent=tip)
    if store.run("update-ref", ref, tip).status:
        raise UsageError(f"the branch {name} cannot be written", remedy="Is it checked out in a work tree?")
    if to is not None:
        store.run("worktree", "prune")
        ran = store.run("worktree", "add", "--quiet", "--force", str(to), name)
        if ran.status:
            raise UsageError(f"cannot check out {name} at {to}: {ran.reason}")
    return tip


def is_free(folder: Path) -> bool:
    """Whether files may be put there: nothing is, or an empty folder."""
    return not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))


def import_branch(mirror: Mirror, base: Base, queue: Queue, *, name: str) -> list[Patch]:
    """The queue that a branch of the mirror stands for; numbers and disabled patches are kept where they can be.

    Raises UsageError for a branch that is not there, does not come from the pin, or has merges.
    """
    store = Git(mirror.path)
    commits = _line_of(store, name, base=mirror.base(base).commit)
    by_name = {patch.name: patch for patch in queue.enabled}
    patches: list[Patch] = []
    for commit in commits:
        named = dict(message_of(store, commit)[2]).get(NAME_TRAILER, "")
        old = by_name.pop(named, None)
        untouched = old is not None and _is_result(mirror, base, [*patches, old], commit=commit)
        patches.append(_patch(store, commit, old, untouched=untouched))
    return with_disabled(patches, queue)


def commits_of(mirror: Mirror, base: Base, *, rev: str, clone: Path | None) -> list[str]:
    """The commits of ``A..B``, or one commit, of a clone (fetched into the mirror) or of the mirror itself.

    Raises UsageError for a revision that is not there.
    """
    mirror.base(base)
    store = Git(mirror.path)
    old, dots, new = rev.partition("..")
    if clone is not None:
        new = _commit_in(clone, new if dots else old)
        store.output("fetch", "--quiet", "--no-tags", str(clone), f"+{new}:refs/patchbisect/imports/{new}")
        old = _commit_in(clone, old) if dots else new
    if dots:
        found = store.run("rev-list", "--reverse", "--end-of-options", f"{old}..{new}").text.split()
    else:
        found = [commit for commit in [store.commit(new or rev)] if commit]
    if not found:
        raise UsageError(f"{rev!r} names no commits", remedy="Give a commit, or A..B; for another clone use --clone.")
    return found


def _commit_in(clone: Path, rev: str) -> str:
    if not clone.is_dir():
        raise UsageError(f"{clone}: there is no such folder", remedy="Give a clone of SGLang that has the commits.")
    commit = Git(clone, worktree=True).commit(rev)
    if not commit:
        raise UsageError(f"{clone} has no revision {rev!r}", remedy="Fetch it there, or check its name.")
    return commit


def _commit(store: Git, patch: Patch, *, tree: str, parent: str) -> str:
    name, address = author_of(patch)
    message = commit_message(patch).rstrip("\n")
    date = git_date(patch)
    env = {
        **_COMMITTER,
        "GIT_AUTHOR_NAME": name,
        "GIT_AUTHOR_EMAIL": address,
        "GIT_AUTHOR_DATE": date,
        "GIT_COMMITTER_DATE": date,
    }
    text = f"{message}\n{NAME_TRAILER}: {patch.name}\n".encode("utf-8", "surrogateescape")
    return store.text("commit-tree", tree, "-p", parent, stdin=text, env=env)


def _line_of(store: Git, name: str, *, base: str) -> list[str]:
    [tip] = store.ids([f"refs/heads/{name}^{{commit}}"])
    if not tip:
        raise UsageError(f"there is no branch {name} here", remedy="invoke export --branch NAME makes one.")
    if store.run("merge-base", "--is-ancestor", base, tip).status:
        raise UsageError(
            f"{name} does not come from the pin ({base[:12]})", remedy="Rebase it: git rebase --onto, in its work tree."
        )
    commits = store.text("rev-list", "--reverse", f"{base}..{tip}").split()
    merges = store.text("rev-list", "--merges", f"{base}..{tip}").split()
    if merges:
        raise UsageError(f"{name} has a merge ({merges[0][:12]})", remedy="A queue is a line: rebase it.")
    return commits


def _is_result(mirror: Mirror, base: Base, patches: Sequence[Patch], *, commit: str) -> bool:
    """Whether the patches give the very tree of a commit."""
    try:
        built = mirror.materialize(base, patches, exact=True).commit
    except PointUnbuildable:
        return False
    [ours, theirs] = Git(mirror.path).ids([f"{built}^{{tree}}", f"{commit}^{{tree}}"])
    return ours == theirs


def _patch(store: Git, commit: str, old: Patch | None, *, untouched: bool) -> Patch:
    """The commit as a patch; ``old`` is the file that it came from, kept as far as it still says the same."""
    if old is None:
        return patch_of_commit(store, commit, number=1, trailers=[("Kind", "experiment"), ("Forwarded", "no")])
    diff = diff_between(store, f"{commit}^", commit, renames=has_renames(old))
    if not diff:
        raise UsageError(f"{old.name} changes nothing any more", remedy="Leave its commit out of the branch.")
    message = store.output("show", "-s", "--format=%B", commit).decode("utf-8", "replace").strip()
    date, author = store.text("show", "-s", "--format=%ad%n%an <%ae>", "--date=raw", commit).split("\n")
    name, address = author_of(old)
    same = message == f"{commit_message(old).strip()}\n{NAME_TRAILER}: {old.name}"
    if same and date == git_date(old) and author == f"{name} <{address}>":
        return old if untouched else with_diff(old, diff)
    return patch_of_commit(store, commit, number=old.number, slug=old.slug)


def with_disabled(patches: Sequence[Patch], queue: Queue) -> list[Patch]:
    """The disabled patches of the queue, each behind the patch that it stood behind."""
    order = list(patches)
    previous = ""
    for patch in queue.patches:
        if not patch.enabled:
            names = [other.slug for other in order]
            order.insert(names.index(previous) + 1 if previous in names else 0 if not previous else len(order), patch)
        previous = patch.slug
    return order
