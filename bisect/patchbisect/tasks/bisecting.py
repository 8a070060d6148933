"""``bisect`` and what reads its journal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import invoke

from patchbisect.tasks.face import console, emit, negative, say, task
from patchbisect.tasks.lab import mirror_of, rig_of

if TYPE_CHECKING:
    from patchbisect.bisection import Asked, Question
    from patchbisect.config import Project

_HELP = {
    "good": "a point that starts, like clean, 3, run:ID",
    "bad": "a point that does not, like HEAD",
    "box": "the box to launch on",
    "profile": "the launch command; both ends may name their own as POINT@PROFILE",
    "until": "how far a start must get: kv-allocated or ready",
    "bad-is": "what counts as bad: the bad end's signature, its outcome, or any failure",
    "rates": "deterministic (the same point always ends the same way) or unknown (any launch may err)",
    "set": "flag:NAME=VALUE or env:NAME=VALUE at both ends; repeatable",
    "good-set": "the same at the good end only",
    "bad-set": "the same at the bad end only",
    "budget-launches": "stop after so many launches with the best that is known",
    "resume": "go on with the last bisection, or with --of ID",
    "of": "the bisection to resume or read",
    "plain": "lines instead of a screen while it runs",
    "plan": "print the timeline and the expected number of launches; launch nothing",
    "json": "print one JSON document",
}


@task(default=True, help=_HELP, iterable=["set", "good_set", "bad_set"])
def bisect(
    ctx: invoke.Context,
    good: str = "clean",
    bad: str = "HEAD",
    box: str = "",
    profile: str = "",
    until: str = "",
    bad_is: str = "signature",
    rates: str = "deterministic",
    set: list[str] | None = None,
    good_set: list[str] | None = None,
    bad_set: list[str] | None = None,
    budget_launches: int = 0,
    resume: bool = False,
    of: str = "",
    plan: bool = False,
    plain: bool = False,
    json: bool = False,
) -> None:
    """Name the change between two points that broke the start, and prove it.

    Both ends are launched first; then as few points between them as the search needs; then what the proof needs.
    Ctrl-C leaves no server behind and keeps what was learnt: --resume goes on.

    Example: invoke bisect --good clean --bad HEAD
    """
    from patchbisect.bisection import Asked
    from patchbisect.config import load_project

    conducted(
        load_project(),
        Asked(
            good=good,
            bad=bad,
            box=box,
            profile=profile,
            until=until,
            bad_is=bad_is,
            rates=rates,
            sets=tuple(set or ()),
            good_sets=tuple(good_set or ()),
            bad_sets=tuple(bad_set or ()),
            budget_launches=budget_launches,
        ),
        resume=(of or "last") if resume else "",
        plan=plan,
        plain=plain,
        json=json,
    )


def conducted(
    project: Project, asked: Asked, *, resume: str, plan: bool = False, plain: bool = False, json: bool = False
) -> None:
    """One bisection, begun or resumed, shown as it goes and at its end."""
    from dataclasses import asdict

    from patchbisect.bisection import AnswerKind, OnRig, begin, conduct, finding_to_json, resumed, understand
    from patchbisect.report.live import watching
    from patchbisect.report.text import finding_page

    journal = None
    if resume:
        journal, asked = resumed(resume, project=project)
    mirror = mirror_of(project)
    understood = understand(asked, project=project, mirror=mirror)
    for warning in understood.warnings:
        say(f"note: {warning}")
    if plan:
        planned(understood.question, json=json)
        return
    with rig_of(project, mirror=mirror, box=asked.box) as rig:
        journal = journal or begin(asked, project=project)
        question = understood.question
        say(f"bisection {journal.identifier}: {asked.good} .. {asked.bad}, {len(question.timeline.changes)} changes")
        what = f"bisection {journal.identifier}: {asked.good} .. {asked.bad} on {rig.box_name}"
        with watching(project.state, what=what, plainly=plain) as watcher:
            finding = conduct(
                question,
                OnRig(rig, until=question.until, watcher=watcher),
                journal=journal,
                store=rig.store,
                notify=lambda text: watcher.step(f"- {text}"),
                progress=lambda progress: watcher.search(**asdict(progress)),
            )
    document = {"id": journal.identifier, **finding_to_json(finding)}
    if json:
        emit(document)
    else:
        console().print(finding_page(document))
    if finding.answer not in (AnswerKind.FOUND, AnswerKind.SET):
        raise negative()


def planned(question: Question, *, json: bool) -> None:
    """The timeline and what it will cost, from the search itself."""
    from patchbisect.bisection import change_to_json
    from patchbisect.search import CulpritSearch

    changes = [change_to_json(change, k) for k, change in enumerate(question.timeline.changes, start=1)]
    forecast = CulpritSearch(changes=max(len(changes), 1), rates=question.rates, confidence=question.confidence).plan()
    if json:
        emit({"timeline": changes, "launches": {"expected": forecast.expected, "worst": forecast.worst}})
        return
    for change in changes:
        print(f"{change['position']:4d}  {change['kind']:8}  {change['title']}")
    print(f"launches: {forecast.expected:.1f} expected, {forecast.worst} at worst, for the search")
    print("          2 more for the ends, up to 2 more for the proof")


@task(help={"of": "the bisection; default: the last one", "json": "print one JSON document"})
def log(ctx: invoke.Context, of: str = "last", json: bool = False) -> None:
    """Print a bisection's journal: every intent, trial and answer.

    Example: invoke bisect.log
    """
    from patchbisect.bisection import resumed
    from patchbisect.config import load_project

    journal, _ = resumed(of, project=load_project())
    entries = [{"at": entry.at, "event": entry.event, **entry.data} for entry in journal.entries()]
    if json:
        emit(entries)
        return
    for entry in entries:
        shown = [str(entry[key]) for key in ("purpose", "point", "record") if key in entry]
        print(f"{entry['at']}  {entry['event']:7}  {'  '.join(shown)}")


collection = invoke.Collection("bisect", bisect, log)
