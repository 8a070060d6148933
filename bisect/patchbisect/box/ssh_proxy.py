"""A ProxyCommand: a line of the shell whose standard input and output lead to the host."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import tempfile
import threading

MOST_WORDS = 300


class ProxyCommand:
    """Its two ends are one ``socket``. Paramiko's own reads an ended one again and again until the time is over."""

    def __init__(self, command: str) -> None:
        self.socket, theirs = socket.socketpair()
        self._lock = threading.Lock()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed in end)
        self._said = ""
        with theirs:
            words = ["sh", "-c", f"exec {command}"]  # as OpenSSH does it
            end = theirs.fileno()
            self._process = subprocess.Popen(words, stdin=end, stdout=end, stderr=self._errors)

    def end(self) -> str:
        """End it, and return what it said on standard error. May be called again."""
        self.socket.close()
        with self._lock:
            if not self._errors.closed:
                self._wait()
                self._errors.seek(0)
                self._said = self._errors.read().decode("utf-8", "replace").strip()[-MOST_WORDS:]
                self._errors.close()
            return self._said

    def _wait(self) -> None:
        """One whose own connection is gone says so and ends by itself."""
        for pause_s in (0.2, 1.0):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(pause_s)
                return
            self._process.terminate()
