"""What lies between two bases: the commits of a local clone, or the releases, oldest first."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.version import InvalidVersion, Version

from patchbisect.errors import UsageError
from patchbisect.model import Base
from patchbisect.upstream.git import Git
from patchbisect.upstream.needs import PROJECT_FILE
from patchbisect.upstream.sources import PACKAGE, NotAnswering, release_of

_VERSIONS = re.compile(r"Available versions: (.+)")


@dataclass(frozen=True, slots=True)
class Way:
    """Which commits count. ``paths`` narrows to those that touch them; the default is what runs, and what it needs."""

    first_parent: bool = True
    paths: tuple[str, ...] = (PACKAGE, PROJECT_FILE)


def commits_between(clone: Path, good: Base, bad: Base, way: Way) -> tuple[Base, ...]:
    """The commits after ``good`` up to ``bad``, which stands for itself at the end.

    Raises UsageError where they do not lie on one line of history.
    """
    first, last = good.rev or good.pin.commit, bad.rev or bad.pin.commit
    git = Git(clone, worktree=True)
    for commit in (first, last):
        if git.run("cat-file", "-e", f"{commit}^{{commit}}").status:
            raise UsageError(f"{clone} has no commit {commit[:12]}", remedy=f"git -C {clone} fetch --tags")
    if git.run("merge-base", "--is-ancestor", first, last).status:
        base = git.run("merge-base", first, last)
        where = f" they part at {base.text[:12]}" if base.status == 0 else " they share no history"
        raise UsageError(
            f"upstream {first[:12]} does not come before {last[:12]}:{where}",
            remedy=f"bisect from there: --good upstream:{base.text[:12]}" if base.status == 0 else "name other ends",
        )
    order = ("--first-parent",) if way.first_parent else ("--topo-order",)
    listed = git.text("log", *order, "--reverse", "--format=%H %s", f"{first}..{last}", "--", *way.paths)
    pairs = [line.partition(" ") for line in listed.splitlines()]
    bases = [Base(pin=bad.pin, rev=commit, subject=subject) for commit, _, subject in pairs]
    if not bases and way.paths != Way().paths:
        raise UsageError(
            f"no commit from {first[:12]} to {last[:12]} touches {' or '.join(way.paths)}",
            remedy="name another --path, as in SGLang's repository, or leave it out",
        )
    if not bases or bases[-1].rev != last:
        subject = git.text("log", "-1", "--format=%s", last)
        bases.append(Base(pin=bad.pin, rev=last, subject=subject))
    if way.paths != Way().paths:
        every = git.text("log", *order, "--reverse", "--format=%H", f"{first}..{last}", "--", *Way().paths).split()
        bases = _with_what_is_left_out(bases, every)
    return tuple(bases)


def _with_what_is_left_out(bases: Sequence[Base], every: Sequence[str]) -> list[Base]:
    """Each commit says how many before it are tested with it alone, as they touch none of the paths."""
    said: list[Base] = []
    at = 0
    for base in bases:
        here = every.index(base.rev) if base.rev in every else len(every)
        left_out = here - at
        more = f" (with {left_out} before it that --path leaves out)" if left_out else ""
        said.append(replace(base, subject=base.subject + more))
        at = here + 1
    return said


def releases_between(good: Base, bad: Base, *, pip_args: Sequence[str]) -> tuple[Base, ...]:
    """The releases after that of ``good`` up to that of ``bad``, by pip's own list.

    Raises NotAnswering where one of them is no release, or pip cannot tell.
    """
    first, last = release_of(good), release_of(bad)
    if not first or not last:
        raise NotAnswering("not both ends are releases", remedy="set upstream.clone to a local clone with its history")
    versions = [version for text in _released(pip_args) if (version := _version(text)) is not None]
    between = sorted(version for version in versions if Version(first) < version < Version(last))
    names = [*(str(version) for version in between if not version.is_prerelease), last]
    return tuple(Base(pin=bad.pin, rev=f"release:{name}", subject=f"release {name}") for name in names)


def _released(pip_args: Sequence[str]) -> list[str]:
    command = [sys.executable, "-m", "pip", "index", "versions", "sglang", "--disable-pip-version-check", *pip_args]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = _VERSIONS.search(done.stdout)
    if done.returncode or not found:
        raise NotAnswering(
            "pip cannot list the releases of sglang", remedy="check the network, or set upstream.clone to a local clone"
        )
    return found[1].split(", ")


def _version(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None
