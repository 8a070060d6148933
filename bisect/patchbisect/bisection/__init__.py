"""Search × trials → culprit, with proof; and the way back in after an interruption."""

from patchbisect.bisection.amending import mark_content, point_named, reasons_of, take_back
from patchbisect.bisection.bench import Bench, Journaled, OnDesk, OnRig
from patchbisect.bisection.door import Door
from patchbisect.bisection.equipping import Terms, bench_on, bench_through
from patchbisect.bisection.errand import Station
from patchbisect.bisection.exporting import export_branch
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
from patchbisect.bisection.planning import Equipment, equipment, forecast, plan_to_json
from patchbisect.bisection.remembering import Shut
from patchbisect.bisection.resuming import heard, note_budget, paid, resumed
from patchbisect.bisection.running import bisect
from patchbisect.bisection.session import (
    UNTIL,
    Asked,
    Understood,
    begin,
    check_same,
    conduct,
    one_of,
    since_baseline,
    understand,
)
from patchbisect.bisection.worker import Call

__all__ = [
    "UNTIL",
    "AnswerKind",
    "Asked",
    "BadIs",
    "Bench",
    "Call",
    "Claim",
    "Door",
    "Equipment",
    "Finding",
    "Journaled",
    "OnDesk",
    "OnRig",
    "ProofStep",
    "Question",
    "Shut",
    "Station",
    "Step",
    "Target",
    "Terms",
    "Understood",
    "begin",
    "bench_on",
    "bench_through",
    "bisect",
    "change_to_json",
    "check_same",
    "conduct",
    "equipment",
    "export_branch",
    "finding_to_json",
    "forecast",
    "heard",
    "is_transient",
    "mark_content",
    "note_budget",
    "one_of",
    "paid",
    "plan_to_json",
    "point_named",
    "reached",
    "reasons_of",
    "resumed",
    "short",
    "since_baseline",
    "take_back",
    "understand",
]
