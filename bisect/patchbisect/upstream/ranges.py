"""Whether a base lies in a range ``A..B`` of upstream: reachable from B and not from A, either left out for no end."""

from __future__ import annotations

import re

from packaging.version import Version

from patchbisect.upstream.git import Git

_VERSION = re.compile(r"(?:release:)?v?(\d+(?:\.\d+)+(?:\.?(?:post|rc|a|b|dev)\d+)*)")


def version_of(name: str) -> str:
    """The version that a tag or release names (``v0.5.8``, ``release:0.5.8``), or ``""``."""
    match = _VERSION.fullmatch(name)
    return match[1] if match else ""


def by_version(version: str, commits: str) -> bool | None:
    """The answer by release numbers; None where the range or the base has none."""
    after, _, until = commits.partition("..")
    ends = [version_of(end) for end in (after, until)]
    if not version or any(end and not number for end, number in zip((after, until), ends, strict=True)):
        return None
    base = Version(version)
    return not (ends[0] and base <= Version(ends[0])) and not (ends[1] and base > Version(ends[1]))


def by_history(clone: Git, commit: str, commits: str) -> bool | None:
    """The answer by ancestry in a full clone; None where it lacks one of the commits."""
    after, _, until = commits.partition("..")
    before_start = _reaches(clone, after, commit) if after else False
    before_end = _reaches(clone, until, commit) if until else True
    return None if before_start is None or before_end is None else before_end and not before_start


def _reaches(clone: Git, tip: str, commit: str) -> bool | None:
    ran = clone.run("merge-base", "--is-ancestor", commit, tip)
    return ran.status == 0 if ran.status in (0, 1) else None
