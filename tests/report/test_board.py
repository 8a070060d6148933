import io
from collections.abc import Iterator
from typing import Any

import pytest
from rich.console import Console

from patchbisect.report.board import Board, drawn, event_message, plain
from patchbisect.startup import Classifier
from tests.report.builder import case


def messages(name: str) -> Iterator[dict[str, Any]]:
    """A log as a trial would tell it, a tenth of a second a line."""
    yield {"kind": "begin", "what": "trial of HEAD", "pid": 1}
    yield {"kind": "step", "text": "launching on port 31000"}
    classifier = Classifier()
    for number, line in enumerate(case(name).splitlines(keepends=True)):
        for event in classifier.feed(line):
            yield event_message(event, number / 10)


def shown(board: Board, *, clock: float = 0.0) -> str:
    out = io.StringIO()
    Console(file=out, width=140).print(drawn(board, clock=clock))
    return out.getvalue()


def test_every_rank_has_its_stage_its_times_and_its_free_memory() -> None:
    board = Board()
    for message in messages("logs/r01_swa_two_pools"):
        board.apply(message)
    ranks = board.lanes[""].ranks
    assert set(ranks) == {"TP0", "TP1", "TP2", "TP3"}
    assert {rank.stage for rank in ranks.values()} == {"serving"}
    assert ranks["TP2"].free_gb == 44.5
    stages = [stage for stage, _ in ranks["TP0"].passed]
    assert stages == ["import", "dist-init", "weight-load", "kv-alloc", "graph-capture", "warmup"]
    page = shown(board)
    assert "trial of HEAD" in page
    assert "44.50" in page
    assert "The server is fired up" in page


def test_time_goes_on_between_two_messages() -> None:
    board = Board()
    board.apply(
        {"kind": "event", "at": 100.0, "t": 5.0, "what": "stage", "stage": "weight-load", "rank": "TP0", "text": "x"}
    )
    assert "12.0" in shown(board, clock=112.0)
    board.apply({"kind": "step", "at": 112.0, "text": "stopping"})
    assert " 0.0 " in shown(board, clock=999.0)


def test_boxes_side_by_side_have_a_lane_each() -> None:
    board = Board()
    for lane, stage in (("trial_0", "weight-load"), ("trial_1", "kv-alloc")):
        board.apply({"kind": "step", "lane": lane, "text": "launching on port 1"})
        board.apply({"kind": "event", "lane": lane, "t": 1, "what": "stage", "stage": stage, "rank": "", "text": stage})
    page = shown(board)
    assert plain({"kind": "step", "lane": "trial_1", "text": "stopping"}) == "  trial_1: stopping"
    assert page.index("box 1") < page.index("weight-load") < page.index("box 2") < page.index("kv-alloc")


def test_a_new_launch_begins_anew_and_its_time_tells_how_long_is_left() -> None:
    board = Board()
    board.apply({"kind": "step", "text": "launching on port 1"})
    board.apply({"kind": "event", "t": 100.0, "what": "stage", "stage": "import", "rank": "", "text": "x"})
    board.apply({"kind": "step", "text": "launching on port 1"})
    ranks = board.lanes[""].ranks
    assert [(label, rank.stage, rank.passed) for label, rank in ranks.items()] == [("", "import", [])]
    search = {"changes": 64, "candidates": 16, "confidence": 0.8, "launches": 4, "expected": 9.2}
    board.apply({"kind": "search", **search})
    assert board.seconds_to_go == pytest.approx(520.0)
    assert "16 of 64 changes left to suspect, launch 5 of about 10, about 9 min to go" in shown(board)


def test_what_the_search_is_sure_of_is_not_proven_yet() -> None:
    search = {"changes": 3, "candidates": 1, "confidence": 1.0, "launches": 4, "expected": 4.0}
    line = plain({"kind": "search", **search})
    assert line == "  1 of 3 changes left to suspect, 100% sure before its proof, 4 launches"


def test_gpus_are_bars_of_the_most_seen() -> None:
    board = Board()
    board.apply({"kind": "signals", "t": 1.0, "gpus": [[0, 40.0, 90], [1, 80.0, 5]], "silent_for_s": 31.0})
    board.apply({"kind": "event", "t": 1.0, "what": "stage", "stage": "import", "rank": "", "text": "last words"})
    page = shown(board)
    rows = [line for line in page.splitlines() if line.startswith("GPU")]
    assert [row.count("█") for row in rows] == [12, 24]
    assert "last words  (silent for 31 s)" in page


def test_lines_tell_the_same_without_a_screen() -> None:
    lines = [line for message in messages("cpu/02-mem-too-low") if (line := plain(message))]
    assert lines[:2] == ["trial of HEAD", "  launching on port 31000"]
    assert any("weight-load" in line and "Load weight begin" in line for line in lines)
    assert any("Load weight end." in line and line.endswith("mem usage=0.53 GB.") for line in lines)


def test_an_older_watcher_survives_a_newer_message() -> None:
    board = Board()
    board.apply({"kind": "hologram", "depth": 3})
    assert plain({"kind": "hologram"}) == ""
