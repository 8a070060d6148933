"""Watching: a screen where there is a terminal, plain lines elsewhere, and a file that another shell can follow."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

from rich.console import Console, RenderableType
from rich.live import Live

from patchbisect.model import Signals
from patchbisect.report.board import Board, drawn, event_message, plain
from patchbisect.startup import Event
from patchbisect.wire import Json

Sink = Callable[[Json], None]

_POLL_S = 0.2
_REDRAWS_PER_S = 4
_MOST_TOLD = 50_000
"""Messages for other shells; a flood of events beyond it is seen in the first shell only."""


class Watching:
    """Hears of trials (it is a :class:`patchbisect.trial.Watcher`) and of the search, and tells every sink."""

    def __init__(self, *sinks: Sink) -> None:
        self._sinks = sinks

    def step(self, text: str) -> None:
        self._tell({"kind": "step", "text": text})

    def event(self, event: Event, elapsed_s: float) -> None:
        self._tell(event_message(event, elapsed_s))

    def signals(self, signals: Signals, elapsed_s: float) -> None:
        measured = {name: getattr(signals, name) for name in ("gpu_used_gb", "gpu_util", "silent_for_s")}
        self._tell({"kind": "signals", "t": round(elapsed_s, 3), **measured})

    def search(
        self, *, changes: int, candidates: int, confidence: float | None, launches: int, expected: float
    ) -> None:
        """How far the search is: ``candidates`` of ``changes`` left, ``expected`` launches in all."""
        self._tell(
            {
                "kind": "search",
                "changes": changes,
                "candidates": candidates,
                "confidence": confidence,
                "launches": launches,
                "expected": expected,
            }
        )

    def _tell(self, message: Json) -> None:
        # Boxes that work side by side have a thread each.
        lane = "" if threading.current_thread() is threading.main_thread() else threading.current_thread().name
        message = {**message, "at": round(time.time(), 3), "lane": lane}
        for sink in self._sinks:
            sink(message)


@contextmanager
def watching(state: Path, *, what: str, plainly: bool = False) -> Iterator[Watching]:
    """Show on standard error what goes on inside, and let ``invoke watch`` follow it from another shell."""
    with ExitStack() as stack:
        show = stack.enter_context(shown(plainly=plainly))
        tell = stack.enter_context(_broadcast(state / "live"))
        for sink in (show, tell):
            sink({"kind": "begin", "what": what, "pid": os.getpid()})
        yield Watching(show, tell)


@contextmanager
def shown(*, plainly: bool = False, stream: IO[str] | None = None) -> Iterator[Sink]:
    """A sink that draws a screen where ``stream`` (standard error) is a terminal, and prints lines elsewhere."""
    stream = stream or sys.stderr
    console = Console(file=stream, highlight=False)
    if plainly or not console.is_terminal or console.is_dumb_terminal:

        def line(message: Json) -> None:
            if text := plain(message):
                stream.write(text + "\n")
                stream.flush()

        yield line
        return
    screen = _Screen()
    with Live(console=console, refresh_per_second=_REDRAWS_PER_S, get_renderable=screen.drawn):
        yield screen.hear


class _Screen:
    """The board behind a lock: Rich redraws from a thread of its own."""

    def __init__(self) -> None:
        self._board = Board()
        self._lock = threading.Lock()

    def hear(self, message: Json) -> None:
        with self._lock:
            self._board.apply(message)

    def drawn(self) -> RenderableType:
        with self._lock:
            return drawn(self._board, clock=time.time())


@contextmanager
def _broadcast(directory: Path) -> Iterator[Sink]:
    """A sink that appends to this process's file. Watching must never hinder a trial: a full disk is ignored."""
    directory.mkdir(parents=True, exist_ok=True)
    for path in directory.glob("*.jsonl"):
        if not _alive(path):
            path.unlink(missing_ok=True)
    path = directory / f"{os.getpid()}.jsonl"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)

    told = 0

    def tell(message: Json) -> None:
        nonlocal told
        told += 1
        if told > _MOST_TOLD and message["kind"] == "event":
            return
        # Unbuffered: what could not be written now must not come back as an error at the end.
        with suppress(OSError):
            os.write(descriptor, json.dumps(message).encode() + b"\n")

    try:
        yield tell
    finally:
        tell({"kind": "end"})
        os.close(descriptor)
        # Whoever follows has it open and reads the end; whoever comes now finds nothing running.
        path.unlink(missing_ok=True)


def running(state: Path) -> list[Path]:
    """The files of what runs now, the one that began last at the end."""
    live = [path for path in (state / "live").glob("*.jsonl") if _alive(path)]
    return sorted(live, key=lambda path: path.stat().st_mtime)


def _alive(path: Path) -> bool:
    try:
        os.kill(int(path.stem), 0)
    except (ValueError, ProcessLookupError):
        return False
    except PermissionError:
        return True
    return True


def board_of(path: Path) -> Board:
    """The screen of a running process, as it is now."""
    board = Board()
    for message in followed(path, once=True):
        board.apply(message)
    return board


def now(path: Path) -> Json:
    """Where a running process is: what it does, its last step, each rank's stage, what the search has left."""
    board = board_of(path)
    return {
        "pid": int(path.stem),
        "what": board.what,
        "search": board.search or None,
        "launches": [
            {
                "step": lane.steps[-1] if lane.steps else None,
                "elapsed_s": round(lane.now(time.time()), 3),
                "ranks": {label: rank.stage for label, rank in lane.ranks.items()},
            }
            for lane in board.lanes.values()
        ],
    }


def followed(
    path: Path, *, once: bool = False, pause: Callable[[], None] = lambda: time.sleep(_POLL_S)
) -> Iterator[Json]:
    """Every message of a running process, from its beginning until its end, or its death; ``once``: until now."""
    rest = ""
    with path.open(encoding="utf-8") as file:
        while True:
            alive = _alive(path)
            chunk = file.read()
            *lines, rest = (rest + chunk).split("\n")
            for line in lines:
                message = json.loads(line)
                yield message
                if message["kind"] == "end":
                    return
            if not chunk:
                if once or not alive:
                    return
                pause()
