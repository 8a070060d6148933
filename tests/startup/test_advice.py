"""Advice: whatever failed, there is something to try."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from patchbisect.model import Outcome, Role, Signals, Stage, Verdict
from patchbisect.startup import classify
from patchbisect.startup.advice import advise
from tests.startup.handed import ALL, OWN, Case

GOOD = (Outcome.READY, Outcome.KV_ALLOCATED)
_ROW = re.compile(r"^\| `([\w-]+)` \| ([\w, -]+) \|", re.MULTILINE)
_TABLE = (Path(__file__).parents[2] / "docs" / "verdicts.md").read_text()
CAUSES = [
    (cause, Outcome(outcome))
    for cause, outcomes in _ROW.findall(_TABLE)
    for outcome in outcomes.split(", ")
    if outcome in set(Outcome)
]


@pytest.mark.parametrize("case", [*ALL, *OWN], ids=lambda case: case.id)
def test_every_log_that_did_not_come_up_has_advice(case: Case) -> None:
    verdict = classify(case.text, case.signals)
    assert bool(verdict.advice) is (verdict.outcome not in GOOD)


@pytest.mark.parametrize(("cause", "outcome"), CAUSES)
def test_every_cause_has_advice_in_every_stage(cause: str, outcome: Outcome) -> None:
    assert outcome not in GOOD
    for stage in Stage:
        for role in Role:
            assert advise(Verdict(outcome=outcome, stage=stage, role=role, cause=cause))


def test_the_table_was_read() -> None:
    assert len(CAUSES) > 60


def test_a_rank_without_a_buffer_wants_a_smaller_fraction_and_never_a_larger() -> None:
    case = next(case for case in ALL if case.id.startswith("o12"))
    verdict = classify(case.text, case.signals)
    assert "lower --mem-fraction-static below 0.93" in verdict.advice and "raise" not in verdict.advice


def test_a_failure_of_the_draft_says_where_to_look() -> None:
    case = next(case for case in ALL if case.id.startswith("c18"))
    advice = classify(case.text, case.signals).advice
    assert "draft" in advice and "trtllm_mla_backend.py:__init__" in advice


def test_a_silent_death_has_advice() -> None:
    for code in (0, 1, 2, -3, -4, -6, -7, -9, -11, -15, 139):
        assert classify("[2026-01-01 10:00:00] Init torch distributed begin.\n", Signals(exit_code=code)).advice


def test_a_stage_and_its_only_cause_are_named_once() -> None:
    low = next(case for case in ALL if case.id.startswith("o01"))
    said = classify(low.text, low.signals).why
    assert "failed in kv-profile: " in said
    unbound = next(case for case in ALL if "unbound" in case.id)
    assert "failed in kv-profile (unbound-name): " in classify(unbound.text, unbound.signals).why
