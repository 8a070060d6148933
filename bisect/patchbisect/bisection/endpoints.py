"""Both ends first: does the bad end fail, does the good end not, and do they always?"""

from __future__ import annotations

from patchbisect.bisection.course import Course
from patchbisect.bisection.finding import AnswerKind, opposite
from patchbisect.bisection.ground import Ground, Spot
from patchbisect.bisection.judging import Target, Threshold, plain, reached, short
from patchbisect.model import Outcome, Signature, Verdict
from patchbisect.search import Observation, Rates
from patchbisect.trial import Trial

# Launches of one point that show how much a number moves by itself.
SPREAD_LAUNCHES = 3

BAD_END, GOOD_END = "bad end", "good end"


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
    bad, good = ground.end(bad=not course.question.fix), ground.end(bad=course.question.fix)
    course.judge = course.question.bad_when or course.question.target
    course.look_side_by_side([(bad, BAD_END), (good, GOOD_END)])
    measured = _measured(course, bad) if course.question.bad_when else []
    split = [_bad_end(course, bad) if not measured else False, _good_end(course, good)]
    if course.question.bad_when:
        _clear_of_noise(course.question.bad_when, measured, _values(course, good))
    if any(split) and course.rates.kind != "unknown":
        course.notify("an end gave both answers: searching as if every launch could err")
        course.rates = Rates.unknown()
    course.sentinels = tuple((spot, seen) for spot in (good, bad) if (seen := _settled(course, spot)))


def _settled(course: Course, spot: Spot) -> Observation | None:
    """What an end says, unless it says two things."""
    said = [seen for seen, count in course.tally(spot).items() if count]
    return said[0] if len(said) == 1 else None


def _measured(course: Course, spot: Spot) -> list[float]:
    """The number at the bad end, as often as it takes to see how much it moves by itself. Raises Refused."""
    threshold = course.question.bad_when
    assert threshold is not None
    for attempt in range(SPREAD_LAUNCHES):
        trial = _launched(course, spot, purpose="spread" if attempt else BAD_END)
        if threshold.measure(trial.verdict) is None:
            numbers = sorted(name for name, value in trial.verdict.facts.items() if isinstance(value, int | float))
            told = f"; it says {', '.join(numbers)}" if numbers else ""
            raise Refused(AnswerKind.ENDPOINT_FAILED, f"the bad end does not say its {threshold.fact}{told}")
    values = _values(course, spot)
    said = course.tally(spot)
    if not said[opposite(Observation.BAD) if course.question.fix else Observation.BAD]:
        raise Refused(
            AnswerKind.ENDPOINT_FAILED, f"the bad end is not bad: {threshold.fact} is {_range(values)}, not {threshold}"
        )
    return values


def _not_good(threshold: Threshold, verdict: Verdict) -> str:
    """How much it moves from launch to launch is known from the bad end: no repeat is needed."""
    value = threshold.measure(verdict)
    if value is None:
        return f"the good end does not say its {threshold.fact}"
    return f"the good end is no better than the bad one: its {threshold.fact} is {plain(value)}"


def _values(course: Course, spot: Spot) -> list[float]:
    threshold = course.question.bad_when
    assert threshold is not None
    trials = [seen.trial for seen in course.evidence() if seen.spot.content == spot.content and seen.trial]
    measured = (threshold.measure(trial.verdict) for trial in trials)
    return [value for value in measured if value is not None]


def _clear_of_noise(threshold: Threshold, bad: list[float], good: list[float]) -> None:
    """Raises Refused where repeats of one point move by more than the threshold is away from an end."""
    spread = max(bad) - min(bad)
    nearest = min(abs(value - threshold.value) for value in (*bad, *good))
    if min(bad) <= threshold.value <= max(bad) or nearest < spread:
        raise Refused(
            AnswerKind.ENDPOINT_FAILED,
            f"{threshold.fact} moves by {plain(spread)} from launch to launch of one point ({_range(bad)}), and "
            f"the threshold {plain(threshold.value)} is only {plain(nearest)} away: nothing could be told apart",
        )


def _range(values: list[float]) -> str:
    low, high = min(values), max(values)
    return plain(low) if low == high else f"{plain(low)} to {plain(high)}"


def _bad_end(course: Course, spot: Spot) -> bool:
    """Whether it took more than one launch to see it fail."""
    repeats = course.question.repeats
    for attempt in range(1 + repeats):
        trial = _launched(course, spot, purpose="bad end again" if attempt else BAD_END)
        if course.judge is None and not reached(trial.verdict, until=course.question.until):
            course.judge_by(_target(course, trial))
        if course.truth(spot, trial) is Observation.BAD:
            return attempt > 0
        if not trial.record:
            raise Refused(AnswerKind.ENDPOINT_FAILED, f"the bad end does not fail: {trial.verdict.why}")
        if not attempt:
            _say_again(course, f"the bad end {_ended(trial.verdict)}")
    launches = "1 launch" if not repeats else f"{1 + repeats} of {1 + repeats} launches"
    raise Refused(
        AnswerKind.ENDPOINT_FAILED,
        f"the bad end does not fail: {launches} of it {_ended(trial.verdict)}",
    )


def _good_end(course: Course, spot: Spot) -> bool:
    """Whether it took more than one launch to see it pass."""
    repeats = course.question.repeats
    verdicts: list[Observation | None] = []
    while len(verdicts) <= repeats:
        trial = _launched(course, spot, purpose="good end again" if verdicts else GOOD_END)
        verdicts.append(course.truth(spot, trial))
        if verdicts[-1] is Observation.GOOD:
            return len(verdicts) > 1
        if course.question.bad_when and trial.record:
            raise Refused(AnswerKind.ENDPOINT_FAILED, _not_good(course.question.bad_when, trial.verdict))
        if not trial.record:
            raise Refused(AnswerKind.ENDPOINT_FAILED, f"the baseline itself fails: {trial.verdict.why}")
        if len(verdicts) == 1:
            _say_again(course, f"the good end {_ended(trial.verdict)}")
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


def _say_again(course: Course, what: str) -> None:
    if times := course.question.repeats:
        course.notify(f"{what}; launching it {'once' if times == 1 else f'{times} times'} more (--repeats)")


def _launched(course: Course, spot: Spot, *, purpose: str) -> Trial:
    known = course.recall(spot) if purpose in (BAD_END, GOOD_END) else None
    trial = (known or course.look(spot, purpose=purpose)).trial
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
