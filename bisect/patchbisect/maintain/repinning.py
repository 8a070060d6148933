"""A revision of SGLang as a pin, and the revisions of a range."""

from __future__ import annotations

import re
from dataclasses import replace

from patchbisect.errors import UsageError
from patchbisect.maintain.shop import Shop
from patchbisect.model import Base, Pin
from patchbisect.upstream import Git

_ID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_RELEASE = re.compile(r"release:(?P<version>.+)")


def new_pin(shop: Shop, rev: str, *, commit: str = "") -> Pin:
    """The pin for a revision. ``commit``: the id of a release, where only wheels are at hand.

    Raises UsageError where no commit id can be found for it.
    """
    old = shop.pin
    frozen = shop.mirror.freeze(Base(pin=old, rev=rev)).rev or old.commit
    if _ID.fullmatch(frozen):
        tag = rev if not _ID.fullmatch(rev) else ""
        return replace(old, commit=frozen, tag=tag, release="", wheel_sha256="")
    release = _RELEASE.fullmatch(frozen)
    if release is None or not _ID.fullmatch(commit):
        raise UsageError(
            f"{rev} is known as a release only, and a pin names a commit",
            remedy="Say --commit with the full id of the release's commit, or set upstream.clone to a clone of SGLang.",
        )
    version = release["version"]
    checksum = _checksum(Git(shop.mirror.path), shop.mirror.base(Base(pin=old, rev=frozen)).commit)
    return replace(old, commit=commit, tag=f"v{version}", release=version, wheel_sha256=checksum)


def _checksum(store: Git, commit: str) -> str:
    """sha256 of the wheel that a release's commit was made from: its message says it."""
    found = re.search(r"\bsha256 ([0-9a-f]{64})\b", store.text("show", "-s", "--format=%B", commit))
    return found[1] if found else ""


def first_parents(shop: Shop, span: str) -> list[str]:
    """The commits of ``A..B`` on the first-parent line of the settings' clone, newest first, A itself last.

    Raises UsageError without a clone, and for a range that it does not have.
    """
    folder = shop.clone
    if folder is None:
        raise UsageError("a range needs a clone of SGLang", remedy="Set upstream.clone, or use --among.")
    old, dots, _ = span.partition("..")
    if not dots:
        raise UsageError(f"{span!r} is no range A..B")
    clone = Git(folder, worktree=True)
    listed, first = clone.run("rev-list", "--first-parent", span), clone.run("rev-parse", f"{old}^{{commit}}")
    if listed.status or first.status:
        raise UsageError(f"{folder} does not have {span}", remedy=f"git -C {folder} fetch --tags")
    return [*listed.text.split(), first.text]
