"""Patch not-enough-memory-numbers: the advice is checked against the formula. (A server shows it firing.)"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from tests.patches.conftest import QUEUE, Body

pytestmark = pytest.mark.ci
SMALLEST = re.compile(
    r"The smallest --mem-fraction-static that would work is (\d\.\d{3})(, plus what the state cache)?"
)


@pytest.fixture(scope="module")
def explained(body: Body) -> Any:
    return body("not_enough_memory", QUEUE.patches)


def tokens(inputs: Mapping[str, Any], *, fraction: float) -> int:
    """SGLang 0.5.9, profile_max_num_token and the alignment to pages in init_memory_pool."""
    rest = inputs["available"] - inputs["total"] * (1 - fraction)
    return int(rest * (1 << 30)) // int(inputs["cell_size"]) // int(inputs["page_size"]) * int(inputs["page_size"])


def test_the_smallest_fraction_gives_a_pool_and_is_not_much_too_large(explained: Any) -> None:
    checked = 0
    for case in explained:
        if found := SMALLEST.search(case["text"]):
            checked += 1
            smallest = float(found[1])
            assert tokens(case["inputs"], fraction=smallest) > 0
            assert tokens(case["inputs"], fraction=smallest - 0.0031) <= 0
            assert bool(found[2]) == case["inputs"]["is_hybrid"]
    assert checked > 20


def test_no_fraction_is_named_when_none_would_do(explained: Any) -> None:
    hopeless = [case for case in explained if "No value below 1 would work" in case["text"]]
    assert hopeless
    assert all(tokens(case["inputs"], fraction=0.998) <= 0 for case in hopeless)


def test_the_fraction_is_not_blamed_when_the_budget_is_fine(explained: Any) -> None:
    fine = [case for case in explained if "the fraction is not to blame" in case["text"]]
    assert fine
    assert all(tokens(case["inputs"], fraction=case["inputs"]["fraction"]) > 0 for case in fine)
    assert "max_total_tokens=32" in explained[-1]["text"] and "not to blame" in explained[-1]["text"]


def test_a_total_of_zero_does_not_raise(explained: Any) -> None:
    assert explained[-2]["inputs"]["total"] == 0
    assert SMALLEST.search(explained[-2]["text"]) is None
