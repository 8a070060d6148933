# ruff: noqa: E501  (messages stand whole)
"""The memory ledger: waterfall, formula, window, and advice that does not contradict itself."""

from __future__ import annotations

import json

import pytest

from patchbisect.model import Outcome, Signals, Stage
from patchbisect.startup import Classifier, Ledger, classify
from patchbisect.startup.ledger import Window
from tests.startup.formats import Server, frame, raised
from tests.startup.handed import ALL, Case

DEAD = Signals(exit_code=-9, alive=False)
SERVER = Server((0, 5, 9), fraction="0.55")
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 94.97 GiB of which 1.25 GiB is free."


def story(*, before: float, after: float, half: float, fraction: str) -> str:
    server = Server((0, 5, 9), fraction=fraction)
    return (
        server.args()
        + server.dist()
        + server.load(before=before, used=before - after)
        + server.pool(half=half, after=after - 2 * half)
    )


def test_a_log_that_cannot_come_from_the_fraction_it_claims() -> None:
    ledger = Ledger.read(story(before=94.0, after=21.7, half=5.0, fraction="0.55"))
    assert ledger.sizing is not None and ledger.sizing.implied_fraction == pytest.approx(0.8755, abs=0.0005)
    assert "0.876" in ledger.sizing.contradiction and "0.55" in ledger.sizing.contradiction
    assert ledger.sizing.contradiction in ledger.lines()


def test_a_log_that_can() -> None:
    ledger = Ledger.read(story(before=94.0, after=21.7, half=5.0, fraction="0.876"))
    assert ledger.sizing is not None and ledger.sizing.contradiction == ""


def test_a_cap_explains_a_small_pool() -> None:
    text = story(before=94.0, after=51.7, half=1.0, fraction="0.9")
    ledger = Ledger.read(text)
    assert ledger.sizing is not None and "a cap" in ledger.sizing.contradiction
    capped = Ledger.read(text.replace("model_path='/m'", "model_path='/m', max_total_tokens=4096"))
    assert capped.sizing is not None and capped.sizing.contradiction == ""


def failed(stage: Stage, error: str, *frames: str) -> tuple[Ledger, str, Outcome]:
    text = SERVER.until(stage) + raised(SERVER, error, *frames)
    verdict = classify(text, DEAD)
    return Ledger.read(text, DEAD), verdict.advice, verdict.outcome


def test_at_sizing_the_fraction_goes_up() -> None:
    server = Server((0, 5, 9), fraction="0.3")
    text = server.args() + server.dist() + server.load(before=90.0, used=70.0)
    text += raised(
        server, "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: x=0.3"
    )
    ledger, verdict = Ledger.read(text, DEAD), classify(text, DEAD)
    assert ledger.window is not None and ledger.window.direction == "raise"
    assert ledger.window.low == pytest.approx(1 - 20 / 90 + 0.002, abs=0.001)
    assert verdict.advice.startswith("raise --mem-fraction-static to 0.78")
    assert "lower" not in verdict.advice


@pytest.mark.parametrize(
    ("stage", "frames"),
    [
        (Stage.KV_ALLOC, frame("model_executor/cuda_graph_runner.py", "capture")),
        (Stage.KV_ALLOC, frame("model_executor/model_runner.py", "kernel_warmup")),
        (Stage.SERVING, frame("managers/scheduler.py", "event_loop_overlap")),
    ],
)
def test_after_sizing_the_fraction_goes_down(stage: Stage, frames: str) -> None:
    ledger, advice, outcome = failed(stage, OOM, frames)
    assert outcome is Outcome.OOM
    assert ledger.window is not None and ledger.window.direction == "lower"
    assert ledger.window.high < 0.55
    assert advice.startswith("lower --mem-fraction-static below 0.55") and "raise" not in advice


def test_what_ran_is_inside_the_window() -> None:
    ledger = Ledger.read(Server((0, 5, 9), fraction="0.85").all(), Signals(alive=True))
    assert ledger.window is not None and ledger.window.measured
    assert ledger.window.low <= 0.85 <= ledger.window.high


def test_two_logs_can_leave_nothing() -> None:
    up = Window(low=0.841, high=0.9, direction="raise", needed_after_pool_gb=4.0, measured=False)
    down = Window(low=0.6, high=0.839, direction="lower", needed_after_pool_gb=5.0, measured=True)
    both = up.narrowed(down)
    assert both.empty and both.direction == ""
    assert "no --mem-fraction-static works" in both.lines()[0]
    assert "fp8" in both.lines()[1] and "--tp-size" in both.lines()[1]


def test_mamba_states_are_taken_off_before_tokens_are_counted() -> None:
    case = next(case for case in ALL if case.id == "r04_spec_mamba_slow_jit")
    ledger = Ledger.read(case.text, case.signals)
    assert ledger.sizing is not None and ledger.sizing.states_gb == 10.72
    assert any("after 10.72 GiB of states" in line for line in ledger.lines())
    (rank,) = ledger.ranks
    assert [entry.name for entry in rank.entries if entry.gb > 5] == [
        "weights",
        "Mamba state",
        "KV Cache, 1153600 tokens",
    ]


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.id)
def test_every_handed_log_has_a_ledger(case: Case) -> None:
    ledger = Ledger.read(case.text, case.signals)
    assert all(isinstance(line, str) for line in ledger.lines())
    for rank in ledger.ranks:
        if rank.start_gb is not None and rank.rest_gb is not None:
            assert rank.start_gb - sum(entry.gb for entry in rank.entries) == pytest.approx(rank.rest_gb, abs=0.02)


def test_a_waterfall_ends_with_what_is_left() -> None:
    lines = Ledger.read(story(before=94.0, after=21.7, half=5.0, fraction="0.55")).lines()
    assert [line for line in lines if line.startswith("  rest ")] == [f"  {'rest':<34}{11.7:>10.2f} GiB"]


def test_the_document_holds_what_is_worked_out() -> None:
    document = Ledger.read(story(before=94.0, after=21.7, half=5.0, fraction="0.55")).document()
    assert json.loads(json.dumps(document))["ranks"][0]["start_gb"] == pytest.approx(94.4)
    assert document["sizing"]["implied_fraction"] == pytest.approx(0.8755, abs=0.0005)
    assert document["releases"] == "0.5.9" and document["window"]["empty"] is False
    assert document["formula"][0].startswith("rest_memory = available_gpu_memory")
    assert json.dumps(Ledger.read("nothing").document())


def test_ranks_are_in_the_order_of_their_numbers() -> None:
    reader = Classifier()
    reader.feed(Server((0, 5, 9), tp=12).all())
    assert [rank.rank for rank in Ledger.of(reader).ranks] == [f"TP{n}" for n in range(12)]


def test_free_memory_before_the_weights_is_worked_out_where_only_what_they_took_is_printed() -> None:
    case = next(case for case in ALL if case.id.startswith("o08"))
    ledger = Ledger.read(case.text, case.signals)
    assert ledger.sizing is not None and ledger.sizing.total_gb == pytest.approx(92.36)
    assert ledger.sizing.contradiction == "" and ledger.sizing.implied_fraction == pytest.approx(0.8, abs=0.001)


def test_what_the_log_does_not_show_is_named() -> None:
    server = Server((0, 5, 9))
    begun = Ledger.read(server.args() + server.load(done=False))
    assert begun.lines()[-1].endswith("the log does not show free memory after the weights")
    ended = server.args() + server.said("Load weight end. type=M, dtype=bf16, avail mem=50.00 GB", 4)
    assert Ledger.read(ended).missing == "the log does not show free memory before the weights"
    assert Ledger.read(server.args() + server.pool()).missing.endswith("before and after the weights")


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.id)
def test_a_ledger_says_what_is_known_and_nothing_else(case: Case) -> None:
    ledger = Ledger.read(case.text, case.signals)
    lines = ledger.lines()
    assert lines[0] and bool(ledger.missing) is (ledger.sizing is None)
    assert any("cell_size" in line for line in lines) is (ledger.sizing is not None)
    if all(rank.start_gb is None for rank in ledger.ranks):
        assert lines == ["the log has no line about memory"]


def test_nothing_is_less_than_nothing() -> None:
    server = Server((0, 5, 9))
    text = server.args() + server.dist() + server.load(before=60.0, used=-0.001) + server.pool()
    text += server.said("PROBE memory_after_weights weights_gb=-0.0 drift=-1.5", 9)
    assert "mem usage=-0.00" in text
    facts = classify(text).facts
    assert str(facts["weights_gb"]) == "0.0"
    assert "-0.0," not in json.dumps(facts) and str(facts["probes"]).count("-1.5") == 1
    assert "-0.00" not in "\n".join(Ledger.read(text).lines())


@pytest.mark.parametrize(
    ("case", "first"), [("c14", "after the pools"), ("c23", "after the pools"), ("r01", "at the start")]
)
def test_free_memory_is_of_the_start_only_where_the_log_shows_it(case: str, first: str) -> None:
    found = next(each for each in ALL if each.id.startswith(case))
    ledger = Ledger.read(found.text, found.signals)
    assert ledger.ranks[0].start == first
    assert ledger.lines()[1].startswith(f"  free {first} ")


def test_weights_that_only_the_end_shows_are_not_said_to_take_nothing() -> None:
    text = SERVER.said("Load weight end. type=M, dtype=bf16, avail mem=50.00 GB", 4) + SERVER.pool(half=5.0, after=40.0)
    (rank,) = Ledger.read(text).ranks
    assert (rank.start, rank.start_gb) == ("after the weights", 50.0)
    assert "weights" not in [entry.name for entry in rank.entries]
