"""The check of GPU readings, with readings that are right and readings that are wrong."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from patchbisect.box.gpu_check import ALLOCATED_GB, gpu_check
from patchbisect.testing.fake_gpus import FakeGpu, FakeGpus
from tests.box.lab import leased, settings_for

pytestmark = pytest.mark.ci

ALLOCATE = """
import json, os, time
time.sleep(1.2)  # long enough for a reading before
with open({file!r}) as file: state = json.load(file)
state["gpus"][0][{where!r}] = {what}
with open({file!r} + ".x", "w") as file: json.dump(state, file)
os.rename({file!r} + ".x", {file!r})
print("allocated", flush=True)
time.sleep(600)
"""
RUNS_OUT = "raise MemoryError('CUDA out of memory. Tried to allocate 1.00 GiB')"


def verdicts(tmp_path: Path, *, where: str, what: str) -> dict[str, bool]:
    gpus = FakeGpus(tmp_path, FakeGpu(used_gb=0.5))
    program = ALLOCATE.format(file=str(gpus.file), where=where, what=what)
    settings = settings_for(
        tmp_path, agent_python=str(gpus.python), lease_directory=str(tmp_path / "l"), gpu_budget_s=0.5
    )
    names = (f"check-{number}" for number in itertools.count())
    with leased(settings, tmp_path) as box:
        found = gpu_check(box, new_id=lambda: next(names), allocate=program, exhaust=RUNS_OUT)
    assert found.oom_exit is not None
    assert found.oom_exit.exit_code == 1
    assert b"CUDA out of memory" in found.oom_log
    return {check.check: check.ok for check in found.checks}


def test_readings_that_are_right(tmp_path: Path) -> None:
    size = int((ALLOCATED_GB + 0.4) * 2**30)
    right = {"GPUs": True, "allocation": True, "after a kill": True, "out of memory": True}
    assert verdicts(tmp_path, where="processes", what=f"[[os.getpid(), {size}]]") == right


def test_readings_that_show_half_of_it_and_memory_that_stays(tmp_path: Path) -> None:
    found = verdicts(tmp_path, where="used", what=str(int(2.5 * 2**30)))
    assert not found["allocation"]
    assert not found["after a kill"]


def test_a_box_without_gpus_is_one_failed_check(tmp_path: Path) -> None:
    with leased(settings_for(tmp_path), tmp_path) as box:
        (check,) = gpu_check(box, new_id=lambda: "x").checks
    assert not check.ok
    assert "pynvml" in check.detail or "NVML" in check.detail
