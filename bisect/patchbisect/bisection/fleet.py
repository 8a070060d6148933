"""Several boxes side by side as one bench."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping

from patchbisect.bisection.bench import Bench
from patchbisect.bisection.judging import is_transient
from patchbisect.errors import BoxError
from patchbisect.model import Base, Patch, Point
from patchbisect.trial import Trial

MOST_VOIDS = 3
"""Void launches in a row after which a box is left out, if there is another: it holds up the search."""


class Fleet:
    """Hands each launch to a box that is free. A box that fails is left out from then on; another takes its trial.

    All boxes must be alike: a content id does not name the box it runs on.
    """

    def __init__(self, benches: Mapping[str, Bench], *, notify: Callable[[str], None]) -> None:
        if not benches:
            raise ValueError("a fleet needs a box")
        self.benches = dict(benches)
        self.notify = notify
        self._changed = threading.Condition()
        self._free = list(self.benches)
        """Boxes at rest, the one that rests longest first."""
        self._usable = set(self.benches)
        self._reasons: dict[str, str] = {}
        """Why each box that is left out is."""
        self._voids: Counter[str] = Counter()
        """By box: void launches in a row."""

    @property
    def width(self) -> int:
        return len(self.benches)

    @property
    def _first(self) -> Bench:
        return next(iter(self.benches.values()))

    def content(self, point: Point) -> str:
        return self._first.content(point)

    def preparation_s(self, content: str) -> float:
        """By the first box: all are alike."""
        return self._first.preparation_s(content)

    def rest(self, seconds: float) -> None:
        self._first.rest(seconds)

    def forgo(self, box: str) -> bool:
        with self._changed:
            if not box or self._usable <= {box}:
                return False
            self._usable.discard(box)
            self._reasons.setdefault(box, f"box {box} is no longer what it was")
            self._free = [name for name in self._free if name != box]
            self._changed.notify_all()
        return True

    def join(self, box: str, bench: Bench) -> None:
        """One box more, from now on. One that was left out stays so."""
        with self._changed:
            if box not in self.benches:
                self.benches = {**self.benches, box: bench}
                self._usable.add(box)
                self._free.append(box)
                self._changed.notify_all()

    def cancel(self) -> None:
        for bench in self.benches.values():
            bench.cancel()

    def log(self, trial: Trial) -> bytes:
        return self._first.log(trial)

    def difference(self, before: Base, after: Base) -> Patch:
        return self._first.difference(before, after)

    def rejoin(self, point: Point, *, record: str, settle: bool = False) -> Trial | None:
        """On whichever box it still is; nothing else happens there meanwhile. Raises as ``launch`` does."""
        untried = set(self.benches)
        while (name := self._take(untried)) is not None:
            untried.discard(name)
            try:
                trial = self.benches[name].rejoin(point, record=record, settle=settle)
            except BoxError as error:
                self._leave_out(name, error)
            else:
                if trial is not None:
                    return trial
            finally:
                self._give_back(name)
        return None

    def launch(self, point: Point, *, purpose: str, settle: bool = False, record: str = "", box: str = "") -> Trial:
        """One launch on whichever box is free, or on ``box``. Raises BoxError when none is left, or not that one."""
        wanted = {box} if box else set(self.benches)
        while (name := self._take(wanted)) is not None:
            try:
                trial = self.benches[name].launch(point, purpose=purpose, settle=settle, record=record, box=box)
            except BoxError as error:
                self._leave_out(name, error)
                # Boxes may share a directory, and there the id is that of the launch that failed.
                record = ""
            else:
                self._count(name, trial)
                return trial
            finally:
                self._give_back(name)
        why = f"box {box} is left out" if box else "no box is left"
        raise BoxError("; ".join([why, *self._reasons.values()]), remedy="invoke doctor")

    def _take(self, wanted: Collection[str]) -> str | None:
        """Wait for one of these boxes to be at rest; None when all of them are left out."""

        def ready() -> list[str]:
            return [name for name in self._free if name in wanted]

        with self._changed:
            self._changed.wait_for(lambda: ready() or self._usable.isdisjoint(wanted))
            names = ready()
            if not names:
                return None
            self._free.remove(names[0])
            return names[0]

    def _give_back(self, name: str) -> None:
        with self._changed:
            if name in self._usable:
                self._free.append(name)
            self._changed.notify_all()

    def _count(self, name: str, trial: Trial) -> None:
        """Leave out a box where launch after launch is void."""
        with self._changed:
            self._voids[name] = self._voids[name] + 1 if is_transient(trial.verdict) else 0
            if self._voids[name] < MOST_VOIDS or self._usable <= {name}:
                return
            self._usable.discard(name)
            why = f"{MOST_VOIDS} launches in a row were void there, the last: {trial.verdict.why}"
            self._reasons[name] = why
        self._tell_left_out(name, why)

    def _leave_out(self, name: str, error: BoxError) -> None:
        """Raises ``error`` where it was the last box."""
        with self._changed:
            self._usable.discard(name)
            self._reasons[name] = error.message
            if not self._usable:
                raise error
        self._tell_left_out(name, error.message)

    def _tell_left_out(self, name: str, why: str) -> None:
        self.notify(f"box {name} is left out from now on: {why}")
