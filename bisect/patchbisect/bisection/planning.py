"""What a bisection will cost, from the search itself and from what earlier launches took. Launches nothing."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

from patchbisect.bisection.bench import OnDesk
from patchbisect.bisection.course import launch_s
from patchbisect.bisection.endpoints import SPREAD_LAUNCHES
from patchbisect.bisection.finding import Question, change_to_json
from patchbisect.bisection.ground import Ground
from patchbisect.bisection.remembering import Shut
from patchbisect.errors import PointUnbuildable
from patchbisect.model import Axis
from patchbisect.records import Store
from patchbisect.search import CulpritSearch, CulpritSet, Observation, Plan
from patchbisect.trial import Wheels, prepare
from patchbisect.wire import Json

ENDS = 2
PROOF = 2
"""Launches for the proof, at most: the search's own launches of culprit and parent count, and those of the ends."""
TWICE = 1
"""The bad end, where the last change is guilty and a failure is taken at its word: its proof takes one launch less."""
_RECENT = 20


@dataclass(frozen=True, slots=True)
class Equipment:
    """Environments that the timeline's points need on a box: how many are to be built at most, in so many seconds.

    ``untestable`` are positions whose wheels the box may not have, and why.
    """

    build: int
    there: int
    seconds: float
    untestable: Mapping[int, str]


def equipment(question: Question, bench: OnDesk, *, wheels: Callable[[], AbstractContextManager[Wheels]]) -> Equipment:
    """What the points of the timeline need beside the box's own environment.

    ``wheels`` reaches the box, and is only called where a point may need something else. Raises BoxError.
    """
    ground = Ground(question.timeline, Shut(bench))
    last = len(question.timeline.changes)
    moving = any(change.axis in (Axis.BASE, Axis.PACKAGES) for change in question.timeline.changes)
    if bench.desk.config.wheels_policy == "ignore":
        moving = any(change.axis is Axis.PACKAGES for change in question.timeline.changes)
    spots = {k: ground.spot(range(k)) for k in (range(last + 1) if moving else (0, last))}
    wants = {k: prepare(bench.desk, spot.point).wants for k, spot in spots.items() if not spot.unbuildable}
    wanting = {k: one for k, one in wants.items() if one.content}
    if not wanting:
        return Equipment(build=0, there=0, seconds=0.0, untestable={})
    missing: set[str] = set()
    needed: set[str] = set()
    untestable: dict[int, str] = {}
    with wheels() as of_box:
        for k, one in wanting.items():
            try:
                order = of_box.fit(one).order
                if order:
                    needed.add(order.key)
                    missing |= {key for key in [of_box.missing(one)] if key}
            except PointUnbuildable as fault:
                untestable[k] = fault.message
        seconds = len(missing) * of_box.build_s if missing else 0.0
    return Equipment(build=len(missing), there=len(needed - missing), seconds=seconds, untestable=untestable)


@dataclass(frozen=True, slots=True)
class Forecast:
    """Launches, ends and proof included; ``worst`` where one change is guilty and every point tells.

    ``seconds`` is what one launch takes, None where no run is on record.
    """

    axes: dict[Axis, int]
    expected: float
    worst: int
    seconds: float | None
    runs: int


def forecast(question: Question, *, store: Store, box: str) -> Forecast:
    """From the timeline and the records of that box and profile."""
    if not question.timeline.changes:
        return Forecast(axes={}, expected=0.0, worst=0, seconds=None, runs=0)
    axes: dict[Axis, int] = {}
    for change in question.timeline.changes:
        axes[change.axis] = axes.get(change.axis, 0) + 1
    search = [_line(question, changes=max(axes.values()))]
    if len(axes) > 1:
        search.append(_corners(question, axes=len(axes)))
    took = _seconds(question, store=store, box=box)
    twice = TWICE if question.rates.kind == "deterministic" and not question.bad_when else 0
    besides = ENDS + min(PROOF, len(question.timeline.changes) - 1 + twice)
    if question.bad_when:
        besides += SPREAD_LAUNCHES - 1
    return Forecast(
        axes=axes,
        expected=besides + sum(plan.expected for plan in search),
        worst=besides + sum(plan.worst for plan in search),
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
        launch_s(document["timings"])
        for document in store.documents()
        if document["box"] == box
        and document["point"]["profile"] == profile
        and document["timings"].get("total")
        and not document.get("warm")
    ]
    return took[-_RECENT:]


def plan_to_json(question: Question, plan: Forecast, *, needs: Equipment | None = None, made: int = 0) -> Json:
    """The document of ``bisect --plan --json``; without ``needs`` the box could not tell what it has.

    ``made`` launches were made already, where the bisection is one that is resumed: they are among those expected.
    """
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
        "launches": {"expected": round(plan.expected, 1), "worst": plan.worst, "made": made},
        "budget": {"launches": question.budget.launches, "seconds": question.budget.seconds},
        "repeats": None if question.bad_when else question.repeats,
        "minutes": minutes,
        "environments": _equipment_to_json(needs) if needs else None,
    }


def _equipment_to_json(needs: Equipment) -> Json:
    return {
        "build": needs.build,
        "there": needs.there,
        "minutes": round(needs.seconds / 60, 1),
        "untestable": [{"position": k, "why": why} for k, why in needs.untestable.items()],
    }
