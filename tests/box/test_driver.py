"""NVIDIA's own binding over a C library: what the agent reads through it, and that the shipped fake says the same."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import patchbisect.box.agent
from patchbisect.testing.fake_gpus import FakeGpu, FakeGpus
from tests.box.driver import Driver
from tests.box.test_gpu_check import ALL, checked, failed

pytestmark = [
    pytest.mark.ci,
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler: NVIDIA's binding has no library to call"),
]

ME = os.getpid()
READ = """
import json
from agent.gpus import Gpus
gpus = Gpus()
read = [gpu._asdict() for gpu in gpus.read()]
print(json.dumps([gpus.source, gpus.driver, read, gpus.incomplete, gpus.why,
                  [one._asdict() for one in gpus.processes()], gpus.unlisted, gpus.why]))
"""


def read_by(python: Path) -> list[Any]:
    """What the agent makes of the GPUs with that Python."""
    folder = Path(patchbisect.box.agent.__file__).parent.parent
    done = subprocess.run(
        [python, "-c", READ], env={"PYTHONPATH": str(folder)}, capture_output=True, text=True, check=True
    )
    said: list[Any] = json.loads(done.stdout)
    return said


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gpus")


@pytest.fixture(scope="module")
def real(folder: Path) -> Driver:
    return Driver(folder / "real")


@pytest.fixture(scope="module")
def fake(folder: Path) -> FakeGpus:
    (folder / "fake").mkdir()
    return FakeGpus(folder / "fake")


@pytest.mark.parametrize(
    ("gpus", "broken"),
    [
        pytest.param([], "", id="none"),
        pytest.param([FakeGpu(used_gb=12.25, util=71, total_gb=141.0), FakeGpu(uuid="GPU-x")], "", id="two"),
        pytest.param([FakeGpu(processes=[(ME, 30.5), (1, 2.0)])], "", id="processes"),
        pytest.param([FakeGpu(processes=[(2**22 + 1, 30.0)])], "", id="a process that has ended"),
        pytest.param([FakeGpu(processes=[(0, 3.0, 4242)])], "", id="a process outside of the container"),
        pytest.param([FakeGpu(processes=[(ME, 8.0)], told=False)], "", id="sizes that nobody knows"),
        pytest.param([FakeGpu(processes=[(1, 0.1), (ME, 8.0)], clients=[ME])], "", id="a client of an MPS server"),
        pytest.param([FakeGpu(), FakeGpu(lost="GPU is lost"), FakeGpu(lost="GPU is lost")], "", id="two lost"),
        pytest.param([FakeGpu(lost="GPU requires restart")], "", id="to be reset"),
        pytest.param([FakeGpu(unlisted="Not Supported")], "", id="no list of processes"),
        pytest.param([FakeGpu(unlisted="Insufficient Permissions")], "", id="a list that is refused"),
        pytest.param([FakeGpu()], "RM has detected an NVML/RM version mismatch.", id="another driver"),
        pytest.param([FakeGpu()], "Unknown Error", id="no driver"),
    ],
)
def test_the_shipped_fake_says_what_the_binding_says(
    real: Driver, fake: FakeGpus, gpus: list[FakeGpu], broken: str
) -> None:
    real.set(*gpus, broken=broken)
    fake.set(*gpus, broken=broken)
    said = read_by(real.python)
    assert said == read_by(fake.python)
    assert said[0] == ("none" if broken else "nvml")
    assert broken in said[4]


def test_a_long_list_of_processes(real: Driver) -> None:
    real.set(FakeGpu(processes=[(0, 0.5, 100 + number) for number in range(40)]))
    processes, unlisted = read_by(real.python)[5:7]
    assert [one["pid"] for one in processes] == list(range(100, 140))
    assert not unlisted


ALLOCATE = """
import os, time
assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-1"
time.sleep(1.2)  # long enough for a reading before
with open({file!r}, "a") as file:
    file.write(f"process 1 {{os.getpid()}} {size} {{os.getpid()}} 0\\n")
print("allocated", flush=True)
time.sleep(600)
"""


def test_the_whole_check_over_the_binding(tmp_path: Path) -> None:
    gpus = Driver(tmp_path, FakeGpu(used_gb=60.0), FakeGpu(used_gb=0.5))
    found = checked(gpus, ALLOCATE.format(file=str(gpus.file), size=int(4.4 * 2**30)))
    assert tuple(found) == ALL
    assert failed(found) == set()
    assert found["GPUs"].detail == "1 x Fake RTX through nvml"
    assert "4.40 GiB more in use (0.50 -> 4.90)" in found["allocation"].detail
