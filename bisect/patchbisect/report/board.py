"""What is going on, as data: fed with messages while a trial or a bisection runs, drawn by the live view.

A message is a JSON object with ``kind``: ``begin`` (pid, what), ``step`` (text), ``event`` (t, rank, stage, text,
values …), ``signals`` (t, gpu_used_gb …), ``search`` (changes, candidates, confidence, launches, expected), ``end``;
with ``at``, epoch seconds, and ``lane``, which keeps launches apart that go on side by side. It is the same in the
process that runs the trial and in one that watches from another shell.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from patchbisect.durations import duration
from patchbisect.report.tables import printable
from patchbisect.report.text import shortened
from patchbisect.startup import Event
from patchbisect.wire import Json

_BAR_WIDTH = 24
_LAST_LINE_WIDTH = 160
_STEPS_SHOWN = 4
_LONG_SILENCE_S = 10.0


def event_message(event: Event, elapsed_s: float) -> Json:
    """What a log line said, as a message."""
    return {"kind": "event", "t": round(elapsed_s, 3), **event.document()}


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU, or the fullest one where a sample does not tell them apart: memory in use, GiB, and utilisation, %."""

    name: str
    used_gb: float
    util: float | None = None


def gpus_of(sample: Json) -> Iterator[Gpu]:
    """The GPUs of one of the box's samples."""
    for index, used_gb, *util in sample.get("gpus") or ():
        yield Gpu(f"GPU {index}", used_gb, *util)
    if sample.get("gpu_used_gb") is not None and not sample.get("gpus"):
        yield Gpu("fullest GPU", sample["gpu_used_gb"], sample.get("gpu_util"))


@dataclass(slots=True)
class RankBoard:
    """Where one rank is; times are seconds after the launch."""

    stage: str = "import"
    since: float = 0.0
    free_gb: float | None = None
    passed: list[tuple[str, float]] = field(default_factory=list)
    """(stage, seconds that it took), in order."""


@dataclass(slots=True)
class Lane:
    """One launch after the other on one box; several boxes have a lane each."""

    steps: list[str] = field(default_factory=list)
    ranks: dict[str, RankBoard] = field(default_factory=dict)
    elapsed: float = 0.0
    """Seconds after the launch, when it was last heard of at ``heard`` (epoch seconds; 0: not known)."""
    heard: float = 0.0
    last_line: str = ""
    gpus: list[Gpu] = field(default_factory=list)
    silent_for_s: float = 0.0
    launched: list[float] = field(default_factory=list)
    """Seconds that the launches before this one took."""
    over: bool = False
    """The server is being stopped: its clock stands still."""

    def step(self, text: str) -> None:
        self.steps.append(text)
        self.over = text == "stopping"
        if text.startswith("launching"):
            if self.elapsed:
                self.launched.append(self.elapsed)
            self.ranks, self.elapsed, self.last_line, self.gpus = {"": RankBoard()}, 0.0, "", []

    def event(self, message: Json) -> None:
        self.last_line = str(message.get("text") or self.last_line)
        stage = message.get("stage")
        if not stage:
            return
        # HTTP and ready lines have no rank: they are said for all.
        told = list(self.ranks) if message["what"] in ("http", "ready") and self.ranks else [message.get("rank", "")]
        if told != [""]:
            # The one that stood for all while nobody had a name.
            self.ranks.pop("", None)
        name = stage if message.get("role") != "draft" else f"draft:{stage}"
        for label in told:
            rank = self.ranks.setdefault(label, RankBoard())
            if rank.stage != name:
                rank.passed.append((rank.stage, self.elapsed - rank.since))
                rank.stage, rank.since = name, self.elapsed
            if avail := message.get("values", {}).get("avail"):
                rank.free_gb = float(avail)

    def now(self, clock: float) -> float:
        """Seconds after the launch at ``clock`` (epoch seconds)."""
        return self.elapsed + (max(clock - self.heard, 0.0) if self.heard and not self.over else 0.0)


@dataclass(slots=True)
class Board:
    """The state that the screen shows."""

    what: str = ""
    lanes: dict[str, Lane] = field(default_factory=dict)
    search: Json = field(default_factory=dict)
    highest_gb: float = 0.0
    ended: bool = False

    def apply(self, message: Json) -> None:
        """Take one message. An unknown kind is ignored, so that an older watcher can follow a newer run."""
        kind = message.get("kind")
        if kind == "begin":
            self.what = str(message.get("what", ""))
        elif kind == "search":
            self.search = {name: message[name] for name in SEARCH_WORDS}
        elif kind == "end":
            self.ended = True
        elif kind in ("step", "event", "signals"):
            self._in_lane(self.lanes.setdefault(str(message.get("lane", "")), Lane()), message)

    def _in_lane(self, lane: Lane, message: Json) -> None:
        lane.heard = float(message.get("at", lane.heard))
        lane.elapsed = max(lane.elapsed, float(message.get("t", 0.0)))
        if message["kind"] == "step":
            lane.step(str(message["text"]))
        elif message["kind"] == "event":
            lane.event(message)
        else:
            lane.silent_for_s = float(message.get("silent_for_s") or 0.0)
            lane.gpus = list(gpus_of(message))
            self.highest_gb = max([self.highest_gb, *(gpu.used_gb for gpu in lane.gpus)])

    @property
    def seconds_to_go(self) -> float | None:
        """What the expected launches that are left will take; None where nothing was launched to judge by."""
        took = [seconds for lane in self.lanes.values() for seconds in lane.launched]
        left = float(self.search.get("expected", 0)) - int(self.search.get("launches", 0))
        if not took or left <= 0:
            return None
        return left * sum(took) / len(took) / max(len(self.lanes), 1)


SEARCH_WORDS = ("changes", "candidates", "confidence", "launches", "expected")


def drawn(board: Board, *, clock: float = 0.0) -> RenderableType:
    """The board as one screen at ``clock`` (epoch seconds)."""
    parts: list[RenderableType] = [Text(printable(board.what), style="bold")]
    if board.search:
        parts.append(Text(_search_line(board)))
    for number, lane in enumerate(board.lanes.values(), start=1):
        if len(board.lanes) > 1:
            parts += [Text(), Text(f"box {number}", style="bold")]
        parts += _lane(lane, clock=clock, highest_gb=board.highest_gb)
    return Group(*parts)


def _lane(lane: Lane, *, clock: float, highest_gb: float) -> Iterator[RenderableType]:
    for step in lane.steps[-_STEPS_SHOWN:]:
        yield Text(f"  {printable(step)}", style="dim")
    if lane.ranks:
        yield Text()
        yield _ranks(lane, now=lane.now(clock))
    if lane.gpus:
        yield Text()
        yield _gpus(lane, highest_gb=highest_gb)
    if lane.last_line:
        silent = f"  (silent for {lane.silent_for_s:.0f} s)" if lane.silent_for_s >= _LONG_SILENCE_S else ""
        last = printable(shortened(lane.last_line, _LAST_LINE_WIDTH)) + silent
        yield Text()
        yield Text(last, style="dim", overflow="ellipsis", no_wrap=True)


def _search_line(board: Board) -> str:
    search = board.search
    words = [f"{search['candidates']} of {search['changes']} changes left to suspect"]
    # The search may also be sure that it is one of several.
    if search.get("confidence") is not None and search["candidates"] == 1:
        # The proof may still refute it: more than one change may be guilty.
        words.append(f"{search['confidence']:.0%} sure before its proof")
    done, expected = search["launches"], math.ceil(search["expected"])
    words.append(f"launch {done + 1} of about {expected}" if expected > done else f"{done} launches")
    if (left := board.seconds_to_go) is not None:
        words.append(f"about {duration(left)} to go")
    return ", ".join(words)


def _ranks(lane: Lane, *, now: float) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("rank")
    table.add_column("stage")
    table.add_column("s", justify="right")
    table.add_column("free GiB", justify="right")
    table.add_column("before that")
    for label, rank in sorted(lane.ranks.items(), key=lambda item: (len(item[0]), item[0])):
        table.add_row(
            Text(label or "-"),
            Text(rank.stage, style="cyan"),
            f"{max(now - rank.since, 0.0):.1f}",
            "" if rank.free_gb is None else f"{rank.free_gb:.2f}",
            Text(", ".join(f"{stage} {seconds:.1f}" for stage, seconds in rank.passed), style="dim"),
        )
    return table


def _gpus(lane: Lane, *, highest_gb: float) -> Table:
    table = Table.grid(padding=(0, 1))
    for gpu in lane.gpus:
        filled = round(_BAR_WIDTH * gpu.used_gb / highest_gb) if highest_gb else 0
        bar = Text("█" * filled, style="blue") + Text("·" * (_BAR_WIDTH - filled), style="dim")
        util = f"{gpu.util:.0f}%" if gpu.util is not None else ""
        table.add_row(Text(gpu.name), bar, Text(f"{gpu.used_gb:.1f} GiB"), Text(util))
    return table


def plain(message: Json) -> str:
    """One line for one message, whole: a pipe keeps what it is given. Empty where it is not worth one."""
    kind = message.get("kind")
    lane = f"{message['lane']}: " if message.get("lane") else ""
    if kind == "begin":
        return printable(str(message.get("what", "")))
    if kind == "step":
        return f"  {lane}{printable(message['text'])}"
    if kind == "search":
        return "  " + _search_line(Board(search=message))
    if kind != "event":
        return ""
    rank = f" {message['rank']}" if message.get("rank") else ""
    stage = message.get("stage") or message["what"]
    text = message["text"].removesuffix(": Traceback (most recent call last):")
    return f"  {lane}{message['t']:6.1f} s  {stage:13}{rank} {printable(text)}".rstrip()
