"""The bench of a bisection from the boxes that it may use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from patchbisect.bisection.bench import Bench, OnRig
from patchbisect.bisection.door import Door
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


@dataclass(frozen=True, slots=True)
class Terms:
    """What all benches of one bisection have in common. Unless ``fresh``, what a box did before counts, once."""

    question: Question
    journal: Journal
    store: Store
    fresh: bool
    watcher: Watcher
    notify: Callable[[str], None]

    def remembering(self, bench: Bench, *, box: str, machine: Machine, until: Stage) -> Bench:
        if self.fresh:
            return bench
        own = {entry.data["record"] for entry in self.journal.entries() if entry.data.get("record")}
        return Remembering(bench, store=self.store, box=box, machine=machine, until=until, without=own)


def bench_on(rigs: Sequence[Rig], terms: Terms, until: Stage, warm: bool) -> Bench:
    """One box, or several side by side, for starts that end at ``until``, with ``warm`` from a warm process.

    Raises UsageError for boxes that are not alike.
    """
    benches: dict[str, Bench] = {}
    machines: dict[str, Machine] = {}
    for rig in rigs:
        bench = OnRig(rig, until=until, watcher=terms.watcher, warm=warm)
        machines[rig.box_name] = machine = asdict(rig.box.hello())
        benches[rig.box_name] = terms.remembering(bench, box=rig.box_name, machine=machine, until=until)
    return _side_by_side(benches, machines, notify=terms.notify)


def bench_through(door: Door, terms: Terms, until: Stage, warm: bool, *, desk: Desk, call: Call) -> Bench:
    """The same for boxes that workers elsewhere have: one that does not answer is left out, one that comes joins.

    ``warm`` changes nothing: a worker leases its box for each launch, and no warm process outlives a lease.
    Raises BoxError where none answers; UsageError where one would run something else than asked for.
    """
    reception = _Reception(terms, until, desk=desk, call=call)
    met: list[Worker] = []
    for worker in door.inside:
        met.append(worker)
        try:
            reception.welcome(worker, reception.bench(worker))
        except BoxError as error:
            if worker is door.inside[-1] and not reception.benches:
                raise
            terms.notify(f"{error.message}; left out")
    reception.fleet = Fleet(reception.benches, notify=terms.notify)
    door.greet(reception, met=len(met))
    return reception.fleet


class _Reception:
    """Takes workers into one bench, once each has shown that it runs the same content on the same kind of machine."""

    def __init__(self, terms: Terms, until: Stage, *, desk: Desk, call: Call) -> None:
        self.terms = terms
        self.until = until
        self.desk = desk
        self.call = call
        self.machines: dict[str, Machine] = {}
        self.benches: dict[str, Bench] = {}
        """Of those that are there at the beginning."""
        self.fleet: Fleet | None = None

    def bench(self, worker: Worker) -> OnWorker:
        terms = self.terms
        return OnWorker(worker, self.desk, call=self.call, store=terms.store, until=self.until, watcher=terms.watcher)

    def welcome(self, worker: Worker, bench: OnWorker) -> None:
        machine = bench.look(self.terms.question.timeline.good)
        _same_kind({**self.machines, worker.name: machine})
        self.machines[worker.name] = machine
        known = self.terms.remembering(bench, box=worker.name, machine=machine, until=self.until)
        if self.fleet is None:
            self.benches[worker.name] = known
        else:
            self.fleet.join(worker.name, known)
            self.notify(f"box {worker.name} has come and takes part from now on")

    def notify(self, text: str) -> None:
        self.terms.notify(text)


def _side_by_side(
    benches: Mapping[str, Bench], machines: Mapping[str, Machine], *, notify: Callable[[str], None]
) -> Bench:
    if len(benches) == 1:
        return next(iter(benches.values()))
    _same_kind(machines)
    return Fleet(benches, notify=notify)


def _same_kind(machines: Mapping[str, Machine]) -> None:
    """Raises UsageError."""
    if different := unlike(machines):
        raise UsageError(
            f"the boxes are not alike, and their verdicts must not be mixed: {different}",
            remedy="name only those of one kind (--boxes)",
        )
