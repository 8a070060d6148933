# ruff: noqa: E501  (messages stand whole)
"""The arguments line, in its spellings."""

from __future__ import annotations

import pytest

from patchbisect.startup.server_args import ServerArgs

SPELLINGS = (
    "server_args=ServerArgs(model_path='/a=b, tp_size=9', tp_size=8, mem_fraction_static=0.85, dp_size=1, pp_size=2, speculative_algorithm=None, lora_paths=[], x='{\"tp_size\": 3}')",
    "server_args={'model_path': '/a=b, tp_size=9', 'tp_size': 8, 'mem_fraction_static': 0.85, 'dp_size': 1, 'pp_size': 2, 'speculative_algorithm': None, 'lora_paths': [], 'x': '{\"tp_size\": 3}'}",
)  # fmt: skip


@pytest.mark.parametrize("line", SPELLINGS, ids=["0.4.0", "0.5.19"])
def test_values(line: str) -> None:
    args = ServerArgs.parse(line)
    assert args.complete
    assert (args.integer("tp_size"), args.number("mem_fraction_static"), args.local_ranks) == (8, 0.85, 16)
    assert args.text("speculative_algorithm") is None and args.text("model_path") == "/a=b, tp_size=9"
    assert not args.may_draft


@pytest.mark.parametrize(
    ("body", "ranks"),
    [
        ("tp_size=4, dp_size=2", 8),
        ("tp_size=4, dp_size=4, enable_dp_attention=True", 4),
        ("tp_size=8, dp_size=1, attn_dp_size=4", 8),
        ("tp_size=16, nnodes=2", 8),
        ("dp_size=2", None),
    ],
)
def test_how_many_ranks_a_node_starts(body: str, ranks: int | None) -> None:
    assert ServerArgs.parse(f"server_args=ServerArgs({body})").local_ranks == ranks


def test_a_line_that_was_cut_short_denies_nothing() -> None:
    args = ServerArgs.parse("server_args=ServerArgs(model_path='/m', tp_size=8, ...)")
    assert not args.complete and args.may_draft
    assert ServerArgs.parse("").values == {}


def test_a_draft_without_a_model_is_none() -> None:
    assert not ServerArgs.parse("server_args=ServerArgs(speculative_algorithm='NGRAM')").may_draft
    assert ServerArgs.parse("server_args=ServerArgs(speculative_algorithm='EAGLE3')").may_draft
