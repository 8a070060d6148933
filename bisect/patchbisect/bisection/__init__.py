"""Search × trials → culprit, with proof; and the way back in after an interruption."""

from patchbisect.bisection.bench import Bench, Journaled, OnRig
from patchbisect.bisection.finding import AnswerKind, Claim, Finding, ProofStep, Question, Step, finding_to_json
from patchbisect.bisection.judging import BadIs, Target, reached, short
from patchbisect.bisection.running import bisect

__all__ = [
    "AnswerKind",
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
    "bisect",
    "finding_to_json",
    "reached",
    "short",
]
