"""The check of GPU readings, with readings that are right and readings that are wrong."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from patchbisect.box import Check
from patchbisect.box import gpu_check as module
from patchbisect.box.gpu_check import ALLOCATED_GB, gpu_check
from patchbisect.testing.fake_gpus import FakeGpu, FakeGpus
from tests.box.lab import leased, settings_for

pytestmark = pytest.mark.ci

ALLOCATE = """
import json, os, time
assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-1"
time.sleep(1.2)  # long enough for a reading before
with open({file!r}) as file: state = json.load(file)
state["gpus"][1][{where!r}] = {what}
with open({file!r} + ".x", "w") as file: json.dump(state, file)
os.rename({file!r} + ".x", {file!r})
print("allocated", flush=True)
time.sleep(600)
"""
RUNS_OUT = "raise MemoryError('CUDA out of memory. Tried to allocate 1.00 GiB')"
HANGS = "import time; print('loading', flush=True); time.sleep(600)"
ALL = ("GPUs", "allocation", "whose it is", "after a kill", "out of memory", "after that")


@pytest.fixture
def gpus(tmp_path: Path) -> FakeGpus:
    """Two, of which the box has the second; the first is fuller all the time."""
    return FakeGpus(tmp_path, FakeGpu(used_gb=60.0), FakeGpu(used_gb=0.5))


def allocating(gpus: FakeGpus, *, where: str, what: str) -> str:
    return ALLOCATE.format(file=str(gpus.file), where=where, what=what)


def allocating_right(gpus: FakeGpus) -> str:
    return allocating(gpus, where="processes", what=f"[[os.getpid(), {int((ALLOCATED_GB + 0.4) * 2**30)}]]")


def checked(gpus: FakeGpus, allocate: str, exhaust: str = RUNS_OUT) -> dict[str, Check]:
    folder = gpus.file.parent
    settings = settings_for(
        folder, agent_python=str(gpus.python), lease_directory=str(folder / "l"), gpu_budget_s=0.5, gpus=(1,)
    )
    names = (f"check-{number}" for number in itertools.count())
    with leased(settings, folder) as box:
        found = gpu_check(box, new_id=lambda: next(names), allocate=allocate, exhaust=exhaust)
    for check in found.checks:
        assert check.ok or check.remedy, "a fault says what to do"
    return {check.check: check for check in found.checks}


def failed(checks: dict[str, Check]) -> set[str]:
    return {name for name, check in checks.items() if not check.ok}


def test_readings_that_are_right(gpus: FakeGpus) -> None:
    found = checked(gpus, allocating_right(gpus))
    assert tuple(found) == ALL
    assert failed(found) == set()
    assert "4.40 GiB more in use (0.50 -> 4.90)" in found["allocation"].detail
    assert found["out of memory"].detail.endswith("CUDA out of memory. Tried to allocate 1.00 GiB")


def test_readings_that_show_half_of_it_and_memory_that_stays(gpus: FakeGpus) -> None:
    found = checked(gpus, allocating(gpus, where="used", what=str(int(2.5 * 2**30))))
    assert failed(found) == {"allocation", "after a kill", "after that"}
    assert "2.00 GiB more in use" in found["allocation"].detail
    assert found["after a kill"].detail == "GPU 1 holds 2.5 GiB that no process owns (idle: 0.5)"


def test_memory_that_is_booked_to_a_stranger(gpus: FakeGpus) -> None:
    found = checked(gpus, allocating(gpus, where="processes", what=f"[[{os.getpid()}, {4 << 30}]]"))
    assert "whose it is" in failed(found)
    assert f"pid {os.getpid()} (" in found["whose it is"].detail


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("No module named 'torch'", "the interpreter that has torch"),
        ("Torch not compiled with CUDA enabled", "built for the CPU"),
        ("no kernel image is available for execution on the device", "not built for this GPU"),
        ("The NVIDIA driver on your system is too old (found version 11040).", "a newer driver"),
        ("CUDA error: unknown error", "nvidia-smi on the box"),
    ],
)
def test_a_program_that_ends_at_once_is_told_by_its_last_words(gpus: FakeGpus, said: str, remedy: str) -> None:
    dying = f"raise SystemExit({said!r})"
    found = checked(gpus, dying, dying)
    assert failed(found) == {"allocation", "out of memory"}
    assert found["allocation"].detail == f"the program ended before it had allocated: {said}"
    assert found["out of memory"].detail == said
    assert all(remedy in found[name].remedy for name in failed(found))


def test_programs_that_hang_are_ended(gpus: FakeGpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE_S", 2.0)
    found = checked(gpus, HANGS, HANGS)
    assert failed(found) == {"allocation", "out of memory"}
    assert found["allocation"].detail == "two minutes passed before it had allocated: loading"
    assert found["out of memory"].detail == "memory did not run out within two minutes: loading"


def test_a_gpu_that_can_be_read_no_more(gpus: FakeGpus) -> None:
    found = checked(gpus, allocating(gpus, where="gone", what="state.update(broken='GPU is lost')"))
    assert {"allocation", "whose it is"} <= failed(found)
    assert "GPU-1 fell off (NVML: GPU is lost" in found["whose it is"].detail


def test_a_gpu_that_is_in_use_is_not_touched(gpus: FakeGpus) -> None:
    gpus.set(FakeGpu(), FakeGpu(processes=[(os.getpid(), 30.0)]))
    found = checked(gpus, "raise AssertionError('started')")
    assert tuple(found) == ("clean",)
    assert "holds 30.0 GiB of GPU 1" in found["clean"].detail


def test_a_box_without_gpus_is_one_failed_check(tmp_path: Path) -> None:
    with leased(settings_for(tmp_path), tmp_path) as box:
        (check,) = gpu_check(box, new_id=lambda: "x").checks
    assert not check.ok
    assert "pynvml" in check.detail or "NVML" in check.detail


NVIDIA_SMI = """\
#!/bin/sh
case $1 in
*=index) echo 0 ;;
*driver_version) echo 580.1 ;;
*utilization.gpu) echo "0, GPU-0, Fake RTX, 98304, $(cat {file}), 0" ;;
esac
"""


def test_nvidia_smi_which_is_asked_seldom_shows_the_allocation_too(tmp_path: Path) -> None:
    used, program = tmp_path / "used", tmp_path / "bin" / "nvidia-smi"
    used.write_text("1")
    program.parent.mkdir()
    program.write_text(NVIDIA_SMI.format(file=used))
    program.chmod(0o755)
    allocate = (
        "import time; time.sleep(1.2)\n"
        f"open({str(used)!r}, 'w').write('4500'); print('allocated', flush=True)\n"
        f"import signal; signal.pause()"
    )
    prefix = ("env", f"PATH={program.parent}:{os.environ['PATH']}")
    names = (f"check-{number}" for number in itertools.count())
    settings = settings_for(tmp_path, prefix=prefix, lease_directory=str(tmp_path / "l"), gpu_budget_s=0.1)
    with leased(settings, tmp_path) as box:
        found = {
            check.check: check
            for check in gpu_check(box, new_id=lambda: next(names), allocate=allocate, exhaust=RUNS_OUT).checks
        }
    assert found["allocation"].ok, found
    assert "4.39 GiB more in use" in found["allocation"].detail
    assert "nvidia-smi is too slow" in found["whose it is"].detail


def test_the_advice_that_torch_puts_behind_an_error_is_not_taken_for_it(gpus: FakeGpus) -> None:
    said = "torch.AcceleratorError: CUDA error: no kernel image is available for execution on the device"
    lines = (
        f"Traceback (most recent call last):\n  File x\n{said}\nCompile with `TORCH_USE_CUDA_DSA` to enable assertions."
    )
    found = checked(gpus, f"raise SystemExit({lines!r})", RUNS_OUT)
    assert found["allocation"].detail == f"the program ended before it had allocated: {said}"
