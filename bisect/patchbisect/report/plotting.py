"""Pictures of runs as PNG or SVG files: memory by rank, and memory over time with the stages marked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib
from matplotlib.figure import Figure

from patchbisect.errors import UsageError
from patchbisect.report.picturing import MOST_ROWS, Points, envelope, gpu_series, grouped, same_memory
from patchbisect.report.reading import RankReading
from patchbisect.report.sources import Source

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's colours, which the common kinds of colour blindness keep apart.
_PARTS = {
    "NCCL": "#999999", "weights": "#0072b2", "draft weights": "#56b4e9", "KV pools": "#d55e00",
    "draft KV pools": "#e69f00", "graphs": "#009e73", "other": "#bbbbbb", "free": "#eeeeee",
}  # fmt: skip
_LINES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#999999")
_STYLES = ("-", "--", ":", "-.")
_MARKERS = ("o", "s", "^", "D")
_HATCHES = {"draft weights": "//", "draft KV pools": "//", "graphs": ".."}
FORMATS = (".png", ".svg")

_CHARACTER_SHARE = 0.0065
"""Of the width of the axes, that one character of a stage's name takes."""

_Series = list[tuple[str, Points, Points]]
"""(name, line, lower edge of a band or nothing)."""
_Row = tuple[str, RankReading]


def plot(sources: Sequence[Source], path: Path) -> None:
    """Draw the runs over each other into ``path``.

    Raises UsageError for another kind of file, and where the runs tell no memory.
    """
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"{path}: neither .png nor .svg", remedy="name the file with one of the two")
    several = len(sources) > 1
    named = [(source.label if several else "", source) for source in sources]
    bars = [(" ".join((rank, whose)).strip(), one) for rank, whose, one in grouped(named, same_memory) if one.memory]
    sampled = all(gpu_series(source.samples) for source in sources)
    timed = [(source, lines) for source in sources if (lines := _lines(source, sampled=sampled, several=several))]
    if not bars and not timed:
        raise UsageError("these runs tell no memory: there is nothing to draw", remedy="take runs that got past import")
    heights = [2.0 + 0.34 * len(bars)] * bool(bars) + [3.8] * bool(timed)
    # The same run gives the same bytes; the words of an SVG stay words.
    with matplotlib.rc_context({"svg.hashsalt": "patchbisect", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(9.5, sum(heights)), layout="constrained")
        parts = figure.subfigures(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
        if bars:
            _waterfall(parts[0].subplots(), bars)
        if timed:
            _over_time(parts[-1].subplots(), timed, sampled=sampled, several=several)
        for part in parts:
            part.legend(loc="outside lower left", ncols=3 if several else 8, frameon=False)
        metadata = {"Date": None} if path.suffix.lower() == ".svg" else None
        figure.savefig(path, dpi=150, metadata=metadata)


def _waterfall(axes: Axes, bars: Sequence[_Row]) -> None:
    used = set()
    for row, (_, rank) in enumerate(bars):
        left = 0.0
        for part in rank.memory:
            if part.gb <= 0:
                continue
            axes.barh(
                row,
                part.gb,
                left=left,
                color=_PARTS[part.name],
                hatch=_HATCHES.get(part.name),
                edgecolor="white",
                linewidth=0.5,
                label=None if part.name in used else part.name,
            )
            used.add(part.name)
            left += part.gb
            if part.gb > 0.07 * rank.total_gb:
                ink = "white" if part.name == "weights" else "black"
                axes.text(left - part.gb / 2, row, f"{part.gb:.2f}", ha="center", va="center", color=ink, fontsize=8)
    axes.set_yticks(range(len(bars)), [name or "rank" for name, _ in bars])
    axes.invert_yaxis()
    axes.set_xlabel("GiB")
    axes.set_title("Where the memory of each rank went", loc="left", fontweight="bold")
    axes.spines[["top", "right"]].set_visible(False)


def _over_time(axes: Axes, timed: Sequence[tuple[Source, _Series]], *, sampled: bool, several: bool) -> None:
    for number, (source, series) in enumerate(timed):
        for index, (name, points, low) in enumerate(series):
            # Runs that lie over each other differ in colour and in style; the GPUs of one run differ in colour.
            whose = number if several else index
            axes.plot(
                [second for second, _ in points],
                [gb for _, gb in points],
                color=_LINES[whose % len(_LINES)],
                linestyle=_STYLES[number % len(_STYLES)],
                linewidth=1.6,
                drawstyle="default" if sampled else "steps-post",
                marker="" if sampled else _MARKERS[number % len(_MARKERS)],
                markersize=3,
                label=f"{source.label}  {name}".rstrip() if several else name or "rank",
            )
            if low:
                high = [gb for _, gb in points]
                axes.fill_between(
                    [second for second, _ in low],
                    [gb for _, gb in low],
                    high,
                    color=_LINES[whose],
                    alpha=0.2,
                    linewidth=0,
                )
    axes.set_ylim(0, axes.get_ylim()[1] * 1.08)
    furthest = max((source for source, _ in timed), key=_last_stage_end)
    _mark_stages(axes, furthest)
    axes.set_xlabel("seconds after the launch" + (f" (stages of {furthest.label})" if several else ""))
    axes.set_ylabel("GPU memory in use, GiB" if sampled else "free memory, GiB")
    title = "GPU memory over time" if sampled else "Free memory over time, as the log tells it"
    axes.set_title(title, loc="left", fontweight="bold", pad=18)
    axes.spines[["top", "right"]].set_visible(False)


def _last_stage_end(source: Source) -> float:
    return max((rank.spans[-1].end for rank in source.reading.ranks if rank.spans), default=0.0)


def _mark_stages(axes: Axes, source: Source) -> None:
    """A band for each stage of the first rank, with its name above where there is room for it."""
    ranks = [rank for rank in source.reading.ranks if rank.spans]
    if not ranks:
        return
    # A name outside of the axes would take the room from them.
    high = 1.02 * max(ranks[0].spans[-1].end, axes.get_xlim()[1])
    axes.set_xlim(0, high)
    for number, span in enumerate(ranks[0].spans):
        if number % 2:
            axes.axvspan(span.begin, span.end, color="#f2f2f2", zorder=0)
        axes.axvline(span.end, color="#cccccc", linewidth=0.6, zorder=0)
        if (span.end - span.begin) / high > _CHARACTER_SHARE * len(span.name):
            at = ((span.begin + span.end) / 2, 1.02)
            axes.annotate(span.name, at, xycoords=("data", "axes fraction"), ha="center", fontsize=7, color="#555555")


def _lines(source: Source, *, sampled: bool, several: bool) -> _Series:
    """By GPU what was in use, where all runs were sampled; else by rank what the log says was free.

    Of several runs only the fullest GPU is a line, with a band down to the emptiest.
    """
    if sampled:
        found = gpu_series(source.samples)
        if several and len(found) > 1:
            high, low = envelope(found)
            return [(f"fullest of {len(found)} GPUs", high, low)]
        return [(name, points, []) for name, points in found.items()]
    told: _Series = []
    for rank in source.reading.ranks[:MOST_ROWS]:
        points = [(second, gb) for second, gb, _ in rank.free_gb if second is not None]
        if len(points) > 1:
            told.append((rank.label, points, []))
    return told
