"""The bench of a bisection from the boxes that it may use."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, replace

from patchbisect.bisection.bench import Bench, OnRig
from patchbisect.bisection.finding import Question
from patchbisect.bisection.fleet import Fleet
from patchbisect.bisection.remembering import Remembering
from patchbisect.journal import Journal
from patchbisect.model import Stage
from patchbisect.trial import Rig, Watcher


def bench_on(
    rigs: Sequence[Rig],
    question: Question,
    *,
    journal: Journal,
    fresh: bool,
    watcher: Watcher,
    notify: Callable[[str], None],
    until: Stage | None = None,
) -> Bench:
    """One box, or several side by side; unless ``fresh``, what each did before counts, once.

    ``until`` replaces the question's.
    """
    if until is not None:
        question = replace(question, until=until)
    own = {entry.data["record"] for entry in journal.entries() if entry.data.get("record")}
    benches = {rig.box_name: _one(rig, question, own=own, fresh=fresh, watcher=watcher) for rig in rigs}
    return benches[rigs[0].box_name] if len(benches) == 1 else Fleet(benches, notify=notify)


def _one(rig: Rig, question: Question, *, own: Collection[str], fresh: bool, watcher: Watcher) -> Bench:
    bench = OnRig(rig, until=question.until, watcher=watcher)
    if fresh:
        return bench
    machine = asdict(rig.box.hello())
    return Remembering(bench, store=rig.store, box=rig.box_name, machine=machine, until=question.until, without=own)
