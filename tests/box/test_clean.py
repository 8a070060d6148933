"""Clean or not: leftovers of ours are swept, everything else is named and left alone."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from patchbisect.box import Box, LaunchSpec, Run, open_box
from patchbisect.box.agent.cleaning import unreadable
from patchbisect.box.agent.gpus import Gpus
from patchbisect.testing.fake_gpus import FakeGpu, FakeGpus
from tests.box.lab import alive, children_of_our_launches, launch, leased, links_into, listen, settings_for, until_log

pytestmark = pytest.mark.ci


@pytest.fixture
def gpus(tmp_path: Path) -> FakeGpus:
    return FakeGpus(tmp_path, FakeGpu(), FakeGpu(used_gb=0.6))


@pytest.fixture
def rig(tmp_path: Path, gpus: FakeGpus) -> Iterator[Box]:
    settings = settings_for(
        tmp_path, agent_python=str(gpus.python), lease_directory=str(tmp_path / "lease"), gpu_budget_s=0.3
    )
    with leased(settings, tmp_path) as box:
        yield box


@pytest.fixture
def colleague() -> Iterator[int]:
    """A process that is none of ours."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", "--api-key", "hunter2hunter2"])
    yield process.pid
    process.kill()
    process.wait()


def test_a_box_without_gpus_says_why(box: Box) -> None:
    facts = box.hello()
    assert facts.gpu_source == "none"
    assert "nvidia-smi is not on PATH" in facts.gpu_why
    assert box.prove_clean().clean


def test_gpus_are_told_with_their_source(rig: Box) -> None:
    facts = rig.hello()
    assert facts.gpu_source == "nvml"
    assert [gpu.uuid for gpu in facts.gpus] == ["GPU-0", "GPU-1"]
    assert facts.driver == "580.1"


def test_a_process_on_a_gpu_is_named_with_user_command_and_memory_and_not_touched(
    rig: Box, gpus: FakeGpus, colleague: int
) -> None:
    gpus.set(FakeGpu(), FakeGpu(used_gb=41.5, processes=[(colleague, 41.0)]))
    report = rig.prove_clean()
    assert not report.clean
    (fault,) = report.faults
    assert f"pid {colleague} (root: " in fault or f"pid {colleague} (" in fault
    assert "holds 41.0 GiB of GPU 1" in fault
    assert "hunter2" not in fault, "a command line may hold secrets"
    assert alive(colleague)


def test_who_is_in_the_way_is_waited_for_and_told_once(rig: Box, gpus: FakeGpus, colleague: int) -> None:
    gpus.set(FakeGpu(), FakeGpu(processes=[(colleague, 41.0)]))
    told: list[str] = []

    def say(text: str) -> None:
        told.append(text)
        gpus.set(FakeGpu(), FakeGpu(used_gb=0.6))

    report = rig.prove_clean(wait_s=60.0, say=say)
    assert report.clean
    assert report.waited_s > 0
    (text,) = told
    assert text.startswith(f"waiting up to 60 s for the box: pid {colleague} (")


def test_who_stays_is_named_when_the_wait_is_over(rig: Box, gpus: FakeGpus, colleague: int) -> None:
    gpus.set(FakeGpu(), FakeGpu(processes=[(colleague, 41.0)]))
    told: list[str] = []
    report = rig.prove_clean(wait_s=2.5, say=told.append)
    assert not report.clean
    assert f"pid {colleague} (" in report.faults[0]
    assert report.waited_s >= 2.5
    assert len(told) == 1


def test_memory_that_nobody_owns_is_a_fault_and_the_baseline_is_remembered(rig: Box, gpus: FakeGpus) -> None:
    assert rig.prove_clean().clean
    gpus.set(FakeGpu(used_gb=0.9), FakeGpu(used_gb=0.6))
    assert rig.prove_clean().clean
    gpus.set(FakeGpu(used_gb=1.3), FakeGpu(used_gb=0.6))
    (fault,) = rig.prove_clean().faults
    assert fault == "GPU 0 holds 1.3 GiB that no process owns (idle: 0.5)"


NVIDIA_SMI = """\
#!/bin/sh
case $1 in
*=index) echo 0 ;;
*driver_version) echo 580.1 ;;
*utilization.gpu) echo '0, GPU-0, Fake RTX, 98304, {used}, 0' ;;
esac
"""


def through_nvidia_smi(folder: Path, *, used: str) -> tuple[str, ...]:
    """A prefix behind which ``nvidia-smi`` says that so many MiB of its one GPU are used."""
    program = folder / "bin" / "nvidia-smi"
    program.parent.mkdir(exist_ok=True)
    program.write_text(NVIDIA_SMI.format(used=used))
    program.chmod(0o755)
    return ("env", f"PATH={program.parent}:{os.environ['PATH']}")


def test_a_baseline_that_nvidia_smi_told_is_not_held_against_nvml(tmp_path: Path, gpus: FakeGpus) -> None:
    gpus.set(FakeGpu(used_gb=0.9))  # with what the driver has reserved, which nvidia-smi leaves out
    common = {"lease_directory": str(tmp_path / "lease"), "gpu_budget_s": 0.3}
    prefix = through_nvidia_smi(tmp_path, used="1")
    with leased(settings_for(tmp_path, prefix=prefix, **common), tmp_path) as box:
        assert box.hello().gpu_source == "nvidia-smi"
        assert box.prove_clean().clean
    with leased(settings_for(tmp_path, agent_python=str(gpus.python), **common), tmp_path) as box:
        assert box.prove_clean().faults == ()


def test_a_gpu_whose_memory_nvidia_smi_does_not_tell_is_a_fault(tmp_path: Path) -> None:
    prefix = through_nvidia_smi(tmp_path, used="[Insufficient Permissions]")
    with leased(settings_for(tmp_path, prefix=prefix, lease_directory=str(tmp_path / "lease")), tmp_path) as box:
        (fault,) = box.prove_clean().faults
    assert "memory of GPU 0: [Insufficient Permissions]" in fault


@pytest.mark.parametrize("lacks", [True, False])
def test_where_nvml_refuses_no_installation_of_it_is_advised(lacks: bool) -> None:
    gpus = cast(Gpus, SimpleNamespace(why="NVML: Insufficient Permissions", lacks_pynvml=lacks, absent=[]))
    assert ("pip install" in unreadable(gpus)) is lacks


def test_only_the_gpus_of_this_box_count(tmp_path: Path, gpus: FakeGpus, colleague: int) -> None:
    gpus.set(FakeGpu(processes=[(colleague, 90.0)]), FakeGpu())
    settings = settings_for(tmp_path, agent_python=str(gpus.python), gpus=(1,), lease_directory=str(tmp_path / "l"))
    with leased(settings, tmp_path) as box:
        assert box.prove_clean().clean
        assert [gpu.index for gpu in box.hello().gpus] == [1]


def test_a_gpu_that_the_settings_name_and_the_machine_lacks_is_a_fault(tmp_path: Path, gpus: FakeGpus) -> None:
    settings = settings_for(tmp_path, agent_python=str(gpus.python), gpus=(1, 7), lease_directory=str(tmp_path / "l"))
    with leased(settings, tmp_path) as box:
        (fault,) = box.prove_clean().faults
        told = next(check for check in box.doctor() if check.check == "GPUs")
    assert fault == "this machine has no GPU 7, which `gpus` of the box names"
    assert (told.ok, told.detail) == (False, fault)
    assert "correct `gpus` of the box" in told.remedy


def test_memory_that_does_not_come_back_is_told_by_stop(rig: Box, gpus: FakeGpus) -> None:
    rig.prove_clean()
    run = launch(rig, "--line", "up", "--end", "hang")
    listen(run, until=until_log(b"up"))
    gpus.set(FakeGpu(used_gb=30.0), FakeGpu())
    report = run.stop(0.0)
    assert report.ended
    assert report.faults == ("GPU 0 holds 30.0 GiB that no process owns (idle: 0.5)",)


def test_signals_carry_the_fullest_and_the_busiest_gpu(rig: Box, gpus: FakeGpus) -> None:
    gpus.set(FakeGpu(used_gb=3.0, util=7), FakeGpu(used_gb=20.0, util=5))
    run = launch(rig, "--line", "up", "--end", "hang")
    story = listen(run, until=lambda s: s.signals and s.signals.gpu_used_gb)
    assert story.signals is not None
    assert (story.signals.gpu_used_gb, story.signals.gpu_util) == (20.0, 7)
    run.stop(0.0)


@pytest.mark.parametrize("what", ["falls off", "driver", "foreign process"])
def test_a_box_that_changes_during_a_launch_is_told(rig: Box, gpus: FakeGpus, colleague: int, what: str) -> None:
    run = launch(rig, "--line", "up", "--end", "hang")
    sampled = lambda s: s.signals is not None  # noqa: E731
    listen(run, until=sampled)
    if what == "falls off":
        gpus.set(FakeGpu())
    elif what == "driver":
        gpus.set(FakeGpu(), FakeGpu(), driver="590.0")
    else:
        gpus.set(FakeGpu(processes=[(colleague, 8.0)]), FakeGpu(util=99))
        listen(run, until=lambda s: s.signals and s.signals.gpu_util == 99)
        gpus.set(FakeGpu(), FakeGpu())
    report = run.stop(0.0)
    expected = {
        "falls off": "GPU GPU-1 fell off",
        "driver": "the driver was 580.1 and is now 590.0",
        "foreign process": f"pid {colleague} (",
    }
    assert any(said.startswith(expected[what]) for said in report.box_changed), report


def test_a_port_in_use_is_named(box: Box) -> None:
    port = box.free_port()
    with socket.create_server(("127.0.0.1", port)):
        (fault,) = box.prove_clean(port).faults
        assert fault.startswith(f"port {port} is held by pid {os.getpid()} (")
    assert box.prove_clean(port).clean


def test_leftovers_of_an_earlier_client_are_swept(tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    with leased(settings, tmp_path) as box:
        run = launch(box, "--grandchildren", "2", "--escape", "--line", "up", "--end", "hang")
        listen(run, until=until_log(b"up"))
    with leased(settings, tmp_path) as box:
        report = box.prove_clean()
        assert report.clean
        assert report.swept == (f"launch {run.launch_id} had been left running: 3 processes ended",)


def test_leftovers_are_swept_although_their_supervisor_was_killed(tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    with leased(settings, tmp_path) as box:
        run = launch(box, "--title", "sglang::x", "--grandchildren", "2", "--escape", "--line", "up", "--end", "hang")
        listen(run, until=lambda s: b"up" in s.log and s.signals)
        supervisor = int(
            (tmp_path / "box" / "runs" / run.launch_id / "state.json")
            .read_text()
            .split('"supervisor": ')[1]
            .split(",")[0]
        )
        os.kill(supervisor, signal.SIGKILL)
        report = box.prove_clean()
        assert report.swept == (f"launch {run.launch_id} had been left running: 3 processes ended",)


def test_the_server_of_who_leases_other_gpus_is_no_leftover(tmp_path: Path, gpus: FakeGpus) -> None:
    shared = {"agent_python": str(gpus.python), "lease_directory": str(tmp_path / "lease")}
    with (
        leased(settings_for(tmp_path, gpus=(0,), **shared), tmp_path) as one,
        leased(settings_for(tmp_path, gpus=(1,), **shared), tmp_path) as other,
    ):
        run = launch(one, "--line", "up", "--end", "hang")
        listen(run, until=until_log(b"up"))
        report = other.prove_clean()
        assert report.clean
        assert report.swept == ()
        assert run.stop(0.0).killed


@pytest.mark.ci
def test_boxes_that_share_a_machine_are_nothing_to_each_other(tmp_path: Path, gpus: FakeGpus) -> None:
    """Each has a GPU of its own. What a server of one holds is neither foreign nor left over for the other."""
    shared = {"agent_python": str(gpus.python), "lease_directory": str(tmp_path / "lease")}
    with (
        leased(settings_for(tmp_path, gpus=(0,), **shared), tmp_path) as one,
        leased(settings_for(tmp_path, gpus=(1,), **shared), tmp_path) as other,
    ):
        assert {held.gpus for held in one.leases()} == {(0,), (1,)}
        runs = {box: launch(box, "--line", "up", "--end", "hang") for box in (one, other)}
        for run in runs.values():
            listen(run, until=until_log(b"up"))
        first, second = (server_of(run, tmp_path) for run in runs.values())
        gpus.set(FakeGpu(processes=[(first, 40.0)], util=98), FakeGpu(processes=[(second, 7.0)], util=13))
        heard = listen(runs[other], until=lambda s: s.signals and s.signals.gpu_util == 13).signals
        assert heard is not None
        assert heard.gpu_used_gb == 7.5
        assert runs[other].stop(0.0).box_changed == ()
        gpus.set(FakeGpu(processes=[(first, 40.0)], util=98), FakeGpu())
        assert other.prove_clean().clean
        again = launch(other, "--line", "up", "--end", "hang")
        listen(again, until=until_log(b"up"))
        assert again.stop(0.0).faults == ()
        assert alive(first), "the server of the other box runs on"
        gpus.set(FakeGpu(), FakeGpu())
        report = runs[one].stop(0.0)
        assert (report.box_changed, report.faults) == ((), ())


def server_of(run: Run, folder: Path) -> int:
    """The pid of a launch's server."""
    found = children_of_our_launches(folder / "box" / "runs" / run.launch_id)
    return next(int(line.split()[0]) for line in found if "fake_server" in line)


@pytest.mark.ci
def test_boxes_that_share_a_machine_never_draw_the_same_port(tmp_path: Path) -> None:
    boxes = [settings_for(tmp_path, gpus=gpus) for gpus in ((0,), (1, 2), (3,))]
    drawn = []
    for settings in boxes:
        with open_box("local", settings, state=tmp_path) as box:
            drawn.append({box.free_port() for _ in range(20)})
    assert all(not one & other for one, other in itertools.combinations(drawn, 2))


def test_a_short_tmpdir_of_a_launch_that_is_gone_is_removed(box: Box, tmp_path: Path) -> None:
    dead, foreign = (Path(f"/tmp/pb-test-{os.getpid()}-{name}") for name in ("dead", "foreign"))
    dead.symlink_to(tmp_path / "box" / "runs" / "gone")
    foreign.symlink_to(tmp_path / "elsewhere")
    try:
        box.prove_clean()
        assert not dead.is_symlink()
        assert foreign.is_symlink()
    finally:
        foreign.unlink()


def test_what_somebody_put_beside_the_launches_is_passed_over(box: Box, tmp_path: Path) -> None:
    (tmp_path / "box" / "runs" / "my notes!").mkdir(parents=True)
    (tmp_path / "box" / "runs" / "notes").mkdir()
    assert box.prove_clean().clean


def test_a_server_kept_on_purpose_is_named_and_not_swept(box: Box) -> None:
    run = launch(box, "--line", "up", "--end", "hang", keep=True)
    listen(run, until=until_log(b"up"))
    report = box.prove_clean()
    (fault,) = report.faults
    assert fault.startswith(f"launch {run.launch_id} was kept running on purpose (port 0)")
    assert f"`invoke stop --run {run.launch_id}`" in fault
    assert run.stop(0.0).killed


def test_too_little_room_is_a_fault(tmp_path: Path) -> None:
    with leased(settings_for(tmp_path, min_free_gb=1e9), tmp_path) as box:
        (fault,) = box.prove_clean().faults
        assert "GiB are free" in fault


@pytest.mark.ci
def test_many_launches_leave_nothing(box: Box, tmp_path: Path) -> None:
    for number in range(5):
        run = box.start(LaunchSpec(f"n{number}", (sys.executable, "-c", "pass")))
        listen(run)
        assert run.stop(0.0).ended
    assert links_into(tmp_path) == []
