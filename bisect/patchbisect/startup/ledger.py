"""Where the memory of each rank went, and which ``--mem-fraction-static`` would work: from the log alone.

All sizes are GiB, as SGLang prints them (it calls them GB).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from patchbisect.model import Role, Signals, Verdict
from patchbisect.startup import sizing
from patchbisect.startup.classifier import Classifier
from patchbisect.startup.facts import mamba_gb, pool_gb
from patchbisect.startup.ranks import Mark, settle_roles
from patchbisect.startup.versions import Releases, releases_of
from patchbisect.startup.vocabulary import Kind
from patchbisect.startup.window import Sizing, Window, sizing_of, window_of

AT_THE_START = "at the start"
_NOTHING = 0.005
"""Below the two decimals of a log line."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One step of a waterfall: what took ``gb``, and how much was free after it (None where not printed)."""

    name: str
    gb: float
    free_after: float | None
    line: int


@dataclass(frozen=True, slots=True)
class RankLedger:
    """The waterfall of one rank, from the first free memory that was printed to what is left; both None without a
    line."""

    rank: str
    start_gb: float | None
    entries: tuple[Entry, ...]
    rest_gb: float | None
    start: str = AT_THE_START
    """When ``start_gb`` was free: a log that begins later has it from behind the pools, say."""

    def lines(self) -> list[str]:
        name = self.rank or "the only rank"
        if self.start_gb is None or self.rest_gb is None:
            return [f"{name}: no memory line"]
        out = [f"{name}:", f"  {f'free {self.start}':<34}{self.start_gb:>10.2f} GiB"]
        for entry in self.entries:
            free = "" if entry.free_after is None else f"   -> {entry.free_after:.2f} free"
            out.append(f"  {entry.name:<34}{0.0 - round(entry.gb, 2):>+10.2f} GiB{free}   (line {entry.line})")
        return [*out, f"  {'rest':<34}{self.rest_gb:>10.2f} GiB"]


@dataclass(frozen=True, slots=True)
class Ledger:
    """The memory of one life of a server."""

    ranks: tuple[RankLedger, ...]
    releases: Releases
    sizing: Sizing | None
    window: Window | None
    missing: str = ""
    """What the log would have to show for a sizing; "" where there is one."""

    @classmethod
    def of(cls, classifier: Classifier, verdict: Verdict | None = None) -> Ledger:
        """The ledger of what ``classifier`` has read; ``verdict`` is its verdict, made anew if not given."""
        life = classifier.life
        args = life.args
        progress = settle_roles(life.tracks, draft_possible=args.may_draft)
        verdict = verdict or classifier.verdict(Signals())
        numbers, missing = sizing_of(progress, args, verdict)
        return cls(
            ranks=tuple(
                _rank_ledger(label, marks) for label, marks in sorted(progress.tracks.items(), key=_by_numbers)
            ),
            releases=(releases := releases_of(life, (mark for _, mark in progress.marks()))),
            sizing=numbers,
            window=window_of(numbers, progress, args, verdict, releases) if numbers else None,
            missing=missing,
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
            "formula": list(sizing.formula_of(self.releases).lines) if numbers else [],
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
        if all(rank.start_gb is None for rank in self.ranks):
            return ["the log has no line about memory"]
        out = [line for rank in self.ranks for line in rank.lines()]
        if self.sizing is None:
            return [*out, "", f"no KV sizing can be worked out: {self.missing}"]
        out += ["", f"KV sizing in SGLang {self.releases}:"]
        out += [f"  {line}" for line in sizing.formula_of(self.releases).lines]
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
    when = AT_THE_START
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
            when = _when(mark)
            loaded = mark.kind is Kind.LOAD_END and mark.used is not None
            if mark.used is not None and loaded:
                start = level = mark.avail + mark.used
            if context is not None and when == AT_THE_START:
                start += context.gb
                entries.append(Entry(context.name, context.gb, level, context.line))
            if not loaded:
                pools.clear()
                continue
        entries += _step(mark, level, pools)
        if mark.kind is Kind.POOL_END:
            pools.clear()
        level = mark.avail
    return RankLedger(label, start, tuple(entries), level, when)


_BEHIND = {
    Kind.LOAD_END: "after the weights",
    Kind.POOL_END: "after the pools",
    Kind.CAPTURE_BEGIN: "before the graphs",
    Kind.CAPTURE_END: "after the graphs",
    Kind.TOTALS: "after the graphs",
}


def _when(first: Mark) -> str:
    """When the first free memory was that a rank's marks tell; the end of the weights tells what was free before."""
    if first.kind is Kind.LOAD_BEGIN or (first.kind is Kind.LOAD_END and first.used is not None):
        return AT_THE_START if first.role is Role.TARGET else "before the draft's weights"
    return _BEHIND.get(first.kind, f"at line {first.line}")


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
