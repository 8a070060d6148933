"""From runs to what pictures show of them: ranks that are alike stand together, and so do GPUs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from patchbisect.report import drawing
from patchbisect.report.board import gpus_of
from patchbisect.report.drawing import Bars, Drawing, Series
from patchbisect.report.reading import Part, RankReading, Span
from patchbisect.report.sources import Source
from patchbisect.wire import Json

MOST_ROWS = 16
"""Ranks, or groups of them, in one picture."""

ALIKE_GB = 0.25
"""Ranks whose every part differs by less are drawn as one: as much as `diff-runs` calls the same memory."""
_ALIKE_S = 1.0
_ALIKE_SHARE = 0.02
_EPOCH_S = 1e9
"""A time above this is one of the clock, not seconds after the launch."""

Named = Sequence[tuple[str, Source]]
"""(whose it is, the run): one without a name, or several that are compared."""
Points = list[tuple[float, float]]
"""(seconds after the launch, GiB)."""
Alike = Callable[[RankReading, RankReading], bool]


def memory(runs: Named) -> Drawing | None:
    """Where each rank's memory went; None where no log told it."""
    bars = [Bars(group if name else "", name or group, rank.memory) for group, name, rank in grouped(runs, same_memory)]
    picture = drawing.waterfall(bars, title="Where the memory of each rank went")
    if picture and _several(bars):
        picture.note = f"Ranks that agree to {ALIKE_GB:g} GiB in every part are one bar, with the numbers of the first."
    return picture


def stages(runs: Named) -> Drawing | None:
    """How each rank's time went; None where no line had a time."""
    bars = [Bars(group if name else "", name or group, rank.spans) for group, name, rank in grouped(runs, _same_times)]
    picture = drawing.stages(bars, title="How the time of each rank went")
    if picture and _several(bars):
        picture.note = "Ranks that keep step are one bar, with the times of the first."
    return picture


def _several(bars: Sequence[Bars[Part]] | Sequence[Bars[Span]]) -> bool:
    return any("–" in bar.group + bar.name or "more" in bar.group + bar.name for bar in bars)


def gpus(runs: Named) -> Drawing | None:
    """GPU memory over time. Of several runs the fullest GPU as a line, with a band down to the emptiest one."""
    series = []
    for whose, (name, source) in enumerate(runs):
        found = gpu_series(source.samples)
        if len(runs) > 1 and len(found) > 1:
            high, low = envelope(found)
            series.append(Series(f"{name}, fullest of {len(found)} GPUs", _line(whose), high, low))
            continue
        # The runs of a pair differ in colour and in style, the GPUs of one run in colour.
        series += [
            Series(f"{name} {gpu}".strip(), _line(whose) if len(runs) > 1 else f"line-{colour % 8}", points)
            for colour, (gpu, points) in enumerate(found.items())
        ]
    return drawing.over_time(series, title="GPU memory in use")


def _line(whose: int) -> str:
    """The first run, the one that fails, is drawn in the colour of a warning."""
    return "line-1" if whose == 0 else "line-0 dashed"


def grouped(runs: Named, alike: Alike) -> Iterator[tuple[str, str, RankReading]]:
    """(ranks, whose, the first one's reading): ranks that are alike in every run are one group."""
    told = [(name, {rank.label: rank for rank in source.reading.ranks}) for name, source in runs]
    groups: list[list[str]] = []
    for label in dict.fromkeys(label for _, ranks in told for label in ranks):
        same = (group for group in groups if all(_both(ranks, group[0], label, alike) for _, ranks in told))
        if group := next(same, None):
            group.append(label)
        else:
            groups.append([label])
    for group in groups[:MOST_ROWS]:
        for name, ranks in told:
            if group[0] in ranks:
                yield group_name(group), name, ranks[group[0]]


def _both(ranks: dict[str, RankReading], a: str, b: str, alike: Alike) -> bool:
    if a in ranks and b in ranks:
        return alike(ranks[a], ranks[b])
    return a not in ranks and b not in ranks


def same_memory(a: RankReading, b: RankReading) -> bool:
    """Whether their parts are the same to :data:`ALIKE_GB`."""
    names = [part.name for part in a.memory] == [part.name for part in b.memory]
    return names and all(abs(x.gb - y.gb) <= ALIKE_GB for x, y in zip(a.memory, b.memory, strict=True))


def _same_times(a: RankReading, b: RankReading) -> bool:
    if [span.name for span in a.spans] != [span.name for span in b.spans]:
        return False
    slack = max(_ALIKE_S, _ALIKE_SHARE * a.spans[-1].end) if a.spans else 0.0
    return all(abs(x.end - y.end) <= slack for x, y in zip(a.spans, b.spans, strict=True))


def group_name(labels: Sequence[str]) -> str:
    """``TP0``, ``TP0–7``, or ``TP0 and 3 more``."""
    if len(labels) == 1:
        return labels[0]
    parts = [re.fullmatch(r"(.*?)(\d+)", label) for label in labels]
    numbers = [int(part[2]) for part in parts if part]
    heads = {part[1] for part in parts if part}
    if len(heads) == 1 and numbers == list(range(numbers[0], numbers[0] + len(labels))):
        return f"{labels[0]}–{numbers[-1]}"
    return f"{labels[0]} and {len(labels) - 1} more"


def gpu_series(samples: Sequence[Json]) -> dict[str, Points]:
    """(seconds after the launch, GiB in use) by GPU, or of the fullest one where no sample tells them apart."""
    series: dict[str, Points] = {}
    begin = samples[0]["t"] if samples and samples[0]["t"] > _EPOCH_S else 0.0
    for sample in samples:
        for gpu in gpus_of(sample):
            series.setdefault(gpu.name, []).append((sample["t"] - begin, gpu.used_gb))
    return series


def envelope(series: dict[str, Points]) -> tuple[Points, Points]:
    """At each moment the fullest and the emptiest of them."""
    by_time: dict[float, list[float]] = {}
    for points in series.values():
        for second, gb in points:
            by_time.setdefault(second, []).append(gb)
    times = sorted(by_time)
    return [(t, max(by_time[t])) for t in times], [(t, min(by_time[t])) for t in times]
