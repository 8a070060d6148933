"""How far each rank has come, in which role, with which memory numbers.

A rank is known by its label as SGLang prints it (``"DP1 TP0"``; ``""`` for a server of one rank). A draft
model repeats the target's texts word for word, so the role is worked out from order: on the rank itself while
reading, and across ranks (``settle_roles``) when somebody asks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from patchbisect.model import Milestone, Role, Stage

STAGES: tuple[Stage, ...] = tuple(Stage)
ORDER: Mapping[Stage, int] = {stage: number for number, stage in enumerate(STAGES)}

MARK_LIMIT = 400
"""Marks kept of one rank in one life. A start makes a few dozen; a loop must not eat memory."""


class Kind(StrEnum):
    """What a milestone line says."""

    DIST_BEGIN = "dist-begin"
    DIST_END = "dist-end"
    LOAD_BEGIN = "load-begin"
    LOAD_END = "load-end"
    SIZING = "sizing"
    POOL = "pool"
    POOL_END = "pool-end"
    HOST_POOL = "host-pool"
    KERNELS = "kernels"
    CAPTURE_BEGIN = "capture-begin"
    CAPTURE_END = "capture-end"
    TOTALS = "totals"


# (the stage that a mark stands in, the last stage that it proves to be over in its role)
_MEANING: Mapping[Kind, tuple[Stage, Stage | None]] = {
    Kind.DIST_BEGIN: (Stage.DIST_INIT, Stage.IMPORT),
    Kind.DIST_END: (Stage.DIST_INIT, Stage.DIST_INIT),
    Kind.LOAD_BEGIN: (Stage.WEIGHT_LOAD, Stage.DIST_INIT),
    Kind.LOAD_END: (Stage.WEIGHT_LOAD, Stage.WEIGHT_LOAD),
    Kind.SIZING: (Stage.KV_PROFILE, Stage.WEIGHT_LOAD),
    Kind.POOL: (Stage.KV_ALLOC, Stage.KV_PROFILE),
    Kind.POOL_END: (Stage.KV_ALLOC, Stage.KV_ALLOC),
    Kind.HOST_POOL: (Stage.KV_ALLOC, Stage.KV_PROFILE),
    Kind.KERNELS: (Stage.KERNEL_WARMUP, Stage.KV_ALLOC),
    Kind.CAPTURE_BEGIN: (Stage.GRAPH_CAPTURE, Stage.KERNEL_WARMUP),
    Kind.CAPTURE_END: (Stage.GRAPH_CAPTURE, Stage.GRAPH_CAPTURE),
    Kind.TOTALS: (Stage.GRAPH_CAPTURE, Stage.GRAPH_CAPTURE),
}
_ENDS = {Kind.DIST_END, Kind.LOAD_END, Kind.POOL_END, Kind.CAPTURE_END, Kind.TOTALS}
_AFTER_POOL = {Kind.POOL, Kind.POOL_END, Kind.KERNELS, Kind.CAPTURE_BEGIN, Kind.CAPTURE_END}

DRAFT_TYPE = re.compile(r"eagle|mtp|nextn|draft|dflash|dspark|medusa", re.IGNORECASE)


@dataclass(slots=True)
class Mark:
    """One milestone on one rank. ``avail`` and ``used`` are GiB."""

    kind: Kind
    role: Role
    line: int
    time: str
    avail: float | None = None
    used: float | None = None
    detail: Mapping[str, str] = field(default_factory=dict)

    @property
    def stage(self) -> Stage:
        return _MEANING[self.kind][0]

    @property
    def ended(self) -> Stage | None:
        return _MEANING[self.kind][1]

    @property
    def at_end(self) -> bool:
        return self.kind in _ENDS


class RankTrack:
    """The marks of one rank in one life, with the role as far as the rank alone can tell it."""

    __slots__ = ("_draft_loads_follow_pool", "label", "loads", "marks", "pool_ends", "seen_pool")

    def __init__(self, label: str) -> None:
        self.label = label
        self.marks: list[Mark] = []
        self.loads = 0
        self.pool_ends = 0
        self.seen_pool = False
        self._draft_loads_follow_pool = False

    def add(
        self,
        *,
        kind: Kind,
        line: int,
        time: str,
        avail: float | None,
        used: float | None,
        detail: Mapping[str, str],
    ) -> Mark:
        mark = Mark(kind, self._role(kind, detail), line, time, avail, used, detail)
        if len(self.marks) < MARK_LIMIT:
            self.marks.append(mark)
        return mark

    def _role(self, kind: Kind, detail: Mapping[str, str]) -> Role:
        if kind is Kind.TOTALS:
            return Role.TARGET
        if kind in (Kind.DIST_BEGIN, Kind.DIST_END):
            return Role.DRAFT if self.seen_pool else Role.TARGET
        if kind is Kind.LOAD_BEGIN:
            self.loads += 1
            self._draft_loads_follow_pool |= self.seen_pool
            return Role.DRAFT if self.loads > 1 or self.seen_pool else Role.TARGET
        if kind is Kind.LOAD_END:
            begun = bool(self.marks) and self.marks[-1].kind is Kind.LOAD_BEGIN
            if not begun and not any(mark.kind is Kind.LOAD_BEGIN for mark in self.marks):
                self.loads += 1
            return Role.DRAFT if self.loads > 1 or self._draft_loads_follow_pool else Role.TARGET
        if kind in (Kind.CAPTURE_BEGIN, Kind.CAPTURE_END):
            self.seen_pool = True
            return self._capture_role(detail.get("what", ""))
        if kind in (Kind.POOL, Kind.POOL_END, Kind.SIZING, Kind.HOST_POOL, Kind.KERNELS):
            role = Role.DRAFT if self.pool_ends else Role.TARGET
            if kind is Kind.POOL_END:
                self.pool_ends += 1
            if kind in (Kind.KERNELS, Kind.HOST_POOL):
                role = Role.DRAFT if self.pool_ends > 1 and self._draft_loads_follow_pool else Role.TARGET
            if kind in _AFTER_POOL:
                self.seen_pool = True
            return role
        return Role.TARGET

    def _capture_role(self, what: str) -> Role:
        if "draft" in what:
            return Role.DRAFT
        if what:
            return Role.TARGET
        # 0.4.3 says "Capture cuda graph" for both; its draft worker starts after the target's pool.
        return Role.DRAFT if self.pool_ends > 1 and self._draft_loads_follow_pool else Role.TARGET


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
        plain = {label: [_as(mark, Role.TARGET) for mark in track.marks] for label, track in tracks.items()}
        return Progress(plain, draft_first=False)
    past_pool = [
        mark.time
        for track in tracks.values()
        for mark in track.marks
        if mark.kind is Kind.CAPTURE_END and mark.role is Role.TARGET and mark.time
    ]
    pool_over = min(past_pool, default="")
    types = {
        mark.detail["type"]
        for track in tracks.values()
        for mark in track.marks
        if mark.kind is Kind.LOAD_END and "type" in mark.detail
    }
    settled: dict[str, Sequence[Mark]] = {}
    for label, track in tracks.items():
        settled[label] = (
            [_as(mark, Role.DRAFT) for mark in track.marks]
            if _is_draft_from_the_start(track, pool_over=pool_over, types=types)
            else track.marks
        )
    return Progress(settled, draft_first=_draft_first(settled))


def _is_draft_from_the_start(track: RankTrack, *, pool_over: str, types: set[str]) -> bool:
    if not track.marks or track.marks[0].kind not in (Kind.DIST_BEGIN, Kind.LOAD_BEGIN, Kind.LOAD_END):
        return False
    first_load = next((mark for mark in track.marks if mark.kind is Kind.LOAD_END), None)
    type_name = first_load.detail.get("type", "") if first_load else ""
    if DRAFT_TYPE.search(type_name) and any(not DRAFT_TYPE.search(other) for other in types):
        return True
    return bool(pool_over) and bool(track.marks[0].time) and track.marks[0].time >= pool_over


def _draft_first(tracks: Mapping[str, Sequence[Mark]]) -> bool:
    for marks in tracks.values():
        kinds = [(mark.kind, mark.role) for mark in marks]
        if (Kind.LOAD_BEGIN, Role.DRAFT) in kinds and (Kind.POOL_END, Role.TARGET) in kinds:
            return kinds.index((Kind.LOAD_BEGIN, Role.DRAFT)) < kinds.index((Kind.POOL_END, Role.TARGET))
    return any(mark.detail.get("modern") for marks in tracks.values() for mark in marks)


def _as(mark: Mark, role: Role) -> Mark:
    return mark if mark.role is role else replace(mark, role=role)
