"""Patch symm-mem-unknown-capability: SGLang's own communicator, GPU and symmetric memory mocked (``bodies``)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.patches.conftest import QUEUE, Body, without

pytestmark = pytest.mark.ci
SLUG = "symm-mem-unknown-capability"


@pytest.fixture(scope="module")
def patched(body: Body) -> Any:
    return body("torch_symm_mem", QUEUE.patches)


@pytest.fixture(scope="module")
def dropped(body: Body) -> Any:
    return body("torch_symm_mem", without(SLUG))


def test_warns_and_leaves_all_reduce_to_the_others(patched: Any, dropped: Any) -> None:
    seen = patched["start"]["12"]
    assert seen["error"] is None
    assert not seen["takes"]
    assert [line for line in seen["warnings"] if "device capability 12" in line]
    assert dropped["start"]["12"] == {"error": "KeyError(12)"}


def test_the_second_table_means_two_shot(patched: Any, dropped: Any) -> None:
    """Somebody has added sizes for capability 12 to the first table only."""
    assert patched["kernel"]["12"] == ["two_shot"]
    assert dropped["kernel"]["12"] == "KeyError(12)"


def test_known_capabilities_are_as_before(patched: Any, dropped: Any) -> None:
    for capability in ("8", "9", "10"):
        assert patched["start"][capability] == dropped["start"][capability]
    assert patched["start"]["9"]["takes"]
    assert patched["kernel"]["10"] == dropped["kernel"]["10"] == ["multimem"]
