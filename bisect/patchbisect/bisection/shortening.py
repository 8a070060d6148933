"""Shorter starts for the search, where the failure allows it; the answer is confirmed by whole ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from patchbisect.bisection.bench import Around, Bench
from patchbisect.bisection.course import Course, Marks, Progress, is_spent, remaining
from patchbisect.bisection.finding import AnswerKind, Claim, Finding, Question
from patchbisect.bisection.ground import Ground, Spot
from patchbisect.bisection.judging import Target, reached
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
    whole ones do not confirm the answer, the bisection is made with whole ones, with what is left of the budget.
    Raises as ``bisect`` does.
    """
    whole = Course(question=question, bench=bench, marks=marks, notify=notify, progress=progress)
    if question.bad_when:
        return _instead(whole, "a short start says nothing of a number")
    failing = whole.look(Ground(question.timeline, bench).end(bad=not question.fix), purpose="bad end, whole").trial
    assert failing is not None, "an end that cannot be built is refused before"
    verdict = failing.verdict
    if verdict.outcome is Outcome.VOID or reached(verdict, until=question.until):
        return _instead(whole, "the bad end did not fail in a stage that could be aimed at")
    short = shortcut(verdict.stage, until=question.until)
    if short is None or verdict.signature is None:
        return _instead(whole, "nothing can be left out of this failure")
    notify(f"short starts: without {' and '.join(short.left_out)}")
    target = Target(signature=verdict.signature, bad_is=question.bad_is, until=question.until)
    whole.judge_by(target)
    aimed = replace(question, until=short.until, target=replace(target, until=short.until), budget=whole.budget())
    finding = bisect(aimed, Short(shorter(short.until), short), marks=marks, notify=notify, progress=progress)
    if finding.answer is not AnswerKind.FOUND:
        return _instead(whole, f"short starts do not tell: {finding.reason}", short=finding)
    return _confirmed(finding, whole, short)


def _instead(whole: Course, why: str, *, short: Finding | None = None) -> Finding:
    """The bisection with whole starts, because of ``why``; what they have said already counts, and what was spent."""
    whole.notify(f"whole starts, because {why}")
    tried = tuple(replace(step, position=None) for step in short.steps) if short else ()
    question = replace(whole.question, budget=remaining(whole.budget(), tried))
    bench = Recalled(whole.bench, [step.trial for step in whole.steps if step.trial.record])
    finding = bisect(question, bench, marks=whole.marks, notify=whole.notify, progress=whole.progress)
    again = {step.trial.record: step for step in finding.steps if step.trial.record}
    known = tuple(replace(again.pop(step.trial.record, step), trial=step.trial) for step in whole.steps)
    rest = tuple(step for step in finding.steps if not step.trial.record or step.trial.record in again)
    lost = (*short.lost, *finding.lost) if short else finding.lost
    return replace(finding, steps=(*known[:1], *tried, *known[1:], *rest), lost=lost)


_WHOLE = {Claim.CULPRIT_BAD: Observation.BAD, Claim.PARENT_GOOD: Observation.GOOD}
"""What is started whole in the end, and what the search is told then if the answer holds."""


def _confirmed(finding: Finding, whole: Course, short: Shortcut) -> Finding:
    """The finding of short starts with culprit and parent started whole, as far as the budget goes."""
    proof, said = list(finding.proof), "confirmed by whole starts"
    for k, claimed in enumerate(finding.proof):
        if claimed.claim not in _WHOLE or claimed.trial is None:
            continue
        point = _whole_point(claimed.trial.point, short, whole.question)
        spot = Spot(on=frozenset(), point=point, position=None, content=whole.bench.content(point))
        seen = whole.recall(spot)
        if seen is None and is_spent(remaining(whole.budget(), finding.steps)):
            said = "not confirmed by whole starts: the budget is spent"
            proof[k] = replace(claimed, status="not tested: the budget is spent, only a short start was made")
            continue
        seen = seen or whole.look(spot, purpose="confirm, whole")
        if seen.observation is not _WHOLE[claimed.claim]:
            return _instead(whole, "a whole start does not confirm the answer", short=finding)
        proof[k] = replace(claimed, trial=seen.trial)
    return replace(
        finding,
        reason=f"{finding.reason}; searched without {' and '.join(short.left_out)}, {said}",
        proof=tuple(proof),
        steps=(*whole.steps[:1], *finding.steps, *whole.steps[1:]),
        target=whole.judge,
    )


def _whole_point(point: Point, short: Shortcut, question: Question) -> Point:
    """The point without the shortcut's flags, which give way to what the ends have there."""
    flags = {name: value for name, value in point.flags.items() if name not in short.flags}
    usual = {name: value for name, value in question.timeline.bad.flags.items() if name in short.flags}
    return replace(point, name=point.name.removesuffix(", short"), flags={**flags, **usual})
