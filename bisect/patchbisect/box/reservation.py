"""Reservations of boxes that this project holds: leases that outlast a command, by box name."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from patchbisect.box.box import Box
from patchbisect.box.failures import BoxBusy, LeaseLost


@dataclass(frozen=True, slots=True)
class Reservations:
    """Kept under ``state/reservations``, one small file a box."""

    state: Path

    def keep(self, box: str, fence: int) -> None:
        path = self._path(box)
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps({"fence": fence}), encoding="utf-8")
        fresh.replace(path)

    def forget(self, box: str) -> None:
        self._path(box).unlink(missing_ok=True)

    def fence(self, box: Box) -> int:
        """The number of our reservation of that box; 0 where there is none, or where it is over."""
        fence = self._kept(box.name)
        if not fence:
            return 0
        if any(held.fence == fence and held.expires_in_s > 0 for held in box.leases()):
            return fence
        self.forget(box.name)
        return 0

    def _kept(self, box: str) -> int:
        """0 also where the file is damaged: the reservation, if it is not over, can be taken back with box.steal."""
        try:
            return int(json.loads(self._path(box).read_text(encoding="utf-8"))["fence"])
        except (FileNotFoundError, ValueError, TypeError, KeyError):
            return 0

    @contextlib.contextmanager
    def used(self, box: Box, *, reason: str, wait_s: float = 0.0) -> Iterator[None]:
        """Act under our reservation of ``box``, one command at a time; it is kept afterwards.

        All commands of the project share its number, so the box cannot tell one from the other: each would end the
        other's server as a leftover. Raises BoxBusy, naming the other command, when it is still at work after
        ``wait_s`` seconds, and LeaseLost when the reservation is over by then.
        """
        path = self._path(box.name).with_suffix(".lock")
        with path.open("a+", encoding="utf-8") as lock:
            _wait_for(lock, box=box.name, wait_s=wait_s)
            lock.truncate(0)
            lock.write(f"{reason}, pid {os.getpid()} on {socket.gethostname()}")
            lock.flush()
            fence = self.fence(box)
            if not fence:
                raise LeaseLost(f"the reservation of box {box.name} is over", remedy="invoke box.acquire")
            with box.reserved(fence):
                yield

    def _path(self, box: str) -> Path:
        return self.state / "reservations" / f"{box.encode().hex()}.json"


def _wait_for(lock: TextIO, *, box: str, wait_s: float) -> None:
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= deadline:
                lock.seek(0)
                raise BoxBusy(
                    f"box {box} is in use by another command of this project: {lock.read()}",
                    remedy="wait for it (--wait-for-box 600: seconds)",
                ) from None
        time.sleep(min(0.2, max(0.01, deadline - time.monotonic())))
