"""How long a lost link is tried again: once for each loss, whoever needs the link meanwhile."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable

from patchbisect.box.failures import LinkLost

log = logging.getLogger(__name__)

FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 15.0


class Patience:
    """What is left of the patience with the link to one box.

    It is used up once for each loss: following a server, stopping it and giving the lease back do not each wait anew.
    ``seconds`` says how much there is.
    """

    def __init__(self, name: str, seconds: Callable[[], float]) -> None:
        self._name = name
        self._seconds = seconds
        self._lost_at: float | None = None
        self._pause_s = FIRST_PAUSE_S
        self._given_up = False
        self._hurried = threading.Event()

    def hurry(self) -> None:
        """Have none from now on: who waits in another thread tries once more."""
        self._hurried.set()

    def renew(self) -> None:
        """Something came over the link: patience begins anew."""
        if self._lost_at is not None:
            log.warning("box %s: the link is back after %.1f s", self._name, time.monotonic() - self._lost_at)
        self._lost_at, self._pause_s, self._given_up = None, FIRST_PAUSE_S, False

    def wait(self, lost: LinkLost) -> None:
        """Wait before the next try. Raises ``lost`` when the link has been away for too long.

        Who interrupts the wait has no patience left either: what is to be tidied up after it is tried once.
        """
        now = time.monotonic()
        if self._lost_at is None:
            log.warning("%s; connecting again", lost.message)
            self._lost_at = now
        pause_s = self._pause_s * random.uniform(0.8, 1.2)
        if self._given_up or self._hurried.is_set() or now - self._lost_at + pause_s > self._seconds():
            self._given_up = True
            raise lost
        try:
            self._hurried.wait(pause_s)
        except BaseException:
            self._given_up = True
            raise
        self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)
