"""How far each rank has come, in which role, with which memory numbers.

A rank is known by its label as SGLang prints it (``"DP1 TP0"``; ``""`` for a server of one rank). A draft
model repeats the target's texts word for word, so the role is worked out from order: on the rank itself while
reading, and across ranks (``settle_roles``) when somebody asks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from patchbisect.model import Milestone, Role, Stage
from patchbisect.startup.events import Event, What
from patchbisect.startup.vocabulary import MEANING, Kind
from patchbisect.startup.vocabulary import Milestone as Row

STAGES: tuple[Stage, ...] = tuple(Stage)
ORDER: Mapping[Stage, int] = {stage: number for number, stage in enumerate(STAGES)}

MARK_LIMIT = 400
"""Marks kept of one rank in one life. A start makes a few dozen; a loop must not eat memory."""


_ENDS = {Kind.DIST_END, Kind.LOAD_END, Kind.POOL_END, Kind.CAPTURE_END, Kind.TOTALS}

DRAFT_TYPE = re.compile(r"eagle|mtp|nextn|draft|dflash|dspark|medusa", re.IGNORECASE)


class Mark:
    """One milestone on one rank. Its numbers are read from the line when somebody asks."""

    __slots__ = ("_detail", "kind", "line", "message", "role", "row", "time")

    def __init__(self, row: Row, role: Role, line: int, time: str, message: str) -> None:
        self.row = row
        self.kind = row.kind
        self.role = role
        self.line = line
        self.time = time
        self.message = message
        self._detail: dict[str, str] | None = None

    def as_(self, role: Role) -> Mark:
        return self if self.role is role else Mark(self.row, role, self.line, self.time, self.message)

    @property
    def detail(self) -> Mapping[str, str]:
        """The named parts of the line, as text."""
        if self._detail is None:
            self._detail = self.row.read(self.message)
        return self._detail

    def text(self, name: str) -> str:
        """One named part of the line; "" where it has none."""
        return self.detail.get(name, "")

    def _number(self, name: str) -> float | None:
        value = self.text(name)
        return float(value) + 0.0 if value else None  # -0.00 of a tiny model is no number for people

    @property
    def avail(self) -> float | None:
        """Free memory that the line states, GiB."""
        return self._number("avail")

    @property
    def used(self) -> float | None:
        """Memory that the step took, GiB."""
        return self._number("used")

    @property
    def stage(self) -> Stage:
        return self.row.stage

    @property
    def ended(self) -> Stage | None:
        return MEANING[self.kind][1]

    @property
    def at_end(self) -> bool:
        return self.kind in _ENDS


# Members looked up once: this runs for every milestone of a fast log, and an enum's attributes cost.
(_DIST_BEGIN, _DIST_END, _LOAD_BEGIN, _LOAD_END, _SIZING, _POOL, _POOL_END, _HOST_POOL, _KERNELS, _CAPTURE_BEGIN,
 _CAPTURE_END, _CAPTURE_NOTE, _TOTALS) = Kind  # fmt: skip
_TARGET, _DRAFT = Role
_WHAT_POOL, _WHAT_STAGE = What.POOL, What.STAGE


class RankTrack:
    """The marks of one rank in one life, with the role as far as the rank alone can tell it."""

    __slots__ = ("_draft_loads_follow_pool", "_marks", "label", "loads", "met", "pool_ends", "seen_pool", "told")

    def __init__(self, label: str) -> None:
        self.label = label
        self.told: list[Event] = []
        self._marks: list[Mark] = []
        self.met = False
        """Whether the rank has begun to meet the others: it does so once per model and life."""
        self.loads = 0
        self.pool_ends = 0
        self.seen_pool = False
        self._draft_loads_follow_pool = False

    def tell(self, row: Row, line: int, time: str, message: str) -> Event:
        """Note a milestone. It is turned into a mark when a verdict is made: most of a fast log never is."""
        kind = row.kind
        what = _WHAT_POOL if kind is _POOL else _WHAT_STAGE
        event = Event(what, line, time, self.label, self._role(kind, message), row.stage, message, row)
        if len(self.told) < MARK_LIMIT:
            self.told.append(event)
        return event

    @property
    def marks(self) -> list[Mark]:
        for event in self.told[len(self._marks) :]:
            assert event.row is not None and event.role is not None
            self._marks.append(Mark(event.row, event.role, event.line, event.time, event.text))
        return self._marks

    def _role(self, kind: Kind, message: str) -> Role:
        if kind is _POOL_END:
            self.pool_ends += 1
            self.seen_pool = True
            return _DRAFT if self.pool_ends > 1 else _TARGET
        if kind is _POOL or kind is _SIZING:
            self.seen_pool |= kind is _POOL
            if self.pool_ends and message.startswith("Post-capture"):
                return _DRAFT if "draft KV" in message else _TARGET
            return _DRAFT if self.pool_ends else _TARGET
        if kind is _CAPTURE_BEGIN or kind is _CAPTURE_END or kind is _CAPTURE_NOTE:
            self.seen_pool = True
            return self._capture_role(message)
        if kind is _LOAD_BEGIN or kind is _LOAD_END:
            return self._load_role(kind)
        if kind is _DIST_BEGIN or kind is _DIST_END:
            self.met = True
            return _DRAFT if self.seen_pool else _TARGET
        if kind is _TOTALS:
            return _TARGET
        return _DRAFT if self.pool_ends > 1 and self._draft_loads_follow_pool else _TARGET

    def _load_role(self, kind: Kind) -> Role:
        if kind is _LOAD_BEGIN:
            self.loads += 1
            self._draft_loads_follow_pool |= self.seen_pool
        elif not self.loads:
            self.loads = 1
        return _DRAFT if self.loads > 1 or self._draft_loads_follow_pool else _TARGET

    def _capture_role(self, message: str) -> Role:
        if "draft" in message[:40]:
            return _DRAFT
        if not message.startswith("Capture cuda graph"):
            return _TARGET
        # 0.4.3 says "Capture cuda graph" for both; its draft worker starts after the target's pool.
        return _DRAFT if self.pool_ends > 1 and self._draft_loads_follow_pool else _TARGET


@dataclass(frozen=True, slots=True)
class Position:
    """Where somebody stands: inside ``stage``, or past its end (``ended``)."""

    role: Role
    stage: Stage
    ended: bool

    @property
    def next_stage(self) -> Stage:
        """The stage that a failure from here belongs to: DESIGN's rule for gaps."""
        if not self.ended or self.stage is Stage.SERVING:
            return self.stage
        return STAGES[ORDER[self.stage] + 1]


@dataclass(frozen=True, slots=True)
class Progress:
    """All ranks of one life with settled roles."""

    tracks: Mapping[str, Sequence[Mark]]
    draft_first: bool
    """True from 0.5.14 on: the draft's weights are loaded before the target's pool."""

    def marks(self, *, role: Role | None = None, kind: Kind | None = None) -> Iterable[tuple[str, Mark]]:
        for label, marks in self.tracks.items():
            for mark in marks:
                if (role is None or mark.role is role) and (kind is None or mark.kind is kind):
                    yield label, mark

    def weight(self, mark: Mark) -> tuple[int, ...]:
        """Orders marks by how far along a start they stand, over both roles."""
        draft = int(mark.role is Role.DRAFT)
        totals = int(mark.kind is Kind.TOTALS)
        if self.draft_first:
            return (totals, ORDER[mark.stage], draft, int(mark.at_end))
        return (totals, draft, ORDER[mark.stage], int(mark.at_end))

    def furthest(self, label: str | None = None) -> Mark | None:
        """The furthest mark of one rank, or of all."""
        chosen = [mark for name, mark in self.marks() if label is None or name == label]
        return max(chosen, key=lambda mark: (self.weight(mark), mark.line), default=None)

    def position(self, label: str | None = None) -> Position:
        mark = self.furthest(label)
        if mark is None:
            return Position(Role.TARGET, Stage.IMPORT, ended=False)
        return Position(mark.role, mark.stage, ended=mark.at_end)

    def ended(self, role: Role) -> dict[str, int]:
        """Per rank of ``role``: the number of the last stage that it has shown to be over."""
        best: dict[str, int] = {}
        for label, mark in self.marks(role=role):
            if mark.ended is not None:
                best[label] = max(best.get(label, -1), ORDER[mark.ended])
        return best

    def passed(self, *, expected: int | None, no_graphs: bool) -> frozenset[Milestone]:
        """What *every* rank of a role has ended; ``expected`` is the number of ranks, if known."""
        out: set[Milestone] = set()
        totals = any(True for _ in self.marks(kind=Kind.TOTALS))
        for role in Role:
            best = self.ended(role)
            if not best or len(best) < (expected or 1):
                continue
            lowest = min(best.values())
            if role is Role.TARGET and totals and no_graphs and lowest >= ORDER[Stage.KV_ALLOC]:
                # Without graphs only rank 0 prints anything after its pool (the totals, from 0.4.7 on).
                lowest = ORDER[Stage.GRAPH_CAPTURE]
            out.update(Milestone(role, stage) for stage in STAGES[: lowest + 1])
        return frozenset(out)


def settle_roles(tracks: Mapping[str, RankTrack], *, draft_possible: bool) -> Progress:
    """Mend what a rank alone cannot see: a rank whose first line is already the draft's, say."""
    if not draft_possible:
        plain = {label: [mark.as_(Role.TARGET) for mark in track.marks] for label, track in tracks.items()}
        return Progress(plain, draft_first=False)
    past_pool = [
        mark.time
        for track in tracks.values()
        for mark in track.marks
        if mark.kind is Kind.CAPTURE_END and mark.role is Role.TARGET and mark.time
    ]
    pool_over = min(past_pool, default="")
    types = {mark.text("type") for track in tracks.values() for mark in track.marks if mark.kind is Kind.LOAD_END}
    settled: dict[str, Sequence[Mark]] = {}
    for label, track in tracks.items():
        settled[label] = (
            [mark.as_(Role.DRAFT) for mark in track.marks]
            if _is_draft_from_the_start(track, pool_over=pool_over, types=types)
            else track.marks
        )
    return Progress(settled, draft_first=_draft_first(settled))


def _is_draft_from_the_start(track: RankTrack, *, pool_over: str, types: set[str]) -> bool:
    if not track.marks or track.marks[0].kind not in (Kind.DIST_BEGIN, Kind.LOAD_BEGIN, Kind.LOAD_END):
        return False
    first_load = next((mark for mark in track.marks if mark.kind is Kind.LOAD_END), None)
    type_name = first_load.text("type") if first_load else ""
    if DRAFT_TYPE.search(type_name) and any(not DRAFT_TYPE.search(other) for other in types):
        return True
    return bool(pool_over) and bool(track.marks[0].time) and track.marks[0].time >= pool_over


def _draft_first(tracks: Mapping[str, Sequence[Mark]]) -> bool:
    for marks in tracks.values():
        kinds = [(mark.kind, mark.role) for mark in marks]
        if (Kind.LOAD_BEGIN, Role.DRAFT) in kinds and (Kind.POOL_END, Role.TARGET) in kinds:
            return kinds.index((Kind.LOAD_BEGIN, Role.DRAFT)) < kinds.index((Kind.POOL_END, Role.TARGET))
    return any(_is_modern(mark) for marks in tracks.values() for mark in marks)


def _is_modern(mark: Mark) -> bool:
    """From 0.5.14 on, graphs are named: "Capture target decode CUDA graph". "piecewise" is older."""
    what = mark.text("what") if mark.kind in (Kind.CAPTURE_BEGIN, Kind.CAPTURE_END) else ""
    return what.startswith(("target ", "draft ")) and mark.text("case") == "CUDA"
