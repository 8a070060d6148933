"""Every handed log: outcome, stage, role, facts, cause; also as it streams in."""

from __future__ import annotations

import pytest

from patchbisect.model import NUMBERS, Outcome, Signals
from patchbisect.startup import Classifier, classify
from tests.startup.handed import ALL, OWN, Case, differences

each_case = pytest.mark.parametrize("case", [*ALL, *OWN], ids=lambda case: case.id)


def test_there_are_49_handed_logs() -> None:
    assert len(ALL) == 49
    assert len({case.id for case in (*ALL, *OWN)}) == 62


@each_case
def test_verdict(case: Case) -> None:
    assert differences(classify(case.text, case.signals), case.expect) == []


@pytest.mark.parametrize("case", OWN, ids=lambda case: case.id)
def test_the_cause_of_what_we_broke_ourselves(case: Case) -> None:
    assert classify(case.text, case.signals).cause == case.expect["cause"]


# Which port and which rank are no quantities.
_NAMES = {"port", "failed_rank"}


@each_case
def test_every_number_that_a_start_says_can_be_asked_about(case: Case) -> None:
    facts = classify(case.text, case.signals).facts
    assert {name for name, value in facts.items() if isinstance(value, int | float)} - _NAMES <= NUMBERS


@each_case
def test_a_failure_shows_its_line(case: Case) -> None:
    verdict = classify(case.text, case.signals)
    assert verdict.deciding is not None
    if verdict.deciding.text:
        assert verdict.deciding.text.split("\n")[0][:60] in case.text.split("\n")[verdict.deciding.line - 1]


@each_case
def test_never_ready_nor_oom_before_the_deciding_line(case: Case) -> None:
    whole = classify(case.text, case.signals)
    assert whole.deciding is not None
    reader = Classifier()
    for number, line in enumerate(case.lines, start=1):
        reader.feed(line)
        verdict = reader.verdict()
        if verdict.outcome in (Outcome.READY, Outcome.OOM) and verdict.outcome is whole.outcome:
            assert number >= whole.deciding.line
        if verdict.outcome is Outcome.OOM:
            assert whole.outcome is Outcome.OOM
        if verdict.outcome is Outcome.READY:
            assert whole.reached_ready


@pytest.mark.parametrize("known", [Signals(), Signals(alive=True, silent_for_s=0.5)], ids=["nothing known", "alive"])
@each_case
def test_a_final_verdict_is_that_of_the_whole_log(case: Case, known: Signals) -> None:
    whole = classify(case.text, case.signals)
    reader = Classifier()
    for line in case.lines:
        reader.feed(line)
        early = reader.verdict(known)
        if early.final:
            assert (early.outcome, early.stage, early.role, early.cause, early.signature) == (
                whole.outcome,
                whole.stage,
                whole.role,
                whole.cause,
                whole.signature,
            )
            return


TOLD = ("Received sigquit from a child", "scheduler is dead", "SIGQUIT received")


@pytest.mark.parametrize(
    "case", [case for case in ALL if any(words in case.text for words in TOLD)], ids=lambda case: case.id
)
def test_a_failure_is_final_before_the_process_is_gone(case: Case) -> None:
    """At the latest when the launcher says that a child failed; nothing is known but that it lives."""
    reader = Classifier()
    for line in case.lines:
        reader.feed(line)
        if any(words in line for words in TOLD):
            break
    assert reader.verdict(Signals(alive=True)).final
