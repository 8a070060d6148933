"""What the search is told of a verdict: bad, good, untestable, or nothing."""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from patchbisect.config import remedy_for
from patchbisect.errors import UsageError
from patchbisect.model import NUMBERS, Milestone, Outcome, Persistence, Role, Signature, Stage, Verdict
from patchbisect.search import Observation

BadIs = Literal["signature", "outcome", "any"]


class Judge(Protocol):
    """Tells bad from good; ``str`` says what is bad."""

    @property
    def late(self) -> bool:
        """Whether a server must stay ready for a while before it counts as good."""

    def judge(self, verdict: Verdict) -> Observation | None:
        """None: the verdict says nothing about the code."""


@dataclass(frozen=True, slots=True)
class Target:
    """What counts as bad: the failure of the bad end, seen as its signature, its outcome, or any failure."""

    signature: Signature
    bad_is: BadIs = "signature"
    until: Stage = Stage.SERVING

    def judge(self, verdict: Verdict) -> Observation | None:
        """BAD: the target. GOOD: its stage was passed. SKIP: failed before it or otherwise in it. None: void."""
        if verdict.outcome is Outcome.VOID:
            return Observation.SKIP if verdict.persistence is Persistence.PERMANENT else None
        if self._matches(verdict):
            return Observation.BAD
        return Observation.GOOD if self._passed(verdict) else Observation.SKIP

    def nearly(self, verdict: Verdict) -> bool:
        """Whether only the place in SGLang's code tells it from the target: another release may have moved that."""
        found, wanted = verdict.signature, self.signature
        if self.bad_is != "signature" or found is None or found == wanted:
            return False
        return replace(found, exception=wanted.exception, frame=wanted.frame) == wanted

    def __str__(self) -> str:
        return str(self.signature)

    @property
    def late(self) -> bool:
        return self.bad_is != "signature" or self.signature.stage in (Stage.WARMUP, Stage.SERVING)

    def _matches(self, verdict: Verdict) -> bool:
        if self.bad_is == "any":
            return not reached(verdict, until=self.until)
        if self.bad_is == "outcome":
            return verdict.outcome is self.signature.outcome
        return verdict.signature == self.signature

    def _passed(self, verdict: Verdict) -> bool:
        if reached(verdict, until=self.until):
            return True
        stage = self.signature.stage
        return stage is not None and Milestone(self.signature.role or Role.TARGET, stage) in verdict.passed


_RELATIONS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_CONDITION = re.compile(r"\s*(?P<fact>[A-Za-z_]\w*)\s*(?P<relation><=|>=|<|>)\s*(?P<value>-?\d[\d_]*(?:\.\d+)?)\s*")


@dataclass(frozen=True, slots=True)
class Threshold:
    """A number is bad, whether the server starts or not: ``kv_tokens < 900000``. Names are those of the facts."""

    fact: str
    relation: str
    value: float

    @classmethod
    def parse(cls, text: str) -> Threshold:
        """Raises UsageError for what is no such condition, and for a number that no start says."""
        match = _CONDITION.fullmatch(text)
        if not match:
            raise UsageError(
                f"{text!r} is no condition on a fact",
                remedy='like "kv_tokens < 900000"; invoke show lists a run\'s facts',
            )
        if match["fact"] not in NUMBERS:
            raise UsageError(f"{text!r}: no start says its {match['fact']}", remedy=remedy_for(match["fact"], NUMBERS))
        return cls(fact=match["fact"], relation=match["relation"], value=float(match["value"].replace("_", "")))

    @property
    def bad_above(self) -> bool:
        """Whether it is the large numbers that are bad."""
        return self.relation in (">", ">=")

    def measure(self, verdict: Verdict) -> float | None:
        """The fact of that start, None where it is not known."""
        value = verdict.facts.get(self.fact)
        return float(value) if isinstance(value, int | float) else None

    def judge(self, verdict: Verdict) -> Observation | None:
        """BAD: the condition holds. SKIP: the number never came."""
        if is_transient(verdict):
            return None
        value = self.measure(verdict)
        if verdict.outcome is Outcome.VOID or value is None:
            return Observation.SKIP
        return Observation.BAD if _RELATIONS[self.relation](value, self.value) else Observation.GOOD

    @property
    def late(self) -> bool:
        return False

    def __str__(self) -> str:
        return f"{self.fact} {self.relation} {plain(self.value)}"


def plain(value: float) -> str:
    """``1000000`` and ``0.25``: a count of tokens is not to be read as 1e+06."""
    return str(int(value)) if value.is_integer() else f"{value:g}"


def reached(verdict: Verdict, *, until: Stage) -> bool:
    """Whether the server got as far as it was asked to."""
    return verdict.outcome is Outcome.READY or (until is Stage.KV_ALLOC and verdict.outcome is Outcome.KV_ALLOCATED)


def is_transient(verdict: Verdict) -> bool:
    """A void that is worth another launch, and never an observation."""
    return verdict.outcome is Outcome.VOID and verdict.persistence is not Persistence.PERMANENT


def short(verdict: Verdict) -> str:
    """``oom/kv-profile``: for a line in a table or a sentence."""
    return "/".join(str(part) for part in (verdict.outcome, verdict.cause or verdict.stage) if part)
