"""Formats of somebody's own: what is learned from one prefix holds for the others, and prose teaches nothing."""

from __future__ import annotations

import pytest

from patchbisect.startup.shapes import Prefix, shape_of


@pytest.mark.parametrize(
    ("learned", "other"),
    [
        (
            "2025-08-28 20:50:31 INFO 125765 [ DP10 TP10 model_runner.py:742] ",
            "2026-01-01 00:00:00 ERROR 7 [ DP1 TP1 a.py:1] ",
        ),
        ("2025-08-28 20:50:31 INFO 125765 [ model_runner.py:742] ", "2025-08-28 20:50:32 INFO 125765 [ TP3 a.py:1] "),
        ("2025-08-28 20:50:31,123 INFO sglang TP0: ", "2025-08-28 20:50:31,999 WARNING sglang: "),
        ("<6>2025-08-28T20:50:31.1Z [sglang] TP0 - ", "<3>2025-08-28T20:50:31.2Z [sglang] TP12 - "),
    ],
)
def test_a_shape_fits_other_lines(learned: str, other: str) -> None:
    shape = shape_of(learned)
    assert shape is not None
    found = shape.match(other + "Message: 2 words")
    assert found is not None and found[0] == other


def test_a_line_of_a_traceback_keeps_its_indent() -> None:
    shape = shape_of("2025-08-28 20:50:31 INFO 7 [ TP0 a.py:1] ")
    assert shape is not None
    line = "2025-08-28 20:50:31 INFO 7 [ TP0 a.py:1]   File"
    found = shape.match(line)
    assert found is not None and line[found.end() :] == "  File"


@pytest.mark.parametrize(
    "prefix",
    [
        "INFO:sglang:",
        "",
        "no time here: ",
        "a log of 2025-08-28 20:50:31 and of 2025-08-28 20:50:32: ",
        "2025-08-28 20:50:31 " + "word " * 40,
    ],
)
def test_what_teaches_nothing(prefix: str) -> None:
    assert shape_of(prefix) is None


def test_what_a_prefix_tells() -> None:
    assert Prefix.read("2025-08-28T20:50:31,5 [ DP1 TP0 x.py:3] ") == Prefix("2025-08-28 20:50:31.5", "DP1 TP0")
    assert Prefix.read("nothing TP0.py") == Prefix("", "")
