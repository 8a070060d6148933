"""What comes after an answer: the recorded good start of a baseline that fails, and the inside of a guilty patch."""

from __future__ import annotations

from dataclasses import replace

from patchbisect.bisection.baseline import recorded_baseline
from patchbisect.bisection.finding import AnswerKind, Baseline, Claim, Finding
from patchbisect.bisection.hunks import hunk_timeline
from patchbisect.bisection.judging import Threshold
from patchbisect.bisection.wording import noun
from patchbisect.model import Axis, Timeline
from patchbisect.records import Store

# As many differences as a sentence holds.
_SHOWN = 6


def compared(finding: Finding, *, store: Store) -> Finding:
    """With what differs from the last good start on record, where the good end failed."""
    if isinstance(finding.target, Threshold):
        # Records tell which starts were good, not by which number.
        return finding
    good = finding.timeline.bad if finding.fix else finding.timeline.good
    failed = [step for step in finding.steps if step.trial.point == good and step.trial.record]
    if finding.answer is not AnswerKind.ENDPOINT_FAILED or not failed or finding.steps[-1] is not failed[-1]:
        return finding
    baseline = recorded_baseline(store, store.load(failed[-1].trial.record), secrets=finding.secrets)
    if baseline is None:
        return finding
    return replace(finding, baseline=baseline, reason=f"{finding.reason}; {_sentence(baseline)}")


def _sentence(baseline: Baseline) -> str:
    differs = [f"{field} {then} -> {now}" for field, then, now in baseline.differences]
    more = f" and {len(differs) - _SHOWN} more" if len(differs) > _SHOWN else ""
    said = (
        f"what differs since is {', '.join(differs[:_SHOWN])}{more}" if differs else "nothing on record differs since"
    )
    return f"it started on {baseline.created} (run {baseline.record}); {said}"


def followed(finding: Finding, since: Finding) -> Finding:
    """The answer to "what changed since the baseline started", told as the answer to the whole question."""
    return replace(
        since,
        reason=f"{finding.reason}; searched from there: {since.reason}",
        baseline=finding.baseline,
        steps=(*finding.steps, *(step for step in since.steps if not step.trial.reused)),
    )


def inside_commit(finding: Finding) -> Timeline | None:
    """The changes of a guilty commit of the queue's repository, where it made several."""
    culprit = finding.culprit
    if finding.answer is not AnswerKind.FOUND or culprit is None or not (culprit.note and culprit.parts):
        return None
    trials = {step.claim: step.trial for step in finding.proof}
    bad, good = trials.get(Claim.CULPRIT_BAD), trials.get(Claim.PARENT_GOOD)
    if bad is None or good is None:
        return None
    return Timeline(good=good.point, bad=bad.point, changes=culprit.parts)


def narrowed(finding: Finding, inside: Finding) -> Finding:
    """The answer from inside the guilty commit, told as the answer; where there is none, the commit stays it."""
    assert finding.culprit is not None
    if inside.answer not in (AnswerKind.FOUND, AnswerKind.SET):
        return replace(finding, inside=inside)
    before = tuple(replace(step, position=None) for step in finding.steps)
    since = tuple(step for step in inside.steps if not step.trial.reused)
    reason = f"in {noun(finding.culprit, secrets=finding.secrets)}, {inside.reason}"
    return replace(inside, reason=reason, steps=(*before, *since))


def inside_culprit(finding: Finding) -> Timeline | None:
    """The guilty patch hunk by hunk, where it was added and holds more than one."""
    if finding.answer is not AnswerKind.FOUND or finding.culprit is None or finding.culprit.axis is not Axis.QUEUE:
        return None
    trials = {step.claim: step.trial for step in finding.proof}
    bad, good = trials.get(Claim.CULPRIT_BAD), trials.get(Claim.PARENT_GOOD)
    if bad is None or good is None or finding.culprit.verb != "add":
        return None
    return hunk_timeline(good.point, bad.point, finding.culprit.after)


def entered(finding: Finding, inside: Finding) -> Finding:
    """With the answer from inside the culprit."""
    said = f"; inside it, {inside.reason}" if inside.answer in (AnswerKind.FOUND, AnswerKind.SET) else ""
    return replace(finding, inside=inside, reason=finding.reason + said)
