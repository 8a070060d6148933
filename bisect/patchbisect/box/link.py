"""How bytes get to a box and back. One way for every kind of box: run ``sh`` there and speak to it.

The only word on any remote command line is ``sh``. What to run comes on its standard input, quoted, so a login
shell's dialect, a prefix that joins words with blanks (``ssh``) and one that does not (``docker exec``) are all
the same.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import tempfile
from collections.abc import Sequence
from typing import Protocol

from patchbisect.box.failures import LinkLost, Unreachable
from patchbisect.errors import NO_FILES


class Channel(Protocol):
    """A running ``sh`` on the box."""

    def write(self, data: bytes) -> None:
        """Send all of ``data``. Raises LinkLost."""

    def read(self, timeout_s: float) -> bytes:
        """What has come, at least one byte; empty at the end of the stream. Raises LinkLost after ``timeout_s``."""

    def complaint(self) -> str:
        """What was said on standard error, and the exit code, for a message."""

    def close(self) -> None:
        """Hang up. The ``sh`` sees the end of its input. May be called twice."""


class Link(Protocol):
    """A way to one box."""

    @property
    def proven(self) -> bool:
        """Whether it is known to lead to a box, so that a failure of it is more likely a fault of the moment."""

    def open(self) -> Channel:
        """Start ``sh`` on the box. Raises Unreachable or LinkLost."""

    def close(self) -> None:
        """Give back what is kept between channels. May be called twice."""


class ProcessChannel:
    """``sh`` behind a local process."""

    def __init__(self, command: Sequence[str], *, name: str) -> None:
        self._name = name
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed in close)
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                bufsize=0,
                start_new_session=True,  # a Ctrl-C at the terminal is the client's to handle
            )
        except OSError as problem:
            self._errors.close()
            if problem.errno in NO_FILES:
                raise
            raise Unreachable(
                f"box {name}: {command[0]} cannot be run: {problem.strerror}", remedy="correct `prefix` of the box"
            ) from None

    def write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self._process.stdin.fileno(), rest) :]
        except (OSError, ValueError) as problem:
            raise LinkLost(f"box {self._name}: the link broke ({problem}). {self.complaint()}".strip()) from None

    def read(self, timeout_s: float) -> bytes:
        assert self._process.stdout is not None
        try:
            ready, _, _ = select.select([self._process.stdout], [], [], timeout_s)
            if not ready:
                raise LinkLost(f"box {self._name}: nothing came over the link for {timeout_s:.0f} s")
            return os.read(self._process.stdout.fileno(), 1 << 20)
        except (OSError, ValueError) as problem:
            raise LinkLost(f"box {self._name}: the link broke ({problem})") from None

    def complaint(self) -> str:
        try:
            code: int | None = self._process.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            code = None
        if self._errors.closed:
            return ""
        self._errors.seek(0)
        said = self._errors.read().decode("utf-8", "replace").strip()[-2000:]
        return f"{said} (exit code {code})" if code else said

    def close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        self._end()
        self._errors.close()

    def _end(self) -> None:
        """It ends by itself, or of SIGTERM; an agent in the middle of ending a launch finishes that first."""
        try:
            self._process.wait(timeout=2.0)
        except subprocess.TimeoutExpired:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=2.0)


class ProcessLink:
    """This machine (no prefix), or a command that runs what follows it on the box."""

    def __init__(self, prefix: Sequence[str] = (), *, name: str) -> None:
        self._command = [*prefix, "sh"]
        self._name = name

    @property
    def proven(self) -> bool:
        return False

    def open(self) -> ProcessChannel:
        return ProcessChannel(self._command, name=self._name)

    def close(self) -> None:
        """Nothing is kept."""
