"""A bisection from the words of the command line to its journal, and back from the journal."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, cast

from patchbisect.bisection.baseline import altered
from patchbisect.bisection.bench import Bench, Journaled, Reading, marks, standing
from patchbisect.bisection.course import Progress, is_spent, remaining
from patchbisect.bisection.finding import Finding, Question, change_to_json, finding_to_json
from patchbisect.bisection.following import compared, entered, followed, inside_commit, inside_culprit, narrowed
from patchbisect.bisection.ground import Ground
from patchbisect.bisection.judging import BadIs, Threshold
from patchbisect.bisection.remembering import Recalled
from patchbisect.bisection.revisions import revision_timeline
from patchbisect.bisection.running import bisect
from patchbisect.bisection.shortening import Shorter, bisect_fast
from patchbisect.config import Project, remedy_for
from patchbisect.errors import UsageError
from patchbisect.journal import Journal
from patchbisect.model import Base, Point, Stage
from patchbisect.points import PointResolver, masked_setting
from patchbisect.records import Store, new_id
from patchbisect.search import Budget, Rates
from patchbisect.timeline import timeline
from patchbisect.upstream import PACKAGE, PROJECT_FILE, Mirror, Way
from patchbisect.wire import Json

UNTIL = {"ready": Stage.SERVING, "kv-allocated": Stage.KV_ALLOC}
_ENGINES = ("", "dask")
_DEPTHS = ("queue", "change", "hunk")
_BAD_IS = ("signature", "outcome", "any")
_RATES = {"deterministic": Rates.deterministic, "unknown": Rates.unknown}


@dataclass(frozen=True, slots=True)
class Asked:
    """A bisection in the words of its command line; what a journal begins with."""

    good: str
    bad: str
    box: str = ""
    boxes: tuple[str, ...] = ()
    """Side by side; workers' names where an engine has the boxes."""
    engine: str = ""
    """``dask``: trials are made by the workers at ``scheduler``. Empty: by this process."""
    scheduler: str = ""
    profile: str = ""
    until: str = ""
    bad_is: str = "signature"
    rates: str = "deterministic"
    sets: tuple[str, ...] = ()
    good_sets: tuple[str, ...] = ()
    bad_sets: tuple[str, ...] = ()
    budget_launches: int = 0
    budget_minutes: float = 0.0
    confidence: float = 0.95
    repeats: int = 3
    fix: bool = False
    bad_when: str = ""
    fresh: bool = False
    fast: bool = False
    depth: str = "change"
    """``queue`` stops at a commit of this repository; ``hunk`` goes on inside a guilty patch."""
    follow_baseline: bool = False
    carry: tuple[str, ...] = ()
    """Numbers of patches that every point needs to start at all."""
    full_history: bool = False
    paths: tuple[str, ...] = ()
    suspects: tuple[str, ...] = ()
    """Slugs of patches that a check found fault with; written down, so that a resumed search goes the same way."""

    @property
    def on_paper(self) -> str:
        """The box whose settings say what a point runs; empty: the default one."""
        return self.boxes[0] if self.boxes and not self.engine else self.box

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Asked:
        known = {field.name for field in fields(cls)}
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in document.items()
        }
        return cls(**{name: value for name, value in values.items() if name in known})


@dataclass(frozen=True, slots=True)
class Understood:
    """The question that was asked, and what its asker should know of how it was read."""

    question: Question
    warnings: tuple[str, ...]


def understand(asked: Asked, *, project: Project, mirror: Mirror) -> Understood:
    """Points, timeline and the rest of the question. Raises UsageError, PointUnbuildable, BoxError."""
    resolver = PointResolver.of(project, mirror=mirror)
    profile = asked.profile or None
    good = resolver.resolve(_carrying(asked.good, asked), profile=profile, settings=[*asked.sets, *asked.good_sets])
    bad = resolver.resolve(_carrying(asked.bad, asked), profile=profile, settings=[*asked.sets, *asked.bad_sets])
    one_of(asked.depth, _DEPTHS, what="--depth")
    _check_boxes(asked, project=project)
    _check_numbers(asked)
    way = Way(first_parent=not asked.full_history, paths=asked.paths or (PACKAGE, PROJECT_FILE))

    def route(before: Base, after: Base) -> Sequence[Base]:
        return mirror.route(before, after, way=way)

    first, last = (bad, good) if asked.fix else (good, bad)
    until = asked.until or project.settings.profile_named(bad.point.profile)[1].until
    names = (asked.bad, asked.good) if asked.fix else (asked.good, asked.bad)
    line = None
    if not asked.carry:
        line = revision_timeline(resolver, first.point, last.point, names=names, applies=mirror.applies, route=route)
    question = Question(
        timeline=line or timeline(first.point, last.point, applies=mirror.applies, route=route),
        until=UNTIL[one_of(until, UNTIL, what="--until")],
        bad_is=cast(BadIs, one_of(asked.bad_is, _BAD_IS, what="--bad-is")),
        rates=_RATES[one_of(asked.rates, _RATES, what="--rates")](),
        confidence=asked.confidence,
        repeats=asked.repeats,
        budget=Budget(launches=asked.budget_launches or None, seconds=asked.budget_minutes * 60 or None),
        fix=asked.fix,
        findings=frozenset(asked.suspects),
        bad_when=Threshold.parse(asked.bad_when) if asked.bad_when else None,
        secrets=project.settings.secrets,
    )
    return Understood(question=question, warnings=tuple(dict.fromkeys([*good.warnings, *bad.warnings])))


def _check_boxes(asked: Asked, *, project: Project) -> None:
    """Raises UsageError for a box that the settings do not know, an engine without a scheduler or the reverse."""
    if one_of(asked.engine, _ENGINES, what="--engine") and not asked.scheduler:
        raise UsageError(f"--engine {asked.engine} needs a scheduler", remedy="like --scheduler tcp://head:8786")
    if asked.scheduler and not asked.engine:
        raise UsageError(f"--scheduler {asked.scheduler} goes with --engine dask", remedy="say both, or neither")
    for name in (asked.box, *(() if asked.engine else asked.boxes)):
        project.settings.box_named(name or None)


def _check_numbers(asked: Asked) -> None:
    """Raises UsageError for a number that means nothing."""
    if not 0.5 <= asked.confidence < 1:
        raise UsageError(f"--confidence {asked.confidence:g} is not in [0.5, 1)", remedy="like 0.95")
    for name in ("repeats", "budget_launches", "budget_minutes"):
        if (number := getattr(asked, name)) < 0:
            none = "no further launch" if name == "repeats" else "no limit"
            raise UsageError(f"--{name.replace('_', '-')} {number:g} is less than nothing", remedy=f"0 means {none}")


def _carrying(name: str, asked: Asked) -> str:
    """The point with the patches that are carried along: ``+N`` before a profile. Raises UsageError."""
    if wrong := [number for number in asked.carry if not number.isdecimal()]:
        raise UsageError(f"--carry: {wrong[0]!r} is not the number of a patch", remedy="like --carry 1,4")
    head, at, profile = name.partition("@")
    return head + "".join(f"+{int(number)}" for number in asked.carry) + at + profile


def since_baseline(asked: Asked, record: str) -> Asked:
    """The question that is left when the good end fails: what changed since that recorded start of it?

    The record has flags of its own, so the profile goes with the name of today's end.
    """
    today = _carrying(asked.good, asked)
    if asked.profile and "@" not in today:
        today = f"{today}@{asked.profile}"
    return replace(
        asked,
        good=f"run:{record}",
        bad=today,
        profile="",
        carry=(),
        sets=(),
        good_sets=(),
        bad_sets=(*asked.sets, *asked.good_sets),
    )


def one_of(value: str, known: Mapping[str, object] | tuple[str, ...], *, what: str) -> str:
    """``value`` if it is one of the known words. Raises UsageError with the nearest."""
    if value not in known:
        raise UsageError(f"{what} {value!r} is not known", remedy=remedy_for(value, known))
    return value


def begin(asked: Asked, *, project: Project) -> Journal:
    """A new journal that says what was asked, but for the values of secrets."""
    journal = Journal.create(project.bisections, new_id())
    journal.append("begin", asked=without_secrets(asked, project=project), root=str(project.root))
    return journal


def without_secrets(asked: Asked, *, project: Project) -> dict[str, Any]:
    """What was asked, as a journal holds it."""
    kept = {
        name: tuple(masked_setting(text, more=project.settings.secrets) for text in getattr(asked, name))
        for name in ("sets", "good_sets", "bad_sets")
    }
    return {**asdict(asked), **kept}


def conduct(
    question: Question,
    bench: Bench,
    *,
    journal: Journal,
    store: Store,
    depth: str = "change",
    follow: Callable[[str], Question] | None = None,
    shorter: Shorter | None = None,
    notify: Callable[[str], None] = lambda text: None,
    progress: Callable[[Progress], None] | None = None,
) -> Finding:
    """Run the bisection through its journal, from where that stands, and write the answer there.

    With ``depth`` ``hunk`` it goes on inside a guilty patch. Where the good end fails, its last good start on record
    is compared. ``shorter`` gives a bench for starts that end at a stage, warm or not: the search is made with those.
    ``follow`` makes the question from that record (by id) to the good end, which is then searched too.
    Raises UsageError for the journal of another question, and what ``bisect`` raises.
    """
    ends = check_same(question, bench, journal=journal, store=store)
    if not any(entry.event == "question" for entry in journal.entries()):
        journal.append("question", **ends)
    through = Journaled(bench, journal=journal, store=store)

    def run(asked: Question, on: Bench) -> Finding:
        said = marks(journal)
        if shorter is None or asked is not question:
            return bisect(asked, on, marks=said, notify=notify, progress=progress)
        return bisect_fast(
            asked,
            on,
            shorter=lambda until, warm: through.around(shorter(until, warm)),
            marks=said,
            notify=notify,
            progress=progress,
        )

    finding = compared(run(question, through), store=store)

    def further(finding: Finding, asked: Question, why: str, *, told: Callable[[Finding, Finding], Finding]) -> Finding:
        """The finding with what another range says, searched with what is left of the budget."""
        inside = finding.inside.steps if finding.inside else ()
        left = remaining(question.budget, [*finding.steps, *inside])
        if is_spent(left):
            return replace(finding, reason=f"{finding.reason}; not {why}: the budget is spent")
        notify(why)
        return told(finding, run(replace(asked, budget=left), Recalled(through, finding.trials)))

    if finding.baseline and follow:
        record = finding.baseline.record
        finding = further(finding, follow(record), f"going on from run {record}", told=followed)
    if depth != "queue" and (line := inside_commit(finding)):
        within = replace(question, timeline=line)
        finding = further(finding, within, "going on inside the guilty commit", told=narrowed)
    if depth == "hunk" and (line := inside_culprit(finding)):
        within = replace(question, timeline=line, findings=frozenset())
        finding = further(finding, within, "going on inside the guilty patch", told=entered)
    for record in finding.lost:
        journal.append("undo", record=record)
        store.disown(record, f"bisection {journal.identifier}: {finding.reason}")
    _note_answer(journal, finding_to_json(finding))
    return finding


def _note_answer(journal: Journal, document: Json) -> None:
    """Write the answer down, unless the journal ends with it: a finished bisection that is resumed says it again."""
    *_, last = journal.entries()
    if last.event != "answer" or last.data["finding"] != json.loads(json.dumps(document)):
        journal.append("answer", finding=document)


def check_same(question: Question, bench: Reading, *, journal: Journal, store: Store) -> Json:
    """What a journal says of the question: what the ends run, and the changes between them.

    Raises UsageError where the journal was begun with other ends, so that the bisection cannot go on.
    """
    ground = Ground(question.timeline, bench)
    good, bad = ground.end(bad=False), ground.end(bad=True)
    ends: Json = {
        "good": good.content,
        "bad": bad.content,
        "changes": [change_to_json(change, secrets=question.secrets) for change in question.timeline.changes],
    }
    before = next((entry.data for entry in journal.entries() if entry.event == "question"), ends)
    if different := [name for name in ends if before[name] != ends[name]]:
        moved = _moved(before["changes"], ends["changes"])
        if not moved and different != ["changes"]:
            now = {"good": good, "bad": bad}[different[0]].point
            moved = _otherwise(before[different[0]], now, journal=journal, store=store, secrets=question.secrets)
        what = "the changes between the ends are" if different == ["changes"] else f"the {different[0]} end runs"
        began = next(journal.entries()).at
        raise UsageError(
            f"bisection {journal.identifier} cannot go on: {what} not what it was when it began ({began}): "
            f"{moved or 'the same changes by name, so a patch, the pin, the profile or a secret is another one'}",
            remedy="put that back, or start a new bisection",
        )
    return ends


def _otherwise(content: str, now: Point, *, journal: Journal, store: Store, secrets: tuple[str, ...]) -> str:
    """What the launch of that content had otherwise; empty where none is on record."""
    launched = (store.load(entry.data["record"]) for entry in standing(journal) if entry.data["content_id"] == content)
    then = next(launched, None)
    return "; ".join(altered(then.point, now, secrets=secrets)) if then else ""


def _moved(before: Sequence[Json], now: Sequence[Json]) -> str:
    """Which changes are gone, and which are new."""
    gone = [f"gone: {change['title']}" for change in before if change not in now]
    new = [f"new: {change['title']}" for change in now if change not in before]
    return "; ".join([*gone, *new])
