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
    finding = fast.run()
    return replace(finding, steps=tuple(fast.steps), lost=tuple(fast.lost))


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
    """The whole starts and what they say."""
    steps: list[Step] = field(default_factory=list, init=False)
    """Every launch so far, short or whole, in its order."""
    lost: list[str] = field(default_factory=list, init=False)

    def __post_init__(self, bench: Bench) -> None:
        self.whole = Course(
            question=self.question, bench=bench, marks=self.marks, notify=self.notify, progress=self.progress
        )

    def run(self) -> Finding:
        """The answer, without what is kept here: ``steps`` and ``lost`` go with it."""
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
        self._judge_by(target)
        finding = self._searched(failing, short, target, warm=warm)
        if warm and finding.answer is AnswerKind.ENDPOINT_FAILED and not self._spent:
            self.notify(f"short starts that are not from a warm process, because there {finding.reason}")
            self._give_up()
            finding = self._searched(failing, short, target, warm=False)
        if finding.answer is AnswerKind.FOUND:
            return self._confirmed(finding, short)
        return finding if self._spent else self._instead(f"short starts do not tell: {finding.reason}")

    def _bad_end(self) -> tuple[Trial, bool]:
        """How the bad end fails, and whether warm starts may show it: they are tried first."""
        bench = self.whole.bench
        end = self._end(bench)
        if end.content not in self.marks:
            if in_journal(bench, end.content, purpose=AIM) or has_failed(bench, end.content):
                return self._aim(bench, purpose=AIM), True
            trial = self._aim(self.shorter(self.question.until, True), purpose=AIM_WARM)
            if not trial.warm:  # no warm process could be had, so this was a whole start
                self.steps.pop()
                self.whole.note(end, trial, purpose=AIM_WHOLE)
                self.steps.append(self.whole.steps[-1])
                return trial, False
            verdict = trial.verdict
            if verdict.outcome is not Outcome.VOID and not reached(verdict, until=self.question.until):
                return trial, True
            self.notify("normal starts, because the bad end does not fail from a warm process")
        failing = self._look(end, purpose=AIM_WHOLE).trial
        assert failing is not None, "an end that cannot be built is refused before"
        return failing, False

    def _end(self, bench: Bench) -> Spot:
        return Ground(self.question.timeline, bench).end(bad=not self.question.fix)

    def _aim(self, bench: Bench, *, purpose: str) -> Trial:
        """The bad end there, as something that was tried; it is no observation."""
        course = Course(question=self.question, bench=bench, marks={}, notify=self.notify, progress=None)
        trial = course.look(self._end(bench), purpose=purpose).trial
        assert trial is not None, "an end that cannot be built is refused before"
        self.steps += course.steps
        return trial

    def _look(self, spot: Spot, *, purpose: str) -> Seen:
        """What a whole start says."""
        seen = self.whole.look(spot, purpose=purpose)
        self.steps.append(self.whole.steps[-1])
        return seen

    def _judge_by(self, target: Target) -> None:
        """From now on that is bad, also where the bad end was started whole."""
        self.whole.judge_by(target)
        judged = {step.trial.record: step for step in self.whole.steps}
        self.steps = [judged.get(step.trial.record, step) for step in self.steps]

    def _searched(self, failing: Trial, short: Shortcut, target: Target, *, warm: bool) -> Finding:
        """The finding of short starts; what the search started whole is noted with the whole ones."""
        target = replace(target, until=short.until)
        aimed = replace(self.question, until=short.until, target=target, budget=self._budget())
        marks = Meant(self.marks, whole=self.whole.bench)
        bench = Short(self.shorter(short.until, warm), short, marks=marks)
        suspect = self._prime_suspect(failing, bench, target)
        # Where the ends are started so anyway, the bad end has shown already how it fails.
        known = [step.trial for step in self.steps if warm and not step.trial.reused]
        finding = self._bisected(aimed, suspect or bench, known=known, marks=marks)
        if suspect:
            for trial in suspect.started_whole:
                self.whole.note(self._whole_spot(trial.point), trial, purpose="search", watch=False)
            why = "the suspicion was not borne out"
            self.steps += [Step("proof", None, None, trial, why=why) for trial in suspect.unasked()]
        return finding

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

    def _bisected(self, question: Question, bench: Bench, *, known: Sequence[Trial], marks: Marks) -> Finding:
        """What ``bisect`` finds with ``known`` launches before it makes others; those keep their place in ``steps``."""
        finding = bisect(question, Recalled(bench, known), marks=marks, notify=self.notify, progress=self.progress)
        records = {trial.record for trial in known}
        again = {step.trial.record: step for step in finding.steps if step.trial.record in records}
        self.steps = [replace(again.get(step.trial.record, step), trial=step.trial) for step in self.steps]
        self.steps += [step for step in finding.steps if step.trial.record not in again]
        self.lost += finding.lost
        return finding

    def _budget(self) -> Budget:
        return remaining(self.question.budget, self.steps)

    @property
    def _spent(self) -> bool:
        return is_spent(self._budget())

    def _give_up(self) -> None:
        """What was spent and seen stays, but for its places in the line: those are for starts that count."""
        self.steps = [replace(step, position=None) for step in self.steps]

    def _instead(self, why: str) -> Finding:
        """The bisection with whole starts, because of ``why``; what they have said counts, and what was spent."""
        self.notify(f"whole starts, because {why}")
        self._give_up()
        question = replace(self.question, budget=self._budget())
        known = [step.trial for step in self.whole.steps if step.trial.record]
        return self._bisected(question, self.whole.bench, known=known, marks=self.marks)

    def _confirmed(self, finding: Finding, short: Shortcut) -> Finding:
        """The finding of short starts with culprit and parent started whole, as far as the budget goes."""
        proof, said = list(finding.proof), "confirmed by whole starts"
        for k, claimed in enumerate(finding.proof):
            if claimed.claim not in _WHOLE or claimed.trial is None:
                continue
            spot = self._whole_spot(_whole_point(claimed.trial.point, short, self.question))
            seen = self.whole.recall(spot)
            if seen is None and self._spent:
                said = "not confirmed by whole starts: the budget is spent"
                proof[k] = replace(claimed, status="not tested: the budget is spent, only a short start was made")
                continue
            seen = seen or self._look(spot, purpose="confirm, whole")
            if seen.observation is not _WHOLE[claimed.claim]:
                return self._instead("a whole start does not confirm the answer")
            proof[k] = replace(claimed, trial=seen.trial)
        left_out = _left_out(short, warm=any(step.trial.warm for step in finding.steps))
        reason = f"{finding.reason}; searched without {left_out}, {said}"
        return replace(finding, reason=reason, proof=tuple(proof), target=self.whole.judge)

    def _whole_spot(self, point: Point) -> Spot:
        return Spot(on=frozenset(), point=point, position=None, content=self.whole.bench.content(point))


def _left_out(short: Shortcut, *, warm: bool) -> str:
    return f"{' and '.join(short.left_out)}{', from a warm process' if warm else ''}"


def _whole_point(point: Point, short: Shortcut, question: Question) -> Point:
    """The point without the shortcut's flags, which give way to what the ends have there. Their order stays."""
    usual = {name: value for name, value in question.timeline.bad.flags.items() if name in short.flags}
    flags = {
        name: value for name, value in {**point.flags, **usual}.items() if name in usual or name not in short.flags
    }
    return replace(point, name=point.name.removesuffix(", short"), flags=flags)
