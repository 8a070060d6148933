"""Where a bisection's trials happen: on a box, with a journal in between."""

from __future__ import annotations

from typing import Protocol

from patchbisect.bisection.judging import is_transient
from patchbisect.errors import UsageError
from patchbisect.journal import Journal
from patchbisect.model import Point, Stage
from patchbisect.records import Record, Store
from patchbisect.trial import Rig, Trial, Watcher, prepare, run_trial


class Bench(Protocol):
    """Where trials happen; the real one prepares and runs them on a box."""

    def content(self, point: Point) -> str:
        """The point's content id. Raises PointUnbuildable."""

    def launch(self, point: Point, *, purpose: str) -> Trial:
        """One launch. Raises BoxError where box or link fail, PointUnbuildable."""


class OnRig:
    """Trials on one box. A point is prepared once."""

    def __init__(self, rig: Rig, *, until: Stage, watcher: Watcher, settle_s: float = 0.0) -> None:
        self.rig = rig
        self.until = until
        self.watcher = watcher
        self.settle_s = settle_s

    def content(self, point: Point) -> str:
        return prepare(self.rig, point).content_id

    def launch(self, point: Point, *, purpose: str) -> Trial:
        self.watcher.step(f"{purpose}: {point.name}")
        prepared = prepare(self.rig, point)
        return run_trial(self.rig, prepared, until=self.until, watcher=self.watcher, settle_s=self.settle_s)


class Journaled:
    """A bench that writes an intent before each launch and the trial after it.

    On ``--resume`` the trials of the journal are handed out first, in their order; the bisection, being a function
    of its trials, then stands where it stood. A journal of another question is noticed by the contents it asks for.
    """

    def __init__(self, inner: Bench, *, journal: Journal, store: Store, resume: bool) -> None:
        self.inner = inner
        self.journal = journal
        self._waiting: list[Record] = _journaled(journal, store) if resume else []

    def content(self, point: Point) -> str:
        return self.inner.content(point)

    def launch(self, point: Point, *, purpose: str) -> Trial:
        if self._waiting:
            return self._from_journal(self._waiting.pop(0), point)
        content = self.content(point)
        self.journal.append("intent", purpose=purpose, point=point.name, content_id=content)
        trial = self.inner.launch(point, purpose=purpose)
        event = "void" if is_transient(trial.verdict) else "trial"
        self.journal.append(event, purpose=purpose, point=point.name, content_id=content, record=trial.record)
        return trial

    def _from_journal(self, record: Record, point: Point) -> Trial:
        if record.content_id != self.content(point):
            raise UsageError(
                f"bisection {self.journal.identifier} cannot go on: it ran {record.point.name} with other code or "
                "settings than that point has now (pin, queue or profile changed)",
                remedy="put them back, or start a new bisection",
            )
        return Trial(
            record=record.id,
            point=point,
            content_id=record.content_id,
            verdict=record.judged,
            by_hand=record.by_hand,
            timings=record.timings,
        )


def _journaled(journal: Journal, store: Store) -> list[Record]:
    return [store.load(entry.data["record"]) for entry in journal.entries() if entry.event == "trial"]
