"""Git on the box, and git ids computed from the bytes on disk."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess

from .base import Refused

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
    merged = {**{k: v for k, v in os.environ.items() if not k.startswith("GIT_")}, **GIT_ENV, **(env or {})}
    try:
        done = subprocess.run(command, input=stdin, capture_output=True, env=merged, cwd=cwd, check=False)
    except FileNotFoundError:
        raise Refused("no-git", "there is no git on the box", "install git on the box") from None
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip()
        if "No space left" in said:
            raise Refused("disk-full", f"the disk of the box is full: {said}", "free some space on the box")
        verb = words[2] if words[0] in ("-C", "--work-tree") else words[0]
        raise Refused("git", f"git {verb} on the box: {said}")
    return done.stdout.decode("utf-8", "surrogateescape")


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


def borrowable_objects(checkout: str) -> str:
    """The object directory of the user's checkout, or nothing where it is a partial clone (it lacks objects)."""
    try:
        common = os.path.join(checkout, git("-C", checkout, "rev-parse", "--git-common-dir").strip())
        promisor = git("-C", checkout, "config", "--get-regexp", r"^(extensions\.partialclone|remote\..*\.promisor)$")
    except Refused as refused:
        if refused.kind != "git" or "not a git repository" in refused.message:
            return ""
        promisor = ""
    return "" if promisor or not os.path.isdir(f"{common}/objects") else f"{common}/objects"
