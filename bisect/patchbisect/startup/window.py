"""Which ``--mem-fraction-static`` would work: what one log says about the room before and after the target's pool.

All sizes are GiB. The pool takes ``available - total * (1 - fraction)``; all that comes after it must fit into what is
left, ``total * (1 - fraction)``. A draft model's pools hold as many tokens as the target's: where SGLang does not count
them into the target's (all releases up to 0.5.13, multi-layer drafts later too), they come out of what is left, and
grow with the fraction.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from patchbisect.model import Outcome, Role, Stage, Verdict
from patchbisect.startup import advice, sizing
from patchbisect.startup.facts import pool_gb
from patchbisect.startup.ranks import Mark, Progress
from patchbisect.startup.server_args import ServerArgs
from patchbisect.startup.versions import Releases
from patchbisect.startup.vocabulary import Kind

_ASKED = re.compile(r"Tried to allocate (\d+(?:\.\d+)?) (GiB|MiB|KiB)")
_FREE = re.compile(r"of which (\d+(?:\.\d+)?) (GiB|MiB|KiB) is free")
_UNIT = {"GiB": 1.0, "MiB": 1 / 1024, "KiB": 1 / 1024**2}
_ROUNDING = 0.05
"""Some numbers of two decimals each, added up."""
_DRAFT_COUNTED_SINCE = (0, 5, 14)
"""From here on the layers of an EAGLE or STANDALONE draft count into the bytes per token of the target's pool."""

_DRAFT_ENDS = (Kind.CAPTURE_END, Role.DRAFT)

TOO_SMALL, TOO_LARGE = "raise", "lower"


@dataclass(frozen=True, slots=True)
class Sizing:
    """The numbers that went into the pool, and what comes out when they are put in."""

    available_gb: float
    total_gb: float
    fraction: float | None
    pool_gb: float | None
    """All pools of one rank of the target, states of linear attention included."""
    states_gb: float
    """The part of ``pool_gb`` that does not grow with tokens."""
    tokens: int | None
    cell_size: int | None
    capped: bool
    """``--max-total-tokens`` may have made the pool smaller than the budget."""

    @property
    def budget_gb(self) -> float | None:
        if self.fraction is None:
            return None
        return sizing.budget_gb(available=self.available_gb, total=self.total_gb, fraction=self.fraction)

    @property
    def implied_fraction(self) -> float | None:
        """The fraction that the pool really came from."""
        if self.pool_gb is None:
            return None
        return sizing.implied_fraction(available=self.available_gb, total=self.total_gb, pool=self.pool_gb)

    @property
    def contradiction(self) -> str:
        """Why the pool cannot come from the fraction that the log claims; "" where it can."""
        implied = self.implied_fraction
        if implied is None or self.fraction is None or abs(implied - self.fraction) <= sizing.IMPLIED_TOLERANCE:
            return ""
        numbers = (
            f"available {self.available_gb:.2f} GiB, total {self.total_gb:.2f} GiB and pools of {self.pool_gb:.2f} GiB"
            f" come from a fraction of {implied:.3f}, not of {self.fraction:g}"
        )
        if implied > self.fraction:
            return f"{numbers}: other code or other flags ran"
        if self.capped:
            return ""
        return f"{numbers}: a cap or buffers that the log does not print made the pools smaller, or other code ran"


@dataclass(frozen=True, slots=True)
class Window:
    """Fractions from ``low`` to ``high`` work; ``direction`` is where this log says to go ("" when it ran)."""

    low: float
    high: float
    direction: str
    needed_after_pool_gb: float
    """At ``high``: what the draft model takes grows with the fraction."""
    measured: bool
    """``needed_after_pool_gb`` was seen in the log to its end; else a part of it is SGLang's own reserve."""
    draft_gb: float = 0.0
    """The part of ``needed_after_pool_gb`` that is the draft model's, weights and pools."""
    unseen: str = ""
    """What may need more than is known, because the log ends in it."""

    @property
    def empty(self) -> bool:
        return self.low > self.high

    def narrowed(self, other: Window) -> Window:
        """What two logs of the same model and machine allow together."""
        return Window(
            low=max(self.low, other.low),
            high=min(self.high, other.high),
            direction=self.direction if self.direction == other.direction else "",
            needed_after_pool_gb=max(self.needed_after_pool_gb, other.needed_after_pool_gb),
            measured=self.measured and other.measured,
            draft_gb=max(self.draft_gb, other.draft_gb),
            unseen=self.unseen or other.unseen,
        )

    def lines(self) -> list[str]:
        how = "measured here" if self.measured else "in part SGLang's own reserve, for that was not measured"
        if self.draft_gb:
            how = f"{self.draft_gb:.2f} of them for the draft model, whose pools grow with the fraction; {how}"
        needs = f"after the target's pools {self.needed_after_pool_gb:.2f} GiB are needed ({how})"
        if self.empty:
            sure = "" if self.measured else "probably "
            return [
                f"{sure}no --mem-fraction-static works: a pool needs at least {self.low:.3f}, what comes after it "
                f"at most {max(self.high, 0):.3f}; {needs}",
                "then: fewer graph sizes (--cuda-graph-max-bs), a smaller --chunked-prefill-size, --kv-cache-dtype "
                "fp8_e4m3, no draft model, or more GPUs (--tp-size)",
            ]
        verb = "works" if self.measured else "may work"
        out = [f"--mem-fraction-static between {self.low:.3f} and {self.high:.3f} {verb}; {needs}"]
        return [*out, f"it may need less than {self.high:.3f}: {self.unseen}"] if self.unseen else out


@dataclass(frozen=True, slots=True)
class _Later:
    """What must fit beside the target's pool."""

    fixed_gb: float
    draft_weights_gb: float
    """A part of ``fixed_gb``."""
    draft_pools_gb: float
    """All draft pools, those still to come included, at the fraction of the log."""
    draft_taken_gb: float
    """The part of them that the log shows."""
    measured: bool
    unseen: str


# --- what goes into the pool --------------------------------------------------------------------------


def sizing_of(progress: Progress, args: ServerArgs, verdict: Verdict) -> tuple[Sizing | None, str]:
    """The numbers of the sizing, or what the log would have to show for them."""
    facts = verdict.facts
    loads = [m for _, m in progress.marks(role=Role.TARGET, kind=Kind.LOAD_END)]
    before = [m.avail for _, m in progress.marks(role=Role.TARGET, kind=Kind.LOAD_BEGIN) if m.avail is not None]
    before = before or [m.avail + m.used for m in loads if m.avail is not None and m.used is not None]
    counted = [
        m.avail
        for _, m in progress.marks(kind=Kind.LOAD_END)
        if m.avail is not None and (m.role is Role.TARGET or progress.draft_first)
    ]
    if not before or not counted:
        lacks = [when for when, found in (("before", before), ("after", counted)) if not found]
        return None, f"the log does not show free memory {' and '.join(lacks)} the weights"
    states = facts.get("mamba_gb", 0.0)
    pool = facts["kv_gb"] + states if "kv_gb" in facts else None
    numbers = Sizing(
        available_gb=min(counted),
        total_gb=min(before),
        fraction=facts.get("mem_fraction"),
        pool_gb=pool,
        states_gb=states,
        tokens=facts.get("kv_tokens"),
        cell_size=facts.get("cell_size"),
        capped=args.text("max_total_tokens") is not None,
    )
    return numbers, ""


# --- the window ---------------------------------------------------------------------------------------


def window_of(numbers: Sizing, progress: Progress, args: ServerArgs, verdict: Verdict, releases: Releases) -> Window:
    """The fractions that leave a page of KV and all that comes after the target's pool."""
    oom, now = verdict.outcome is Outcome.OOM, numbers.fraction
    failed_small = oom and verdict.cause == "kv-profile"
    failed_large = advice.wants_smaller_fraction(verdict)
    page = (args.integer("page_size") or 1) * (numbers.cell_size or 0) / sizing.GIB
    low = sizing.smallest_fraction(available=numbers.available_gb, total=numbers.total_gb, one_page_gb=page)
    if failed_small and now is not None:
        low = max(low, now + sizing.STEP)
    later = _later(numbers, progress, args, verdict, releases)
    fixed = later.fixed_gb
    if failed_large and now is not None:
        # All that this fraction had left was taken, and more was asked for.
        left = numbers.total_gb * (1.0 - now)
        fixed = max(fixed, left + _missing_gb(verdict) - later.draft_taken_gb)
    per_pool = later.draft_pools_gb / _grows_from(numbers) if later.draft_pools_gb else 0.0
    needed = sizing.needed_beside_pool(
        fixed=fixed, per_pool=per_pool, available=numbers.available_gb - numbers.states_gb
    )
    high = sizing.largest_fraction(total=numbers.total_gb, needed_after_pool=needed)
    if failed_large and now is not None:
        high = min(high, now - sizing.STEP)
    if verdict.outcome is Outcome.READY and now is not None:
        # It ran with what this fraction left: the reserve was an estimate.
        low, high = min(low, now), max(high, now)
        needed = min(needed, numbers.total_gb * (1.0 - high))
    return Window(
        low=low,
        high=high,
        direction=TOO_SMALL if failed_small else TOO_LARGE if failed_large else "",
        needed_after_pool_gb=needed,
        measured=later.measured,
        draft_gb=min(needed, max(needed - fixed, 0.0) + later.draft_weights_gb),
        unseen=later.unseen,
    )


def _grows_from(numbers: Sizing) -> float:
    """The size of the target's pool, as the formula counts it, with which the draft's pools of this log go."""
    pool = numbers.pool_gb or 0.0
    if numbers.budget_gb is not None and not numbers.capped and not numbers.contradiction:
        pool = numbers.budget_gb
    return max(pool - numbers.states_gb, 0.01)


def _later(numbers: Sizing, progress: Progress, args: ServerArgs, verdict: Verdict, releases: Releases) -> _Later:
    """Graphs and draft where they were seen, SGLang's own reserve for activations; else its own reserve for both."""
    taken, expected, unseen = _draft_pools(progress, args, verdict)
    if _counted_by_sizing(numbers, taken=taken, releases=releases):
        taken = expected = 0.0
    weights = 0.0 if progress.draft_first else verdict.facts.get("draft_weights_gb", 0.0)
    graphs = [drop for marks in progress.tracks.values() if (drop := _rest_after_pool(marks)) is not None]
    if advice.wants_smaller_fraction(verdict) and not unseen:
        unseen = f"{verdict.stage} had not come to its end"
    if verdict.outcome is not Outcome.READY and not unseen and args.text("speculative_algorithm") and args.may_draft:
        ended = any(m.kind is Kind.TOTALS or (m.kind, m.role) == _DRAFT_ENDS for _, m in progress.marks())
        unseen = "" if ended else "what the draft model takes was not seen to its end"
    tp = args.integer("tp_size") or len(progress.tracks) or 1
    fixed = _overrun(numbers, progress) + weights + _activations(numbers, progress, args, tp=tp)
    fixed += max(max(graphs), 0.0) if graphs else _graph_reserve(numbers, args, tp=tp)
    return _Later(fixed, weights, expected, taken, measured=bool(graphs) and not unseen, unseen=unseen)


def _activations(numbers: Sizing, progress: Progress, args: ServerArgs, *, tp: int) -> float:
    chunks = [int(mark.text("chunk")) for _, mark in progress.marks(kind=Kind.TOTALS) if mark.text("chunk")]
    chunk = args.integer("chunked_prefill_size") or max(chunks, default=0)
    chunk = chunk if chunk > 0 else sizing.default_chunk(total=numbers.total_gb)
    return sizing.own_reserve_gb(chunked_prefill=chunk, graph_max_bs=0, ranks=tp)


def _graph_reserve(numbers: Sizing, args: ServerArgs, *, tp: int) -> float:
    graph_bs = args.integer("cuda_graph_max_bs") or args.integer("cuda_graph_max_bs_decode")
    graph_bs = graph_bs or sizing.default_graph_bs(total=numbers.total_gb, tp=tp)
    return 0.0 if args.no_graphs else graph_bs * 2 / 1024


def _overrun(numbers: Sizing, progress: Progress) -> float:
    """How much less than the fraction promises was free once the target's pool was filled: tables, scales, and tokens
    that speculation adds up to 0.5.9."""
    left = [_end_of_pool(marks) for marks in progress.tracks.values()]
    free = [mark.avail for mark in left if mark is not None and mark.avail is not None]
    if not free or (numbers.fraction is None and numbers.pool_gb is None):
        return 0.0
    promised = [numbers.total_gb * (1.0 - numbers.fraction)] if numbers.fraction is not None else []
    if numbers.pool_gb is not None and (numbers.contradiction or not promised):
        promised.append(numbers.available_gb - numbers.pool_gb)
    return max(min(promised) - min(free), 0.0)


# --- the draft model ----------------------------------------------------------------------------------


def _draft_pools(progress: Progress, args: ServerArgs, verdict: Verdict) -> tuple[float, float, str]:
    """(GiB of draft pools that one rank shows, with those that must still come, what may come beyond that)."""
    by_rank = [_pools_of(marks) for marks in progress.tracks.values()]
    pools = max(by_rank, key=sum, default=[])
    taken, expected = sum(pools), len(pools)
    largest = max(pools, default=0.0)
    steps = args.integer("speculative_num_steps") if args.flag("enable_multi_layer_eagle") else None
    failed = verdict.outcome is Outcome.OOM and verdict.role is Role.DRAFT and verdict.stage is Stage.KV_ALLOC
    if failed:
        expected = max(expected + 1, steps or 0)
        largest = max(largest, _asked_gb(verdict))
    unseen = "" if not failed or (steps and pools) else "more of the draft's pools may follow the one that failed"
    return taken, taken + (expected - len(pools)) * largest, unseen


def _pools_of(marks: Sequence[Mark]) -> list[float]:
    """The draft pools of one rank, each with its tables where free memory shows them."""
    out, level, named = [], None, 0.0
    for mark in marks:
        if mark.role is Role.DRAFT and mark.kind is Kind.POOL:
            named += pool_gb(mark) or 0.0
        if mark.role is Role.DRAFT and mark.kind is Kind.POOL_END:
            drop = level - mark.avail if level is not None and mark.avail is not None else 0.0
            out.append(max(drop, named))
            named = 0.0
        level = mark.avail if mark.avail is not None else level
    return [*out, named] if named else out


def _counted_by_sizing(numbers: Sizing, *, taken: float, releases: Releases) -> bool:
    """Whether target and draft together are what the formula gives: then the draft takes nothing of what it leaves.

    The sizes decide, not the release alone: of some drafts (several layers, several pools) nothing is counted.
    """
    if releases.high < _DRAFT_COUNTED_SINCE or numbers.capped or numbers.budget_gb is None or numbers.pool_gb is None:
        return False
    return numbers.pool_gb + taken <= numbers.budget_gb + _ROUNDING


def _end_of_pool(marks: Sequence[Mark]) -> Mark | None:
    ends = [mark for mark in marks if mark.kind is Kind.POOL_END and mark.role is Role.TARGET]
    return ends[-1] if ends else None


def _rest_after_pool(marks: Sequence[Mark]) -> float | None:
    """How far free memory fell after the target's pool, without what the draft model's weights and pools took, if the
    rank got as far as its graphs or totals."""
    end = _end_of_pool(marks)
    if end is None or end.avail is None or not any(m.kind in (Kind.CAPTURE_END, Kind.TOTALS) for m in marks):
        return None
    later = [mark for mark in marks if mark.line > end.line and mark.avail is not None]
    if not later:
        return None
    lowest = min(later, key=lambda mark: mark.avail or 0.0)
    upto = [mark for mark in marks if end.line <= mark.line <= lowest.line]
    loads = sum(m.used or 0.0 for m in upto if m.kind is Kind.LOAD_END and m.role is Role.DRAFT)
    return max(end.avail - (lowest.avail or 0.0) - loads - sum(_pools_of(upto)), 0.0)


# --- the allocation that failed -----------------------------------------------------------------------


def _asked_gb(verdict: Verdict) -> float:
    asked = _ASKED.search(verdict.deciding.text if verdict.deciding else "")
    return float(asked[1]) * _UNIT[asked[2]] if asked else 0.0


def _missing_gb(verdict: Verdict) -> float:
    """How much the failed allocation lacked, at least one percent of a GiB."""
    free = _FREE.search(verdict.deciding.text if verdict.deciding else "")
    if free is None or not _asked_gb(verdict):
        return 0.0
    return max(_asked_gb(verdict) - float(free[1]) * _UNIT[free[2]], 0.01)
