"""What a log tells of a start, in the form that comparisons, tables and pictures need: per rank, in seconds and GiB."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from patchbisect.model import Role, Stage, Verdict
from patchbisect.startup import Classifier, Ledger, What
from patchbisect.startup.ledger import AT_THE_START, RankLedger
from patchbisect.startup.ranks import Mark, settle_roles
from patchbisect.startup.server_args import ServerArgs
from patchbisect.startup.vocabulary import Kind
from patchbisect.wire import Json

_FORMATS = ("%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M:%S.%f", "%Y-%m-%d %H:%M:%S,%f")

_SLICE_BYTES = 1 << 20
"""What is cut into lines at a time: a log of a gigabyte has millions."""
_SMALLEST_SHOWN_GB = 0.01
"""SGLang prints two decimals."""

# The time before these marks belongs to the stage that they end, not to the one they open.
_ENDED_BY = {Kind.DIST_BEGIN: Stage.IMPORT, Kind.CAPTURE_BEGIN: Stage.KERNEL_WARMUP}


@dataclass(frozen=True, slots=True)
class Span:
    """One stage of one role on one rank: from ``begin`` to ``end``, seconds after the launch."""

    role: Role
    stage: Stage
    begin: float
    end: float

    @property
    def name(self) -> str:
        return self.stage.value if self.role is Role.TARGET else f"{self.role}:{self.stage}"


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a rank's memory, GiB."""

    name: str
    gb: float


@dataclass(frozen=True, slots=True)
class RankReading:
    """One rank: how its time and its memory went."""

    label: str
    spans: tuple[Span, ...]
    memory: tuple[Part, ...]
    """What each step took from the free memory, in order; the last part is what was left."""
    free_gb: tuple[tuple[float | None, float, str], ...]
    """(seconds after the launch, free GiB, what the line was about) for every line that told it."""
    took_gb: Mapping[str, float]
    """What each kind of step took, GiB, also where it is too little to be a part."""
    began_with_gb: float | None
    """Free before the weights, GiB; None where the log does not tell: its first free memory may be of later."""

    @property
    def total_gb(self) -> float:
        return round(sum(part.gb for part in self.memory), 2)


@dataclass(frozen=True, slots=True)
class Reading:
    """One log read whole."""

    verdict: Verdict
    arguments: Mapping[str, str]
    """The arguments as the server resolved them, from its ``server_args=`` line."""
    ranks: tuple[RankReading, ...]
    ledger: Ledger
    seconds: float | None
    """From the launch, or the first time stamp, to the last."""


def read(log: bytes, *, events: Iterable[Json] = (), verdict: Verdict | None = None) -> Reading:
    """Read one log. ``events`` give times by line that are finer than the log's own; ``verdict`` is kept if given."""
    classifier = Classifier()
    slices = (log[at : at + _SLICE_BYTES] for at in range(0, len(log), _SLICE_BYTES))
    told = [*(event for piece in slices for event in classifier.feed(piece)), *classifier.close()]
    arguments = ServerArgs.parse(classifier.life.args_line)
    progress = settle_roles(classifier.life.tracks, draft_possible=arguments.may_draft)
    clock = _Clock(
        stamps=[event.time for event in told] + [mark.time for _, mark in progress.marks()],
        told={event["line"]: float(event["t"]) for event in events if "line" in event and "t" in event},
    )
    up = [(event.what, clock.at(event.line, event.time)) for event in told if event.what in (What.HTTP, What.READY)]
    verdict = verdict or classifier.verdict()
    ledger = Ledger.of(classifier, verdict)
    return Reading(
        verdict=verdict,
        arguments=arguments.values,
        ranks=tuple(_rank(rank, progress.tracks[rank.rank], clock, up) for rank in ledger.ranks),
        ledger=ledger,
        seconds=clock.last,
    )


class _Clock:
    """Seconds after the launch, by line where that was noted, else by the log's own time stamps."""

    def __init__(self, *, stamps: Iterable[str], told: Mapping[int, float]) -> None:
        moments = [moment for stamp in stamps if (moment := _moment(stamp))]
        self._told = told
        self._begin = min(moments, default=None)
        self.last = max(told.values()) if told else self._since(max(moments, default=None))

    def at(self, line: int, stamp: str) -> float | None:
        return self._told[line] if line in self._told else None if self._told else self._since(_moment(stamp))

    def _since(self, moment: datetime | None) -> float | None:
        return (moment - self._begin).total_seconds() if moment and self._begin else None


def _moment(stamp: str) -> datetime | None:
    for form in _FORMATS:
        try:
            return datetime.strptime(stamp, form)
        except ValueError:
            continue
    return None


def _rank(
    ledger: RankLedger, marks: Sequence[Mark], clock: _Clock, up: Sequence[tuple[What, float | None]]
) -> RankReading:
    took = _took(ledger)
    return RankReading(
        label=ledger.rank,
        spans=tuple(_spans(marks, clock, up)),
        memory=tuple(_memory(took, ledger.rest_gb)),
        free_gb=tuple(
            (clock.at(mark.line, mark.time), mark.avail, f"{mark.stage} {'end' if mark.at_end else 'begin'}")
            for mark in marks
            if mark.avail is not None
        ),
        took_gb=took,
        began_with_gb=ledger.start_gb if ledger.start == AT_THE_START else None,
    )


def _spans(marks: Sequence[Mark], clock: _Clock, up: Sequence[tuple[What, float | None]]) -> Iterable[Span]:
    """The time between two marks belongs to the later one's stage; neighbours of one stage are joined."""
    steps = [(mark.role, _ENDED_BY.get(mark.kind, mark.stage), clock.at(mark.line, mark.time)) for mark in marks]
    steps += [(Role.TARGET, Stage.WARMUP, at) for _, at in up]
    open_span: Span | None = None
    before = 0.0
    for role, stage, at in steps:
        if at is None:
            continue
        at = max(at, before)
        if open_span and (open_span.role, open_span.stage) == (role, stage):
            open_span = Span(role, stage, open_span.begin, at)
        else:
            if open_span:
                yield open_span
            open_span = Span(role, stage, before, at)
        before = at
    if open_span:
        yield open_span


def _took(ledger: RankLedger) -> dict[str, float]:
    """The ledger's steps by kind, in the order in which each kind first took something."""
    parts: dict[str, float] = {}
    for entry in ledger.entries:
        name = _part(entry.name)
        parts[name] = parts.get(name, 0.0) + entry.gb
    # A number that is less than nothing by its last digit is nothing.
    return {name: round(gb, 2) + 0.0 for name, gb in parts.items()}


def _memory(took: Mapping[str, float], rest_gb: float | None) -> Iterable[Part]:
    """What can be seen of it; last what was left."""
    for name, gb in took.items():
        if abs(gb) >= _SMALLEST_SHOWN_GB:
            yield Part(name, gb)
    if rest_gb is not None:
        yield Part("free", round(rest_gb, 2))


def lines_between(log: bytes, first: int, last: int) -> list[str]:
    """Lines ``first`` to ``last`` of a log, as far as it has them; the first one is 1."""
    at = 0
    for _ in range(first - 1):
        at = log.find(b"\n", at) + 1
        if not at:
            return []
    lines = []
    for _ in range(last - first + 1):
        end = log.find(b"\n", at)
        lines.append(log[at : end if end >= 0 else len(log)].decode(errors="replace"))
        if end < 0:
            break
        at = end + 1
    return lines


def _part(entry: str) -> str:
    """The kind of one of the ledger's entries."""
    draft = "draft " if entry.startswith("draft ") else ""
    if "weights" in entry and "before" not in entry:
        return f"{draft}weights"
    if any(word in entry for word in ("KV", "Mamba", "tables and rounding")):
        return f"{draft}KV pools"
    if entry.startswith("graphs"):
        return "graphs"
    return "NCCL" if "NCCL" in entry else "other"
