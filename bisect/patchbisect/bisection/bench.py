"""Where a bisection's trials happen: on a box, with a journal in between."""

from __future__ import annotations

import copy
import threading
from collections import Counter, deque
from collections.abc import Mapping
from typing import Protocol

from patchbisect.bisection.judging import is_transient
from patchbisect.journal import Entry, Journal
from patchbisect.model import Base, Patch, Point, Stage
from patchbisect.records import Record, Store, new_id
from patchbisect.search import Observation
from patchbisect.trial import (
    SETTLE_S,
    Desk,
    NotWarm,
    Prepared,
    Rig,
    Stoppable,
    Trial,
    Wants,
    Watcher,
    prepare,
    rejoin_trial,
    run_trial,
    usual,
)


class Reading(Protocol):
    """What can be said of points and trials without launching anything."""

    def content(self, point: Point) -> str:
        """The point's content id. Raises PointUnbuildable."""

    def log(self, trial: Trial) -> bytes:
        """The server's log of a launch; empty where none was kept."""

    def difference(self, before: Base, after: Base) -> Patch:
        """What leads from one base to another, as a patch. Raises PointUnbuildable, BoxError."""


class Bench(Reading, Protocol):
    """Where trials happen; the real one prepares and runs them on a box."""

    @property
    def width(self) -> int:
        """How many launches may run at the same time."""

    def launch(self, point: Point, *, purpose: str, settle: bool = False, record: str = "", box: str = "") -> Trial:
        """One launch; with ``settle`` a server that is ready must stay so for a while. ``record`` is its id.

        ``box`` names the one it must be launched on, where there are several.

        Raises BoxError where box or link fail, PointUnbuildable.
        """

    def rejoin(self, point: Point, *, record: str, settle: bool = False) -> Trial | None:
        """The end of a launch whose client went away; None where there is none to join. Raises as ``launch`` does."""

    def preparation_s(self, content: str) -> float:
        """Seconds before a point of that content id can be launched: an environment to build; 0 for nothing to do."""

    def rest(self, seconds: float) -> None:
        """Wait before a launch is tried again."""

    def forgo(self, box: str) -> bool:
        """Launch nothing on that box any more; False where there is no other."""

    def cancel(self) -> None:
        """End what other threads launch, or rest for, soon and cleanly: they raise KeyboardInterrupt."""


class Around:
    """A bench around another one; what is not said otherwise is passed on."""

    def __init__(self, inner: Bench) -> None:
        self.inner = inner

    @property
    def width(self) -> int:
        return self.inner.width

    def content(self, point: Point) -> str:
        return self.inner.content(point)

    def launch(self, point: Point, *, purpose: str, settle: bool = False, record: str = "", box: str = "") -> Trial:
        return self.inner.launch(point, purpose=purpose, settle=settle, record=record, box=box)

    def rejoin(self, point: Point, *, record: str, settle: bool = False) -> Trial | None:
        return self.inner.rejoin(point, record=record, settle=settle)

    def preparation_s(self, content: str) -> float:
        return self.inner.preparation_s(content)

    def rest(self, seconds: float) -> None:
        self.inner.rest(seconds)

    def forgo(self, box: str) -> bool:
        return self.inner.forgo(box)

    def cancel(self) -> None:
        self.inner.cancel()

    def log(self, trial: Trial) -> bytes:
        return self.inner.log(trial)

    def difference(self, before: Base, after: Base) -> Patch:
        return self.inner.difference(before, after)


class OnDesk:
    """What the settings of a box, the mirror and the store of records say, without the box."""

    def __init__(self, desk: Desk, *, store: Store, warm: bool = False) -> None:
        self.desk = desk
        self.store = store
        self.warm = warm

    def content(self, point: Point) -> str:
        return prepare(self.desk, point, warm=self.warm).content_id

    def preparation_s(self, content: str) -> float:
        """What a box has is not known here."""
        return 0.0

    def log(self, trial: Trial) -> bytes:
        return self.store.log(trial.record)

    def difference(self, before: Base, after: Base) -> Patch:
        return self.desk.mirror.difference(before, after)


class OnRig:
    """Trials on one box; with ``warm`` they start from a warm process there, until one cannot."""

    width = 1

    def __init__(self, rig: Rig, *, until: Stage, watcher: Watcher, warm: bool = False) -> None:
        self.rig = rig
        self.until = until
        self.watcher = Stoppable(watcher)
        self.warm = warm
        self._cooled = False
        self._wants: dict[str, Wants] = {}
        """By content id, where a point needs something besides what the pin does."""

    def content(self, point: Point) -> str:
        prepared = prepare(self.rig, point, warm=self.warm)
        self.rig.wheels.fit(prepared.wants)
        if prepared.wants.content:
            self._wants[prepared.content_id] = prepared.wants
        return prepared.content_id

    def preparation_s(self, content: str) -> float:
        return self.rig.wheels.preparation_s(self._wants[content]) if content in self._wants else 0.0

    def rest(self, seconds: float) -> None:
        self.watcher.rest(seconds)

    def forgo(self, box: str) -> bool:
        return False

    def cancel(self) -> None:
        self.watcher.stop()
        self.rig.box.patience.hurry()

    def log(self, trial: Trial) -> bytes:
        return self.rig.store.log(trial.record)

    def difference(self, before: Base, after: Base) -> Patch:
        return self.rig.mirror.difference(before, after)

    def launch(self, point: Point, *, purpose: str, settle: bool = False, record: str = "", box: str = "") -> Trial:
        self.watcher.step(f"{purpose}: {point.name}")
        if self.warm and not self._cooled:
            try:
                return self._run(prepare(self.rig, point, warm=True), settle=settle, record=record)
            except NotWarm as refusal:
                self._cooled = True
                self.watcher.step(f"- {self.rig.box_name} starts normally from now on: {refusal.message}")
        return self._run(prepare(self.rig, point), settle=settle, record=record)

    def _run(self, prepared: Prepared, *, settle: bool, record: str) -> Trial:
        return run_trial(
            self.rig,
            prepared,
            until=self.until,
            watcher=self.watcher,
            settle_s=SETTLE_S if settle else 0.0,
            record_id=record or None,
            usual=self._usual(prepared.point),
        )

    def rejoin(self, point: Point, *, record: str, settle: bool = False) -> Trial | None:
        return rejoin_trial(
            self.rig,
            prepare(self.rig, point, warm=self.warm),
            launch_id=record,
            until=self.until,
            watcher=self.watcher,
            settle_s=SETTLE_S if settle else 0.0,
            usual=self._usual(point),
        )

    def _usual(self, point: Point) -> Mapping[Stage, float]:
        return usual(self.rig.store, point, box=self.rig.box_name)


class Journaled(Around):
    """A bench that writes an intent before each launch, the trial after it, and what the search was told of it.

    On ``--resume`` the journal's trials are handed out first, each once, to whoever asks for what they ran; the
    bisection, being a function of its trials, then stands where it stood. A launch that the journal intended and
    never saw the end of is joined again, if it is still there.
    """

    def __init__(self, inner: Bench, *, journal: Journal, store: Store) -> None:
        super().__init__(inner)
        self.journal = journal
        self.store = store
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[Entry]] = {}
        for entry in standing(journal):
            self._waiting.setdefault(entry.data["content_id"], deque()).append(entry)
        self._running = {entry.data["content_id"]: entry.data["record"] for entry in left_running(journal)}
        self._told = {_as_told(entry.data) for entry in journal.entries() if entry.event == "told"}

    def launch(self, point: Point, *, purpose: str, settle: bool = False, record: str = "", box: str = "") -> Trial:
        content = self.content(point)
        with self._lock:
            for entry in tuple(self._waiting.get(content, ())):
                kept = self.store.load(entry.data["record"])
                if box in ("", kept.box):
                    self._waiting[content].remove(entry)
                    return trial_of(kept, point, reused=entry.data["reused"])
            running = self._running.pop(content, "")
        trial = self.inner.rejoin(point, record=running, settle=settle) if running else None
        if trial is None:
            record = record or new_id()
            self._note("intent", purpose=purpose, point=point.name, content_id=content, record=record)
            trial = self.inner.launch(point, purpose=purpose, settle=settle, record=record, box=box)
        event = "void" if is_transient(trial.verdict) else "trial"
        self._note(
            event, purpose=purpose, point=point.name, content_id=content, record=trial.record, reused=trial.reused
        )
        return trial

    def has(self, content: str, *, purpose: str) -> bool:
        """Whether the journal has a trial of it for that purpose that nobody has asked for yet."""
        with self._lock:
            return any(entry.data["purpose"] == purpose for entry in self._waiting.get(content, ()))

    def tell(self, **told: str) -> None:
        """Write down what the search was told of a trial; what stands there already is not written again."""
        if _as_told(told) not in self._told:
            self._told.add(_as_told(told))
            self._note("told", **told)

    def around(self, inner: Bench) -> Journaled:
        """The same journal around another bench."""
        other = copy.copy(self)
        other.inner = inner
        return other

    def _note(self, event: str, **data: object) -> None:
        with self._lock:
            self.journal.append(event, **data)


def _as_told(told: Mapping[str, str]) -> tuple[str, ...]:
    return told["record"], told["observation"], told["why"]


def in_journal(bench: Bench, content: str, *, purpose: str) -> bool:
    """Whether a launch of it for that purpose would come from the journal."""
    journaled = _journaled(bench)
    return journaled is not None and journaled.has(content, purpose=purpose)


def tell_journal(bench: Bench, record: str, observation: Observation, *, why: str) -> None:
    """Write down what the search was told of a trial, and why it had asked, where the bench keeps a journal."""
    if journaled := _journaled(bench):
        journaled.tell(record=record, observation=observation.value, why=why)


def _journaled(bench: Bench) -> Journaled | None:
    while isinstance(bench, Around):
        if isinstance(bench, Journaled):
            return bench
        bench = bench.inner
    return None


def left_running(journal: Journal) -> list[Entry]:
    """Intents without a trial: what was running when the client went away, newest last."""
    open_intents: dict[str, Entry] = {}
    for entry in journal.entries():
        if entry.event == "intent":
            open_intents[entry.data["content_id"]] = entry
        elif entry.event in ("trial", "void"):
            open_intents.pop(entry.data["content_id"], None)
    return list(open_intents.values())


def standing(journal: Journal) -> list[Entry]:
    """The journal's trials that were not undone, in their order."""
    entries = list(journal.entries())
    undone = Counter(entry.data["record"] for entry in entries if entry.event == "undo")
    return [entry for entry in entries if entry.event == "trial" and not undone[entry.data["record"]]]


def marks(journal: Journal) -> dict[str, Observation]:
    """What people said of points, by content id; the last word counts."""
    said: dict[str, Observation] = {}
    for entry in journal.entries():
        if entry.event == "mark":
            said[entry.data["content_id"]] = Observation(entry.data["observation"])
        elif entry.event == "unmark":
            said.pop(entry.data["content_id"], None)
    return said


def trial_of(record: Record, point: Point, *, reused: bool = False) -> Trial:
    """A recorded launch as the trial of a point that runs the same."""
    return Trial(
        record=record.id,
        point=point,
        content_id=record.content_id,
        verdict=record.judged,
        by_hand=record.by_hand,
        timings=record.timings,
        reused=reused,
        machine=record.machine,
        box=record.box,
        warm=record.warm,
    )
