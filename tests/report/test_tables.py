"""Ids and verdicts are whole at every width; what gives way says so."""

import io
import re
from typing import Any

import pytest
from rich.console import Console, RenderableType

from patchbisect.report import text
from tests.report import builder

RUN = "20261129-200000-hngx"
LONGEST = {"outcome": "hang", "cause": "allreduce-fusion-rendezvous", "stage": "kernel-warmup"}


def shown(what: RenderableType, width: int) -> str:
    out = io.StringIO()
    Console(file=out, width=width, soft_wrap=True).print(what)
    return out.getvalue()


def row(**more: Any) -> dict[str, Any]:
    return {
        "id": RUN, "point": "upstream:v0.5.10rc2+2+3@kimi-baseline", "profile": "kimi-baseline", "box": "rig-8x6000",
        "outcome": "crash", "cause": "unbound-name", "kv_tokens": 4096, "seconds": 612.5, "bytes": 12_345,
        "tags": ["baseline"], "commit": "c" * 40, **more,
    }  # fmt: skip


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_a_list_fits_and_cuts_neither_id_nor_verdict(width: int) -> None:
    lines = shown(text.runs_table([row(), row(outcome="ready", cause=None, tags=[])]), width).splitlines()
    assert max(map(len, lines)) <= width
    assert any(RUN in line and "crash/unbound-name" in line and "upstream:v0" in line for line in lines)


def test_what_gives_way_is_said() -> None:
    page = shown(text.runs_table([row()]), 80)
    assert "no room for: kB, box, tokens, profile, s\n" in page
    assert "cccccccc" in page
    assert "no room" not in shown(text.runs_table([row()]), 200)


def test_a_column_that_says_nothing_takes_no_room() -> None:
    table = shown(text.runs_table([row(tags=[], kv_tokens=None)]), 200)
    assert "named" not in table
    assert "tokens" not in table


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_longest_verdict_is_folded_not_cut(width: int) -> None:
    table = shown(text.runs_table([row(outcome="hang", cause=LONGEST["cause"])]), width)
    assert "hang/allreduce-fusion-rendezvous" in re.sub(r"\n +", "", table)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_every_launch_is_told_whole(width: int) -> None:
    trial = {
        "purpose": "search", "position": 5, "point": "clean + 5 of 8 (0005-log-available-memory)", "run": RUN,
        "observation": "bad", "verdict": LONGEST, "seconds": 612.5, "reused": True, "warm": True,
    }  # fmt: skip
    table = shown(text.trials_table([trial]), width)
    assert max(map(len, table.splitlines())) <= width
    joined = " ".join(table.split())
    for part in ("BAD", RUN, "hang", "(allreduce-fusion-rendezvous)", "kernel-warmup", "612.5", "known before", "warm"):
        assert part in joined


def test_the_number_that_was_asked_about_stands_beside_the_outcome() -> None:
    ready = {"outcome": "ready", "facts": {"kv_tokens": 2048, "avail_gb": 3.5}}
    trial = {"purpose": "spread", "point": "HEAD", "run": RUN, "observation": "bad", "verdict": ready}
    assert "ready, kv_tokens 2048" in shown(text.trials_table([trial], bad_when="kv_tokens < 3000"), 120)
    assert "kv_tokens" not in shown(text.trials_table([trial]), 120)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_every_claim_of_a_proof_has_its_run_whole(store: Any, width: int) -> None:
    finding = builder.bisection(store)
    finding["reproduce"] = {}
    page = shown(text.finding_page(finding), width)
    assert max(map(len, page.splitlines())) <= width
    for step in finding["proof"].values():
        assert " ".join(f"{step['status']} {step['run'] or ''}".split()) in " ".join(page.split())
