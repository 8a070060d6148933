"""Patch all-reduce-probe, as far as no server of the embedded box reaches it: GPU clock, capture, off by default."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.patches.conftest import QUEUE, Body

pytestmark = pytest.mark.ci


@pytest.fixture(scope="module")
def on(body: Body) -> Any:
    return body("all_reduce_probe", QUEUE.patches, SGLANG_PROBE_ALL_REDUCE="1")


def test_off_means_the_very_same_method(body: Body) -> None:
    off = body("all_reduce_probe", QUEUE.patches, SGLANG_PROBE_ALL_REDUCE="0")
    assert off == {"enabled": False, "same": True, "wrapped": False}


def test_on_wraps_the_method_of_the_group(on: Any) -> None:
    assert on["enabled"] and on["wrapped"] and not on["same"]


def test_calls_that_block_are_timed_by_the_host(on: Any) -> None:
    [line] = on["host"]
    assert re.fullmatch(
        r"PROBE all_reduce pass=1 calls=5 bytes=640 time_ms=[\d.e-]+ clock=host graph=0 role=target", line
    )


def test_a_group_of_one_and_a_captured_graph_show_no_calls(on: Any) -> None:
    assert [line.split(" time_ms")[0] for line in on["alone"]] == ["PROBE all_reduce pass=2 calls=0 bytes=0"]
    [line] = on["captured"]
    assert " calls=0 " in line and " graph=1 " in line


def test_gpu_times_come_when_the_gpu_has_passed_and_are_never_waited_for(on: Any) -> None:
    assert on["device, not reached"] == []
    assert on["device, reached"] == [
        "PROBE all_reduce pass=4 calls=2 bytes=256 time_ms=5.0 clock=device graph=0 role=target",
        "PROBE all_reduce pass=5 calls=1 bytes=128 time_ms=2.5 clock=device graph=0 role=target",
    ]


def test_what_the_gpu_never_passes_is_dropped(on: Any) -> None:
    assert on["unfinished"] == 64
