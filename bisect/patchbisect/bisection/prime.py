"""The prime suspect of a search by short starts: its proof first, then its own two points, whole at once."""

from __future__ import annotations

import threading
from itertools import pairwise

from patchbisect.bisection.bench import Around, Bench
from patchbisect.bisection.ground import Ground, Spot
from patchbisect.bisection.judging import Judge, is_transient
from patchbisect.model import Point
from patchbisect.search import Observation
from patchbisect.trial import Trial


class PrimeSuspect(Around):
    """A bench of short starts, for a search that suspects one change above all others.

    Before that search launches the change's own point or its parent, the short starts of its proof are made. Where they
    bear the suspicion out, both points are started whole: if it is guilty they must be in the end, and then once is
    enough. Where they do not, nothing is lost but these two short starts.
    """

    def __init__(self, short: Bench, whole: Bench, ground: Ground, *, change: int, judge: Judge) -> None:
        super().__init__(short)
        self.started_whole: list[Trial] = []
        self._whole = whole
        self._judge = judge
        stops = pairwise(ground.line(sorted(ground.everything)))
        own = next((pair for pair in stops if change in pair[1].on - pair[0].on), ())
        self._own = dict(zip((spot.content for spot in own), (Observation.GOOD, Observation.BAD), strict=False))
        self._proof = (
            (ground.spot(ground.everything - {change}), Observation.GOOD),
            (ground.spot({change}), Observation.BAD),
        )
        self._borne_out: bool | None = None
        self._ahead: dict[str, Trial] = {}
        self._one_at_a_time = threading.Lock()

    def launch(self, point: Point, *, purpose: str, settle: bool = False, record: str = "", box: str = "") -> Trial:
        content = self.inner.content(point)
        if purpose == "search" and content in self._own and self._is_borne_out():
            trial = self._whole.launch(point, purpose=purpose, settle=settle, record=record, box=box)
            if not is_transient(trial.verdict):
                self.started_whole.append(trial)
            if self._judge.judge(trial.verdict) is not self._own[content]:
                self._borne_out = False
            return trial
        known = self._ahead.pop(content, None) if purpose == "proof" else None
        return known or self.inner.launch(point, purpose=purpose, settle=settle, record=record, box=box)

    def unasked(self) -> list[Trial]:
        """Starts of a proof that was never asked for: another change is guilty."""
        return list(self._ahead.values())

    def _is_borne_out(self) -> bool:
        with self._one_at_a_time:
            if self._borne_out is None:
                self._borne_out = all(self._shows(spot, wanted) for spot, wanted in self._proof)
            return self._borne_out

    def _shows(self, spot: Spot, wanted: Observation) -> bool:
        if spot.content in self._own:  # the first or last change of the line: its own points are its proof
            return True
        if spot.unbuildable:
            return False
        trial = self.inner.launch(spot.point, purpose="proof", settle=self._judge.late)
        if not is_transient(trial.verdict):
            self._ahead[spot.content] = trial
        return self._judge.judge(trial.verdict) is wanted
