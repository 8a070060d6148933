"""The two models of the embedded box, made on the spot: a ``config.json`` each and no weights.

SGLang makes up weights with ``--load-format dummy``. The big model exists for one reason: its weights are large
enough for ``--mem-fraction-static`` to decide whether the KV pool fits.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

BIG_WEIGHTS_GB = 0.57
"""What loading the big model takes from the machine's available memory, in GiB: the parameters are 0.53 GB."""

_COMMON: Mapping[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 2,
    "max_position_embeddings": 2048,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-05,
    "rope_theta": 10000.0,
    "attention_bias": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

MODELS: Mapping[str, Mapping[str, Any]] = {
    "tiny": {
        **_COMMON,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "vocab_size": 512,
    },
    "big": {
        **_COMMON,
        "hidden_size": 1024,
        "intermediate_size": 2048,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "vocab_size": 128000,
    },
}


def write_models(folder: Path) -> None:
    """``folder/<name>/config.json`` for each model, each in place in one step."""
    for name, config in MODELS.items():
        target = folder / name / "config.json"
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = target.with_suffix(".new")
        fresh.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        fresh.replace(target)


def memory_fractions(memory_gb: float) -> tuple[float, float]:
    """Two values of ``--mem-fraction-static`` for the big model: one that is enough, one that is too low.

    ``memory_gb`` is what SGLang may see as the device's memory, in GiB: RAM per NUMA node.
    SGLang 0.5.9 needs ``fraction > weights / available`` (``profile_max_num_token`` in
    srt/model_executor/model_runner_kv_cache_mixin.py), where *available* is at most ``memory_gb`` and moves with
    whatever else runs. So the enough one holds down to 40 % of the RAM being available, and stays below 4 times
    the need, so that a fraction quartered by a fault fails. The too low one fails whatever is available, unless other
    processes give back half a GB while the weights load (seen on a machine busy with tests).
    """
    need = BIG_WEIGHTS_GB / memory_gb
    return min(0.9, _rounded(2.6 * need)), _rounded(0.05 * need)


def _rounded(fraction: float) -> float:
    # Two digits: the same on every call, although the kernel's total moves by some MB from boot to boot.
    return float(f"{fraction:.2g}")
