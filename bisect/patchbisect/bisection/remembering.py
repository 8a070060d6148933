"""Verdicts of earlier bisections, where they still count."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable
from dataclasses import replace

from patchbisect.bisection.bench import Around, Bench, trial_of
from patchbisect.bisection.machines import Machine, boot, hardware
from patchbisect.errors import UsageError
from patchbisect.model import Outcome, Point, Stage
from patchbisect.records import Store
from patchbisect.trial import Trial
from patchbisect.wire import Json


class Remembering(Around):
    """A bench that knows what the same content did on the same box and hardware before.

    Each old verdict stands in for one launch at most: it is one observation. The ``ends`` (content ids) are taken
    from memory only if the machine has not been started anew since: an old baseline is what a bisection must not trust.
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
        ends: Collection[str],
        without: Collection[str] = (),
    ) -> None:
        super().__init__(inner)
        self.store = store
        self._lock = threading.Lock()
        self._known: dict[str, str] = {}
        for document in store.documents():
            if document["id"] not in without and _counts(document, box=box, machine=machine, until=until, ends=ends):
                self._known[document["content_id"]] = document["id"]

    def launch(self, point: Point, *, purpose: str, settle: bool = False, record: str = "") -> Trial:
        with self._lock:
            known = self._known.pop(self.content(point), None)
        if known is not None:
            return trial_of(self.store.load(known), point, reused=True)
        return self.inner.launch(point, purpose=purpose, settle=settle, record=record)


def _counts(document: Json, *, box: str, machine: Machine, until: Stage, ends: Collection[str]) -> bool:
    there = document.get("machine", {})
    same = boot if document.get("content_id") in ends else hardware
    return (
        document.get("origin", "trial") == "trial"
        and document["box"] == box
        and document["point"]["until"] == until.value
        and document["verdict"]["outcome"] != Outcome.VOID.value
        and same(there) == same(machine)
    )


class Recalled(Around):
    """A bench that hands out trials of this bisection that are known already, each once, before it launches."""

    def __init__(self, inner: Bench, trials: Iterable[Trial]) -> None:
        super().__init__(inner)
        self._known = {trial.content_id: trial for trial in trials}

    def launch(self, point: Point, *, purpose: str, settle: bool = False, record: str = "") -> Trial:
        known = self._known.pop(self.content(point), None)
        if known is not None:
            return replace(known, point=point, reused=True)
        return self.inner.launch(point, purpose=purpose, settle=settle, record=record)


class Shut(Around):
    """A bench that launches nothing: for reading a journal again."""

    def launch(self, point: Point, *, purpose: str, settle: bool = False, record: str = "") -> Trial:
        """Raises UsageError."""
        raise UsageError(
            f"the journal ends before the answer: {point.name} was not launched ({purpose})",
            remedy="invoke bisect --resume",
        )
