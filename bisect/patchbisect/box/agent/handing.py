"""One JSON line over a socket, and with it open files."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from typing import Any

MOST_FDS = 64

Json = dict[str, Any]


def send(link: socket.socket, message: Json, fds: Sequence[int] = ()) -> None:
    data = json.dumps(message).encode() + b"\n"
    sent = socket.send_fds(link, [data[:1]], list(fds)) if fds else 0
    link.sendall(data[sent:])


def receive(link: socket.socket) -> tuple[Json, list[int]] | None:
    """None when the other end has gone."""
    data, fds = b"", []
    while not data.endswith(b"\n"):
        part, more, _, _ = socket.recv_fds(link, 1 if not data else 1 << 16, MOST_FDS)
        if not part:
            return None
        data += part
        fds += more
    message: Json = json.loads(data)
    return message, fds
