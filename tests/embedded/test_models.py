from __future__ import annotations

import json
from pathlib import Path

import pytest

from patchbisect.embedded.models import BIG_WEIGHTS_GB, MODELS, memory_fractions, write_models


def parameters(config: dict[str, int]) -> int:
    """Of an untied Llama without biases, norms included."""
    hidden, layers, head = config["hidden_size"], config["num_hidden_layers"], config["head_dim"]
    attention = hidden * head * (2 * config["num_attention_heads"] + 2 * config["num_key_value_heads"])
    per_layer = attention + 3 * hidden * config["intermediate_size"] + 2 * hidden
    return 2 * config["vocab_size"] * hidden + layers * per_layer + hidden


def test_the_big_model_weighs_what_the_fractions_reckon_with(tmp_path: Path) -> None:
    write_models(tmp_path)
    config = json.loads((tmp_path / "big" / "config.json").read_text())
    weights_gb = 2 * parameters(config) / 2**30
    assert weights_gb < BIG_WEIGHTS_GB < 1.1 * weights_gb


def test_the_tiny_model_weighs_nothing(tmp_path: Path) -> None:
    write_models(tmp_path)
    config = json.loads((tmp_path / "tiny" / "config.json").read_text())
    assert 2 * parameters(config) < 2**20


@pytest.mark.parametrize("memory_gb", [8, 15.6, 23.4, 64, 503, 2000])
@pytest.mark.parametrize("available", [0.4, 0.7, 1.0])
def test_one_fraction_is_enough_and_one_too_low_however_much_is_available(memory_gb: float, available: float) -> None:
    enough, too_low = memory_fractions(memory_gb)
    assert enough * memory_gb * available > BIG_WEIGHTS_GB
    assert too_low * memory_gb < BIG_WEIGHTS_GB / 10
    assert 0 < too_low < enough < 1


@pytest.mark.parametrize("memory_gb", [8, 23.4, 503])
def test_halving_the_enough_one_once_does_no_harm_and_twice_does(memory_gb: float) -> None:
    enough, _ = memory_fractions(memory_gb)
    assert enough / 2 * memory_gb > BIG_WEIGHTS_GB > enough / 4 * memory_gb


def test_the_fractions_do_not_move_with_a_few_megabytes() -> None:
    assert memory_fractions(23.43) == memory_fractions(23.44)


def test_models_differ_in_size_only() -> None:
    assert {key for key in MODELS["tiny"] if MODELS["tiny"][key] != MODELS["big"][key]} == {
        "hidden_size",
        "intermediate_size",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "vocab_size",
    }
