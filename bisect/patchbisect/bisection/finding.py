"""A bisection's question and its answer, as data."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum

from patchbisect.bisection.judging import BadIs, Judge, Threshold
from patchbisect.bisection.wording import title
from patchbisect.model import Change, Stage, Timeline
from patchbisect.search import Budget, Observation, Rates
from patchbisect.trial import Trial
from patchbisect.wire import Json, verdict_to_json


class AnswerKind(StrEnum):
    """What a bisection can say. A closed list; the words of ``bisect --json``."""

    FOUND = "found"
    SET = "set"
    NONE = "none"
    INCONCLUSIVE = "inconclusive"
    ENDPOINT_FAILED = "endpoint-failed"


@dataclass(frozen=True, slots=True)
class Question:
    """What to find out, and how sure to be."""

    timeline: Timeline
    until: Stage
    bad_is: BadIs = "signature"
    rates: Rates = field(default_factory=Rates.deterministic)
    confidence: float = 0.95
    repeats: int = 3
    """Further launches of an endpoint that disagrees."""
    budget: Budget = field(default_factory=Budget)
    """Over the whole bisection, ends and proof included."""
    fix: bool = False
    """The start of the timeline is broken, its end is not: find the change that repaired it."""
    bad_when: Threshold | None = None
    """What is bad is a number, not a failure."""
    target: Judge | None = None
    """What is bad, where that is known before the bad end is launched."""
    findings: frozenset[str] = frozenset()
    """Subjects of changes that a check has found fault with: suspected first."""
    secrets: tuple[str, ...] = ()
    """Names of settings whose values are not shown, besides those that look like it."""


@dataclass(frozen=True, slots=True)
class Step:
    """One trial as the search saw it: BAD is "as at the far end". ``position`` is k of point k, None off the line."""

    purpose: str
    position: int | None
    observation: Observation | None
    trial: Trial
    why: str = ""
    """Why the search asked for it."""
    sure: float | None = None
    """P(guilty) of the likeliest change after it, where the search tells."""


@dataclass(frozen=True, slots=True)
class Unbuildable:
    """A point that the search asked for and that has no code: a permanent void, told without a launch."""

    position: int | None
    point: str
    why: str


class Claim(StrEnum):
    """What a proof claims; the values are the keys of ``proof`` in ``bisect --json``."""

    CULPRIT_BAD = "culprit_bad"
    PARENT_GOOD = "parent_good"
    WITHOUT_CULPRIT_GOOD = "without_culprit_good"
    """The bad end without the culprit: the culprit is necessary."""
    ALONE_BAD = "alone_bad"
    """The good end with the culprit alone: the culprit is sufficient."""


@dataclass(frozen=True, slots=True)
class ProofStep:
    """One claim and what a trial said to it: ``confirmed``, ``refuted``, ``not testable: why``, ``not tested: why``."""

    claim: Claim
    status: str
    trial: Trial | None = None

    @property
    def confirmed(self) -> bool:
        return self.status == "confirmed"


@dataclass(frozen=True, slots=True)
class Baseline:
    """A recorded good start: its record, when it was made, and ``(field, then, now)`` for what is not the same."""

    record: str
    created: str
    differences: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """The answer, with all it rests on."""

    answer: AnswerKind
    reason: str
    timeline: Timeline
    culprit: Change | None = None
    position: int | None = None
    """The culprit turns point ``position - 1`` into point ``position``."""
    candidates: tuple[Change, ...] = ()
    together: bool = False
    """The candidates break only together. Else, where there are several, one of them is guilty."""
    others: tuple[tuple[Change, ...], ...] = ()
    """Further changes (or sets that need each other) that break it without the culprit."""
    confidence: float = 0.0
    assumed_deterministic: bool = False
    target: Judge | None = None
    steps: tuple[Step, ...] = ()
    proof: tuple[ProofStep, ...] = ()
    secrets: tuple[str, ...] = ()
    fix: bool = False
    inside: Finding | None = None
    """What a bisection inside the culprit found."""
    lost: tuple[str, ...] = ()
    """Records that do not count any more, because the machine changed under them."""
    baseline: Baseline | None = None
    """Where the good end fails: the last start of it that is on record, and what differs today."""
    unbuildable: tuple[Unbuildable, ...] = ()

    @property
    def trials(self) -> tuple[Trial, ...]:
        """Every launch, in order."""
        return tuple(step.trial for step in self.steps if step.trial.record)

    @property
    def launches(self) -> int:
        """Servers started for it."""
        own = sum(not step.trial.reused for step in self.steps)
        return own + (self.inside.launches if self.inside else 0)


def finding_to_json(finding: Finding) -> Json:
    """The document of ``bisect --json``."""

    def shown(change: Change, position: int | None = None) -> Json:
        return change_to_json(change, position, secrets=finding.secrets)

    return {
        "answer": finding.answer.value,
        "reason": finding.reason,
        "culprit": shown(finding.culprit, finding.position) if finding.culprit else None,
        "candidates": [shown(change) for change in finding.candidates],
        "together": finding.together,
        "others": [[shown(change) for change in other] for other in finding.others],
        "confidence": round(finding.confidence, 4),
        "assumed_deterministic": finding.assumed_deterministic,
        "target": str(finding.target) if finding.target else None,
        "bad_when": str(finding.target) if isinstance(finding.target, Threshold) else None,
        "fix": finding.fix,
        "inside": finding_to_json(finding.inside) if finding.inside else None,
        "baseline": _baseline(finding.baseline) if finding.baseline else None,
        "launches": finding.launches,
        "reused": sum(step.trial.reused for step in finding.steps if step.trial.record),
        "proof": {
            step.claim.value: {"status": step.status, "run": (step.trial.record or None) if step.trial else None}
            for step in finding.proof
        },
        "good": finding.timeline.good.name,
        "bad": finding.timeline.bad.name,
        "timeline": [shown(change, k) for k, change in enumerate(finding.timeline.changes, start=1)],
        "trials": [_step_to_json(step, fix=finding.fix) for step in finding.steps],
        "unbuildable": [asdict(each) for each in finding.unbuildable],
        "reproduce": _reproduce(finding),
    }


def change_to_json(change: Change, position: int | None = None, *, secrets: tuple[str, ...] = ()) -> Json:
    """Values of secrets are masked."""
    document: Json = {"kind": change.axis.value, "id": change.subject, "title": title(change, secrets=secrets)}
    return document if position is None else {"position": position, **document}


def _baseline(baseline: Baseline) -> Json:
    differences = [{"field": field, "then": then, "now": now} for field, then, now in baseline.differences]
    return {"run": baseline.record, "created": baseline.created, "differences": differences}


_OPPOSITE = {Observation.GOOD: Observation.BAD, Observation.BAD: Observation.GOOD}


def opposite(observation: Observation) -> Observation:
    """What the other side of a culprit is expected to say."""
    return _OPPOSITE.get(observation, observation)


_SHOWN = ("outcome", "stage", "cause", "signature", "deciding", "why", "facts", "patch")


def shown_verdict(verdict: Json) -> Json:
    """What an answer shows of a verdict."""
    return {key: verdict[key] for key in _SHOWN if key in verdict}


def _step_to_json(step: Step, *, fix: bool) -> Json:
    seen = step.observation
    if seen and fix:
        seen = opposite(seen)
    return {
        "purpose": step.purpose,
        "why": step.why,
        "position": step.position,
        "point": step.trial.point.name,
        "run": step.trial.record,
        "box": step.trial.box,
        "reused": step.trial.reused,
        "warm": step.trial.warm,
        "observation": seen.value if seen else None,
        "verdict": shown_verdict(verdict_to_json(step.trial.verdict)),
        "seconds": step.trial.timings.get("total"),
        "confidence": None if step.sure is None else round(step.sure, 4),
    }


def _reproduce(finding: Finding) -> Json:
    """How to see culprit and parent again: by a task, and by one shell line on the box."""
    trials = {step.claim: step.trial for step in finding.proof if step.trial}
    wanted = {"culprit": trials.get(Claim.CULPRIT_BAD), "parent": trials.get(Claim.PARENT_GOOD)}
    return {
        who: {"task": f"invoke launch --point run:{trial.record}", "by_hand": trial.by_hand}
        for who, trial in wanted.items()
        if trial and trial.record
    }
