"""Search × trials → culprit, with proof; and the way back in after an interruption."""

from patchbisect.bisection.bench import Bench, Journaled, OnRig
from patchbisect.bisection.finding import (
    AnswerKind,
    Claim,
    Finding,
    ProofStep,
    Question,
    Step,
    change_to_json,
    finding_to_json,
)
from patchbisect.bisection.judging import BadIs, Target, is_transient, reached, short
from patchbisect.bisection.running import bisect
from patchbisect.bisection.session import UNTIL, Asked, Understood, begin, conduct, one_of, resumed, understand

__all__ = [
    "UNTIL",
    "AnswerKind",
    "Asked",
    "BadIs",
    "Bench",
    "Claim",
    "Finding",
    "Journaled",
    "OnRig",
    "ProofStep",
    "Question",
    "Step",
    "Target",
    "Understood",
    "begin",
    "bisect",
    "change_to_json",
    "conduct",
    "finding_to_json",
    "is_transient",
    "one_of",
    "reached",
    "resumed",
    "short",
    "understand",
]
