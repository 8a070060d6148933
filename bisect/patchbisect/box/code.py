"""The client's half of putting code on a box: what is in the mirror, and a bundle of what the box lacks."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from patchbisect.errors import BoxError

PART = 1 << 18


def git(mirror: Path, *words: str, stdin: str = "") -> str:
    """The output of one git command on the mirror. Raises BoxError with git's own words."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = subprocess.run(
        ["git", "-C", str(mirror), *words],
        input=stdin.encode(),
        capture_output=True,
        env={**env, "LC_ALL": "C"},
        check=False,
    )
    if done.returncode:
        raise BoxError(f"git {words[0]} in {mirror}: {done.stderr.decode('utf-8', 'replace').strip()}")
    return done.stdout.decode()


def tree_of(mirror: Path, commit: str) -> str:
    """The id of ``python/sglang`` in ``commit``."""
    return git(mirror, "rev-parse", "--verify", "--end-of-options", f"{commit}:python/sglang").strip()


def shallow(mirror: Path) -> list[str]:
    """Commits of the mirror that were fetched without their parents."""
    path = Path(git(mirror, "rev-parse", "--git-dir").strip())
    path = (path if path.is_absolute() else mirror / path) / "shallow"
    return path.read_text(encoding="ascii").split() if path.exists() else []


@contextlib.contextmanager
def bundle(mirror: Path, commit: str, tips: Sequence[str]) -> Iterator[Path]:
    """A git bundle with all of ``commit`` that cannot be reached from ``tips``; unknown tips are left out.

    A bundle needs a ref, so one is made for as long as it takes.
    """
    checked = git(mirror, "cat-file", "--batch-check=%(objecttype) %(objectname)", stdin="\n".join(tips) + "\n")
    known = [line.split()[1] for line in checked.splitlines() if line.startswith("commit ")]
    ref = f"refs/patchbisect/sent/{commit}-{os.getpid()}"
    with tempfile.TemporaryDirectory(prefix="patchbisect-") as folder:
        path = Path(folder) / "code.bundle"
        git(mirror, "update-ref", ref, commit)
        try:
            exclude = "".join(f"^{tip}\n" for tip in known)
            git(mirror, "bundle", "create", "--quiet", str(path), "--stdin", stdin=f"{ref}\n{exclude}")
        finally:
            git(mirror, "update-ref", "-d", ref)
        yield path


def parts(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while part := file.read(PART):
            yield part
