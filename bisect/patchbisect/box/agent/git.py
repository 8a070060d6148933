"""Git on the box, and git ids computed from the bytes on disk."""

from __future__ import annotations

import hashlib
import os
import shlex
import stat
import subprocess
from collections.abc import Mapping

from .base import Json, Refused

GIT_ENV = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "LC_ALL": "C",
}
"""No smudge filter, hook path or line-ending setting of the user may change a byte of the code."""


def git(
    *words: str, repo: str = "", env: dict[str, str] | None = None, cwd: str | None = None, stdin: bytes = b""
) -> str:
    """The output of one git command. Raises Refused with git's own words."""
    command = ["git", *(["--git-dir", repo] if repo else []), *words]
    merged = {**without_git(os.environ), **GIT_ENV, **(env or {})}
    done = _run(command, merged, cwd=cwd, stdin=stdin)
    if done.returncode and b"dubious ownership" in done.stderr:
        done = _run(command, {**merged, **trusted_by_the_user()}, cwd=cwd, stdin=stdin)
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip()
        if "dubious ownership" in said:
            whose = said.partition(" at '")[2].partition("'\n")[0]
            trust = f"git config --global --add safe.directory {shlex.quote(whose)}"
            remedy = f"if you trust what is there, on the box: {trust}"
            raise Refused("usage", f"{whose} belongs to another user of the box", remedy)
        if "No space left" in said:
            raise Refused("disk-full", f"the disk of the box is full: {said}", "free some space on the box")
        verb = words[2] if words[0] in ("-C", "--work-tree") else words[0]
        raise Refused("git", f"git {verb} on the box: {said}")
    return done.stdout.decode("utf-8", "surrogateescape")


def without_git(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if not name.startswith("GIT_")}


def _run(
    command: list[str], env: dict[str, str], *, cwd: str | None = None, stdin: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(command, input=stdin, capture_output=True, env=env, cwd=cwd, check=False)
    except (FileNotFoundError, PermissionError):
        raise Refused("no-git", "there is no git on the box that we can run", "install git on the box") from None


def trusted_by_the_user() -> dict[str, str]:
    """Of the user's own configuration only this: which repositories of others git may use."""
    asked = _run(["git", "config", "--global", "--get-all", "safe.directory"], without_git(os.environ))
    paths = asked.stdout.decode("utf-8", "surrogateescape").splitlines()
    named = {f"GIT_CONFIG_KEY_{number}": "safe.directory" for number, _ in enumerate(paths)}
    values = {f"GIT_CONFIG_VALUE_{number}": path for number, path in enumerate(paths)}
    return {**named, **values, "GIT_CONFIG_COUNT": str(len(paths))}


def blob_mtime(blob: str) -> int:
    """A time stamp that says what is in the file.

    Python trusts ``x.pyc`` while source size and time are those it was made from. With a time taken from the
    content, it is trusted exactly when the content is the same, however quickly code is switched, and may be
    linked from one tree to another. 31 bits, so that every file system can hold it.
    """
    return int(blob[:8], 16) & 0x7FFFFFFF


def blob_id(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def tree_id(root: str, *, ignore: frozenset[str] = frozenset(), _below: str = "") -> str:
    """The git tree id of what is on disk under ``root``, byte-code and the paths in ``ignore`` left out."""
    entries = []
    for entry in os.scandir(root):
        path = f"{_below}{entry.name}"
        if entry.name == "__pycache__" or path in ignore:
            continue
        name = os.fsencode(entry.name)
        if entry.is_symlink():
            entries.append((name, b"120000", blob_id(os.fsencode(os.readlink(entry.path)))))
        elif entry.is_dir():
            found = tree_id(entry.path, ignore=ignore, _below=f"{path}/")
            if found != EMPTY_TREE:
                entries.append((name + b"/", b"40000", found))
        else:
            with open(entry.path, "rb", buffering=0) as file:
                data = file.read()
                executable = os.fstat(file.fileno()).st_mode & stat.S_IXUSR
            entries.append((name, b"100755" if executable else b"100644", blob_id(data)))
    body = b"".join(b"%s %s\0%s" % (mode, name.rstrip(b"/"), bytes.fromhex(id_)) for name, mode, id_ in sorted(entries))
    return hashlib.sha1(b"tree %d\0" % len(body) + body).hexdigest()


EMPTY_TREE = hashlib.sha1(b"tree 0\0").hexdigest()


def checkout_of(box: Json) -> str:
    """The user's own checkout, from the root; empty where the box names none."""
    named = box["checkout"]
    return os.path.abspath(os.path.expanduser(named)) if named else ""


def borrowable_objects(checkout: str) -> str:
    """The object directory of the user's checkout, or nothing where it is a partial clone (it lacks objects).

    Raises Refused(usage) where there is no checkout.
    """
    common = common_dir(checkout)
    try:
        promisor = git("-C", checkout, "config", "--get-regexp", r"^(extensions\.partialclone|remote\..*\.promisor)$")
    except Refused as refused:
        if refused.kind != "git":
            raise
        promisor = ""  # git's way to say that there is no such line
    return "" if promisor or not os.path.isdir(f"{common}/objects") else f"{common}/objects"


def common_dir(checkout: str) -> str:
    """Where the repository of a checkout is, shared by its work trees. Raises Refused(usage) where there is none."""
    if not os.path.isdir(checkout):
        raise Refused("usage", f"the checkout {checkout} is not there", "correct `checkout` of the box")
    try:
        return os.path.join(checkout, git("-C", checkout, "rev-parse", "--git-common-dir").strip())
    except Refused as refused:
        if "not a git repository" in refused.message:
            raise Refused("usage", f"{checkout} is no git checkout", "correct `checkout` of the box") from None
        raise
