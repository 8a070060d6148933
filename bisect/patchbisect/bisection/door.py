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
        """In the order of their coming; it only grows."""
        self._greetings: list[Greeting] = []
        self._threshold = threading.Lock()
        """Nobody comes inside while it is settled who greets whom: neither twice nor by nobody."""
        self._closed = threading.Event()
        self._asked: OnWorker | None = None

    def greet(self, greeting: Greeting, *, met: int) -> None:
        """Call this for who is inside, but for the first ``met``, and for everybody who comes from now on."""
        with self._threshold:
            missed = self.inside[met:]
            self._greetings.append(greeting)
        for worker in missed:
            _welcomed(greeting, worker, greeting.bench(worker))

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
            try:
                for worker in come:
                    self._let_in(worker)
            except KeyboardInterrupt:
                return  # the end cancelled what was asked

    def _let_in(self, worker: Worker) -> None:
        greeted = 0
        while True:
            with self._threshold:
                if greeted == len(self._greetings):
                    self.inside.append(worker)
                    return
                greeting = self._greetings[greeted]
            self._asked = bench = greeting.bench(worker)
            if self._closed.is_set() or not _welcomed(greeting, worker, bench):
                return
            greeted += 1


def _welcomed(greeting: Greeting, worker: Worker, bench: OnWorker) -> bool:
    try:
        greeting.welcome(worker, bench)
    except (BoxError, UsageError) as error:
        greeting.notify(f"{error.message}; it takes no part")
        return False
    return True
