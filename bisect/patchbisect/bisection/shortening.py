"""Shorter starts for the search, where the failure allows it; the answer is confirmed by whole ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace

from patchbisect.bisection.bench import Around, Bench, in_journal
from patchbisect.bisection.course import Course, Marks, Progress, Seen, is_spent, remaining
from patchbisect.bisection.finding import AnswerKind, Claim, Finding, Question, Step
from patchbisect.bisection.ground import Ground, Spot
from patchbisect.bisection.judging import Target, reached
from patchbisect.bisection.prime import PrimeSuspect
from patchbisect.bisection.remembering import AIM, Recalled, has_failed
from patchbisect.bisection.running import bisect
from patchbisect.bisection.suspicion import frames, prime, weights
from patchbisect.model import Outcome, Point, Scalar, Stage
from patchbisect.search import Budget, Observation
from patchbisect.trial import Trial

_ORDER = list(Stage)

AIM_WARM, AIM_WHOLE = "bad end, to aim", "bad end, whole"
"""Starts of the bad end that show what fails."""


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


class Meant(Mapping[str, Observation]):
    """What a person said of points, also of the short starts that stand for them."""

    def __init__(self, said: Marks, *, whole: Bench) -> None:
        self._said = said
        self._whole = whole
        self._of: dict[str, str] = {}

    def stands(self, content: str, point: Point) -> None:
        """From now on what is said of ``point`` counts for that content too. Raises PointUnbuildable."""
        if self._said:
            self._of[content] = self._whole.content(point)

    def __getitem__(self, content: str) -> Observation:
        return self._said[content if content in self._said else self._of[content]]

    def __iter__(self) -> Iterator[str]:
        return iter({*self._said, *(short for short, whole in self._of.items() if whole in self._said)})

    def __len__(self) -> int:
        return len(set(self))


class Short(Around):
    """A bench that starts every point with the shortcut's flags."""

    def __init__(self, inner: Bench, short: Shortcut, *, marks: Meant) -> None:
        super().__init__(inner)
        self.short = short
        self.marks = marks

    def _shortened(self, point: Point) -> Point:
        return replace(point, name=f"{point.name}, short", flags={**point.flags, **self.short.flags})

    def content(self, point: Point) -> str:
        content = self.inner.content(self._shortened(point))
        self.marks.stands(content, point)
        return content

    def launch(self, point: Point, *, purpose: str, settle: bool = False, record: str = "", box: str = "") -> Trial:
        return self.inner.launch(self._shortened(point), purpose=purpose, settle=settle, record=record, box=box)

    def rejoin(self, point: Point, *, record: str, settle: bool = False) -> Trial | None:
        return self.inner.rejoin(self._shortened(point), record=record, settle=settle)


Shorter = Callable[[Stage, bool], Bench]
"""The bench for starts that end at that stage, from a warm process or not."""


def bisect_fast(
    question: Question,
    bench: Bench,
    *,
    shorter: Shorter,
    marks: Marks,
    notify: Callable[[str], None],
    progress: Callable[[Progress], None] | None,
) -> Finding:
    """A failure of the bad end says what to aim at; then everything with short starts; then culprit and parent whole.

    A failure on record will do, for short starts of both ends must show it anyway; else the bad end is started once.

    Where the traceback names one change above all others, its proof comes first, and its two points are started whole.
    All but those two start from a warm process. Where that does not show the failure at both ends, short starts are
    normal ones; where those do not, or whole ones do not confirm the answer, the bisection is made with whole ones,
    with what is left of the budget. Raises as ``bisect`` does.
    """
    fast = _Fast(question=question, bench=bench, shorter=shorter, marks=marks, notify=notify, progress=progress)
    return fast.run()


_WHOLE = {Claim.CULPRIT_BAD: Observation.BAD, Claim.PARENT_GOOD: Observation.GOOD}
"""What is started whole in the end, and what the search is told then if the answer holds."""


@dataclass(kw_only=True)
class _Fast:
    question: Question
    bench: InitVar[Bench]
    shorter: Shorter
    marks: Marks
    notify: Callable[[str], None]
    progress: Callable[[Progress], None] | None
    whole: Course = field(init=False)
    tried: list[Step] = field(default_factory=list, init=False)
    """What was not started whole, and led to no answer yet."""
    started_whole: dict[str, Trial] = field(default_factory=dict, init=False)
    """By record: the prime suspect's points, among the short starts of a search."""
    lost: tuple[str, ...] = field(default=(), init=False)

    def __post_init__(self, bench: Bench) -> None:
        self.whole = Course(
            question=self.question, bench=bench, marks=self.marks, notify=self.notify, progress=self.progress
        )

    def run(self) -> Finding:
        if self.question.bad_when:
            return self._instead("a short start says nothing of a number")
        failing, warm = self._bad_end()
        verdict = failing.verdict
        if verdict.outcome is Outcome.VOID or reached(verdict, until=self.question.until):
            return self._instead("the bad end did not fail in a stage that could be aimed at")
        short = shortcut(verdict.stage, until=self.question.until)
        if short is None or verdict.signature is None:
            return self._instead("nothing can be left out of this failure")
        aimed_by = f"; aimed by run {failing.record}" if failing.reused else ""
        self.notify(f"short starts: without {_left_out(short, warm=warm)}{aimed_by}")
        target = Target(signature=verdict.signature, bad_is=self.question.bad_is, until=self.question.until)
        self.whole.judge_by(target)
        finding = self._searched(failing, short, target, warm=warm)
        if warm and finding.answer is AnswerKind.ENDPOINT_FAILED and not is_spent(self._budget(finding)):
            self.notify(f"short starts that are not from a warm process, because there {finding.reason}")
            self._give_up(finding)
            warm, finding = False, self._searched(failing, short, target, warm=False)
        if finding.answer is AnswerKind.FOUND:
            return self._confirmed(finding, short)
        if is_spent(self._budget(finding)):
            return replace(finding, steps=(*self.whole.steps, *self.tried, *finding.steps))
        self._give_up(finding)
        return self._instead(f"short starts do not tell: {finding.reason}")

    def _bad_end(self) -> tuple[Trial, bool]:
        """How the bad end fails, and whether warm starts may show it: they are tried first."""
        bench = self.whole.bench
        end = Ground(self.question.timeline, bench).end(bad=not self.question.fix)
        if end.content not in self.marks:
            if in_journal(bench, end.content, purpose=AIM) or has_failed(bench, end.content):
                return self._aim(bench, purpose=AIM), True
            trial = self._warm_bad_end()
            if trial and trial.warm:
                return trial, True
            if trial:  # no warm process could be had, so this was a whole start
                self.whole.note(end, trial, purpose=AIM_WHOLE)
                return trial, False
        failing = self.whole.look(end, purpose=AIM_WHOLE).trial
        assert failing is not None, "an end that cannot be built is refused before"
        return failing, False

    def _warm_bad_end(self) -> Trial | None:
        """The bad end from a warm process, or from none where none can be had; None where it does not fail so."""
        trial = self._aim(self.shorter(self.question.until, True), purpose=AIM_WARM)
        if not trial.warm:
            self.tried.pop()
            return trial
        verdict = trial.verdict
        if verdict.outcome is Outcome.VOID or reached(verdict, until=self.question.until):
            self.notify("normal starts, because the bad end does not fail from a warm process")
            return None
        return trial

    def _aim(self, bench: Bench, *, purpose: str) -> Trial:
        """The bad end there, as something that was tried; it is no observation."""
        course = Course(question=self.question, bench=bench, marks={}, notify=self.notify, progress=None)
        end = Ground(self.question.timeline, bench).end(bad=not self.question.fix)
        trial = course.look(end, purpose=purpose).trial
        assert trial is not None, "an end that cannot be built is refused before"
        self.tried += course.steps
        return trial

    def _searched(self, failing: Trial, short: Shortcut, target: Target, *, warm: bool) -> Finding:
        target = replace(target, until=short.until)
        aimed = replace(self.question, until=short.until, target=target, budget=self._budget())
        marks = Meant(self.marks, whole=self.whole.bench)
        bench = Short(self.shorter(short.until, warm), short, marks=marks)
        seen = {step.trial.record: step.trial for step in self.tried if not step.trial.reused} if warm else {}
        # Where the ends are started so anyway, the bad end has shown already how it fails.
        suspect = self._prime_suspect(failing, bench, target)
        known = Recalled(suspect or bench, seen.values())
        finding = bisect(aimed, known, marks=marks, notify=self.notify, progress=self.progress)
        steps = tuple(replace(step, trial=seen.pop(step.trial.record, step.trial)) for step in finding.steps)
        self.tried = [step for step in self.tried if not warm or step.trial.reused or step.trial.record in seen]
        if suspect:
            self.started_whole |= {trial.record: trial for trial in suspect.started_whole}
            why = "the suspicion was not borne out"
            self.tried += [Step("proof", None, None, trial, why=why) for trial in suspect.unasked()]
        return replace(finding, steps=steps)

    def _prime_suspect(self, failing: Trial, bench: Bench, target: Target) -> PrimeSuspect | None:
        """Only as long as a verdict is taken at its word: else the search launches its points more than once.

        And only where nothing limits the launches: whether these two are allowed, the search alone knows.
        """
        question, log = self.question, self.whole.bench.log(failing) if failing.record else b""
        change = prime(weights(question.timeline.changes, frames(log), findings=question.findings))
        simple = question.rates.kind == "deterministic" and question.budget == Budget() and not question.fix
        if change is None or not simple:
            return None
        ground = Ground(question.timeline, bench)
        return PrimeSuspect(bench, self.whole.bench, ground, change=change, judge=target)

    def _budget(self, *findings: Finding) -> Budget:
        """What is left of it, also after those findings."""
        steps = [step for finding in findings for step in finding.steps]
        return remaining(self.question.budget, [*self.tried, *self.whole.steps, *steps])

    def _give_up(self, finding: Finding) -> None:
        """Keep what was spent and seen, but for its places in the line: those are for starts that count."""
        self.tried += [replace(step, position=None) for step in finding.steps]
        self.lost += finding.lost

    def _instead(self, why: str) -> Finding:
        """The bisection with whole starts, because of ``why``; what they have said counts, and what was spent."""
        self.notify(f"whole starts, because {why}")
        question = replace(self.question, budget=self._budget())
        short = [step for step in self.tried if step.trial.record not in self.started_whole]
        whole = [*self.whole.steps, *(step for step in self.tried if step.trial.record in self.started_whole)]
        bench = Recalled(self.whole.bench, [step.trial for step in whole if step.trial.record])
        finding = bisect(question, bench, marks=self.marks, notify=self.notify, progress=self.progress)
        again = {step.trial.record: step for step in finding.steps if step.trial.record}
        known = tuple(replace(again.pop(step.trial.record, step), trial=step.trial) for step in whole)
        rest = tuple(step for step in finding.steps if not step.trial.record or step.trial.record in again)
        steps = (*_aims(short), *known[:1], *_aims(short, other=True), *known[1:], *rest)
        return replace(finding, steps=steps, lost=(*self.lost, *finding.lost))

    def _confirmed(self, finding: Finding, short: Shortcut) -> Finding:
        """The finding of short starts with culprit and parent started whole, as far as the budget goes."""
        whole = self.whole
        proof, said = list(finding.proof), "confirmed by whole starts"
        for k, claimed in enumerate(finding.proof):
            if claimed.claim not in _WHOLE or claimed.trial is None:
                continue
            point = _whole_point(claimed.trial.point, short, self.question)
            spot = Spot(on=frozenset(), point=point, position=None, content=whole.bench.content(point))
            seen = whole.recall(spot) or self._seen_whole(spot)
            if seen is None and is_spent(self._budget(finding)):
                said = "not confirmed by whole starts: the budget is spent"
                proof[k] = replace(claimed, status="not tested: the budget is spent, only a short start was made")
                continue
            seen = seen or whole.look(spot, purpose="confirm, whole")
            if seen.observation is not _WHOLE[claimed.claim]:
                self._give_up(finding)
                return self._instead("a whole start does not confirm the answer")
            proof[k] = replace(claimed, trial=seen.trial)
        left_out = _left_out(short, warm=any(step.trial.warm for step in finding.steps))
        aimed = [step for step in whole.steps if step.purpose == AIM_WHOLE]
        return replace(
            finding,
            reason=f"{finding.reason}; searched without {left_out}, {said}",
            proof=tuple(proof),
            steps=(
                *_aims(self.tried),
                *aimed,
                *_aims(self.tried, other=True),
                *finding.steps,
                *(step for step in whole.steps if step not in aimed),
            ),
            target=whole.judge,
        )

    def _seen_whole(self, spot: Spot) -> Seen | None:
        """What was seen of the spot among the short starts of a search."""
        trial = next((one for one in self.started_whole.values() if one.content_id == spot.content), None)
        observation = self.whole.observed(spot, trial) if trial else None
        return Seen(spot=spot, observation=observation, trial=trial) if observation else None


def _aims(steps: Sequence[Step], *, other: bool = False) -> Iterator[Step]:
    """Those that showed what to aim at, which came before everything else; or the other ones."""
    return (step for step in steps if (step.purpose in (AIM, AIM_WARM)) is not other)


def _left_out(short: Shortcut, *, warm: bool) -> str:
    return f"{' and '.join(short.left_out)}{', from a warm process' if warm else ''}"


def _whole_point(point: Point, short: Shortcut, question: Question) -> Point:
    """The point without the shortcut's flags, which give way to what the ends have there. Their order stays."""
    usual = {name: value for name, value in question.timeline.bad.flags.items() if name in short.flags}
    flags = {
        name: value for name, value in {**point.flags, **usual}.items() if name in usual or name not in short.flags
    }
    return replace(point, name=point.name.removesuffix(", short"), flags=flags)
