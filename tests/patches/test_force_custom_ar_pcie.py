"""Patch force-custom-ar-pcie: four ranks without NVLink, SGLang's own classes, the GPU mocked (``bodies``)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.patches.conftest import QUEUE, Body, without

pytestmark = pytest.mark.ci
SLUG = "force-custom-ar-pcie"


@pytest.fixture(scope="module")
def patched(body: Body) -> Any:
    return body("custom_all_reduce", QUEUE.patches)


@pytest.fixture(scope="module")
def dropped(body: Body) -> Any:
    return body("custom_all_reduce", without(SLUG))


def check_forced(cases: Any) -> None:
    for rank in cases["forced"]:
        assert rank["error"] is None
        assert rank["enabled"]
        assert rank["kernel_full_nvlink"] is True
        assert rank["sum_is_right"] is True
        assert rank["nccl_sums"] == 2, "one comparison for each of the two kernels"


def check_wrong_sum_ends_the_start(cases: Any) -> None:
    for rank in cases["wrong on one rank"]:
        assert rank["error"] and "disagree" in rank["error"]


def check_partial_ends_the_start(cases: Any) -> None:
    for rank in cases["no peer access on one rank"]:
        assert rank["error"] and "only 3 of 4" in rank["error"]


CHECKS = (check_forced, check_wrong_sum_ends_the_start, check_partial_ends_the_start)


@pytest.mark.parametrize("check", CHECKS)
def test_with_the_variable(patched: Any, check: Any) -> None:
    check(patched)


@pytest.mark.parametrize("check", CHECKS)
def test_each_check_fails_without_the_patch(dropped: Any, check: Any) -> None:
    with pytest.raises(AssertionError):
        check(dropped)


def test_without_the_variable_nothing_changes(patched: Any, dropped: Any) -> None:
    assert patched["not asked for"] == dropped["not asked for"]
    assert not any(rank["enabled"] for rank in patched["not asked for"])
