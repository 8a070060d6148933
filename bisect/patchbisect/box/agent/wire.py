"""Requests on stdin, answers on stdout."""

from __future__ import annotations

import json
import os
import select
import threading
from collections.abc import Iterator

from .base import Json


class Wire:
    """Requests in on stdin, answers out on the stdout that we were given; stray prints go to stderr."""

    def __init__(self) -> None:
        self._out = os.dup(1)
        os.dup2(2, 1)
        self._buffer = b""
        self._payload = 0
        self._sending = threading.Lock()

    def greet(self, about: Json) -> None:
        """On a line of its own, whatever the login's start-up files printed before it."""
        with self._sending:
            os.write(self._out, b"\n")
        self.send(about)

    def send(self, header: Json, data: bytes = b"") -> None:
        rest = memoryview(json.dumps(header).encode() + b"\n" + data)
        with self._sending:
            while rest:
                rest = rest[os.write(self._out, rest) :]

    def _more(self, timeout_s: float) -> bool | None:
        """True when bytes came, False when none did in time, None at the end of the stream."""
        ready, _, _ = select.select([0], [], [], timeout_s)
        if not ready:
            return False
        data = os.read(0, 1 << 16)
        self._buffer += data
        return True if data else None

    def receive(self, timeout_s: float) -> Json | None:
        """The next request; None when the client has gone. Empty lines are heartbeats."""
        while True:
            line, newline, rest = self._buffer.partition(b"\n")
            if not newline:
                if not self._more(timeout_s):
                    return None
                continue
            self._buffer = rest
            if line.strip():
                request: Json = json.loads(line)
                self._payload = request.get("payload", 0)
                return request

    def payload(self) -> Iterator[bytes]:
        while self._payload:
            if not self._buffer and not self._more(60.0):
                raise BrokenPipeError
            part, self._buffer = self._buffer[: self._payload], self._buffer[self._payload :]
            self._payload -= len(part)
            yield part

    def skip_payload(self) -> None:
        for _ in self.payload():
            pass

    def heartbeat(self, timeout_s: float) -> bool | None:
        """Whether the client said it is there; None when it has gone."""
        said = self._more(timeout_s)
        if said:
            self._buffer = b""
        return said
