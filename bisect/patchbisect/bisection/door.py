"""Who comes to work at a bisection while it runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from patchbisect.bisection.worker import OnWorker, Worker
from patchbisect.errors import BoxError, UsageError

# Seconds between two looks for newcomers.
LOOK_S = 2.0

# Seconds that the end of a bisection waits for a look that is under way: a scheduler that is gone is slow to say so.
_LAST_S = 10.0


class Greeting(Protocol):
    """What is done for everybody who comes."""

    def bench(self, worker: Worker) -> OnWorker:
        """That of this worker, which is not asked anything yet."""

    def welcome(self, worker: Worker, bench: OnWorker) -> None:
        """Have it take part. Raises UsageError where it must not, BoxError where it does not answer."""

    def notify(self, text: str) -> None:
        """Tell whoever watches the bisection."""


class Door:
    """Lets workers in that come on the way, each once it has shown what those that were there showed."""

    def __init__(self, newcomers: Callable[[], Sequence[Worker]]) -> None:
        """``newcomers`` gives those that it did not give before; it may raise OSError or TimeoutError."""
        self._newcomers = newcomers
        self.inside: list[Worker] = list(newcomers())
        self._greetings: list[Greeting] = []
        self._closed = threading.Event()
        self._asked: OnWorker | None = None

    def greet(self, greeting: Greeting) -> None:
        """Call this for everybody who comes from now on."""
        self._greetings.append(greeting)

    @contextmanager
    def kept(self) -> Iterator[Door]:
        """Look who comes, in a thread, until the end."""
        keeper = threading.Thread(target=self._keep, name="door", daemon=True)
        keeper.start()
        try:
            yield self
        finally:
            self._closed.set()
            if self._asked:
                self._asked.cancel()
            keeper.join(_LAST_S)

    def _keep(self) -> None:
        while not self._closed.wait(LOOK_S):
            try:
                come = self._newcomers()
            except (OSError, TimeoutError):
                continue  # the trials under way notice a scheduler that is gone, and say so
            for worker in come:
                self._let_in(worker)

    def _let_in(self, worker: Worker) -> None:
        for greeting in tuple(self._greetings):
            self._asked = bench = greeting.bench(worker)
            if self._closed.is_set():
                return
            try:
                greeting.welcome(worker, bench)
            except KeyboardInterrupt:
                return
            except (BoxError, UsageError) as error:
                greeting.notify(f"{error.message}; it takes no part")
                return
        self.inside.append(worker)
