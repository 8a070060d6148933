"""What a log tells of a start, in the form that comparisons, tables and pictures need: per rank, in seconds and GiB."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from patchbisect.model import Role, Stage, Verdict
from patchbisect.startup import Classifier, What
from patchbisect.startup.ranks import Kind, Mark, settle_roles
from patchbisect.startup.server_args import ServerArgs
from patchbisect.wire import Json

_FORMATS = ("%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M:%S.%f", "%Y-%m-%d %H:%M:%S,%f")

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
    seconds: float | None
    """From the launch, or the first time stamp, to the last."""


def read(log: bytes, *, events: Iterable[Json] = (), verdict: Verdict | None = None) -> Reading:
    """Read one log. ``events`` give times by line that are finer than the log's own; ``verdict`` is kept if given."""
    classifier = Classifier()
    told = [*classifier.feed(log), *classifier.close()]
    arguments = ServerArgs.parse(classifier.life.args_line)
    progress = settle_roles(classifier.life.tracks, draft_possible=arguments.may_draft)
    clock = _Clock(
        stamps=[event.time for event in told] + [mark.time for _, mark in progress.marks()],
        told={event["line"]: float(event["t"]) for event in events if "line" in event and "t" in event},
    )
    up = [(event.what, clock.at(event.line, event.time)) for event in told if event.what in (What.HTTP, What.READY)]
    ranks = [_rank(label, marks, clock, up) for label, marks in sorted(progress.tracks.items(), key=_rank_order)]
    return Reading(
        verdict=verdict or classifier.verdict(),
        arguments=arguments.values,
        ranks=tuple(ranks),
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


def _rank(label: str, marks: Sequence[Mark], clock: _Clock, up: Sequence[tuple[What, float | None]]) -> RankReading:
    return RankReading(
        label=label,
        spans=tuple(_spans(marks, clock, up)),
        memory=tuple(_memory(marks)),
        free_gb=tuple(
            (clock.at(mark.line, mark.time), mark.avail, f"{mark.stage} {'end' if mark.at_end else 'begin'}")
            for mark in marks
            if mark.avail is not None
        ),
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


def _memory(marks: Sequence[Mark]) -> Iterable[Part]:
    """What went where: each part is the fall of the free memory since the line before that told it."""
    free: float | None = None
    parts: dict[str, float] = {}
    for mark in marks:
        if mark.used and (mark.kind is Kind.DIST_END or (free is None and mark.kind is Kind.LOAD_END)):
            # Nothing told the free memory before these, but they say what they took.
            parts[_part(mark)] = parts.get(_part(mark), 0.0) + mark.used
        if mark.avail is None:
            continue
        if free is not None:
            parts[_part(mark)] = parts.get(_part(mark), 0.0) + free - mark.avail
        free = mark.avail
    for name, gb in parts.items():
        if abs(gb) >= _SMALLEST_SHOWN_GB:
            yield Part(name, round(gb, 2))
    if free is not None:
        yield Part("free", round(free, 2))


def _part(mark: Mark) -> str:
    if mark.kind is Kind.DIST_END:
        return "NCCL"
    draft = "draft " if mark.role is Role.DRAFT else ""
    if mark.kind is Kind.LOAD_END:
        return f"{draft}weights"
    if mark.kind is Kind.POOL_END:
        return f"{draft}KV pools"
    if mark.kind is Kind.CAPTURE_END:
        return f"{draft}graphs"
    return "other"


def _rank_order(item: tuple[str, Any]) -> tuple[Any, ...]:
    """``DP1 TP10`` after ``DP1 TP2``."""
    return tuple(
        (word.rstrip("0123456789"), int("0" + word.lstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ_"))) for word in item[0].split()
    )
