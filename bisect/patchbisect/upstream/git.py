"""git's plumbing on one repository, through GitPython.

Plumbing must give the same answer on every machine: a user's ``apply.whitespace = fix`` or ``core.autocrlf``
would change trees, so their configuration is shut out, except where the network needs it (proxies, credentials).
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

# GitPython raises at import where no git is found, before anyone can say so in one line.
os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")

import git.cmd
import git.exc

from patchbisect.errors import BoxError, UsageError

_SAME_EVERYWHERE = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
}
_OF_ANOTHER_REPOSITORY = (
    "GIT_DIR",
    "GIT_COMMON_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
    "GIT_SHALLOW_FILE",
    "GIT_CONFIG",
    "GIT_CONFIG_PARAMETERS",
    "GIT_CONFIG_COUNT",
)
"""Set by git for the hooks of a repository: run from one, we would write into that repository."""
_NO_QUESTIONS = {"GIT_TERMINAL_PROMPT": "0", "GIT_SSH_COMMAND": "ssh -o BatchMode=yes -o ConnectTimeout=15"}

FULL_ID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
WHICH_COMMIT = ("rev-parse", "--verify", "--quiet", "--end-of-options")
_PROGRESS = re.compile(r"(?:remote: )?[A-Z][\w ]+: +\d+")
"""``Receiving objects:  45% (9/20), 3.10 MiB | 1.2 MiB/s``"""
_TELL_EVERY_S = 3.0
_STALLED = ("-c", "http.lowSpeedLimit=1000", "-c", "http.lowSpeedTime=60")
"""A transfer that has all but stopped is given up after a minute."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What one git command did."""

    status: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode("utf-8", "surrogateescape").strip()

    @property
    def reason(self) -> str:
        """git's last word on a failure."""
        lines = [line.strip() for line in self.err.splitlines() if line.strip()]
        fatal = [line for line in lines if line.startswith(("fatal:", "error:"))]
        last = (fatal or lines or [f"git exited with {self.status}"])[-1]
        said = last.partition(": ")[2] or self.err.strip()
        # "fatal: unable to connect to HOST:", and the reason on a line of its own
        more = lines[lines.index(last) + 1 :] if said.endswith(":") else []
        return f"{said} {more[0].rpartition(': ')[2]}" if more else said


class Git:
    """One repository by its git directory; with ``worktree`` the user's own, by a directory inside it.

    The user's own is read with their configuration: it may say which repositories of others are safe to read.
    """

    def __init__(self, where: Path, *, worktree: bool = False) -> None:
        self.where = where
        self._always: Mapping[str, str] = {} if worktree else _SAME_EVERYWHERE
        self._locate = ["-C", str(where)] if worktree else [f"--git-dir={where}"]
        self._git = git.cmd.Git()

    def run(
        self,
        *arguments: str,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Ran:
        """Run a command to its end, whatever its exit status; ``timeout`` in seconds. Raises UsageError without git."""
        return self._execute(arguments, stdin=stdin, env={**self._always, **(env or {})}, timeout=timeout)

    def over_network(self, *arguments: str, timeout: float | None = None) -> Ran:
        """As ``run``, but with the user's configuration, and never asking for a password."""
        inherited = {name: value for name, value in _NO_QUESTIONS.items() if name not in os.environ}
        return self._execute(arguments, stdin=b"", env=inherited, timeout=timeout)

    def fetch(self, *arguments: str, say: Callable[[str], None]) -> Ran:
        """``git fetch`` over the network; ``say`` hears every few seconds how far it is."""
        env = {name: value for name, value in _NO_QUESTIONS.items() if name not in os.environ}
        words = [*self._locate, *_STALLED, "fetch", "--progress", "--no-tags", *arguments]
        command = [*_without_strays(env), "git", *words]
        process = self._git.execute(command, as_process=True, istream=subprocess.DEVNULL, env=env)
        told = time.monotonic()
        said: list[str] = []
        assert process.stderr is not None
        for line in _lines(process.stderr):
            if not _PROGRESS.match(line):
                said.append(line)
            elif time.monotonic() - told > _TELL_EVERY_S:
                told = time.monotonic()
                say(line)
        status = process.proc.wait() if process.proc else 0
        return Ran(status=status, out=b"", err="\n".join(said))

    def output(self, *arguments: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> bytes:
        """Standard output. Raises BoxError where git fails: disk full, repository damaged."""
        ran = self.run(*arguments, stdin=stdin, env=env)
        if ran.status:
            raise BoxError(
                f"git {arguments[0]} failed in {self.where}: {ran.reason}",
                remedy="Check the disk and the rights there; a damaged mirror may be deleted, it is made again.",
            )
        return ran.out

    def text(self, *arguments: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> str:
        """Standard output as stripped text. Raises BoxError."""
        return self.output(*arguments, stdin=stdin, env=env).decode("utf-8", "surrogateescape").strip()

    def commit(self, rev: str) -> str:
        """The id of the commit that ``rev`` names; ``""`` for none, and for a set of commits (``^A``, ``A..B``)."""
        found = self.run(*WHICH_COMMIT, f"{rev}^{{commit}}").text
        return found if FULL_ID.fullmatch(found) else ""

    def ids(self, names: Sequence[str]) -> list[str]:
        """The object id that each name stands for, ``""`` where there is none, in one process."""
        if not names:
            return []
        asked = "".join(f"{name}\n" for name in names).encode()
        answers = self.text("cat-file", "--batch-check=%(objectname)", stdin=asked).split("\n")
        return ["" if " " in answer else answer for answer in answers]

    def blobs(self, ids: Sequence[str]) -> list[bytes]:
        """The contents of blobs, in one process. Raises BoxError."""
        answer = self.output("cat-file", "--batch", stdin="".join(f"{blob}\n" for blob in ids).encode()) if ids else b""
        found: list[bytes] = []
        at = 0
        for blob in ids:
            head, _, _ = answer[at : at + 200].partition(b"\n")
            words = head.split()
            if len(words) != 3:
                raise BoxError(
                    f"{self.where} has lost the object {blob}", remedy="Delete that folder: it is made again."
                )
            start = at + len(head) + 1
            at = start + int(words[2]) + 1
            found.append(answer[start : at - 1])
        return found

    def files(self, commit: str, folder: str) -> dict[str, bytes]:
        """The plain files right under ``folder`` at a commit, by name."""
        listing = self.output("ls-tree", "-z", commit, f"{folder.rstrip('/')}/").decode("utf-8", "surrogateescape")
        found: dict[str, bytes] = {}
        for entry in listing.split("\0"):
            meta, _, path = entry.partition("\t")
            if meta.startswith("100"):
                found[path.rpartition("/")[2]] = self.output("cat-file", "blob", meta.split()[2])
        return found

    def update_refs(self, refs: Iterable[tuple[str, str]]) -> None:
        """Set each ref to its object, all or none."""
        orders = b"".join(b"update %s\0%s\0\0" % (ref.encode(), value.encode()) for ref, value in refs)
        if orders:
            self.output("-c", "core.filesRefLockTimeout=5000", "update-ref", "-z", "--stdin", stdin=orders)

    def _execute(self, arguments: Sequence[str], *, stdin: bytes, env: Mapping[str, str], timeout: float | None) -> Ran:
        command = [*_without_strays(env), "git", *self._locate, *arguments]
        with tempfile.TemporaryFile() as feed:
            feed.write(stdin)
            feed.seek(0)
            try:
                status, out, err = self._git.execute(
                    command,
                    istream=feed,
                    with_extended_output=True,
                    with_exceptions=False,
                    stdout_as_string=False,
                    strip_newline_in_stdout=False,
                    kill_after_timeout=timeout,
                    env=dict(env),
                )
            except git.exc.GitCommandNotFound as error:
                raise UsageError("git is not installed, or not on PATH", remedy="Install git 2.38 or later.") from error
        said = _bytes(err).decode("utf-8", "replace")
        # By its signal: GitPython's own words about a time-out come too late now and then.
        if timeout is not None and status == -signal.SIGKILL:
            said = f"fatal: did not answer within {timeout:g} s"
        return Ran(status=status, out=_bytes(out), err=said)


def _lines(stream: IO[bytes]) -> Iterator[str]:
    """What is told, line by line; git ends a line that it will write over with a carriage return."""
    rest = b""
    while data := os.read(stream.fileno(), 1 << 12):
        *lines, rest = re.split(rb"[\r\n]", rest + data)
        yield from (line.decode("utf-8", "replace").strip() for line in lines if line.strip())
    if rest.strip():
        yield rest.decode("utf-8", "replace").strip()


def _without_strays(wanted: Mapping[str, str]) -> list[str]:
    """GitPython only adds to the environment; env(1) takes away."""
    strays = [name for name in _OF_ANOTHER_REPOSITORY if name in os.environ and name not in wanted]
    return ["env", *(part for name in strays for part in ("-u", name))] if strays else []


def _bytes(output: str | bytes) -> bytes:
    return output if isinstance(output, bytes) else output.encode("utf-8", "surrogateescape")
