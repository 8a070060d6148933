# ruff: noqa: E501  (messages stand whole)
"""Silence: budgets per stage, proof of work, and who is missing."""

from __future__ import annotations

from typing import Any

import pytest

from patchbisect.model import Outcome, Signals, Stage
from patchbisect.startup import Budgets, classify
from patchbisect.startup.hang import SILENCE
from tests.startup.formats import Server

EIGHT = Server((0, 5, 9), tp=8)
PLACES = {
    Stage.IMPORT: EIGHT.args(),
    Stage.DIST_INIT: EIGHT.args() + EIGHT.dist(done=False),
    Stage.WEIGHT_LOAD: EIGHT.until(Stage.DIST_INIT) + EIGHT.load(done=False),
    Stage.KV_PROFILE: EIGHT.until(Stage.WEIGHT_LOAD),
    Stage.KV_ALLOC: EIGHT.until(Stage.WEIGHT_LOAD) + EIGHT.pool(done=False),
    Stage.KERNEL_WARMUP: EIGHT.until(Stage.KV_ALLOC),
    Stage.GRAPH_CAPTURE: EIGHT.until(Stage.KV_ALLOC) + EIGHT.graphs(done=False),
    Stage.WARMUP: EIGHT.all().removesuffix(EIGHT.fired_up()),
}


@pytest.mark.parametrize("stage", PLACES)
def test_a_stage_has_its_own_budget(stage: Stage) -> None:
    limit = SILENCE[stage]
    before = classify(PLACES[stage], Signals(alive=True, silent_for_s=limit - 1))
    after = classify(PLACES[stage], Signals(alive=True, silent_for_s=limit + 1))
    assert before.outcome is not Outcome.HANG
    assert (after.outcome, after.stage, after.final) == (Outcome.HANG, stage, True)


def test_other_budgets_can_be_told() -> None:
    text, signals = PLACES[Stage.DIST_INIT], Signals(alive=True, silent_for_s=400)
    assert classify(text, signals).outcome is Outcome.HANG
    patient = Budgets(silence={**SILENCE, Stage.DIST_INIT: 1000.0})
    assert classify(text, signals, budgets=patient).outcome is Outcome.VOID


@pytest.mark.parametrize(
    ("known", "hangs"),
    [
        ({"cpu_busy": False}, True),
        ({"cpu_busy": True, "gpu_util": 100.0}, True),
        ({"cpu_busy": True, "gpu_util": 0.0}, False),
        ({}, False),
    ],
    ids=["idle", "spinning", "at work, perhaps a compiler", "nothing known"],
)
def test_what_is_usual_holds_for_who_does_nothing(known: dict[str, Any], hangs: bool) -> None:
    usual = Budgets(idle={Stage.KERNEL_WARMUP: 20.0})
    signals = Signals(alive=True, silent_for_s=100, **known)
    verdict = classify(PLACES[Stage.KERNEL_WARMUP], signals, budgets=usual)
    assert (verdict.outcome is Outcome.HANG) is hangs


@pytest.mark.parametrize(
    ("stage", "times"), [(Stage.WEIGHT_LOAD, 1.0), (Stage.KERNEL_WARMUP, 2.0), (Stage.GRAPH_CAPTURE, 2.0)]
)
def test_where_nothing_is_known_of_the_cpu_a_compiler_has_more_time_in_stages_that_compile(
    stage: Stage, times: float
) -> None:
    text = PLACES[stage] + EIGHT.said("Compiling kernels", 40)
    limit = SILENCE[stage] * times
    assert classify(text, Signals(alive=True, silent_for_s=limit - 1)).outcome is not Outcome.HANG
    assert classify(text, Signals(alive=True, silent_for_s=limit + 1)).outcome is Outcome.HANG


def test_what_is_usual_is_never_longer_than_what_always_holds() -> None:
    signals = Signals(alive=True, silent_for_s=SILENCE[Stage.WARMUP] + 1, cpu_busy=False)
    verdict = classify(PLACES[Stage.WARMUP], signals, budgets=Budgets(idle={Stage.WARMUP: 9000.0}))
    assert verdict.outcome is Outcome.HANG


def test_a_busy_cpu_proves_nothing_while_ranks_meet() -> None:
    spinning = Signals(alive=True, silent_for_s=400, cpu_busy=True)
    assert classify(PLACES[Stage.DIST_INIT], spinning).outcome is Outcome.HANG
    assert (
        classify(PLACES[Stage.WEIGHT_LOAD], Signals(alive=True, silent_for_s=1000, cpu_busy=True)).outcome
        is Outcome.VOID
    )


def test_the_missing_ranks_are_told() -> None:
    text = "".join(
        line for line in EIGHT.until(Stage.WEIGHT_LOAD).splitlines(True) if "TP3] Load weight end" not in line
    )
    verdict = classify(text, Signals(alive=True, silent_for_s=1000))
    assert (verdict.outcome, verdict.stage, verdict.cause) == (Outcome.HANG, Stage.WEIGHT_LOAD, "stuck-after-load")
    assert verdict.facts["missing_ranks"] == [3] and "TP3" in verdict.why


def test_one_rank_that_is_done_does_not_move_the_others_on() -> None:
    text = PLACES[Stage.WEIGHT_LOAD] + EIGHT.load().splitlines(True)[8]
    verdict = classify(text, Signals(alive=True, silent_for_s=1000))
    assert (verdict.outcome, verdict.stage) == (Outcome.HANG, Stage.WEIGHT_LOAD)
    assert verdict.facts["missing_ranks"] == [1, 2, 3, 4, 5, 6, 7]


def test_ranks_that_a_short_log_never_shows_are_not_missing() -> None:
    text = "".join(line for line in EIGHT.until(Stage.KV_ALLOC).splitlines(True) if "TP" not in line or "TP0]" in line)
    verdict = classify(text, Signals(alive=True, silent_for_s=1000))
    assert (verdict.stage, verdict.facts.get("missing_ranks")) == (Stage.KERNEL_WARMUP, None)


@pytest.mark.parametrize(
    "signals",
    [Signals(), Signals(alive=True), Signals(silent_for_s=1.0), Signals(alive=False, silent_for_s=9000.0, exit_code=0)],
)
def test_without_a_living_silent_server_there_is_no_hang(signals: Signals) -> None:
    assert classify(PLACES[Stage.GRAPH_CAPTURE], signals).outcome is not Outcome.HANG


def test_a_rank_that_gave_a_buffer_up_is_why_the_others_wait() -> None:
    words = "Failed to initialize FlashInfer workspace (backend=auto): CUDA driver error: out of memory. Disabling flashinfer allreduce fusion permanently."
    one = PLACES[Stage.KERNEL_WARMUP] + EIGHT.said(words, 7, label=" TP3")
    waiting = Signals(alive=True, silent_for_s=1000)
    verdict = classify(one, waiting)
    assert (verdict.outcome, verdict.cause, verdict.facts["failed_rank"]) == (Outcome.HANG, "comm-buffer", 3)
    everybody = PLACES[Stage.KERNEL_WARMUP] + EIGHT.by_all(words, 7)
    assert classify(everybody, waiting).cause == "stuck-kernel-warmup"
