"""The bench of a bisection from the boxes that it may use."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, replace

from patchbisect.bisection.bench import Bench, OnRig
from patchbisect.bisection.finding import Question
from patchbisect.bisection.fleet import Fleet
from patchbisect.bisection.machines import Machine, unlike
from patchbisect.bisection.remembering import Remembering
from patchbisect.bisection.worker import Call, OnWorker, Worker
from patchbisect.errors import BoxError, UsageError
from patchbisect.journal import Journal
from patchbisect.model import Stage
from patchbisect.records import Store
from patchbisect.trial import Desk, Rig, Watcher


def bench_on(
    rigs: Sequence[Rig],
    question: Question,
    *,
    journal: Journal,
    fresh: bool,
    watcher: Watcher,
    notify: Callable[[str], None],
    until: Stage | None = None,
    warm: bool = False,
) -> Bench:
    """One box, or several side by side; unless ``fresh``, what each did before counts, once.

    ``until`` replaces the question's; with ``warm`` launches start from a warm process. Raises UsageError for boxes
    that are not alike.
    """
    if until is not None:
        question = replace(question, until=until)
    own = _records_of(journal)
    benches = {rig.box_name: _one(rig, question, own=own, fresh=fresh, watcher=watcher, warm=warm) for rig in rigs}
    machines = {rig.box_name: asdict(rig.box.hello()) for rig in rigs} if len(rigs) > 1 else {}
    return _side_by_side(benches, machines, notify=notify)


def _records_of(journal: Journal) -> set[str]:
    return {entry.data["record"] for entry in journal.entries() if entry.data.get("record")}


def _one(rig: Rig, question: Question, *, own: Collection[str], fresh: bool, watcher: Watcher, warm: bool) -> Bench:
    bench = OnRig(rig, until=question.until, watcher=watcher, warm=warm)
    if fresh:
        return bench
    machine = asdict(rig.box.hello())
    return Remembering(bench, store=rig.store, box=rig.box_name, machine=machine, until=question.until, without=own)


def bench_through(
    workers: Sequence[Worker],
    question: Question,
    *,
    desk: Desk,
    call: Call,
    journal: Journal,
    fresh: bool,
    watcher: Watcher,
    notify: Callable[[str], None],
    until: Stage | None = None,
    warm: bool = False,
) -> Bench:
    """The same for boxes that workers elsewhere have; one that does not answer is left out.

    ``warm`` changes nothing: a worker leases its box for each launch, and no warm process outlives a lease.
    Raises BoxError where none answers; UsageError where one would run something else than asked for.
    """
    until = until or question.until
    store = Store.of(call.project)
    own = _records_of(journal)
    benches: dict[str, Bench] = {}
    machines: dict[str, Machine] = {}
    for worker in workers:
        bench = OnWorker(worker, desk, call=call, store=store, until=until, watcher=watcher)
        try:
            machines[worker.name] = machine = bench.look(question.timeline.good)
        except BoxError as error:
            if worker is workers[-1] and not benches:
                raise
            notify(f"{error.message}; left out")
            continue
        known = Remembering(bench, store=store, box=worker.name, machine=machine, until=until, without=own)
        benches[worker.name] = bench if fresh else known
    return _side_by_side(benches, machines, notify=notify)


def _side_by_side(
    benches: Mapping[str, Bench], machines: Mapping[str, Machine], *, notify: Callable[[str], None]
) -> Bench:
    if len(benches) == 1:
        return next(iter(benches.values()))
    if different := unlike(machines):
        raise UsageError(
            f"the boxes are not alike, and their verdicts must not be mixed: {different}",
            remedy="name only those of one kind (--boxes)",
        )
    return Fleet(benches, notify=notify)
