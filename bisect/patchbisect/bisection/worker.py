"""A bench whose trials are made by a worker elsewhere, behind a ``concurrent.futures.Executor``."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError, Future, wait
from dataclasses import dataclass
from typing import Protocol

from patchbisect.bisection.bench import OnDesk, trial_of
from patchbisect.bisection.errand import LOOK, REJOIN, TRIAL, errand, fault, packed, unpacked
from patchbisect.config import Project
from patchbisect.errors import BoxError
from patchbisect.model import Point, Stage
from patchbisect.records import Store, new_id
from patchbisect.trial import Desk, Trial, Watcher, prepare
from patchbisect.wire import Json

# Seconds between two looks at a trial elsewhere: whether its worker lives, and what it has told.
LOOK_S = 1.0

# Seconds that a worker may take to stop a server and prove it gone before an interruption no longer waits for it.
STOP_S = 60.0


class Worker(Protocol):
    """A process elsewhere that has one box and makes one trial at a time."""

    @property
    def name(self) -> str:
        """Stands for its box in records; no other worker has it."""

    def send(self, parcel: bytes) -> Future[bytes]:
        """Have ``patchbisect.bisection.errand.perform`` run there."""

    def stop(self, record: str) -> bool:
        """End that trial there; False where it has not begun. Raises BoxError where nobody answers."""

    def alive(self) -> bool:
        """Whether it is still there. Raises BoxError where that cannot be known."""

    def told(self, record: str) -> list[str]:
        """The lines that it has told of that trial since the last call."""


@dataclass(frozen=True, slots=True)
class Call:
    """What all trials of one bisection tell the workers besides their point."""

    project: Project
    reason: str
    wait_s: float = 0.0


class OnWorker(OnDesk):
    """Trials on the box of one worker. What a point runs is said here, and proven to be the same there."""

    width = 1

    def __init__(self, worker: Worker, desk: Desk, *, call: Call, store: Store, until: Stage, watcher: Watcher) -> None:
        super().__init__(desk, store=store)
        self.worker = worker
        self.call = call
        self.until = until
        self.watcher = watcher
        self._cancelled = threading.Event()

    def look(self, point: Point) -> Json:
        """The worker's machine, once it is shown that it would run this point as it is asked to.

        Raises UsageError where it would not, BoxError where worker or box do not answer.
        """
        machine: Json = self._answer(LOOK, point, record="", settle=False)["machine"]
        return machine

    def launch(self, point: Point, *, purpose: str, settle: bool = False, record: str = "", box: str = "") -> Trial:
        self.watcher.step(f"{purpose}: {point.name}, by {self.worker.name}")
        reply = self._answer(TRIAL, point, record=record or new_id(), settle=settle)
        return self._kept(reply, point)

    def rejoin(self, point: Point, *, record: str, settle: bool = False) -> Trial | None:
        reply = self._answer(REJOIN, point, record=record, settle=settle)
        return None if reply.get("gone") else self._kept(reply, point)

    def rest(self, seconds: float) -> None:
        if self._cancelled.wait(seconds):
            raise KeyboardInterrupt

    def forgo(self, box: str) -> bool:
        return False

    def cancel(self) -> None:
        self._cancelled.set()

    def _kept(self, reply: Json, point: Point) -> Trial:
        self.store.unpack(reply["record"], reply["files"])
        return trial_of(self.store.load(reply["record"]), point)

    def _answer(self, verb: str, point: Point, *, record: str, settle: bool) -> Json:
        prepared = prepare(self.desk, point)
        document = errand(
            verb,
            prepared,
            project=self.call.project,
            record=record,
            until=self.until,
            settle=settle,
            reason=self.call.reason,
            wait_s=self.call.wait_s,
        )
        future = self.worker.send(packed(document))
        try:
            self._wait_for(future, record)
            reply = unpacked(future.result())
        except KeyboardInterrupt:
            self._stop(future, record)
            raise
        except CancelledError as error:
            raise self._lost("the scheduler let go of its trial") from error
        if refusal := fault(reply, worker=self.worker.name):
            raise refusal
        if reply.get("interrupted"):
            raise self._lost("it was stopped, and ended its trial")
        return reply

    def _wait_for(self, future: Future[bytes], record: str) -> None:
        while not wait([future], timeout=LOOK_S).done:
            self._retell(record)
            if self._cancelled.is_set():
                raise KeyboardInterrupt
            if not self.worker.alive():
                future.cancel()
                raise self._lost("it is gone")
        self._retell(record)

    def _retell(self, record: str) -> None:
        for line in self.worker.told(record):
            self.watcher.step(line)

    def _stop(self, future: Future[bytes], record: str) -> None:
        """No server is left behind: the answer to an interrupted trial comes when that is proven.

        A look has no record, and without one the worker would end whatever it runs, for whomever.
        """
        if record and self.worker.stop(record):
            wait([future], timeout=STOP_S)
        future.cancel()

    def _lost(self, why: str) -> BoxError:
        return BoxError(f"worker {self.worker.name}: {why}", remedy="look at its output")
