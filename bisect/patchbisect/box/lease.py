"""Holding a box: renewing the lease, and knowing one whose holder is dead."""

from __future__ import annotations

import getpass
import logging
import os
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from patchbisect.box.failures import LeaseLost
from patchbisect.box.values import LeaseHeld
from patchbisect.errors import BoxError

if TYPE_CHECKING:
    from patchbisect.box.box import Box


log = logging.getLogger(__name__)


class Lease:
    """Ours until the ``with`` block ends. Renewed in the background; ``lost`` is set when somebody took it."""

    def __init__(self, box: Box, fence: int) -> None:
        self._box = box
        self._ended = threading.Event()
        self.fence = fence
        self.lost: LeaseLost | None = None
        self._renewer = threading.Thread(target=self._renew, name=f"lease of {box.name}", daemon=True)
        self._renewer.start()

    def _renew(self) -> None:
        """A failing renewal is not an error yet: the link may come back before the lease expires or is taken."""
        while not self._ended.wait(self._box.settings.lease_s / 4):
            request = self._box.request("lease_renew", ttl_s=self._box.settings.lease_s)
            try:
                with self._box.conversation() as conversation:
                    conversation.ask(request)
            except LeaseLost as lost:
                self.lost = lost
                return
            except (BoxError, OSError) as problem:
                log.info("the lease could not be renewed: %s", problem)

    def check(self) -> None:
        """Raises LeaseLost when the renewal has found that the lease was taken."""
        if self.lost is not None:
            raise self.lost

    def end(self) -> None:
        self._ended.set()
        self._renewer.join(timeout=self._box.settings.link_timeout_s)


def holder(reason: str, *, outlives_us: bool = False) -> dict[str, Any]:
    """Us, as the book of leases shows us to others; one that ``outlives_us`` ends by its expiry alone."""
    about = {"owner": getpass.getuser(), "host": socket.gethostname(), "reason": reason}
    return {**about, "client": client_id(), "pid": 0 if outlives_us else os.getpid()}


def client_id() -> str:
    """The space in which our pid means something: this host, this boot, this pid namespace."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    space = Path("/proc/self/ns/pid")
    parts = [socket.gethostname(), boot.read_text().strip() if boot.exists() else ""]
    return "/".join([*parts, str(space.readlink()) if space.is_symlink() else ""])


def holder_is_dead(held: LeaseHeld) -> bool:
    """Whether the lease is that of a client on this very machine that was killed and cannot give it back."""
    if held.client != client_id() or not held.pid:
        return False
    try:
        os.kill(held.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
