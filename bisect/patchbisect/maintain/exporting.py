"""Commits of the mirror as patches: one fixed form, so that the same commit is the same file everywhere."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from email.utils import format_datetime

from patchbisect.errors import UsageError
from patchbisect.model import Patch
from patchbisect.patchqueue import compose, diff_of, format_patch, parse_patch
from patchbisect.patchqueue.diff import split_lines, starts_file
from patchbisect.patchqueue.patchfile import split_trailers
from patchbisect.upstream import Git

NAME_TRAILER = "Patch-Name"
"""Only in exported commits: which file of the queue a commit came from. Rebasing keeps it, and import drops it."""

_DIFF = (
    "diff-tree -r -p --full-index --no-color --no-ext-diff --no-textconv --unified=3 "
    "--inter-hunk-context=0 --diff-algorithm=myers --src-prefix=a/ --dst-prefix=b/"
)


def diff_between(store: Git, old: str, new: str, *, renames: bool = False) -> str:
    """The diff of two trees or commits in the queue's form; ``""`` where they are equal."""
    options = [*_DIFF.split(), "--find-renames" if renames else "--no-renames"]
    return store.output(*options, old, new).decode("utf-8", "surrogateescape")


def with_diff(patch: Patch, diff: str) -> Patch:
    """The same patch with another diff; header and message stay byte for byte. Raises PatchFault for a bad diff."""
    if diff == patch.diff:
        return patch
    lines = split_lines(patch.text)
    start = next(index for index in range(len(lines)) if starts_file(lines, index))
    head, tail = "".join(lines[:start]), "".join(lines[start + len(split_lines(patch.diff)) :])
    return parse_patch((head + diff + tail).encode("utf-8", "surrogateescape"), filename=f"{patch.name}.patch")


def has_renames(patch: Patch) -> bool:
    return any(file.old_path and file.new_path and file.old_path != file.new_path for file in diff_of(patch).files)


def slug_of(subject: str) -> str:
    """A file name's slug from a subject line."""
    slug = re.sub(r"[^a-z0-9]+", "-", subject.lower()).strip("-")[:50].strip("-")
    return slug or "patch"


def message_of(store: Git, commit: str) -> tuple[str, str, list[tuple[str, str]]]:
    """Subject, body and trailers of a commit."""
    lines = store.output("show", "-s", "--format=%B", commit).decode("utf-8", "replace").rstrip("\n").split("\n")
    body, trailers, _ = split_trailers(lines[1:])
    return lines[0], body, [(key, value) for key, value, _ in trailers]


def patch_of_commit(
    store: Git, commit: str, *, number: int, slug: str = "", trailers: Sequence[tuple[str, str]] = ()
) -> Patch:
    """A commit, against its parent, as a patch. ``trailers`` are added where the commit does not have them.

    Raises UsageError for a commit that changes nothing or is a merge.
    """
    parents = store.text("rev-list", "--parents", "-n", "1", commit).split()[1:]
    if len(parents) != 1:
        raise UsageError(f"{commit[:12]} is a merge or has no parent", remedy="A queue is a line: rebase it first.")
    subject, body, given = message_of(store, commit)
    diff = diff_between(store, parents[0], commit)
    if not diff:
        raise UsageError(f"{commit[:12]} ({subject}) changes nothing", remedy="Leave it out.")
    author, date = store.text("show", "-s", "--format=%an <%ae>%n%aI", commit).split("\n")
    keys = {key.lower() for key, _ in given}
    kept = [(key, value) for key, value in given if key != NAME_TRAILER]
    return compose(
        number=number,
        slug=slug or dict(given).get(NAME_TRAILER, "")[5:] or slug_of(subject),
        author=author,
        date=format_datetime(datetime.fromisoformat(date)),
        subject=subject,
        body=body,
        trailers=[*kept, *((key, value) for key, value in trailers if key.lower() not in keys)],
        diff=diff,
    )


def quilt_series(patches: Sequence[Patch]) -> dict[str, bytes]:
    """The files of a quilt folder: the patches and ``series``; a disabled one is a comment there."""
    series = "".join(f"{'' if patch.enabled else '# '}{patch.name}.patch\n" for patch in patches)
    return {**{f"{patch.name}.patch": format_patch(patch) for patch in patches}, "series": series.encode()}


def mbox(patches: Sequence[Patch]) -> bytes:
    """The enabled patches as one mailbox for ``git am --patch-format=mboxrd``."""
    return b"".join(_mail(patch) for patch in patches if patch.enabled)


def _mail(patch: Patch) -> bytes:
    text = format_patch(patch)
    first, _, rest = text.partition(b"\n")
    if not re.match(rb"From [0-9a-f]{40,64} ", first):
        first, rest = b"From %s Mon Sep 17 00:00:00 2001" % (b"0" * 40), text
    body = re.sub(rb"(?m)^(>*From )", rb">\1", rest.partition(b"\n\n")[2])
    return first + b"\n" + rest.partition(b"\n\n")[0] + b"\n\n" + body + (b"" if body.endswith(b"\n\n") else b"\n")
