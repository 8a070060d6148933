"""Both endpoints, the search, the proof.

A bisection is a deterministic function of its question and of the trials' verdicts: see
:class:`patchbisect.bisection.bench.Journaled` for what that buys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from patchbisect.bisection.bench import Bench
from patchbisect.bisection.finding import AnswerKind, Claim, Finding, ProofStep, Question, Step
from patchbisect.bisection.judging import Target, is_transient, reached, short
from patchbisect.errors import BoxError, PointUnbuildable
from patchbisect.model import Change, Point, Signature, Timeline
from patchbisect.search import Answer, CulpritSearch, Observation, Rates
from patchbisect.timeline import applied, point_at
from patchbisect.trial import Trial

# How often a launch is tried when our side or the machine failed (transient void).
VOID_TRIES = 3


class EndpointsDisagree(Exception):
    """The range cannot be searched; carries the finding that says so."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.reason)
        self.finding = finding


def bisect(question: Question, bench: Bench, *, notify: Callable[[str], None] = lambda text: None) -> Finding:
    """Both endpoints, the search, the proof.

    Raises BoxError when the box will not serve, PointUnbuildable where one of the ends cannot be built.
    """
    track = _effective(question.timeline, bench)
    run = _Run(question=question, bench=bench, track=track, notify=notify)
    if len(track) == 1:
        return run.finding(
            AnswerKind.NONE, "both ends run the same code with the same settings: there is nothing to find"
        )
    try:
        target, noisy = run.endpoints()
    except EndpointsDisagree as refusal:
        return refusal.finding
    return run.search(target, noisy=noisy)


@dataclass(frozen=True, slots=True)
class _Stop:
    """A point of the timeline whose content differs from the stop before it; ``unbuildable`` says why it has none."""

    position: int
    point: Point
    content: str
    unbuildable: str = ""


def _effective(timeline: Timeline, bench: Bench) -> tuple[_Stop, ...]:
    """The timeline's points without those that run exactly what the point before them runs.

    Raises UsageError where one of the ends cannot be built.
    """
    stops: list[_Stop] = []
    last = len(timeline.changes)
    for position in range(last + 1):
        point = point_at(timeline, position)
        try:
            content, unbuildable = bench.content(point), ""
        except PointUnbuildable as fault:
            if position in (0, last):
                raise
            content, unbuildable = "", fault.message
        if unbuildable or not stops or content != stops[-1].content:
            stops.append(_Stop(position=position, point=point, content=content, unbuildable=unbuildable))
    return tuple(stops)


class _Run:
    """One bisection under way: what was tried so far, and the verbs that try more."""

    def __init__(
        self, *, question: Question, bench: Bench, track: Sequence[_Stop], notify: Callable[[str], None]
    ) -> None:
        self.question = question
        self.bench = bench
        self.track = track
        self.notify = notify
        self.steps: list[Step] = []
        self.target: Target | None = None

    def finding(self, answer: AnswerKind, reason: str, **more: object) -> Finding:
        return replace(
            Finding(answer=answer, reason=reason, timeline=self.question.timeline, target=self.target),
            steps=tuple(self.steps),
            **more,  # type: ignore[arg-type]
        )

    # -- endpoints ------------------------------------------------------------------------------------------------

    def endpoints(self) -> tuple[Target, bool]:
        """The target, and whether an endpoint was split. Raises EndpointsDisagree."""
        bad_split = self._bad_end()
        good_split = self._good_end()
        assert self.target is not None
        return self.target, bad_split or good_split

    def _bad_end(self) -> bool:
        last = len(self.track) - 1
        first = self._launch(last, "bad end")
        if not self._failed(first):
            self.notify(f"the bad end got to {first.verdict.outcome}; running it {self.question.repeats} times more")
        trials = [first]
        while not self._failed(trials[-1]) and len(trials) <= self.question.repeats:
            trials.append(self._launch(last, "bad end again"))
        failing = trials[-1]
        if not self._failed(failing):
            raise EndpointsDisagree(
                self.finding(
                    AnswerKind.ENDPOINT_FAILED,
                    f"the bad end does not fail: all {len(trials)} launches got to {failing.verdict.outcome}",
                )
            )
        signature = failing.verdict.signature or Signature(outcome=failing.verdict.outcome)
        self.target = Target(signature=signature, bad_is=self.question.bad_is, until=self.question.until)
        self._judge_again()
        return len(trials) > 1

    def _good_end(self) -> bool:
        first = self._launch(0, "good end")
        trials = [first]
        if self._observed(first) is not Observation.GOOD:
            self.notify(f"the good end fails ({short(first.verdict)}); running it {self.question.repeats} times more")
        while len(trials) <= self.question.repeats and self._observed(first) is not Observation.GOOD:
            trials.append(self._launch(0, "good end again"))
        good = [trial for trial in trials if self._observed(trial) is Observation.GOOD]
        if not good:
            raise EndpointsDisagree(
                self.finding(
                    AnswerKind.ENDPOINT_FAILED,
                    "the baseline itself fails, the change is not in this range: "
                    f"{len(trials)} of {len(trials)} launches of the good end ended as {short(first.verdict)}",
                )
            )
        return len(good) < len(trials)

    def _failed(self, trial: Trial) -> bool:
        return not reached(trial.verdict, until=self.question.until)

    def _observed(self, trial: Trial) -> Observation | None:
        return self.target.judge(trial.verdict) if self.target else None

    def _judge_again(self) -> None:
        self.steps = [replace(step, observation=self._observed(step.trial)) for step in self.steps]

    # -- search ---------------------------------------------------------------------------------------------------

    def search(self, target: Target, *, noisy: bool) -> Finding:
        rates = Rates.unknown() if noisy else self.question.rates
        if noisy:
            self.notify("an endpoint gave both answers: searching as if every launch could err")
        search = CulpritSearch(
            changes=len(self.track) - 1,
            confidence=self.question.confidence,
            rates=rates,
            budget=self.question.budget,
        )
        for step in self.steps:
            index = self._index(step.position)
            if index is not None and step.observation is not None:
                search.tell(index, step.observation)
        while (answer := search.answer()) is None:
            for index in search.ask():
                search.tell(index, self._try(index, target))
        return self._conclude(answer, target)

    def _index(self, position: int | None) -> int | None:
        return next((i for i, stop in enumerate(self.track) if stop.position == position), None)

    def _try(self, index: int, target: Target) -> Observation:
        stop = self.track[index]
        if stop.unbuildable:
            self.notify(f"point {stop.position} cannot be built: {stop.unbuildable}")
            return Observation.SKIP
        observation = target.judge(self._launch(index, "search").verdict)
        assert observation is not None, "a transient void never gets here: _launch tries again or raises"
        return observation

    def _launch(self, index: int, purpose: str) -> Trial:
        stop = self.track[index]
        return self._launch_point(stop.point, purpose=purpose, position=stop.position)

    def _launch_point(self, point: Point, *, purpose: str, position: int | None) -> Trial:
        for _ in range(VOID_TRIES):
            trial = self.bench.launch(point, purpose=purpose)
            verdict = trial.verdict
            if not is_transient(verdict):
                step = Step(purpose=purpose, position=position, observation=self._observed(trial), trial=trial)
                self.steps.append(step)
                return trial
            self.notify(f"void: {verdict.why}")
        raise BoxError(
            f"{VOID_TRIES} launches in a row were void, the last because {verdict.why}", remedy=verdict.advice
        )

    # -- answer and proof -----------------------------------------------------------------------------------------

    def _conclude(self, answer: Answer, target: Target) -> Finding:
        changes = self.question.timeline.changes
        positions = [self.track[index].position for index in answer.candidates]
        candidates = tuple(changes[position - 1] for position in positions)
        common = {
            "candidates": candidates,
            "confidence": answer.confidence,
            "assumed_deterministic": answer.assumed_deterministic,
        }
        if answer.kind == "none":
            return self.finding(
                AnswerKind.NONE, "no change of this range is guilty: the failure comes and goes by itself", **common
            )
        if answer.kind == "budget":
            return self.finding(AnswerKind.INCONCLUSIVE, "the budget is spent before one change stood out", **common)
        if answer.kind == "set":
            return self.finding(
                AnswerKind.SET,
                f"one of {len(candidates)} changes is guilty; the points between them cannot be tested",
                **common,
            )
        assert answer.culprit is not None
        stop, parent = self.track[answer.culprit], self.track[answer.culprit - 1]
        culprit = changes[stop.position - 1]
        proof = tuple(self._prove(culprit, stop, parent, target))
        return self.finding(
            AnswerKind.FOUND, _found(culprit, proof), culprit=culprit, position=stop.position, proof=proof, **common
        )

    def _prove(self, culprit: Change, stop: _Stop, parent: _Stop, target: Target) -> Iterator[ProofStep]:
        """Culprit and parent rest on the search's own launches; what takes the culprit out is launched now."""
        timeline = self.question.timeline
        yield self._own(Claim.CULPRIT_BAD, stop, Observation.BAD)
        yield self._own(Claim.PARENT_GOOD, parent, Observation.GOOD)
        others = [change for change in timeline.changes if change is not culprit]
        yield self._taken(
            Claim.WITHOUT_CULPRIT_GOOD,
            lambda: applied(timeline.good, others),
            wanted=Observation.GOOD,
            target=target,
        )
        yield self._taken(
            Claim.ALONE_BAD,
            lambda: applied(timeline.good, [culprit]),
            wanted=Observation.BAD,
            target=target,
        )

    def _own(self, claim: Claim, stop: _Stop, wanted: Observation) -> ProofStep:
        hits = [s for s in self.steps if s.position == stop.position and s.observation is wanted]
        if hits:
            return ProofStep(claim=claim, status="confirmed", trial=hits[0].trial)
        return ProofStep(claim=claim, status=f"not testable: {stop.unbuildable or 'no launch of it was conclusive'}")

    def _taken(self, claim: Claim, build: Callable[[], Point], *, wanted: Observation, target: Target) -> ProofStep:
        try:
            point = build()
            trial = self._known(self.bench.content(point)) or self._launch_point(point, purpose="proof", position=None)
        except PointUnbuildable as fault:
            return ProofStep(claim=claim, status=f"not testable: {fault.message}")
        observation = target.judge(trial.verdict)
        if observation is wanted:
            return ProofStep(claim=claim, status="confirmed", trial=trial)
        if observation is Observation.SKIP:
            return ProofStep(claim=claim, status=f"not testable: it ended as {short(trial.verdict)}", trial=trial)
        return ProofStep(claim=claim, status="refuted", trial=trial)

    def _known(self, content: str) -> Trial | None:
        return next((step.trial for step in self.steps if step.trial.content_id == content), None)


def _found(culprit: Change, proof: Sequence[ProofStep]) -> str:
    without, alone = proof[2], proof[3]
    if without.status == "refuted":
        return f"{culprit.title} breaks it, but so does another change: without it the bad end still fails"
    if without.confirmed and alone.confirmed:
        return f"{culprit.title} breaks it: necessary, and sufficient alone"
    if without.confirmed and alone.status == "refuted":
        return f"{culprit.title} breaks it only together with other changes of this range"
    return f"{culprit.title} breaks it"
