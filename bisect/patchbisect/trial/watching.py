"""Who hears of a trial while it runs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from patchbisect.model import Signals
from patchbisect.startup import Event


class Watcher(Protocol):
    """Hears of a trial while it runs. Every method may be slow only at the cost of the verdict's latency."""

    def step(self, text: str) -> None:
        """A step of ours: placing code, proving the box clean, stopping."""

    def event(self, event: Event, elapsed_s: float) -> None:
        """Something that the log said, ``elapsed_s`` seconds after the launch."""


@runtime_checkable
class SampleWatcher(Protocol):
    """A watcher that wants the box's samples too."""

    def signals(self, signals: Signals, elapsed_s: float) -> None:
        """What the box measured, ``elapsed_s`` seconds after the launch."""


class Silent:
    """A watcher that does not care."""

    def step(self, text: str) -> None:
        pass

    def event(self, event: Event, elapsed_s: float) -> None:
        pass


class Steps:
    """A watcher for others far away: our steps and each new stage as a line of text, nothing of the log itself."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._stage = ""

    def step(self, text: str) -> None:
        self._tell(text)

    def event(self, event: Event, elapsed_s: float) -> None:
        stage = f"{event.role}:{event.stage}" if event.stage else self._stage
        if stage != self._stage:
            self._stage = stage
            self._tell(f"{event.stage} after {elapsed_s:.1f} s")


class Stoppable:
    """A watcher that interrupts the trial it watches. Not in ``step``: stopping the server is one, and must go on."""

    def __init__(self, inner: Watcher) -> None:
        self._inner = inner
        self._stopped = threading.Event()

    def stop(self) -> None:
        self._stopped.set()

    def rest(self, seconds: float) -> None:
        """Wait so long, unless interrupted."""
        self._stopped.wait(seconds)
        self._unless_stopped()

    def step(self, text: str) -> None:
        self._inner.step(text)

    def event(self, event: Event, elapsed_s: float) -> None:
        self._unless_stopped()
        self._inner.event(event, elapsed_s)

    def signals(self, signals: Signals, elapsed_s: float) -> None:
        self._unless_stopped()
        if isinstance(self._inner, SampleWatcher):
            self._inner.signals(signals, elapsed_s)

    def _unless_stopped(self) -> None:
        if self._stopped.is_set():
            raise KeyboardInterrupt
