"""Which fraction works: a start at that fraction, with the log's own numbers, must not run out of memory again."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from patchbisect.model import Outcome, Signals
from patchbisect.startup import Ledger, classify
from patchbisect.startup.window import Window
from tests.startup.formats import Release, Server, frame, raised
from tests.startup.handed import ALL, Case

DEAD = Signals(exit_code=-9, alive=False)
IN_DRAFT = (
    frame("managers/scheduler.py", "maybe_init_draft_worker"),
    frame("speculative/eagle_worker.py", "__init__"),
    frame("mem_cache/memory_pool.py", "_create_buffers"),
)
BEFORE, WEIGHTS = 140.0, 50.0
ROUNDING = 0.1


def window(text: str, signals: Signals = DEAD) -> Window:
    found = Ledger.read(text, signals).window
    assert found is not None
    return found


def pool(fraction: float) -> float:
    return BEFORE - WEIGHTS - BEFORE * (1.0 - fraction)


def start(fraction: float, *, share: float, pools: int, draft_weights: float, release: Release = (0, 5, 9)) -> str:
    """A server whose draft takes from what the target leaves, until an allocation fails or all is there."""
    server = Server(release, draft=True, fraction=f"{fraction:.3f}")
    out = server.args() + server.dist() + server.load(before=BEFORE, used=WEIGHTS)
    free = BEFORE - WEIGHTS - pool(fraction)
    out += server.pool(half=pool(fraction) / 2, after=free)
    if draft_weights:
        out += server.load(kind="LlamaForCausalLMEagle3", at=17, before=free, used=draft_weights)
        free -= draft_weights
    size = share * pool(fraction)
    for number in range(pools):
        if free < size:
            error = (
                f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {size / 2:.2f} GiB. GPU 0 has a total"
                f" capacity of {BEFORE:.2f} GiB of which {free % (size / 2):.2f} GiB is free."
            )
            return out + raised(server, error, *IN_DRAFT, at=20 + number)
        free -= size
        out += server.pool(half=size / 2, after=free, at=19 + number)
    return out


@given(
    fraction=st.floats(0.6, 0.93),
    share=st.floats(0.05, 1.5),
    pools=st.integers(1, 8),
    draft_weights=st.sampled_from([0.0, 0.5, 8.0]),
)
def test_a_failed_draft_pool_fits_at_the_fraction_that_is_advised(
    fraction: float, share: float, pools: int, draft_weights: float
) -> None:
    fraction = round(fraction, 3)
    assume(pool(fraction) > 1.0 and BEFORE * (1.0 - fraction) > draft_weights + 0.5)
    text = start(fraction, share=share, pools=pools, draft_weights=draft_weights)
    verdict = classify(text, DEAD)
    assume(verdict.outcome is Outcome.OOM)
    assert verdict.advice.startswith(f"lower --mem-fraction-static below {fraction:g}")
    advised = window(text)
    assert advised.high < fraction and not advised.measured and advised.unseen
    if not advised.empty:
        seen = text.count("Memory pool end") - 1
        if seen:
            taken = draft_weights + (seen + 1) * share * pool(advised.high)
            assert BEFORE * (1.0 - advised.high) >= taken - ROUNDING
        assert "may work" in advised.lines()[0]


def test_all_draft_pools_that_the_arguments_announce_count() -> None:
    text = start(0.75, share=0.1, pools=8, draft_weights=0.0)
    announced = text.replace(
        "model_path='/m'", "model_path='/m', enable_multi_layer_eagle=True, speculative_num_steps=12"
    )
    assert announced != text
    more, less = window(announced), window(text)
    assert more.high < less.high
    assert BEFORE * (1.0 - more.high) >= 12 * 0.1 * pool(more.high) - ROUNDING


def test_a_pool_that_failed_for_eight_layers() -> None:
    case = next(case for case in ALL if case.id.startswith("o06"))
    advised = window(case.text, case.signals)
    fraction = advised.high
    target = 166.18 - 273.0 * (1.0 - fraction)
    assert 273.0 * (1.0 - fraction) >= 8 * 9.2 * target / 97.93
    assert advised.draft_gb > 50 and "more of the draft's pools may follow" in advised.lines()[1]


def test_a_draft_that_the_sizing_counts_takes_nothing_of_what_it_leaves() -> None:
    server = Server((0, 5, 16), draft=True, fraction="0.800")
    both = BEFORE - 52.0 - BEFORE * 0.2
    text = server.args() + server.dist() + server.load(before=BEFORE, used=50.0)
    text += server.load(kind="LlamaForCausalLMEagle3", at=17, before=90.0, used=2.0)
    text += server.pool(half=both * 0.45, after=BEFORE - 52.0 - both * 0.9, at=18)
    text += server.pool(half=both * 0.05, after=BEFORE - 52.0 - both, at=19)
    text += server.graphs("target verify", at=20, before=28.0, used=2.0)
    text += server.graphs("draft decode", at=30, before=26.0, used=1.0)
    advised = window(text + server.totals(after=25.0) + server.http() + server.fired_up(), Signals(alive=True))
    assert advised.draft_gb == 0.0 and advised.measured and "works" in advised.lines()[0]
    old = start(0.7, share=0.1, pools=1, draft_weights=2.0)
    assert window(old).draft_gb > 2.0


def test_draft_weights_that_do_not_fit_beside_the_pool_want_a_smaller_fraction() -> None:
    server = Server((0, 5, 9), draft=True, fraction="0.9")
    text = server.args() + server.dist() + server.load(before=BEFORE, used=WEIGHTS)
    text += server.pool(half=38.0, after=14.0)
    text += server.load(kind="LlamaForCausalLMEagle3", at=17, before=14.0, used=9.0, done=False)
    error = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 140.00 GiB of which 1.00 GiB is free."  # noqa: E501
    text += raised(server, error, frame("model_loader/loader.py", "load_model"))
    verdict = classify(text, DEAD)
    assert (verdict.outcome, verdict.role, verdict.cause) == (Outcome.OOM, "draft", "weight-load")
    assert verdict.advice.startswith("lower --mem-fraction-static below 0.9")
    assert window(text).direction == "lower" and BEFORE * (1.0 - window(text).high) >= 15.0


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.id)
def test_a_window_leaves_what_it_says_is_needed(case: Case) -> None:
    ledger = Ledger.read(case.text, case.signals)
    if ledger.window is not None and ledger.sizing is not None:
        left = ledger.sizing.total_gb * (1.0 - ledger.window.high)
        assert left >= ledger.window.needed_after_pool_gb - 1e-6
        assert 0.0 <= ledger.window.draft_gb <= ledger.window.needed_after_pool_gb
