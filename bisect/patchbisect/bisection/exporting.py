"""A timeline as a branch of the queue's own repository, for ``git bisect run`` and for reading."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from patchbisect.bisection.wording import title
from patchbisect.config import PIN_FILE
from patchbisect.errors import UsageError
from patchbisect.model import Axis, Point, Timeline
from patchbisect.patchqueue import format_patch, format_pin
from patchbisect.timeline import point_at
from patchbisect.upstream import Git

_US = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "patchbisect"), ("EMAIL", "patchbisect@patchbisect.invalid"))
}


def export_branch(root: Path, branch: str, line: Timeline) -> tuple[str, ...]:
    """Write ``branch``: one commit for the good end, then one for each change, on top of HEAD. Returns the commit ids.

    Each commit holds that point's ``patches/``; the work tree is not touched. Raises UsageError where the branch is
    there, and where the timeline holds what no patch or pin can say: flags, variables, packages.
    """
    repository = Git(root, worktree=True)
    other = [change for change in line.changes if change.axis not in (Axis.BASE, Axis.QUEUE)]
    if other:
        raise UsageError(
            f"a branch holds code, and {title(other[0])} is none",
            remedy="bisect over the queue or upstream alone, or leave --export-branch out",
        )
    ref = f"refs/heads/{branch}"
    if repository.run("check-ref-format", ref).status:
        raise UsageError(f"{branch!r} cannot name a branch", remedy="like timeline-1")
    if repository.run("rev-parse", "--verify", "--quiet", ref).status == 0:
        raise UsageError(f"there is a branch {branch} already", remedy=f"git branch -D {branch}, or take another name")
    messages = [f"{line.good.name}: the good end", *(title(change) for change in line.changes)]
    commits = [repository.text("rev-parse", "HEAD")]
    with tempfile.TemporaryDirectory(prefix="patchbisect-") as scratch:
        index = {"GIT_INDEX_FILE": str(Path(scratch) / "index")}
        for k, message in enumerate(messages):
            tree = _tree(repository, point_at(line, k), index)
            parent, text = commits[-1], f"{message}\n"
            commits.append(
                repository.text("commit-tree", tree, "-p", parent, stdin=text.encode(), env={**_US, **_dates(k)})
            )
    repository.output("update-ref", ref, commits[-1], "")
    return tuple(commits[1:])


def _dates(k: int) -> dict[str, str]:
    """The same timeline is the same branch: a date that counts, not the clock."""
    moment = f"{1_700_000_000 + k} +0000"
    return {"GIT_AUTHOR_DATE": moment, "GIT_COMMITTER_DATE": moment}


def _tree(repository: Git, point: Point, index: dict[str, str]) -> str:
    """HEAD's tree with that point's queue."""
    folder = PIN_FILE.parent.name
    repository.output("read-tree", "HEAD", env=index)
    repository.output("rm", "-r", "--cached", "--quiet", "--ignore-unmatch", "--", f"{folder}/*.patch", env=index)
    listing = ""
    for name, content in _files(point):
        blob = repository.text("hash-object", "-w", "--no-filters", "--stdin", stdin=content)
        listing += f"100644 {blob}\t{folder}/{name}\n"
    repository.output("update-index", "--add", "--index-info", stdin=listing.encode(), env=index)
    return repository.text("write-tree", env=index)


def _files(point: Point) -> Iterator[tuple[str, bytes]]:
    pin, rev = point.base.pin, point.base.rev
    if rev.startswith("release:"):
        raise UsageError(f"a pin cannot say {rev}", remedy="set upstream.clone, so that commits are taken")
    if rev:
        pin = replace(pin, commit=rev, tag="", release="", wheel_sha256="")
    yield PIN_FILE.name, format_pin(pin)
    for patch in point.patches:
        yield f"{patch.name}.patch", format_patch(patch)
