"""Pictures as geometry: shapes with a class each, which the page turns into SVG and its style sheet into colours.

Units are SVG user units; a picture is 760 wide and as high as it needs. Words are drawn beside colours everywhere, so
that nothing rests on colour alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from patchbisect.report.reading import Part, Span
from patchbisect.report.story import left_after
from patchbisect.wire import Json

T = TypeVar("T")

WIDTH = 760.0
_LEFT = 150.0
_RIGHT = 16.0
_TOP = 8.0
_BAR = 18.0
_BASELINE = 13.0
"""Of a word in a bar, from its top."""
_GAP = 6.0
_GROUP_GAP = 14.0
_CHARACTER = 6.6
"""Width of one character of the pictures' font at its size of 11."""


@dataclass(frozen=True, slots=True)
class Rect:
    x: float
    y: float
    width: float
    height: float
    css: str
    title: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    x1: float
    y1: float
    x2: float
    y2: float
    css: str


@dataclass(frozen=True, slots=True)
class Dot:
    x: float
    y: float
    css: str
    title: str = ""


@dataclass(frozen=True, slots=True)
class Path:
    points: str
    css: str
    title: str = ""


@dataclass(frozen=True, slots=True)
class Label:
    x: float
    y: float
    text: str
    css: str = ""
    anchor: str = "start"


@dataclass(slots=True)
class Drawing:
    """One picture. ``title`` says what it is, ``summary`` what it shows, for those who cannot see it."""

    title: str
    summary: str
    note: str = ""
    """What a reader has to know to read it rightly."""
    height: float = 0.0
    rects: list[Rect] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    dots: list[Dot] = field(default_factory=list)
    paths: list[Path] = field(default_factory=list)
    labels: list[Label] = field(default_factory=list)
    legend: list[tuple[str, str]] = field(default_factory=list)
    """(class, word) pairs."""


@dataclass(frozen=True, slots=True)
class Bars(Generic[T]):
    """The parts of one bar; bars of one ``group`` stand together."""

    group: str
    name: str
    parts: tuple[T, ...]


PART_CLASSES = {
    "NCCL": "c-nccl", "weights": "c-weights", "draft weights": "c-weights2", "KV pools": "c-kv",
    "draft KV pools": "c-kv2", "graphs": "c-graphs", "other": "c-other", "free": "c-free",
}  # fmt: skip
STAGE_CLASSES = {
    "import": "c-other", "dist-init": "c-nccl", "weight-load": "c-weights", "kv-profile": "c-kv2", "kv-alloc": "c-kv",
    "kernel-warmup": "c-weights2", "graph-capture": "c-graphs", "warmup": "c-warm", "serving": "c-warm",
}  # fmt: skip


def waterfall(bars: Sequence[Bars[Part]], *, title: str) -> Drawing | None:
    """Where each rank's memory went, GiB. None where no line told it."""
    bars = [bar for bar in bars if bar.parts]
    longest = max((sum(max(part.gb, 0.0) for part in bar.parts) for bar in bars), default=0.0)
    if not longest:
        return None
    drawing = Drawing(title=title, summary="; ".join(map(_spoken, bars)))
    scale = _Scale(longest, unit="GiB")
    for bar, y in _rows(drawing, bars):
        x = 0.0
        for part in bar.parts:
            if part.gb > 0:
                _block(drawing, scale, x, part.gb, y, PART_CLASSES[part.name], part.name, f"{part.gb:.2f}")
                x += part.gb
    scale.axis(drawing, drawing.height)
    drawing.legend = _legend(PART_CLASSES, (part.name for bar in bars for part in bar.parts))
    return drawing


def _spoken(bar: Bars[Part]) -> str:
    return f"{bar.group} {bar.name}: ".lstrip() + ", ".join(f"{part.name} {part.gb:.2f} GiB" for part in bar.parts)


def stages(bars: Sequence[Bars[Span]], *, title: str) -> Drawing | None:
    """How each rank's time went, seconds. None where no line had a time."""
    bars = [bar for bar in bars if bar.parts]
    longest = max((bar.parts[-1].end for bar in bars), default=0.0)
    if not longest:
        return None
    told = (f"{bar.group} {bar.name}: ".lstrip() + ", ".join(_lasted(span) for span in bar.parts) for bar in bars)
    drawing = Drawing(title=title, summary="; ".join(told))
    scale = _Scale(longest, unit="s")
    for bar, y in _rows(drawing, bars):
        for span in bar.parts:
            seconds = span.end - span.begin
            css = STAGE_CLASSES[span.stage]
            _block(drawing, scale, span.begin, seconds, y, css, span.name, f"{seconds:.1f}")
    scale.axis(drawing, drawing.height)
    drawing.legend = _legend(STAGE_CLASSES, (span.stage.value for bar in bars for span in bar.parts))
    return drawing


def _lasted(span: Span) -> str:
    return f"{span.name} {span.end - span.begin:.1f} s"


_OBSERVED = {"good": ("dot-good", "passes"), "bad": ("dot-bad", "fails"), "skip": ("dot-skip", "untestable")}
_MOST_ROWS = 80


def narrowing(
    trials: Sequence[Json], *, changes: int, culprit: int | None, fix: bool = False, certain: bool = True
) -> Drawing | None:
    """What was left after each launch: one row a launch, the points from left to right.

    ``fix``: the first points fail and the last ones start, and what repaired it is looked for.
    ``certain``: the same point always ends the same way. Else a launch excludes nothing by itself, and only the
    launches are shown, with the search's own confidence where the trials tell it.
    """
    steps = [trial for trial in trials if trial["position"] is not None and trial["observation"]][:_MOST_ROWS]
    if not steps or changes < 1:
        return None
    drawing = Drawing(
        title="What was left after each launch" if certain else "Every launch along the timeline",
        summary="one row a launch" + ("; the bar covers the changes that it could still be" if certain else ""),
    )
    width = WIDTH - _LEFT - 90.0
    unit = width / changes
    row = 16.0
    y = 10.0
    spans = left_after(steps, changes=changes, fix=fix)
    for number, (trial, (low, high)) in enumerate(zip(steps, spans, strict=True), start=1):
        position, observation = trial["position"], trial["observation"]
        left = high - low
        css, word = _OBSERVED[observation]
        drawing.labels.append(Label(_LEFT - 10, y + 11, f"{number}  {trial['purpose']}"[:22], anchor="end"))
        drawing.lines.append(Line(_LEFT, y + 7, _LEFT + width, y + 7, "axis"))
        if left and certain:
            drawing.rects.append(Rect(_LEFT + low * unit, y + 2, left * unit, 10, "suspect"))
        drawing.dots.append(Dot(_LEFT + position * unit, y + 7, css, f"point {position} {word}"))
        told = trial.get("confidence")
        shown = f"{left} left" if certain else word if told is None else f"{told:.0%} sure"
        drawing.labels.append(Label(_LEFT + width + 14, y + 11, shown))
        y += row
    for position in sorted({0, changes} | ({culprit} if culprit else set())):
        drawing.labels.append(Label(_LEFT + position * unit, y + 14, str(position), anchor="middle"))
    drawing.labels.append(Label(_LEFT - 10, y + 14, "point", anchor="end"))
    if culprit:
        x = _LEFT + (culprit - 0.5) * unit
        drawing.lines.append(Line(x, 4, x, y + 2, "culprit-line"))
    drawing.height = y + 22
    drawing.legend = [(css, word) for css, word in _OBSERVED.values() if css in {dot.css for dot in drawing.dots}]
    if certain:
        drawing.legend.append(("suspect", "could still be it"))
    return drawing


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a picture over time: (seconds, GiB) points. The same GPU has the same colour in every run."""

    name: str
    css: str
    points: Sequence[tuple[float, float]]
    low: Sequence[tuple[float, float]] = ()
    """The other edge of a band below the line, at the same seconds; empty: none."""


def over_time(series: Sequence[Series], *, title: str) -> Drawing | None:
    """GPU memory in use (GiB) against seconds, one line a GPU."""
    series = [one for one in series if len(one.points) > 1]
    if not series:
        return None
    longest = max(second for one in series for second, _ in one.points)
    highest = max(gb for one in series for _, gb in one.points)
    if longest <= 0 or highest <= 0:
        return None
    peaks = (f"{one.name} at most {max(gb for _, gb in one.points):.1f} GiB" for one in series)
    drawing = Drawing(title=title, summary="; ".join(peaks))
    scale = _Scale(longest, unit="s")
    height = 160.0
    step = _step(highest, most=5)
    top = step * math.ceil(highest / step)

    def shape(points: Iterable[tuple[float, float]]) -> str:
        return " ".join(f"{scale.x(t):.1f},{_TOP + height * (1 - gb / top):.1f}" for t, gb in points)

    for count in range(round(top / step) + 1):
        y = _TOP + height * (1 - count * step / top)
        drawing.lines.append(Line(_LEFT, y, WIDTH - _RIGHT, y, "axis"))
        unit = " GiB" if count * step == top else ""
        drawing.labels.append(Label(_LEFT - 8, y + 4, f"{count * step:g}{unit}", anchor="end"))
    for one in series:
        if one.low:
            drawing.paths.append(Path(shape([*one.points, *reversed(one.low)]), f"band {one.css}", one.name))
        drawing.paths.append(Path(shape(one.points), f"series {one.css}", one.name))
        drawing.legend.append((one.css, one.name))
    scale.axis(drawing, _TOP + height)
    return drawing


class _Scale:
    """From a quantity to x, with the axis below."""

    def __init__(self, longest: float, *, unit: str) -> None:
        self.longest = longest
        self.unit = unit
        self.factor = (WIDTH - _LEFT - _RIGHT) / longest

    def x(self, value: float) -> float:
        return _LEFT + value * self.factor

    def axis(self, drawing: Drawing, y: float) -> None:
        y += 6
        drawing.lines.append(Line(_LEFT, y, WIDTH - _RIGHT, y, "axis"))
        step = _step(self.longest)
        ticks = [step * count for count in range(int(self.longest / step) + 1)]
        for tick in ticks:
            drawing.lines.append(Line(self.x(tick), y, self.x(tick), y + 4, "axis"))
            unit = f" {self.unit}" if tick == ticks[-1] else ""
            anchor = "end" if unit and self.x(tick) > WIDTH - 40 else "middle"
            drawing.labels.append(Label(self.x(tick), y + 17, f"{tick:g}{unit}", anchor=anchor))
        drawing.height = y + 24


def _step(longest: float, *, most: int = 10) -> float:
    """The smallest round step that gives at most so many ticks."""
    magnitude = 10.0 ** (len(str(int(longest))) - 1) if longest >= 1 else 0.1
    return next(magnitude * factor for factor in (0.1, 0.2, 0.5, 1.0, 2.0) if longest / (magnitude * factor) <= most)


def _rows(drawing: Drawing, bars: Sequence[Bars[T]]) -> Iterator[tuple[Bars[T], float]]:
    """Each bar with the y of its row, named; the drawing grows with them."""
    y, group = _TOP, None
    for bar in bars:
        if group is not None:
            y += _BAR + (_GAP if bar.group == group else _GROUP_GAP)
        if bar.group and bar.group != group:
            drawing.labels.append(Label(4, y + _BASELINE, bar.group, "group"))
        drawing.labels.append(Label(_LEFT - 8, y + _BASELINE, bar.name, anchor="end"))
        group = bar.group
        drawing.height = y + _BAR
        yield bar, y


def _block(
    drawing: Drawing, scale: _Scale, at: float, length: float, y: float, css: str, name: str, shown: str
) -> None:
    width = length * scale.factor
    drawing.rects.append(Rect(scale.x(at), y, max(width, 1.0), _BAR, css, f"{name} {shown} {scale.unit}"))
    full = f"{name} {shown}"
    text = full if len(full) * _CHARACTER < width - 6 else shown if len(shown) * _CHARACTER < width - 6 else ""
    if text:
        drawing.labels.append(Label(scale.x(at) + 4, y + _BASELINE, text, f"in {css}-ink"))


def _legend(classes: dict[str, str], names: Iterable[str]) -> list[tuple[str, str]]:
    present = set(names)
    return [(css, name) for name, css in classes.items() if name in present]
