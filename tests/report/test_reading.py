from itertools import pairwise
from pathlib import Path

import pytest

from patchbisect.report.reading import Part, lines_between, read
from tests.report.builder import CASES, case


def test_time_goes_to_the_stage_that_it_was_spent_in() -> None:
    reading = read(case("cpu/02-mem-too-low"))
    (rank,) = reading.ranks
    assert [(span.name, span.begin, span.end) for span in rank.spans] == [
        ("import", 0.0, 9.0),
        ("dist-init", 9.0, 9.0),
        ("weight-load", 9.0, 11.0),
        ("kv-profile", 11.0, 11.0),
    ]
    assert reading.seconds == 11.0
    assert reading.arguments["mem_fraction_static"] == "0.02"


def test_memory_is_what_each_step_took_and_what_was_left() -> None:
    (rank,) = read(case("cpu/02-mem-too-low")).ranks
    assert rank.memory == (Part("weights", 0.53), Part("free", 21.53))
    assert rank.total_gb == 22.06


def test_ranks_are_in_the_order_of_their_numbers_and_the_draft_is_kept_apart() -> None:
    reading = read(case("logs/o06_draft_pool_oom_after_7_kv_lines"))
    first = reading.ranks[0]
    assert [rank.label for rank in reading.ranks] == ["TP0", "TP1"]
    assert {part.name for part in first.memory} == {"weights", "KV pools", "draft KV pools", "free"}
    assert first.total_gb == pytest.approx(273.0, abs=0.01)
    assert first.spans[-1].name == "draft:kv-alloc"


def test_times_noted_while_it_ran_are_finer_than_the_log() -> None:
    log = case("cpu/02-mem-too-low")
    line = log.decode().split("\n").index(next(t for t in log.decode().split("\n") if "Load weight begin" in t)) + 1
    events = [{"line": line, "t": 9.25}, {"line": line + 1, "t": 10.75}]
    (rank,) = read(log, events=events).ranks
    assert [(span.name, span.begin, span.end) for span in rank.spans] == [("weight-load", 0.0, 10.75)]


def test_a_log_that_tells_nothing_reads_as_nothing() -> None:
    reading = read(b"no such file\n")
    assert (reading.ranks, reading.seconds, dict(reading.arguments)) == ((), None, {})


@pytest.mark.parametrize("path", sorted(CASES.rglob("*.log")), ids=lambda path: path.stem)
def test_every_handed_log_adds_up(path: Path) -> None:
    for rank in read(path.read_bytes()).ranks:
        spans = rank.spans
        assert all(span.begin <= span.end for span in spans)
        assert all(a.end == b.begin for a, b in pairwise(spans))
        told = [gb for _, gb, _ in rank.free_gb]
        assert not told or rank.memory[-1] == Part("free", told[-1])


@pytest.mark.parametrize(
    ("first", "last", "lines"),
    [
        (1, 2, ["a", "b"]),
        (2, 9, ["b", "", "d", ""]),
        (5, 5, [""]),
        (6, 7, []),
    ],
)
def test_lines_are_taken_out_of_a_log_by_their_numbers(first: int, last: int, lines: list[str]) -> None:
    assert lines_between(b"a\nb\n\nd\n", first, last) == lines
    assert lines_between(b"a\nb", 2, 3) == ["b"]


def test_a_log_is_read_in_slices_as_it_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    log = case("cpu/11-tp2")
    whole = read(log)
    monkeypatch.setattr("patchbisect.report.reading._SLICE_BYTES", 97)
    sliced = read(log)
    assert (sliced.verdict, sliced.ranks, sliced.seconds) == (whole.verdict, whole.ranks, whole.seconds)
