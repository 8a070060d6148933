"""Shorter starts for the search, where the failure allows it; the answer is confirmed by whole ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from patchbisect.bisection.bench import Around, Bench
from patchbisect.bisection.course import Marks, Progress
from patchbisect.bisection.finding import AnswerKind, Claim, Finding, ProofStep, Question, Step
from patchbisect.bisection.judging import Target, is_transient, reached
from patchbisect.bisection.remembering import Recalled
from patchbisect.bisection.running import bisect
from patchbisect.model import Outcome, Point, Scalar, Stage
from patchbisect.search import Observation
from patchbisect.trial import Trial

_ORDER = list(Stage)


@dataclass(frozen=True, slots=True)
class Shortcut:
    """Flags that shorten a start, how far it must get, and what it leaves out, in words."""

    flags: Mapping[str, Scalar]
    until: Stage
    left_out: tuple[str, ...]


def shortcut(stage: Stage | None, *, until: Stage) -> Shortcut | None:
    """What may be left out when the failure is in that stage; None where nothing may."""
    if stage is None:
        return None
    flags: dict[str, Scalar] = {}
    left_out: list[str] = []
    if _ORDER.index(stage) > _ORDER.index(Stage.WEIGHT_LOAD):
        flags["load-format"] = "dummy"
        left_out.append("the weights (dummy)")
    if _ORDER.index(stage) <= _ORDER.index(Stage.KV_ALLOC):
        left_out.append("everything after the KV pool")
        return Shortcut(flags=flags, until=Stage.KV_ALLOC, left_out=tuple(left_out))
    if stage in (Stage.KERNEL_WARMUP, Stage.GRAPH_CAPTURE):
        flags["skip-server-warmup"] = True
        left_out.append("the first request")
    else:
        flags["disable-cuda-graph"] = True
        left_out.append("the graphs")
    return Shortcut(flags=flags, until=until, left_out=tuple(left_out))


class Short(Around):
    """A bench that starts every point with the shortcut's flags."""

    def __init__(self, inner: Bench, short: Shortcut) -> None:
        super().__init__(inner)
        self.short = short

    def _shortened(self, point: Point) -> Point:
        return replace(point, name=f"{point.name}, short", flags={**point.flags, **self.short.flags})

    def content(self, point: Point) -> str:
        return self.inner.content(self._shortened(point))

    def launch(self, point: Point, *, purpose: str, settle: bool = False, record: str = "", box: str = "") -> Trial:
        return self.inner.launch(self._shortened(point), purpose=purpose, settle=settle, record=record, box=box)

    def rejoin(self, point: Point, *, record: str, settle: bool = False) -> Trial | None:
        return self.inner.rejoin(self._shortened(point), record=record, settle=settle)


@dataclass(frozen=True, slots=True)
class _Whole:
    """What whole starts have said so far."""

    question: Question
    bench: Bench
    marks: Marks
    notify: Callable[[str], None]
    progress: Callable[[Progress], None] | None

    def instead(self, why: str, *trials: Trial) -> Finding:
        """The bisection with whole starts, because of ``why``; what they have said already counts."""
        self.notify(f"whole starts, because {why}")
        bench = Recalled(self.bench, [trial for trial in trials if not is_transient(trial.verdict)])
        return bisect(self.question, bench, marks=self.marks, notify=self.notify, progress=self.progress)


def bisect_fast(
    question: Question,
    bench: Bench,
    *,
    shorter: Callable[[Stage], Bench],
    marks: Marks,
    notify: Callable[[str], None],
    progress: Callable[[Progress], None] | None,
) -> Finding:
    """One whole start of the bad end says what fails; then everything with short starts; then culprit and parent whole.

    ``shorter`` gives the bench for starts that end at that stage. Wherever short starts do not show the failure, or
    whole ones do not confirm the answer, the bisection is made with whole ones. Raises as ``bisect`` does.
    """
    whole = _Whole(question, bench, marks, notify, progress)
    failing = question.timeline.good if question.fix else question.timeline.bad
    first = bench.launch(failing, purpose="bad end, whole", settle=True)
    if question.bad_when or first.verdict.outcome is Outcome.VOID or reached(first.verdict, until=question.until):
        return whole.instead("the bad end did not fail in a stage that could be aimed at", first)
    short = shortcut(first.verdict.stage, until=question.until)
    if short is None or first.verdict.signature is None:
        return whole.instead("nothing can be left out of this failure", first)
    notify(f"short starts: without {' and '.join(short.left_out)}")
    target = Target(signature=first.verdict.signature, bad_is=question.bad_is, until=short.until)
    aimed = replace(question, until=short.until, target=target)
    finding = bisect(aimed, Short(shorter(short.until), short), marks=marks, notify=notify, progress=progress)
    if finding.answer is not AnswerKind.FOUND:
        return whole.instead(f"short starts do not tell: {finding.reason}", first)
    return _confirmed(finding, whole, replace(target, until=question.until), first, short)


def _confirmed(finding: Finding, whole: _Whole, target: Target, first: Trial, short: Shortcut) -> Finding:
    """The finding of short starts with culprit and parent started whole."""
    proof, steps = list(finding.proof), [_step(first, "bad end, whole", finding, target)]
    wanted = {Claim.CULPRIT_BAD: Observation.BAD, Claim.PARENT_GOOD: Observation.GOOD}
    for k, claimed in enumerate(finding.proof):
        if claimed.claim not in wanted or claimed.trial is None:
            continue
        point = _whole_point(claimed.trial.point, short, whole.question)
        known = first if whole.bench.content(point) == first.content_id else None
        trial = known or whole.bench.launch(point, purpose="confirm, whole", settle=True)
        if trial is not known:
            steps.append(_step(trial, "confirm, whole", finding, target))
        if target.judge(trial.verdict) is not _told(wanted[claimed.claim], fix=finding.fix):
            return whole.instead("a whole start does not confirm the answer", *(step.trial for step in steps))
        proof[k] = ProofStep(claim=claimed.claim, status=claimed.status, trial=trial)
    reason = f"{finding.reason}; searched without {' and '.join(short.left_out)}, confirmed by whole starts"
    return replace(
        finding, reason=reason, proof=tuple(proof), steps=(steps[0], *finding.steps, *steps[1:]), target=target
    )


def _told(wanted: Observation, *, fix: bool) -> Observation:
    if not fix:
        return wanted
    return Observation.GOOD if wanted is Observation.BAD else Observation.BAD


def _whole_point(point: Point, short: Shortcut, question: Question) -> Point:
    """The point without the shortcut's flags, which give way to what the ends have there."""
    flags = {name: value for name, value in point.flags.items() if name not in short.flags}
    usual = {name: value for name, value in question.timeline.bad.flags.items() if name in short.flags}
    return replace(point, name=point.name.removesuffix(", short"), flags={**flags, **usual})


def _step(trial: Trial, purpose: str, finding: Finding, target: Target) -> Step:
    seen = target.judge(trial.verdict)
    told = _told(seen, fix=finding.fix) if seen else None
    return Step(purpose=purpose, position=None, observation=told, trial=trial)
