"""A box that is a container with pids of its own: NVML tells the pids of the host, or those of others not at all."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from patchbisect.box import Box, BoxSettings, Run, open_box
from patchbisect.testing.fake_gpus import FakeGpu, FakeGpus
from tests.box.lab import launch, listen, until_log
from tests.sshd.openssh import Machine

pytestmark = pytest.mark.sshd

NOWHERE = 4_000_000
"""A number that no process here has."""


@pytest.fixture
def sshd(machine: Machine) -> Machine:
    return machine


@pytest.fixture
def gpus(tmp_path: Path) -> FakeGpus:
    return FakeGpus(tmp_path, FakeGpu())


@pytest.fixture
def rig(settings: BoxSettings, gpus: FakeGpus, tmp_path: Path) -> Iterator[Box]:
    shared = {"agent_python": str(gpus.python), "lease_directory": str(tmp_path / "lease"), "gpu_budget_s": 0.3}
    with open_box("rig", dataclasses.replace(settings, **shared), state=tmp_path) as box, box.lease("test"):
        yield box


def started(box: Box) -> tuple[Run, int]:
    """A launch, and the pid of its server as the container has it."""
    run = launch(box, "--line", "up", "--end", "hang")
    listen(run, until=until_log(b"up"))
    (launched,) = box.launches()
    assert launched.launch_id == run.launch_id
    return run, server_of(box, run)


def server_of(box: Box, run: Run) -> int:
    return int(next(one["pid"] for one in run.dossier()["processes"]))


def heard_with(run: Run, util: int) -> None:
    """Until the supervisor has looked at the GPUs as they are now, twice."""
    for _ in range(2):
        listen(run, until=lambda story: story.signals and story.signals.gpu_util == util)


def test_a_process_outside_is_named_by_number_and_memory_alone(rig: Box, gpus: FakeGpus) -> None:
    gpus.set(FakeGpu(processes=[(0, 39.5, NOWHERE)]))
    outside = f"pid {NOWHERE} (outside of this container: not visible from here)"
    assert rig.prove_clean().faults == (f"{outside} holds 39.5 GiB of GPU 0",)


def test_one_that_has_the_number_of_a_process_in_here_is_not_taken_for_it(rig: Box, gpus: FakeGpus) -> None:
    gpus.set(FakeGpu(processes=[(0, 39.5, 1)]))
    assert rig.prove_clean().faults == (
        "pid 1 (outside of this container: not visible from here) holds 39.5 GiB of GPU 0",
    )


def test_our_own_server_is_no_stranger_whatever_its_number_is_outside(rig: Box, gpus: FakeGpus) -> None:
    run, server = started(rig)
    for number, util in ((NOWHERE, 7), (1, 8)):
        gpus.set(FakeGpu(processes=[(server, 8.0, number)], util=util))
        heard_with(run, util)
    report = run.stop(0.0)
    assert (report.box_changed, report.faults) == ((), ())


@pytest.mark.parametrize(
    ("arrives", "told"),
    [
        (FakeGpu(util=7, processes=[(0, 39.5, NOWHERE)]), f"pid {NOWHERE} (outside of this container"),
        (FakeGpu(util=7, used_gb=40.0), "GPU 0 holds 40.0 GiB that no process owns"),
    ],
    ids=["told by its number", "not told"],
)
def test_who_comes_from_outside_during_a_launch_makes_it_void(
    rig: Box, gpus: FakeGpus, arrives: FakeGpu, told: str
) -> None:
    assert rig.prove_clean().clean
    run, _ = started(rig)
    gpus.set(arrives)
    heard_with(run, 7)
    (changed,) = run.stop(0.0).box_changed
    assert changed.startswith(f"after the launch {told}")


def test_a_number_of_our_servers_that_somebody_outside_has_is_told_when_ours_is_gone(rig: Box, gpus: FakeGpus) -> None:
    run, server = started(rig)
    gpus.set(FakeGpu(util=7, processes=[(server, 8.0, NOWHERE), (0, 30.0, server)]))
    heard_with(run, 7)
    (changed,) = run.stop(0.0).box_changed
    assert changed.startswith(f"after the launch pid {server} (outside of this container")
