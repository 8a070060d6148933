"""Both ends first: does the bad end fail, does the good end not, and do they always?"""

from __future__ import annotations

from patchbisect.bisection.course import Course
from patchbisect.bisection.finding import AnswerKind
from patchbisect.bisection.ground import Ground, Spot
from patchbisect.bisection.judging import Target, reached, short
from patchbisect.model import Outcome, Signature, Verdict
from patchbisect.search import Observation, Rates
from patchbisect.trial import Trial


class Refused(Exception):
    """The range cannot be searched."""

    def __init__(self, answer: AnswerKind, reason: str) -> None:
        super().__init__(reason)
        self.answer = answer
        self.reason = reason


def settle_ends(course: Course, ground: Ground) -> None:
    """Launch both ends, and learn from the bad one what is bad. An end that gives both answers makes the rates unknown.

    Raises Refused when no repeat of an end agrees; BoxError; PointUnbuildable.
    """
    split = [_bad_end(course, ground.end(bad=True)), _good_end(course, ground.end(bad=False))]
    if any(split) and course.rates.kind != "unknown":
        course.notify("an end gave both answers: searching as if every launch could err")
        course.rates = Rates.unknown()


def _bad_end(course: Course, spot: Spot) -> bool:
    """Whether it took more than one launch to see it fail."""
    repeats = course.question.repeats
    for attempt in range(1 + repeats):
        trial = _launched(course, spot, purpose="bad end again" if attempt else "bad end")
        if course.judge is None and not reached(trial.verdict, until=course.question.until):
            course.judge_by(_target(course, trial))
        if course.observed(spot, trial) is Observation.BAD:
            return attempt > 0
        if not trial.record:
            raise Refused(AnswerKind.ENDPOINT_FAILED, f"the bad end does not fail: {trial.verdict.why}")
        if not attempt:
            course.notify(f"the bad end {_ended(trial.verdict)}; running it {repeats} times more")
    raise Refused(
        AnswerKind.ENDPOINT_FAILED,
        f"the bad end does not fail: all {1 + repeats} launches {_ended(trial.verdict)}",
    )


def _good_end(course: Course, spot: Spot) -> bool:
    """Whether it took more than one launch to see it pass."""
    repeats = course.question.repeats
    verdicts: list[Observation | None] = []
    while len(verdicts) <= repeats:
        trial = _launched(course, spot, purpose="good end again" if verdicts else "good end")
        verdicts.append(course.observed(spot, trial))
        if verdicts[-1] is Observation.GOOD:
            return len(verdicts) > 1
        if not trial.record:
            raise Refused(AnswerKind.ENDPOINT_FAILED, f"the baseline itself fails: {trial.verdict.why}")
        if len(verdicts) == 1:
            course.notify(f"the good end {_ended(trial.verdict)}; running it {repeats} times more")
    count = f"{len(verdicts)} of {len(verdicts)} launches of the good end {_ended(trial.verdict)}"
    if Observation.BAD in verdicts:
        raise Refused(
            AnswerKind.ENDPOINT_FAILED, f"the baseline itself fails, the change is not in this range: {count}"
        )
    raise Refused(
        AnswerKind.ENDPOINT_FAILED,
        f"the baseline itself fails, in another way than the bad end ({course.judge}), so that nothing in between can "
        f"be told apart: {count}",
    )


def _launched(course: Course, spot: Spot, *, purpose: str) -> Trial:
    trial = course.look(spot, purpose=purpose).trial
    assert trial is not None, "an end that cannot be built is refused before"
    if trial.record and trial.verdict.outcome is Outcome.VOID:
        raise Refused(AnswerKind.ENDPOINT_FAILED, f"{spot.point.name} cannot be tested: {trial.verdict.why}")
    return trial


def _target(course: Course, trial: Trial) -> Target:
    """The bad end's failure; any failure where a person only said that it is bad."""
    question = course.question
    if not trial.record:
        return Target(signature=Signature(outcome=Outcome.CRASH), bad_is="any", until=question.until)
    signature = trial.verdict.signature or Signature(outcome=trial.verdict.outcome)
    return Target(signature=signature, bad_is=question.bad_is, until=question.until)


def _ended(verdict: Verdict) -> str:
    if verdict.outcome in (Outcome.READY, Outcome.KV_ALLOCATED):
        return f"got to {verdict.outcome}"
    return f"ended as {short(verdict)}"
