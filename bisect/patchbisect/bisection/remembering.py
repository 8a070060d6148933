"""Verdicts of earlier bisections, where they still count."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from patchbisect.bisection.bench import Around, Bench, Reading, trial_of
from patchbisect.bisection.judging import reached
from patchbisect.bisection.machines import Machine, hardware
from patchbisect.errors import UsageError
from patchbisect.model import Base, Outcome, Patch, Point, Stage
from patchbisect.records import Store
from patchbisect.trial import SETTLE_S, Trial
from patchbisect.wire import Json

FROM_MEMORY = frozenset({"search", "axes", "band", "together", "proof"})
"""Purposes that an old verdict may serve. An end, and whatever is launched again, is launched: it shows today."""
AIM = "bad end, from its record"
"""To know what to aim short starts at any old failure will do, whatever was installed then: they show it themselves."""


@dataclass(frozen=True, slots=True)
class _Setting:
    """What the server ran in, besides what its content id says."""

    interpreter: str
    packages: Mapping[str, str]

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> _Setting | None:
        """From a record; None where that does not say all of it."""
        command, packages = document.get("command"), document.get("provenance", {}).get("packages")
        return cls(interpreter=command[0], packages=dict(packages)) if command and packages else None


class Remembering(Around):
    """A bench that knows what the same content did before on the same box and hardware, with the same packages.

    Each old verdict stands in for one launch at most: it is one observation. Which packages an interpreter has today is
    known from its last launch, so nothing is taken from memory before there was one.
    ``without`` are records that count otherwise: those of the journal that is resumed.
    """

    def __init__(
        self,
        inner: Bench,
        *,
        store: Store,
        box: str,
        machine: Machine,
        until: Stage,
        without: Collection[str] = (),
    ) -> None:
        super().__init__(inner)
        self.store = store
        self.until = until
        self._lock = threading.Lock()
        self._today: dict[str, _Setting] = {}
        """By interpreter: a base may have an environment of its own."""
        self._known: dict[str, tuple[str, _Setting]] = {}
        for document in store.documents():
            identifier, setting = document["id"], _Setting.of(document)
            if identifier in without or setting is None or store.is_disowned(identifier):
                continue
            if _counts(document, box=box, machine=machine, until=until):
                self._known[document["content_id"]] = identifier, setting

    def launch(self, point: Point, *, purpose: str, settle: bool = False, record: str = "", box: str = "") -> Trial:
        known = self._recalled(point, settle=settle, purpose=purpose)
        if known is not None:
            return known
        trial = self.inner.launch(point, purpose=purpose, settle=settle, record=record, box=box)
        self._look_around(trial)
        return trial

    def rejoin(self, point: Point, *, record: str, settle: bool = False) -> Trial | None:
        trial = self.inner.rejoin(point, record=record, settle=settle)
        if trial is not None:
            self._look_around(trial)
        return trial

    def has_failed(self, content: str) -> bool:
        """Whether what is remembered of that content is a failure."""
        record, _ = self._known.get(content, ("", None))
        return bool(record) and not reached(self.store.load(record).judged, until=self.until)

    def _recalled(self, point: Point, *, settle: bool, purpose: str) -> Trial | None:
        if purpose != AIM and purpose not in FROM_MEMORY:
            return None
        content = self.content(point)
        with self._lock:
            record, then = self._known.get(content, ("", None))
            if then is None or (purpose != AIM and self._today.get(then.interpreter) != then):
                return None
            del self._known[content]
        trial = trial_of(self.store.load(record), point, reused=True)
        return trial if not settle or _settled(trial) else None

    def _look_around(self, trial: Trial) -> None:
        """Learn from a launch of today what the box runs with."""
        setting = _Setting.of(self.store.load(trial.record).model_dump())
        if setting is not None:
            with self._lock:
                self._today[setting.interpreter] = setting


def _settled(trial: Trial) -> bool:
    """Whether a server that got there was watched long enough to stay there."""
    got_there = trial.verdict.outcome in (Outcome.READY, Outcome.KV_ALLOCATED)
    return not got_there or trial.timings.get("settled", 0.0) >= SETTLE_S


def _counts(document: Json, *, box: str, machine: Machine, until: Stage) -> bool:
    return (
        document.get("origin", "trial") == "trial"
        and document["box"] == box
        and document["point"]["until"] == until.value
        and document["verdict"]["outcome"] != Outcome.VOID.value
        and hardware(document.get("machine", {})) == hardware(machine)
    )


def has_failed(bench: Bench, content: str) -> bool:
    """Whether the bench remembers a failure of that content, which a launch for ``AIM`` would give."""
    while isinstance(bench, Around):
        if isinstance(bench, Remembering):
            return bench.has_failed(content)
        bench = bench.inner
    return False


class Recalled(Around):
    """A bench that hands out trials of this bisection that are known already, each once, before it launches."""

    def __init__(self, inner: Bench, trials: Iterable[Trial]) -> None:
        super().__init__(inner)
        self._known = {trial.content_id: trial for trial in trials}

    def launch(self, point: Point, *, purpose: str, settle: bool = False, record: str = "", box: str = "") -> Trial:
        known = self._known.pop(self.content(point), None)
        if known is not None:
            return replace(known, point=point, reused=True)
        return self.inner.launch(point, purpose=purpose, settle=settle, record=record, box=box)


class Shut:
    """A bench that launches nothing and reaches for no box: for reading a journal again."""

    width = 1

    def __init__(self, inner: Reading) -> None:
        self.inner = inner

    def content(self, point: Point) -> str:
        return self.inner.content(point)

    def log(self, trial: Trial) -> bytes:
        return self.inner.log(trial)

    def difference(self, before: Base, after: Base) -> Patch:
        return self.inner.difference(before, after)

    def launch(self, point: Point, *, purpose: str, settle: bool = False, record: str = "", box: str = "") -> Trial:
        """Raises UsageError."""
        raise UsageError(
            f"the journal ends before the answer: {point.name} was not launched ({purpose})",
            remedy="invoke bisect --resume",
        )

    def rejoin(self, point: Point, *, record: str, settle: bool = False) -> None:
        """What still runs is left to ``--resume``."""

    def preparation_s(self, content: str) -> float:
        """Nothing is launched."""
        return 0.0

    def rest(self, seconds: float) -> None:
        """Nothing is tried again."""

    def forgo(self, box: str) -> bool:
        """What was launched elsewhere afterwards is in the journal."""
        return True

    def cancel(self) -> None:
        """Nothing runs."""
