"""Several boxes side by side as one bench."""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence

from patchbisect.bisection.bench import Bench
from patchbisect.errors import BoxError
from patchbisect.model import Base, Patch, Point
from patchbisect.trial import Trial


class Fleet:
    """Hands each launch to a box that is free. A box that fails is left out from then on; another takes its trial.

    All boxes must be alike: a content id does not name the box it runs on.
    """

    def __init__(self, benches: Sequence[Bench], *, notify: Callable[[str], None]) -> None:
        if not benches:
            raise ValueError("a fleet needs a box")
        self.benches = tuple(benches)
        self.notify = notify
        self._free: queue.SimpleQueue[Bench | None] = queue.SimpleQueue()
        self._alive = len(self.benches)
        for bench in self.benches:
            self._free.put(bench)

    @property
    def width(self) -> int:
        return len(self.benches)

    def content(self, point: Point) -> str:
        return self.benches[0].content(point)

    def cancel(self) -> None:
        for bench in self.benches:
            bench.cancel()

    def log(self, trial: Trial) -> bytes:
        return self.benches[0].log(trial)

    def difference(self, before: Base, after: Base) -> Patch:
        return self.benches[0].difference(before, after)

    def rejoin(self, point: Point, *, record: str, settle: bool = False) -> Trial | None:
        """On whichever box it still is."""
        joined = (bench.rejoin(point, record=record, settle=settle) for bench in self.benches)
        return next((trial for trial in joined if trial is not None), None)

    def launch(self, point: Point, *, purpose: str, settle: bool = False, record: str = "") -> Trial:
        """One launch on whichever box is free. Raises the last box's BoxError when none is left."""
        while (bench := self._free.get()) is not None:
            try:
                trial = bench.launch(point, purpose=purpose, settle=settle, record=record)
            except BoxError as error:
                self._alive -= 1
                if not self._alive:
                    # Whoever waits for a box must wake up.
                    for _ in self.benches:
                        self._free.put(None)
                    raise
                self.notify(f"a box is left out from now on: {error.message}")
            except BaseException:
                self._free.put(bench)
                raise
            else:
                self._free.put(bench)
                return trial
        raise BoxError("no box is left", remedy="invoke doctor")
