"""What a bisection will cost, from the search itself and from what earlier launches took. Launches nothing."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from patchbisect.bisection.finding import Question, change_to_json
from patchbisect.model import Axis
from patchbisect.records import Store
from patchbisect.search import CulpritSearch, CulpritSet, Observation, Plan
from patchbisect.wire import Json

ENDS = 2
PROOF = 2
"""Launches for the proof, at most: the search's own launches of culprit and parent count."""
_RECENT = 20


@dataclass(frozen=True, slots=True)
class Forecast:
    """Launches, ends and proof included; ``seconds`` is what one takes, None where no run is on record."""

    axes: dict[Axis, int]
    expected: float
    worst: int
    seconds: float | None
    runs: int


def forecast(question: Question, *, store: Store, box: str) -> Forecast:
    """From the timeline and the records of that box and profile."""
    axes: dict[Axis, int] = {}
    for change in question.timeline.changes:
        axes[change.axis] = axes.get(change.axis, 0) + 1
    search = [_line(question, changes=max(axes.values(), default=1))]
    if len(axes) > 1:
        search.append(_corners(question, axes=len(axes)))
    took = _seconds(question, store=store, box=box)
    return Forecast(
        axes=axes,
        expected=ENDS + PROOF + sum(plan.expected for plan in search),
        worst=ENDS + PROOF + sum(plan.worst for plan in search),
        seconds=statistics.mean(took) if took else None,
        runs=len(took),
    )


def _line(question: Question, *, changes: int) -> Plan:
    search = CulpritSearch(changes=changes, rates=question.rates, confidence=question.confidence)
    search.tell(0, Observation.GOOD)
    search.tell(changes, Observation.BAD)
    return search.plan()


def _corners(question: Question, *, axes: int) -> Plan:
    search = CulpritSet(toggles=axes, rates=question.rates, confidence=question.confidence)
    search.tell(frozenset(), Observation.GOOD)
    search.tell(frozenset(range(axes)), Observation.BAD)
    return search.plan()


def _seconds(question: Question, *, store: Store, box: str) -> list[float]:
    profile = question.timeline.bad.profile
    took = [
        float(document["timings"]["total"])
        for document in store.documents()
        if document["box"] == box and document["point"]["profile"] == profile and document["timings"].get("total")
    ]
    return took[-_RECENT:]


def plan_to_json(question: Question, plan: Forecast) -> Json:
    """The document of ``bisect --plan --json``."""
    minutes = None
    if plan.seconds is not None:
        minutes = {
            "expected": round(plan.expected * plan.seconds / 60, 1),
            "worst": round(plan.worst * plan.seconds / 60, 1),
            "launch": round(plan.seconds / 60, 2),
            "runs": plan.runs,
        }
    changes = question.timeline.changes
    return {
        "good": question.timeline.good.name,
        "bad": question.timeline.bad.name,
        "axes": {axis.value: count for axis, count in plan.axes.items()},
        "timeline": [change_to_json(change, k, secrets=question.secrets) for k, change in enumerate(changes, start=1)],
        "launches": {"expected": round(plan.expected, 1), "worst": plan.worst},
        "minutes": minutes,
    }
