"""Where the memory of each rank went, and which ``--mem-fraction-static`` would work: from the log alone.

All sizes are GiB, as SGLang prints them (it calls them GB).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from patchbisect.model import Outcome, Role, Signals, Stage, Verdict
from patchbisect.startup import sizing
from patchbisect.startup.classifier import Classifier
from patchbisect.startup.facts import mamba_gb, pool_gb
from patchbisect.startup.ranks import Mark, Progress, settle_roles
from patchbisect.startup.server_args import ServerArgs
from patchbisect.startup.versions import Releases, releases_of
from patchbisect.startup.vocabulary import Kind

_ASKED = re.compile(r"Tried to allocate (\d+(?:\.\d+)?) (GiB|MiB|KiB)")
_FREE = re.compile(r"of which (\d+(?:\.\d+)?) (GiB|MiB|KiB) is free")
_UNIT = {"GiB": 1.0, "MiB": 1 / 1024, "KiB": 1 / 1024**2}
_NOTHING = 0.005
"""Below the two decimals of a log line."""

TOO_SMALL, TOO_LARGE = "raise", "lower"


@dataclass(frozen=True, slots=True)
class Entry:
    """One step of a waterfall: what took ``gb``, and how much was free after it (None where not printed)."""

    name: str
    gb: float
    free_after: float | None
    line: int


@dataclass(frozen=True, slots=True)
class RankLedger:
    """The waterfall of one rank. ``start_gb`` is the free memory that it began with."""

    rank: str
    start_gb: float | None
    entries: tuple[Entry, ...]
    rest_gb: float | None

    def lines(self) -> list[str]:
        name = self.rank or "the only rank"
        if self.start_gb is None:
            return [f"{name}: no memory line"]
        out = [f"{name}:", f"  {'free at the start':<34}{self.start_gb:>10.2f} GiB"]
        for entry in self.entries:
            free = "" if entry.free_after is None else f"   -> {entry.free_after:.2f} free"
            out.append(f"  {entry.name:<34}{-entry.gb:>+10.2f} GiB{free}   (line {entry.line})")
        if self.rest_gb is not None:
            out.append(f"  {'rest':<34}{self.rest_gb:>10.2f} GiB")
        return out


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
    measured: bool
    """``needed_after_pool_gb`` was seen in the log; else it is SGLang's own reserve."""

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
        )

    def lines(self) -> list[str]:
        how = "measured here" if self.measured else "SGLang's own reserve, as nothing was measured"
        needs = f"after the pools {self.needed_after_pool_gb:.2f} GiB are needed ({how})"
        if self.empty:
            return [
                f"no --mem-fraction-static works: a pool needs at least {self.low:.3f}, graphs and activations at most "
                f"{max(self.high, 0):.3f}; {needs}",
                "then: fewer graph sizes (--cuda-graph-max-bs), a smaller --chunked-prefill-size, --kv-cache-dtype "
                "fp8_e4m3, no draft model, or more GPUs (--tp-size)",
            ]
        return [f"--mem-fraction-static between {self.low:.3f} and {self.high:.3f} works; {needs}"]


@dataclass(frozen=True, slots=True)
class Ledger:
    """The memory of one life of a server."""

    ranks: tuple[RankLedger, ...]
    releases: Releases
    sizing: Sizing | None
    window: Window | None

    @classmethod
    def of(cls, classifier: Classifier, verdict: Verdict | None = None) -> Ledger:
        """The ledger of what ``classifier`` has read; ``verdict`` is its verdict, made anew if not given."""
        life = classifier.life
        args = life.args
        progress = settle_roles(life.tracks, draft_possible=args.may_draft)
        verdict = verdict or classifier.verdict(Signals())
        numbers = _sizing(progress, args, verdict)
        return cls(
            ranks=tuple(
                _rank_ledger(label, marks) for label, marks in sorted(progress.tracks.items(), key=_by_numbers)
            ),
            releases=releases_of(life, (mark for _, mark in progress.marks())),
            sizing=numbers,
            window=_window(numbers, progress, args, verdict) if numbers else None,
        )

    @classmethod
    def read(cls, text: str | bytes | Iterable[str | bytes], signals: Signals | None = None) -> Ledger:
        """The ledger of a whole log."""
        reader = Classifier()
        for chunk in (text,) if isinstance(text, (str, bytes)) else text:
            reader.feed(chunk)
        reader.close()
        return cls.of(reader, reader.verdict(signals))

    def document(self) -> dict[str, Any]:
        """All of it as plain data for JSON, what is worked out included."""
        numbers, window = self.sizing, self.window
        return {
            **asdict(self),
            "releases": str(self.releases),
            "formula": list(sizing.formula_of(self.releases).lines),
            "sizing": numbers
            and {
                **asdict(numbers),
                "budget_gb": numbers.budget_gb,
                "implied_fraction": numbers.implied_fraction,
                "contradiction": numbers.contradiction,
            },
            "window": window and {**asdict(window), "empty": window.empty, "says": window.lines()},
        }

    def lines(self) -> list[str]:
        """The ledger as plain text: waterfall, formula with its numbers, window, contradiction."""
        out = [line for rank in self.ranks for line in rank.lines()]
        out += ["", f"KV sizing in SGLang {self.releases}:"]
        out += [f"  {line}" for line in sizing.formula_of(self.releases).lines]
        if self.sizing is None:
            return [*out, "  the log does not show free memory before and after the weights"]
        out += [f"  {line}" for line in _with_numbers(self.sizing)]
        if self.window is not None:
            out += ["", *self.window.lines()]
        if self.sizing.contradiction:
            out += ["", self.sizing.contradiction]
        return out


def _with_numbers(numbers: Sizing) -> list[str]:
    if numbers.fraction is None or numbers.budget_gb is None:
        return [f"available = {numbers.available_gb:.2f} GiB, total = {numbers.total_gb:.2f} GiB; no fraction is known"]
    put_in = f"{numbers.available_gb:.2f} - {numbers.total_gb:.2f} * (1 - {numbers.fraction:g})"
    out = [f"= {put_in} = {numbers.budget_gb:.2f} GiB"]
    if numbers.cell_size:
        tokens = int((numbers.budget_gb - numbers.states_gb) * sizing.GIB) // numbers.cell_size
        printed = "" if numbers.tokens is None else f"; the log says {numbers.tokens}"
        states = f" after {numbers.states_gb:.2f} GiB of states" if numbers.states_gb else ""
        out.append(f"tokens = {max(tokens, 0)} at {numbers.cell_size} bytes each{states}{printed}")
    if numbers.implied_fraction is not None:
        out.append(
            f"backwards: pools of {numbers.pool_gb:.2f} GiB come from a fraction of {numbers.implied_fraction:.3f}"
        )
    return out


def _by_numbers(item: tuple[str, object]) -> list[int]:
    """Sorts ``TP2`` before ``TP10``."""
    return [int(number) for number in re.findall(r"\d+", item[0])]


# --- the waterfall ------------------------------------------------------------------------------------


def _rank_ledger(label: str, marks: Sequence[Mark]) -> RankLedger:
    entries: list[Entry] = []
    start = level = None
    context: Entry | None = None
    pools: list[tuple[str, float]] = []
    for mark in marks:
        if mark.kind is Kind.DIST_END and mark.used is not None and start is None:
            context = Entry("CUDA context and NCCL", mark.used, None, mark.line)
        elif mark.kind is Kind.POOL:
            pools += _named_pools(mark)
        if mark.avail is None:
            continue
        if start is None or level is None:
            start = level = mark.avail
            if mark.kind is Kind.LOAD_END and mark.used is not None:
                start = level = mark.avail + mark.used
            if context is not None:
                start += context.gb
                entries.append(Entry(context.name, context.gb, level, context.line))
            if mark.kind is not Kind.LOAD_END:
                pools.clear()
                continue
        entries += _step(mark, level, pools)
        if mark.kind is Kind.POOL_END:
            pools.clear()
        level = mark.avail
    return RankLedger(label, start, tuple(entries), level)


def _named_pools(mark: Mark) -> list[tuple[str, float]]:
    size, state = pool_gb(mark), mamba_gb(mark)
    draft = "draft " if mark.role is Role.DRAFT else ""
    if size is not None:
        tokens = mark.text("tokens")
        return [(f"{draft}{mark.text('name') or 'KV Cache'}{f', {tokens} tokens' if tokens else ''}", size)]
    return [(f"{draft}Mamba state", state)] if state is not None else []


def _step(mark: Mark, level: float, pools: list[tuple[str, float]]) -> list[Entry]:
    """What happened between the last printed level and this mark."""
    assert mark.avail is not None
    drop = level - mark.avail
    draft = "draft " if mark.role is Role.DRAFT else ""
    if mark.kind is Kind.POOL_END and pools:
        out = [Entry(name, size, None, mark.line) for name, size in pools]
        other = drop - sum(size for _, size in pools)
        return [*out, Entry(f"{draft}tables and rounding", other, mark.avail, mark.line)]
    names = {
        Kind.LOAD_END: f"{draft}weights",
        Kind.POOL_END: f"{draft}KV pools",
        Kind.CAPTURE_END: f"graphs ({mark.text('what').strip() or draft.strip() or 'decode'})",
        Kind.CAPTURE_BEGIN: "kernels and workspaces",
        Kind.TOTALS: "after the graphs",
        Kind.LOAD_BEGIN: "before the draft's weights",
    }
    if abs(drop) < _NOTHING and mark.kind in (Kind.CAPTURE_BEGIN, Kind.TOTALS, Kind.LOAD_BEGIN):
        return []
    return [Entry(names.get(mark.kind, str(mark.kind.value)), drop, mark.avail, mark.line)]


# --- sizing and window --------------------------------------------------------------------------------


def _sizing(progress: Progress, args: ServerArgs, verdict: Verdict) -> Sizing | None:
    facts = verdict.facts
    before = [m.avail for _, m in progress.marks(role=Role.TARGET, kind=Kind.LOAD_BEGIN) if m.avail is not None]
    counted = [
        m.avail
        for _, m in progress.marks(kind=Kind.LOAD_END)
        if m.avail is not None and (m.role is Role.TARGET or progress.draft_first)
    ]
    if not before or not counted:
        return None
    states = facts.get("mamba_gb", 0.0)
    pool = facts["kv_gb"] + states if "kv_gb" in facts else None
    return Sizing(
        available_gb=min(counted),
        total_gb=min(before),
        fraction=facts.get("mem_fraction"),
        pool_gb=pool,
        states_gb=states,
        tokens=facts.get("kv_tokens"),
        cell_size=facts.get("cell_size"),
        capped=args.text("max_total_tokens") is not None,
    )


def _window(numbers: Sizing, progress: Progress, args: ServerArgs, verdict: Verdict) -> Window:
    failed_small = verdict.outcome is Outcome.OOM and verdict.cause == "kv-profile"
    failed_large = (
        verdict.outcome is Outcome.OOM
        and not failed_small
        and verdict.stage not in (Stage.IMPORT, Stage.DIST_INIT, Stage.WEIGHT_LOAD)
        and verdict.cause != "host-ram"
    )
    page = (args.integer("page_size") or 1) * (numbers.cell_size or 0) / sizing.GIB
    low = sizing.smallest_fraction(available=numbers.available_gb, total=numbers.total_gb, one_page_gb=page)
    if failed_small and numbers.fraction is not None:
        low = max(low, numbers.fraction + sizing.STEP)
    needed, measured = _needed_after_pool(progress, args, numbers)
    high = sizing.largest_fraction(total=numbers.total_gb, needed_after_pool=needed)
    if failed_large and numbers.fraction is not None:
        missing = _missing_gb(verdict)
        high = min(
            high,
            sizing.largest_fraction(total=1.0, needed_after_pool=1.0 - numbers.fraction + missing / numbers.total_gb),
        )
        high = min(high, numbers.fraction - sizing.STEP)
    if verdict.outcome is Outcome.READY and numbers.fraction is not None:
        low, high = min(low, numbers.fraction), max(high, numbers.fraction)
    direction = TOO_SMALL if failed_small else TOO_LARGE if failed_large else ""
    return Window(low, high, direction, needed, measured)


def _needed_after_pool(progress: Progress, args: ServerArgs, numbers: Sizing) -> tuple[float, bool]:
    """Memory that graphs took after the target's pool, where it was seen to the end, and SGLang's own reserve
    for activations; else its own reserve for both."""
    tp = args.integer("tp_size") or len(progress.tracks) or 1
    chunks = [int(mark.text("chunk")) for _, mark in progress.marks(kind=Kind.TOTALS) if mark.text("chunk")]
    chunk = args.integer("chunked_prefill_size") or max(chunks, default=0)
    activations = sizing.own_reserve_gb(
        chunked_prefill=chunk if chunk > 0 else sizing.default_chunk(total=numbers.total_gb), graph_max_bs=0, ranks=tp
    )
    after = [drop for marks in progress.tracks.values() if (drop := _drop_after_pool(marks)) is not None]
    if after:
        return max(max(after), 0.0) + activations, True
    graph_bs = args.integer("cuda_graph_max_bs") or args.integer("cuda_graph_max_bs_decode")
    graph_bs = graph_bs or sizing.default_graph_bs(total=numbers.total_gb, tp=tp)
    return activations + (0.0 if args.no_graphs else graph_bs * 2 / 1024), False


def _drop_after_pool(marks: Sequence[Mark]) -> float | None:
    """How far free memory fell after the target's pool, if the rank got as far as its graphs or totals."""
    ends = [mark for mark in marks if mark.kind is Kind.POOL_END and mark.role is Role.TARGET]
    if not ends or ends[-1].avail is None or not any(m.kind in (Kind.CAPTURE_END, Kind.TOTALS) for m in marks):
        return None
    later = [mark.avail for mark in marks if mark.line > ends[-1].line and mark.avail is not None]
    return ends[-1].avail - min(later) if later else None


def _missing_gb(verdict: Verdict) -> float:
    """How much the failed allocation lacked, at least one percent of a GiB."""
    text = verdict.deciding.text if verdict.deciding else ""
    asked, free = _ASKED.search(text), _FREE.search(text)
    if asked is None or free is None:
        return 0.0
    return max(float(asked[1]) * _UNIT[asked[2]] - float(free[1]) * _UNIT[free[2]], 0.01)
