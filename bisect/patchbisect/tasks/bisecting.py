"""``bisect`` and what reads its journal."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import invoke

from patchbisect.errors import BoxError, UsageError
from patchbisect.tasks.crew import crew_of, equipped, on_paper
from patchbisect.tasks.face import INTERRUPTED, console, emit, negative, say, task
from patchbisect.tasks.lab import demo_of, mirror_of

if TYPE_CHECKING:
    from patchbisect.bisection import Asked, Finding, Question
    from patchbisect.config import Project
    from patchbisect.journal import Journal

_HELP = {
    "good": "a point that starts, like clean, 3, run:ID",
    "bad": "a point that does not, like HEAD",
    "profile": "the launch command; both ends may name their own as POINT@PROFILE",
    "set": "flag:NAME=VALUE, env:NAME=VALUE or package:NAME=VERSION at both ends; repeatable",
    "good-set": "the same at the good end only",
    "bad-set": "the same at the bad end only",
    "until": "how far a start must get: kv-allocated or ready",
    "bad-is": "what counts as bad: the bad end's signature, its outcome, or any failure",
    "bad-when": 'a number is what is bad, like "kv_tokens < 900000", whether it starts or not',
    "fix": "find the change that repaired it: --bad is the older end, --good the newer one",
    "plan": "print the timeline and the expected number of launches; launch nothing",
    "resume": "go on with the last bisection, or with --of ID",
    "of": "the bisection to resume, by its id or the beginning of that",
    "fast": "shorter starts for the search, where the failure allows it; the answer is confirmed by whole ones",
    "fresh": "launch everything, also what was launched before with the same content on the same box",
    "budget-launches": "stop after so many launches in all, with the best that is known; --resume takes a larger one",
    "budget-minutes": "the same in minutes of box time",
    "depth": "queue (a commit of this repository), change (a patch, an upstream commit, a setting) or hunk",
    "carry": "patches that every point needs to start at all: 1,4",
    "path": "only upstream commits that touch this path; repeatable (default: python/sglang and its pyproject.toml)",
    "full-history": "upstream commits inside merged branches too, not only first parents",
    "follow-baseline": "when the good end fails, search what changed since it last started",
    "rates": "deterministic (the same point always ends the same way) or unknown (any launch may err)",
    "confidence": "how sure to be before one change is named",
    "repeats": "further launches of an end that disagrees",
    "box": "the box to launch on",
    "boxes": "several boxes, alike, to launch on side by side: a,b,c",
    "wait-for-box": "seconds to wait while somebody else has the box or its GPUs",
    "engine": "dask: launch through the workers of a Dask cluster (--boxes: of those only these)",
    "scheduler": "where its scheduler is, like tcp://head:8786",
    "export-branch": "write the timeline as a branch of this repository, for git bisect run; launch nothing",
    "plain": "lines instead of a screen while it runs",
    "json": "print one JSON document",
}


@task(default=True, help=_HELP, iterable=["set", "good_set", "bad_set", "path"])
def bisect(
    ctx: invoke.Context,
    good: str = "clean",
    bad: str = "HEAD",
    profile: str = "",
    set: list[str] | None = None,
    good_set: list[str] | None = None,
    bad_set: list[str] | None = None,
    until: str = "",
    bad_is: str = "signature",
    bad_when: str = "",
    fix: bool = False,
    plan: bool = False,
    resume: bool = False,
    of: str = "",
    fast: bool = False,
    fresh: bool = False,
    budget_launches: int = 0,
    budget_minutes: float = 0.0,
    depth: str = "change",
    carry: str = "",
    path: list[str] | None = None,
    full_history: bool = False,
    follow_baseline: bool = False,
    rates: str = "deterministic",
    confidence: float = 0.95,
    repeats: int = 3,
    box: str = "",
    boxes: str = "",
    wait_for_box: float = 0.0,
    engine: str = "",
    scheduler: str = "",
    export_branch: str = "",
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

    asked = Asked(
        good=good,
        bad=bad,
        box=box,
        boxes=tuple(name for name in boxes.split(",") if name),
        engine=engine,
        scheduler=scheduler,
        profile=profile,
        until=until,
        bad_is=bad_is,
        bad_when=bad_when,
        fix=fix,
        rates=rates,
        confidence=confidence,
        repeats=repeats,
        sets=tuple(set or ()),
        good_sets=tuple(good_set or ()),
        bad_sets=tuple(bad_set or ()),
        depth=depth,
        fresh=fresh,
        fast=fast,
        follow_baseline=follow_baseline,
        carry=tuple(number for number in carry.split(",") if number),
        full_history=full_history,
        paths=tuple(path or ()),
        budget_launches=budget_launches,
        budget_minutes=budget_minutes,
    )
    if export_branch:
        exported(load_project(), asked, export_branch)
        return
    if of and not resume:
        raise UsageError(f"--of {of} goes with --resume", remedy="say bisect --resume --of ID, or leave --of out")
    resumed = (of or "last") if resume else ""
    conducted(load_project(), asked, resume=resumed, plan=plan, plain=plain, wait_s=wait_for_box, json=json)


def conducted(
    project: Project,
    asked: Asked,
    *,
    resume: str,
    throwaway: bool = False,
    plan: bool = False,
    plain: bool = False,
    wait_s: float = 0.0,
    json: bool = False,
) -> None:
    """One bisection, begun or resumed, shown as it goes and at its end; a ``throwaway`` one is not gone on with."""
    from dataclasses import replace

    from patchbisect.bisection import begin, heard, note_budget, resumed

    journal = None
    if resume:
        journal, before = resumed(resume, project=project)
        asked = heard(before, asked, journal=journal, project=project)
    question = understood(project, asked)
    if plan:
        planned(project, asked, question, journal=journal, json=json)
        return
    if journal:
        note_budget(asked, before=before, journal=journal)
    else:
        asked = replace(asked, suspects=faulted(project, question))
        question = replace(question, findings=frozenset(asked.suspects))
        journal = begin(asked, project=project)
    from patchbisect.report.words import counted

    changes = counted(len(question.timeline.changes), "change")
    say(f"bisection {journal.identifier}: {asked.good} .. {asked.bad}, {changes}")
    resuming = f"invoke bisect --resume --of {journal.identifier}"
    try:
        finding = run_through(project, asked, question, journal=journal, plain=plain, wait_s=wait_s)
    except BoxError as error:
        if not throwaway:
            error.remedy = f"{error.remedy}; then " * bool(error.remedy) + resuming
        raise
    except KeyboardInterrupt:
        if throwaway:
            raise
        raise invoke.Exit(f"{INTERRUPTED}; go on with {resuming}", code=130) from None
    told(finding, journal=journal, json=json)


# Fewer patches than this are searched faster than they are checked.
_WORTH_LINTING = 4


def faulted(project: Project, question: Question) -> tuple[str, ...]:
    """Slugs of the patches that lint finds fault with: suspected first, and no more than that."""
    from patchbisect.errors import PatchbisectError
    from patchbisect.maintain.reviewing import lint_files
    from patchbisect.model import Axis
    from patchbisect.patchqueue import format_patch, format_pin

    end = question.timeline.good if question.fix else question.timeline.bad
    patches = [change for change in question.timeline.changes if change.axis is Axis.QUEUE]
    if len(patches) < _WORTH_LINTING or end.base.rev:
        return ()
    files = {f"{patch.name}.patch": format_patch(patch) for patch in end.patches}
    try:
        found = lint_files({**files, "pin.toml": format_pin(end.base.pin)}, mirror=mirror_of(project))
    except PatchbisectError as error:
        say(f"note: the patches are not linted, and none is suspected for that: {error.message}")
        return ()
    return tuple(sorted({one.patch.partition("-")[2] for one in found if one.counts}))


def understood(project: Project, asked: Asked) -> Question:
    """The question that was asked; warnings are said."""
    from patchbisect.bisection import understand

    found = understand(asked, project=project, mirror=mirror_of(project))
    for warning in found.warnings:
        say(f"note: {warning}")
    return found.question


def run_through(
    project: Project,
    asked: Asked,
    question: Question,
    *,
    journal: Journal,
    plain: bool = False,
    wait_s: float = 0.0,
) -> Finding:
    """The bisection on its boxes."""
    from dataclasses import asdict
    from functools import partial

    from patchbisect.bisection import Terms, conduct
    from patchbisect.records import Store
    from patchbisect.report.live import watching

    what = f"bisection {journal.identifier}: {asked.good} .. {asked.bad}"
    with (
        crew_of(project, asked, reason=what, wait_s=wait_s) as (names, equipped),
        watching(project.state, what=f"{what} on {', '.join(names)}", plainly=plain) as watcher,
    ):

        def notify(text: str) -> None:
            watcher.step(f"- {text}")

        store = Store.of(project)
        terms = Terms(question, journal=journal, store=store, fresh=asked.fresh, watcher=watcher, notify=notify)
        equip = partial(equipped, terms)
        return conduct(
            question,
            equip(question.until, warm=False),
            journal=journal,
            store=store,
            depth=asked.depth,
            follow=following(project, asked),
            shorter=equip if asked.fast else None,
            notify=notify,
            progress=lambda progress: watcher.search(**asdict(progress)),
        )


def following(project: Project, asked: Asked) -> Callable[[str], Question] | None:
    """The question from the recorded start of a baseline that fails, where it is to be followed."""
    from patchbisect.bisection import since_baseline

    return (lambda run: understood(project, since_baseline(asked, run))) if asked.follow_baseline else None


def told(finding: Finding, *, journal: Journal, json: bool) -> None:
    """Print the answer; exit code 1 where it names nothing."""
    from patchbisect.bisection import AnswerKind, finding_to_json
    from patchbisect.report.text import finding_page

    document = {"id": journal.identifier, **finding_to_json(finding)}
    if json:
        emit(document)
    else:
        console().print(finding_page(document))
    if finding.answer not in (AnswerKind.FOUND, AnswerKind.SET):
        raise negative()


def planned(project: Project, asked: Asked, question: Question, *, journal: Journal | None, json: bool) -> None:
    """The timeline and what it will cost, from the search itself and from the records."""
    from patchbisect.bisection import forecast, paid, plan_to_json
    from patchbisect.records import Store
    from patchbisect.report.plan import plan_lines

    name, _ = project.settings.box_named((asked.boxes or (asked.box,))[0] or None)
    plan = forecast(question, store=Store.of(project), box=name)
    made = len(paid(journal)) if journal else 0
    document = plan_to_json(question, plan, needs=equipped(project, question, box=name), made=made)
    if json:
        emit(document)
        return
    for line in plan_lines(document, box=name):
        print(line)


def exported(project: Project, asked: Asked, branch: str) -> None:
    """The timeline as a branch, and how to use it."""
    from patchbisect.bisection import export_branch

    commits = export_branch(project.root, branch, understood(project, asked).timeline)
    print(f"{branch}: {len(commits)} commits, {commits[0][:12]} (good) to {commits[-1][:12]} (bad)")
    print(f"git bisect start {commits[-1][:12]} {commits[0][:12]}")
    print("git bisect run patchbisect trial worktree")


_OF = {"of": "the bisection, by its id or the beginning of that; default: the last one"}
_READ = {"of": "the bisection, by its id, the beginning of that, or 'demo' (the demo's); default: the last one"}


def journal_of(of: str) -> tuple[Project, Journal, Asked]:
    """A bisection of one's own, to say something of it."""
    from patchbisect.bisection import resumed
    from patchbisect.config import load_project

    project = load_project()
    return (project, *resumed(of, project=project))


def journal_to_read(of: str) -> tuple[Project, Journal, Asked]:
    """A bisection, the demo's too, with the project that it was made in."""
    from patchbisect.bisection import resumed
    from patchbisect.config import load_project
    from patchbisect.report.bisections import journal_of_any

    project = load_project()
    journal = journal_of_any(project, of)
    if journal.path.is_relative_to(project.demo.bisections):
        project = demo_of(project)
    return (project, *resumed(journal.identifier, project=project))


@task(help={**_READ, "json": "print one JSON document"})
def log(ctx: invoke.Context, of: str = "last", json: bool = False) -> None:
    """Tell a bisection from its journal: what was asked, each launch and why, what it said, what was left, the answer.

    Example: invoke bisect.log
    """
    from patchbisect.config import load_project
    from patchbisect.records import Store
    from patchbisect.report.bisections import journal_of_any
    from patchbisect.report.story import page, told
    from patchbisect.wire import Json

    project = load_project()
    journal = journal_of_any(project, of)
    if json:
        emit([{"at": entry.at, "event": entry.event, **entry.data} for entry in journal.entries()])
        return
    store = Store.of(project)

    def known(run: str) -> Json | None:
        try:
            return store.load(run).model_dump(mode="json")
        except UsageError:
            return None

    console().print(page(told(journal.entries(), known=known)))


@task(help={**_READ, "json": "print one JSON document"})
def replay(ctx: invoke.Context, of: str = "last", json: bool = False) -> None:
    """Go through a journal again and print the answer that it leads to. Launches and changes nothing.

    Example: invoke bisect.replay
    """
    from patchbisect.bisection import conduct
    from patchbisect.journal import Sealed
    from patchbisect.records import Store

    project, journal, asked = journal_to_read(of)
    question = understood(project, asked)
    bench = on_paper(project, asked)
    finding = conduct(
        question,
        bench,
        journal=Sealed(journal.path),
        store=Store.of(project),
        depth=asked.depth,
        follow=following(project, asked),
        shorter=(lambda until, warm: on_paper(project, asked, warm=warm)) if asked.fast else None,
        notify=lambda text: say(f"- {text}"),
    )
    told(finding, journal=journal, json=json)


@task(help={**_OF, "run": "the trial to take back; default: the last one"})
def undo(ctx: invoke.Context, of: str = "last", run: str = "") -> None:
    """Take a trial back: it no longer counts, and its point is launched again when it is needed.

    Example: invoke bisect.undo
    """
    from patchbisect.bisection import take_back
    from patchbisect.records import Store

    project, journal, asked = journal_of(of)
    entry = take_back(journal, run, store=Store.of(project))
    print(f"undone: {entry.data['point']} ({entry.data['record']}); {way_on(project, journal, asked)}")


def way_on(project: Project, journal: Journal, asked: Asked) -> str:
    """How the bisection goes on from here, or why it cannot."""
    from patchbisect.bisection import check_same
    from patchbisect.errors import PatchbisectError
    from patchbisect.records import Store

    try:
        check_same(understood(project, asked), on_paper(project, asked), journal=journal, store=Store.of(project))
    except PatchbisectError as refusal:
        return f"but {refusal.message}\n  {refusal.remedy}".rstrip()
    return f"go on with invoke bisect --resume --of {journal.identifier}"


@task(
    positional=["point", "verdict"],
    help={
        **_OF,
        "point": "k of the timeline, a run, or a point of the bisection",
        "verdict": "good, bad, skip, or none to unmark",
    },
)
def mark(ctx: invoke.Context, point: str, verdict: str, of: str = "last") -> None:
    """Say yourself what a point is: it is not launched any more, and your word counts.

    Example: invoke bisect.mark 4 good
    """
    from patchbisect.bisection import mark_content, one_of, point_named
    from patchbisect.points import PointResolver
    from patchbisect.records import Store

    project, journal, asked = journal_of(of)
    one_of(verdict, ("good", "bad", "skip", "none"), what="the verdict")
    resolver = PointResolver.of(project, mirror=mirror_of(project))
    named = point_named(
        journal,
        point,
        question=understood(project, asked),
        bench=on_paper(project, asked),
        store=Store.of(project),
        resolve=lambda name: resolver.resolve(name, profile=asked.profile or None, settings=list(asked.sets)).point,
    )
    mark_content(journal, named.content, point=named.name, verdict=verdict)
    said = named.name if point == named.name else f"{point}, {named.name},"
    marked = "no longer marked" if verdict == "none" else f"marked {verdict}"
    print(f"{said} is {marked}; go on with invoke bisect --resume --of {journal.identifier}")


@task(
    positional=["run"],
    help={
        "run": "a trial: a run's id, the beginning of it, its name, 'last', or 'demo' (the demo's last)",
        "of": "only in this bisection: its id, 'last' or 'demo'; default: the newest that has the trial",
        "json": "print one JSON document",
    },
)
def why(ctx: invoke.Context, run: str, of: str = "", json: bool = False) -> None:
    """Say why a trial of any bisection was made, what it said, and what the search made of it.

    Example: invoke bisect.why 20261129-185001-zjkp
    """
    from patchbisect.bisection import reasons_of
    from patchbisect.config import load_project
    from patchbisect.records import Store
    from patchbisect.report.bisections import every_journal, journal_of_any
    from patchbisect.report.text import reason_page

    project = load_project()
    journals = [journal_of_any(project, of)] if of else every_journal(project)
    document = reasons_of(journals, run, store=Store.of(project))
    if json:
        emit(document)
    else:
        console().print(reason_page(document))


collection = invoke.Collection("bisect", bisect, log, replay, undo, mark, why)
