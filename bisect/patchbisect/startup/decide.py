"""The verdict on one life of a server."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from patchbisect.model import (
    DecidingLine,
    Milestone,
    Outcome,
    Persistence,
    Role,
    Signals,
    Signature,
    Stage,
    Verdict,
)
from patchbisect.startup import advice, causes
from patchbisect.startup.causes import Grade
from patchbisect.startup.facts import facts_of
from patchbisect.startup.failure import Failure, Reading, read_signs, settle, where_all_stand
from patchbisect.startup.hang import Budgets, missing_ranks, rank_number, silent_hang
from patchbisect.startup.life import Life
from patchbisect.startup.ranks import ORDER, STAGES, Mark, Progress, settle_roles
from patchbisect.startup.server_args import ServerArgs
from patchbisect.startup.text import seconds
from patchbisect.startup.vocabulary import Kind

TEXT_LIMIT = 2000
_MODULE = re.compile(r"'(sglang\.[\w.]+)'")
QUIET_FOR_S = 0.2
"""A traceback whose last line has stood this long without a continuation is taken as complete."""


LineOwner = Callable[[str, int], str]
"""(path below ``python/``, line) -> the patch that wrote that line, "" where it is upstream's."""


def nobody(path: str, line: int) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Question:
    """What the caller asked of a log."""

    until: Stage = Stage.SERVING
    patched_files: Mapping[str, str] = field(default_factory=dict)
    line_owner: LineOwner = nobody
    promised_probes: Mapping[str, tuple[str, Stage]] = field(default_factory=dict)
    budgets: Budgets = field(default_factory=Budgets)


_SAYS_MOST = {"peer-lost": 0, "killed": 1, "child-died": 2, "abort": 3, "parent-told": 4, "stopped": 5}


@dataclass(slots=True)
class _Case:
    """All that the rules look at; built once per verdict."""

    life: Life
    question: Question
    signals: Signals
    closed: bool
    args: ServerArgs
    progress: Progress
    readings: list[Reading]
    facts: dict[str, Any]
    passed: frozenset[Milestone]

    @property
    def ready(self) -> bool:
        return bool(self.life.ready_line) or (self.signals.http_ready is True and bool(self.life.fired_line))

    @property
    def dead(self) -> bool:
        signals = self.signals
        return signals.alive is False or (signals.alive is None and signals.exit_code is not None)

    @property
    def mourned(self) -> bool:
        """Whether anything says that a process of the server is gone."""
        return self.dead or bool(self.life.told_line) or self.first(Grade.CONSEQUENCE) is not None

    def first(self, grade: Grade) -> Reading | None:
        return next((reading for reading in self.readings if reading.grade is grade), None)

    def last_words(self) -> Reading | None:
        """The consequence that says most: that a peer was lost, that a child died, that the parent was told."""
        found = [reading for reading in self.readings if reading.grade is Grade.CONSEQUENCE]
        return min(found, key=lambda reading: _SAYS_MOST.get(reading.cause.name, 9), default=None)


def decide(life: Life, question: Question, signals: Signals, *, closed: bool, earlier: tuple[str, ...]) -> Verdict:
    """The verdict on the newest life; ``earlier`` are sentences about those before it."""
    case = _case(life, question, signals, closed)
    verdict = _until_reached(case) or _failed(case) or _died(case) or _hung(case) or _alive(case)
    return _dressed(verdict, case, earlier)


def _case(life: Life, question: Question, signals: Signals, closed: bool) -> _Case:
    args = life.args
    progress = settle_roles(life.tracks, draft_possible=args.may_draft)
    no_graphs = args.no_graphs or not any(True for _ in progress.marks(kind=Kind.CAPTURE_BEGIN))
    expected = args.local_ranks
    if expected is not None:
        expected *= life.nodes
    passed = progress.passed(expected=expected, no_graphs=no_graphs)
    return _Case(
        life=life,
        question=question,
        signals=signals,
        closed=closed,
        args=args,
        progress=progress,
        readings=read_signs(life),
        facts=facts_of(life, args, progress),
        passed=passed,
    )


# --- rules, the first that applies ------------------------------------------------------------------


def _until_reached(case: _Case) -> Verdict | None:
    """Asked to stop before serving, and every rank of the target got there."""
    until = case.question.until
    if until is Stage.SERVING or ORDER[until] < ORDER[Stage.KV_ALLOC]:
        return None
    if Milestone(Role.TARGET, until) not in case.passed:
        return None
    failed = _failed(case)
    if failed is not None and failed.stage is not None and ORDER[failed.stage] <= ORDER[until]:
        return failed
    mark = max(
        (mark for _, mark in case.progress.marks(role=Role.TARGET) if mark.ended is until),
        key=lambda mark: mark.line,
        default=None,
    )
    return Verdict(
        outcome=Outcome.KV_ALLOCATED,
        stage=until,
        role=Role.TARGET,
        deciding=_line_of(mark, case),
        why=f"every rank of the target has ended {until}, as asked",
        final=True,
    )


def _failed(case: _Case) -> Verdict | None:
    reading = _deciding(case)
    if reading is None:
        return None
    failure = settle(reading, case.life, case.progress, may_draft=case.args.may_draft)
    return _of_failure(failure, case)


def _deciding(case: _Case) -> Reading | None:
    """The earliest fatal sign. One that Python printed on its own is taken back when the server came up later."""
    for reading in case.readings:
        if reading.grade is not Grade.FATAL:
            continue
        block = reading.sign.block
        unannounced = block is not None and block.who in ("", "logger")
        if unannounced and _outlived(reading, case):
            continue
        return reading
    return None


def _outlived(reading: Reading, case: _Case) -> bool:
    """Whether the server went on after a traceback of which nobody said that it ends the server."""
    if case.ready and not case.mourned:
        return True
    return reading.sign.line < case.life.ready_line or _went_on(reading, case)


OUTLIVED_QUIET_S = 60.0
"""A server that goes on after a traceback says something within this time; importing takes up to half of it."""
OUTLIVED_S = 3.0
"""A rank whose main process has died prints for some fractions of a second more, not for seconds."""


def _went_on(reading: Reading, case: _Case) -> bool:
    """A bare traceback that its server outlived: it came further, seconds later or with nobody dead."""
    marks = [mark for _, mark in case.progress.marks()]
    before = [mark for mark in marks if mark.line < reading.sign.line]
    after = [mark for mark in marks if mark.line > reading.sign.line]
    weight = case.progress.weight
    if not after or (before and max(map(weight, after)) <= max(map(weight, before))):
        return False
    if not case.mourned:
        return True
    times = [seconds(mark.time) for mark in after if mark.time]
    start = seconds(reading.sign.time)
    return bool(times) and start is not None and max(t or 0.0 for t in times) - start >= OUTLIVED_S


def _of_failure(failure: Failure, case: _Case) -> Verdict:
    sign = failure.sign
    cause, outcome = failure.cause, failure.outcome
    note = _silent_partner(case, before=sign.time) if outcome is Outcome.HANG else None
    if note is not None:
        cause = COMM_BUFFER
    elif cause == "collective-timeout" and case.life.activity.deepgemm_line:
        cause = "deepgemm-warmup-timeout"
    if case.life.waited_for:
        case.facts["missing_ranks"] = list(case.life.waited_for)
    frame = failure.frame
    patch = _patch_of(failure, case.question)
    why = advice.why_failed(failure, cause=cause, note=note.sign.text if note else "", patch=patch)
    return Verdict(
        outcome=outcome,
        stage=failure.stage,
        role=failure.role,
        cause=cause,
        signature=Signature(
            outcome=outcome,
            stage=failure.stage,
            role=failure.role,
            cause=cause,
            exception=failure.exception_type,
            frame=f"{frame.own.rpartition('/')[2]}:{frame.function}".rstrip(":") if frame else "",
        ),
        deciding=DecidingLine(failure.line, _clip(failure.text), sign.rank),
        patch=patch,
        why=why,
        final=case.closed or case.dead or _is_settled(failure, case),
    )


def _is_settled(failure: Failure, case: _Case) -> bool:
    """Whether a living server's failure can no longer be told otherwise."""
    block = failure.sign.block
    if block is None:
        return True
    silent = case.signals.silent_for_s or 0.0
    if block.who in ("", "logger"):
        # Nobody said that this traceback ends the server: it may be outlived.
        return bool(case.life.told_line) or (block.complete and silent >= OUTLIVED_QUIET_S)
    return failure.settled or (block.complete and silent >= QUIET_FOR_S)


COMM_BUFFER = "comm-buffer"


def _silent_partner(case: _Case, *, before: str) -> Reading | None:
    """A rank that gave a buffer up and went on, for which the others then waited in vain. Ranks that all gave it up
    do not wait for each other. Its number becomes the fact ``failed_rank``."""
    notes = [
        reading
        for reading in case.readings
        if reading.grade is Grade.NOTE
        and reading.cause.name in (COMM_BUFFER, causes.DEVICE_OOM)
        and (not before or reading.sign.time <= before)
    ]
    if not notes or len({note.sign.rank for note in notes}) >= (
        case.args.local_ranks or len(case.progress.tracks) or 2
    ):
        return None
    number = rank_number(notes[0].sign.rank)
    case.facts["failed_rank"] = number if number is not None else notes[0].sign.rank
    return notes[0]


def _died(case: _Case) -> Verdict | None:
    """No fatal sign, but the server (or a rank of it) is gone."""
    consequence = case.last_words()
    lost = _lost_rank(case)
    if not case.dead and consequence is None and lost is None:
        return None
    clue = case.first(Grade.CLUE)
    if clue is not None and (not case.ready or clue.sign.line > case.life.ready_line):
        failure = settle(clue, case.life, case.progress, may_draft=case.args.may_draft)
        return _of_failure(failure, case)
    if case.ready and (case.life.shutdown_line or case.signals.exit_code == 0) and lost is None:
        return None
    if consequence is None and lost is None and case.life.shutdown_line and case.signals.exit_code in (0, None):
        return None
    return _without_a_word(case, consequence, lost)


def _lost_rank(case: _Case) -> tuple[str, int | None] | None:
    """A rank that is known to be gone, with its exit code if that is known."""
    exits = case.signals.rank_exit or {}
    for rank, code in exits.items() if isinstance(exits, Mapping) else (("", exits),):
        if code:
            return str(rank), code
    alive = case.signals.alive_ranks
    if alive:
        numbers = [rank_number(label) for label in case.progress.tracks]
        gone = sorted(number for number in numbers if number is not None and number not in alive)
        if gone:
            return str(gone[0]), None
    return None


BY_SIGNAL = {
    2: "terminated",
    3: "child-died",
    4: "illegal-instruction",
    6: "abort",
    7: "bus-error",
    9: "killed",
    11: "segfault",
    15: "terminated",
}


def _without_a_word(case: _Case, consequence: Reading | None, lost: tuple[str, int | None] | None) -> Verdict:
    if consequence is not None and consequence.cause.name == "peer-lost" and lost is None:
        return _of_failure(settle(consequence, case.life, case.progress, may_draft=case.args.may_draft), case)
    code = lost[1] if lost else case.life.exit_code if case.life.exit_code is not None else case.signals.exit_code
    number = None if code is None else -code if code < 0 else code - 128 if code > 128 else None
    if number is not None:
        cause = BY_SIGNAL.get(number, "killed")
    elif consequence is not None and consequence.cause.name == "killed":
        cause = "killed"
    elif code in (None, 0):
        cause = "killed" if consequence is None and code is None else "child-died" if consequence else "exited"
    else:
        cause = "child-died" if consequence is not None else "exited"
    position = where_all_stand(case.life, case.progress)
    stage = Stage.SERVING if case.ready else Stage.WARMUP if case.life.http_line else position.next_stage
    line = consequence.sign if consequence is not None else None
    if lost is not None and lost[0]:
        case.facts["failed_rank"] = int(lost[0]) if lost[0].isdigit() else lost[0]
    return Verdict(
        outcome=Outcome.CRASH,
        stage=stage,
        role=position.role,
        cause=cause,
        signature=Signature(Outcome.CRASH, stage, position.role, cause),
        deciding=DecidingLine(line.line, _clip(line.text), line.rank)
        if line
        else DecidingLine(case.life.last_line, "", ""),
        why=advice.why_silent_death(cause, code=code, stage=stage),
        final=case.closed or case.dead,
    )


def _hung(case: _Case) -> Verdict | None:
    found = silent_hang(case.life, case.args, case.progress, case.signals, case.question.budgets, case.ready)
    if found is None:
        return None
    if found.missing:
        numbers = [rank_number(label) for label in found.missing]
        case.facts["missing_ranks"] = list(found.missing) if None in numbers else numbers
    note = _silent_partner(case, before="")
    cause = found.cause if note is None else COMM_BUFFER
    return Verdict(
        outcome=Outcome.HANG,
        stage=found.stage,
        role=found.role,
        cause=cause,
        deciding=_line_of(case.progress.furthest(), case),
        why=found.why + (f"; before that one rank had said: {note.sign.text[:200]}" if note else ""),
        final=True,
    )


def _alive(case: _Case) -> Verdict:
    """Nothing failed: ready, or how far it has come."""
    life = case.life
    if case.ready:
        return Verdict(
            outcome=Outcome.READY,
            stage=Stage.SERVING,
            deciding=DecidingLine(life.fired_line, life.fired_text, ""),
            why="the server has its HTTP port and says that it is ready",
        )
    position = case.progress.position()
    stage = Stage.WARMUP if life.http_line else position.next_stage
    pools = [
        mark
        for _, mark in case.progress.marks(role=Role.TARGET)
        if mark.ended and ORDER[mark.ended] >= ORDER[Stage.KV_ALLOC]
    ]
    if pools:
        return Verdict(
            outcome=Outcome.KV_ALLOCATED,
            stage=stage,
            role=position.role,
            deciding=_line_of(max(pools, key=lambda mark: mark.line), case),
            why=f"the KV pools are allocated; the start has come to {stage}{_last_bar(case)}",
        )
    return Verdict(
        outcome=Outcome.VOID,
        stage=stage,
        role=position.role,
        cause="unfinished",
        deciding=_line_of(case.progress.furthest(), case),
        why=f"no error so far, and no pool; the start has come to {stage}{_last_bar(case)}",
        persistence=Persistence.TRANSIENT,
    )


def _last_bar(case: _Case) -> str:
    """The progress bar that was drawn last, if nothing was said after it."""
    activity, mark = case.life.activity, case.progress.furthest()
    if not activity.bar or (mark is not None and mark.line > activity.bar_line):
        return ""
    return f" ({activity.bar.strip()[:100]})"


def _line_of(mark: Mark | None, case: _Case) -> DecidingLine:
    """The line of a milestone; the last line of the log where there is none."""
    for label, marks in case.progress.tracks.items():
        if mark is not None and mark in marks:
            return DecidingLine(mark.line, _clip(mark.message), label)
    return DecidingLine(case.life.last_line, "", "")


# --- finishing touches -------------------------------------------------------------------------------


def _dressed(verdict: Verdict, case: _Case, earlier: tuple[str, ...]) -> Verdict:
    passed = case.passed
    if case.ready:
        passed = frozenset(Milestone(role, stage) for role in _roles(case) for stage in STAGES)
    if verdict.outcome is Outcome.HANG and "missing_ranks" not in case.facts:
        mark = case.progress.furthest()
        missing = missing_ranks(mark, case.args, case.progress) if mark else ()
        numbers = [rank_number(label) for label in missing]
        if missing and verdict.stage is not Stage.SERVING:
            case.facts["missing_ranks"] = list(missing) if None in numbers else numbers
    silent = _silent_probes(case, passed)
    if silent:
        case.facts["silent_probes"] = silent
    did_not_run = "".join(
        f"; probe {name} of {patch} never fired: that code did not run" for name, patch in silent.items()
    )
    whole = replace(
        verdict,
        why=verdict.why + did_not_run,
        signature=verdict.signature or Signature(verdict.outcome, verdict.stage, verdict.role, verdict.cause),
        reached_ready=case.ready,
        facts=case.facts,
        passed=passed,
        lives=earlier,
    )
    return replace(whole, advice=advice.advise(whole))


def _roles(case: _Case) -> set[Role]:
    return {Role.TARGET} | {mark.role for _, mark in case.progress.marks()}


def _silent_probes(case: _Case, passed: frozenset[Milestone]) -> dict[str, str]:
    """Probes that a patch promises and that did not fire though their stage is over: name -> patch."""
    fired = {name for name, _ in case.life.probes}
    return {
        name: patch
        for name, (patch, stage) in case.question.promised_probes.items()
        if name not in fired and Milestone(Role.TARGET, stage) in passed
    }


def _patch_of(failure: Failure, question: Question) -> str:
    """The patch that wrote the line in which a crash was raised; else, for names and syntax, what touches the file.

    An out-of-memory accuses nobody: the line that notices it is rarely the one that took the memory.
    """
    exception = failure.exception
    if failure.outcome is not Outcome.CRASH or exception is None or not question.patched_files:
        return ""
    frame = failure.frame
    failing = f"sglang/{frame.own}" if frame else ""
    if frame and (owner := question.line_owner(failing, frame.line)):
        return owner
    if failure.cause not in causes.NAMES_A_PATCH:
        return ""
    modules = (name.removeprefix("sglang.").replace(".", "/") for name in _MODULE.findall(exception.full_message))
    files = [failing, *(f"sglang/{module}.py" for module in modules)]
    return next((question.patched_files[name] for name in files if name in question.patched_files), "")


def _clip(text: str) -> str:
    return text if len(text) <= TEXT_LIMIT else text[:TEXT_LIMIT] + "…"
