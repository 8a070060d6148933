"""What people say about a bisection in its journal: take a trial back, mark a point, ask why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from patchbisect.bisection.bench import Reading, left_running, standing
from patchbisect.bisection.finding import Question, shown_verdict
from patchbisect.bisection.ground import Ground
from patchbisect.bisection.session import check_same
from patchbisect.config import remedy_for
from patchbisect.errors import UsageError
from patchbisect.journal import Entry, Journal
from patchbisect.model import Point
from patchbisect.records import Store
from patchbisect.timeline import label
from patchbisect.wire import Json


def take_back(journal: Journal, run: str = "", *, store: Store) -> Entry:
    """The trial (the last one, or that of ``run``) no longer counts, nor does any later bisection remember it.

    Raises UsageError where there is none.
    """
    trials = standing(journal)
    hits = [entry for entry in trials if entry.data["record"].startswith(run)] if run else trials[-1:]
    if run and any(entry.event == "undo" and entry.data["record"] == run for entry in journal.entries()):
        raise UsageError(
            f"trial {run} of bisection {journal.identifier} is taken back already",
            remedy=f"invoke bisect --resume --of {journal.identifier} goes on without it",
        )
    if len(hits) != 1:
        known = [entry.data["record"] for entry in trials]
        found = [entry.data["record"] for entry in hits]
        raise _none_or_many(journal, run or "to take back", found, known=known)
    journal.append("undo", record=hits[0].data["record"])
    store.disown(hits[0].data["record"], f"taken back in bisection {journal.identifier}")
    return hits[0]


@dataclass(frozen=True, slots=True)
class Named:
    """A point of a bisection: what it runs, and its name with the change that makes it."""

    content: str
    name: str


def point_named(
    journal: Journal,
    point: str,
    *,
    question: Question,
    bench: Reading,
    store: Store,
    resolve: Callable[[str], Point],
) -> Named:
    """A point of this bisection: ``k`` of its timeline, a run or a name of its journal, or any other name.

    ``resolve`` reads such a name. Raises UsageError for a point that is not in this bisection, and for a bisection
    that cannot go on: its points are others by now; PointUnbuildable.
    """
    check_same(question, bench, journal=journal, store=store)
    ground = Ground(question.timeline, bench)
    if point.isdecimal() and str(int(point)) == point:
        return _at(ground, int(point))
    launched = [entry.data for entry in journal.entries() if entry.event in ("intent", "trial", "void")]
    for data in reversed(launched):
        if point in (data["point"], data["record"]):
            return Named(content=data["content_id"], name=data["point"])
    content = bench.content(resolve(point))
    names = {data["content_id"]: data["point"] for data in launched}
    if content in names:
        return Named(content=content, name=names[content])
    for k in range(len(ground.changes) + 1):
        if ground.spot(range(k)).content == content:
            return _at(ground, k)
    raise UsageError(
        f"{point} is no point of bisection {journal.identifier}",
        remedy=f"say 0 to {len(ground.changes)} of its timeline, or a run of invoke bisect.log",
    )


def _at(ground: Ground, position: int) -> Named:
    if position > len(ground.changes):
        raise UsageError(f"the timeline has no point {position}", remedy=f"0 (good) to {len(ground.changes)} (bad)")
    spot = ground.spot(range(position))
    if spot.unbuildable:
        raise UsageError(f"point {position} cannot be built: {spot.unbuildable}", remedy="it is never launched")
    name, made_by = spot.point.name, label(ground.changes[position - 1]) if position else ""
    return Named(content=spot.content, name=name if made_by in name else f"{name} ({made_by})")


def mark_content(journal: Journal, content: str, *, point: str, verdict: str) -> None:
    """``good``, ``bad`` or ``skip`` stands in for every launch of that content; ``none`` takes it back."""
    if verdict == "none":
        journal.append("unmark", content_id=content, point=point)
    else:
        journal.append("mark", content_id=content, point=point, observation=verdict)


def _none_or_many(journal: Journal, run: str, hits: Sequence[str], *, known: Sequence[str]) -> UsageError:
    if not hits and any(entry.data["record"] == run for entry in left_running(journal)):
        return UsageError(
            f"trial {run} of bisection {journal.identifier} has not ended",
            remedy=f"invoke watch follows it; if it was interrupted, invoke bisect --resume --of {journal.identifier}",
        )
    if len(hits) > 1:
        return UsageError(
            f"'{run}' begins {len(hits)} trials of bisection {journal.identifier}",
            remedy=f"say more of it: {', '.join(hits[:5])}",
        )
    return UsageError(f"bisection {journal.identifier} has no trial {run}", remedy=remedy_for(run, known))


def reasons_of(journals: Sequence[Journal], run: str, *, store: Store) -> Json:
    """Why a trial was made, what it said, and what the search was told: of the first journal that has it.

    ``run`` is its id, the beginning of that, or what else ``store`` knows a run by. What the search was told is empty
    as long as it is not known what is bad. Raises UsageError for a run that is no trial there, or has not ended.
    """
    journal = _holder(journals, run)
    if journal is None:
        run = _named_run(store, run)
        journal = _holder(journals, run)
    if journal is None:
        raise _nobody(journals, run, store=store)
    entries = list(journal.entries())
    ended = {entry.data["record"]: entry for entry in entries if entry.event in ("trial", "void")}
    hits = [record for record in ended if record.startswith(run)]
    if len(hits) != 1:
        raise _none_or_many(journal, run, hits, known=list(ended))
    entry = ended[hits[0]]
    step = _told_of(entries, hits[0])
    return {
        "bisection": journal.identifier,
        "run": entry.data["record"],
        "point": entry.data["point"],
        "purpose": entry.data["purpose"],
        "why": step.get("why", ""),
        "verdict": step["verdict"] if "verdict" in step else _verdict(store, hits[0]),
        "told": step.get("observation") or ("void" if entry.event == "void" else ""),
        "undone": any(one.event == "undo" and one.data["record"] == entry.data["record"] for one in entries),
    }


def _told_of(entries: Sequence[Entry], record: str) -> Json:
    """What the last answer says of a trial, else what the search was told of it; empty where neither is there."""
    answers = [entry.data["finding"]["trials"] for entry in entries if entry.event == "answer"]
    in_answer = [trial for trial in (answers[-1] if answers else ()) if trial["run"] == record]
    told = [entry.data for entry in entries if entry.event == "told" and entry.data["record"] == record]
    return next(iter([*in_answer, *reversed(told)]), {})


def _verdict(store: Store, record: str) -> Json:
    """The verdict on record, as an answer shows it; empty where the record is gone."""
    try:
        return shown_verdict(dict(store.load(record).verdict))
    except UsageError:
        return {}


def _holder(journals: Sequence[Journal], run: str) -> Journal | None:
    """The first journal with a trial whose id begins so."""
    return next((journal for journal in journals if any(one.startswith(run) for one in _trials(journal))), None)


def _trials(journal: Journal) -> list[str]:
    return [entry.data["record"] for entry in journal.entries() if entry.event in ("intent", "trial", "void")]


def _named_run(store: Store, name: str) -> str:
    """The id of the run of that name; the name itself where there is none."""
    try:
        return store.resolve(name)
    except UsageError:
        return name


_NEAREST = 20
"""Trials that a wrong name is compared with, of the newest bisection first."""


def _nobody(journals: Sequence[Journal], run: str, *, store: Store) -> UsageError:
    where = f"bisection {journals[0].identifier}" if len(journals) == 1 else "any bisection"
    if run in (*store.ids(), *store.of_demo.ids()):
        return UsageError(f"run {run} is no trial of {where}", remedy=f"invoke show {run} says what it was")
    known = dict.fromkeys(record for journal in journals for record in _trials(journal))
    return UsageError(f"{run} is no trial of {where}", remedy=remedy_for(run, list(known)[:_NEAREST]))
