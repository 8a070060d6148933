"""Lines, prefixes, records and times."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchbisect.startup.text import SEGMENT_LIMIT, Splitter, peel, seconds, strip_colours, unwrap_json


def split(*chunks: str | bytes) -> list[tuple[int, str]]:
    splitter = Splitter()
    out = [segment for chunk in chunks for segment in splitter.feed(chunk)]
    return out + list(splitter.close())


def test_lines_are_numbered_as_an_editor_does() -> None:
    assert split("a\nb\n\nc") == [(1, "a"), (2, "b"), (3, ""), (4, "c")]


def test_a_carriage_return_begins_a_segment_of_the_same_line() -> None:
    assert split("0%\r50%\r100%\nx\n") == [(1, "0%"), (1, "50%"), (1, "100%"), (2, "x")]


def test_windows_line_ends_are_line_ends() -> None:
    assert split("a\r\n\r\nb\r\n") == [(1, "a"), (2, ""), (3, "b")]


def test_a_running_bar_is_handed_out_before_its_line_ends() -> None:
    splitter = Splitter()
    assert list(splitter.feed("0%\r50%\r7")) == [(1, "0%"), (1, "50%")]


def test_a_character_may_be_cut() -> None:
    raw = "größe\n".encode()
    assert split(raw[:3], raw[3:]) == [(1, "größe")]
    assert split(b"\xff\xfe a\n") == [(1, "\ufffd\ufffd a")]


@given(text=st.text(alphabet="ab\r\n", max_size=60), data=st.data())
def test_any_chunking_gives_the_same_segments(text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    chunks = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert split(*chunks) == split(text)


def test_a_line_is_cut_at_the_limit() -> None:
    ((_, whole),) = split("x" * (3 * SEGMENT_LIMIT))
    assert len(whole) == SEGMENT_LIMIT
    assert [(n, len(t)) for n, t in split("y" * SEGMENT_LIMIT, "y" * 9, "\nz\n")] == [(1, SEGMENT_LIMIT), (2, 1)]


@pytest.mark.parametrize(
    ("line", "rest"),
    [
        ("sglang-1  | text", "text"),
        ("[sglang]     | text", "text"),
        ("2026-01-20T02:40:28.007919077Z text", "text"),
        ("2026-01-20T02:40:28.007919077Z stderr F   File", "  File"),
        ("Sep 04 12:12:40 rig dockerd[2210]: text", "text"),
        ("Sep  4 12:12:40 text", "text"),
        ("(Actor pid=12, ip=10.0.0.1) text", "text"),
        ("2025-03-07 23:50:20,740 - __main__ - INFO - text", "text"),
        ("[1,0]<stderr>:text", "text"),
        ("[pod/a/b] text", "text"),
        ("12: text", "text"),
        ("Sep 04 12:12:40 rig dockerd[2210]: node | text", "text"),
        # no prefixes
        ("2025-08-28 20:50:31 INFO 125765 [ DP10 x.py:7] text", "2025-08-28 20:50:31 INFO 125765 [ DP10 x.py:7] text"),
        (
            "2026-05-09 02:11:31,977 - WARNING - a.py:4 - x: text",
            "2026-05-09 02:11:31,977 - WARNING - a.py:4 - x: text",
        ),
        ("RuntimeError: text", "RuntimeError: text"),
        ("ValueError: float | half", "ValueError: float | half"),
        ("Capturing batches:   0%|          | 0/4", "Capturing batches:   0%|          | 0/4"),
    ],
)
def test_prefixes(line: str, rest: str) -> None:
    assert peel(line) == rest


def test_colours() -> None:
    assert strip_colours("\x1b[36mname | \x1b[0m\x1b]0;title\x07text\x1b[K") == "name | text"


def test_records() -> None:
    assert unwrap_json('{"log":"text\\n","stream":"stderr"}') == ("text\n", "stderr")
    assert unwrap_json('{"level":"info","msg":"text"}') == ("text", "info")
    assert unwrap_json('{"a": 1}') is None
    assert unwrap_json('{"log": broken}') is None
    assert unwrap_json('{"log":' + "[" * 50_000 + "}") is None


def test_times() -> None:
    first, second = seconds("2026-02-28 23:59:59"), seconds("2026-03-01T00:00:01.5")
    assert first is not None and second is not None and second - first == 2.5
    assert seconds("noon") is None and seconds("2026-02-31 00:00:00") is None
