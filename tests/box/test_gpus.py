"""What drivers tell of GPUs, and what they do not: never clean where somebody may be there, never void for nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from patchbisect.box import Box, Run
from patchbisect.box.agent import cleaning, doctor, gpus, lease, senses
from patchbisect.box.agent.gpus import GpuProcess, Gpus, InTime
from patchbisect.box.agent.senses import GpuWatch
from patchbisect.errors import UsageError
from patchbisect.testing.fake_gpus import FakeGpu, FakeGpus
from tests.box.lab import launch, leased, listen, settings_for, until_log

pytestmark = pytest.mark.ci

MPS = "nvidia-cuda-mps-server"


@pytest.fixture
def fake(tmp_path: Path) -> FakeGpus:
    return FakeGpus(tmp_path, FakeGpu(), FakeGpu(used_gb=0.6), FakeGpu())


@contextmanager
def box_with(fake: FakeGpus, **settings: object) -> Iterator[Box]:
    folder = fake.file.parent
    shared = {"agent_python": str(fake.python), "lease_directory": str(folder / "lease"), "gpu_budget_s": 0.3}
    with leased(settings_for(folder, **shared, **settings), folder) as box:
        yield box


@pytest.fixture
def rig(fake: FakeGpus) -> Iterator[Box]:
    with box_with(fake) as box:
        yield box


@contextmanager
def running(name: str) -> Iterator[int]:
    """A process that a process list calls so."""
    process = subprocess.Popen([name, "-c", "import signal; signal.pause()"], executable=sys.executable)
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def started(box: Box) -> Run:
    run = launch(box, "--line", "up", "--end", "hang")
    listen(run, until=until_log(b"up"))
    return run


def heard_with(run: Run, util: int) -> None:
    """Until the supervisor has looked at the GPUs as they are now, twice."""
    for _ in range(2):
        listen(run, until=lambda story: story.signals and story.signals.gpu_util == util)


# .. one GPU that is lost


def test_one_that_is_lost_hides_no_other(rig: Box, fake: FakeGpus) -> None:
    fake.set(FakeGpu(), FakeGpu(lost="GPU is lost"), FakeGpu())
    assert [gpu.uuid for gpu in rig.hello().gpus] == ["GPU-0", "GPU-2"]
    assert rig.prove_clean().faults == ("the GPUs of this machine cannot be read (NVML: GPU 1: GPU is lost)",)


def test_one_that_falls_off_during_a_launch_is_the_only_one_named(rig: Box, fake: FakeGpus) -> None:
    run = started(rig)
    fake.set(FakeGpu(), FakeGpu(lost="GPU is lost"), FakeGpu())
    assert run.stop(0.0).box_changed == ("GPU GPU-1 fell off (NVML: GPU 1: GPU is lost)",)


def test_one_that_is_lost_is_nothing_to_a_box_of_others(fake: FakeGpus) -> None:
    with box_with(fake, gpus=(0, 2)) as box:
        run = started(box)
        fake.set(FakeGpu(), FakeGpu(lost="GPU is lost"), FakeGpu())
        report = run.stop(0.0)
        assert (report.box_changed, report.faults) == ((), ())
        assert box.prove_clean().clean


def test_one_that_is_lost_between_proof_and_launch_is_noticed(rig: Box, fake: FakeGpus) -> None:
    assert rig.prove_clean().clean
    fake.set(FakeGpu(), FakeGpu(lost="GPU is lost"), FakeGpu())
    (changed,) = started(rig).stop(0.0).box_changed
    assert changed == "not all GPUs could be read when the launch began (NVML: GPU 1: GPU is lost)"


def test_a_driver_that_refuses_is_told_once_for_all_of_them(rig: Box, fake: FakeGpus) -> None:
    run = started(rig)
    fake.set(broken="version mismatch")
    changed = run.stop(0.0).box_changed
    assert sum("version mismatch" in said for said in changed) == 1
    assert any(said.startswith("GPU GPU-0, GPU-1, GPU-2 fell off (NVML: version mismatch") for said in changed)


# .. lists of processes


@pytest.mark.parametrize("said", ["Insufficient Size", "No Permission", "Unknown"])
def test_a_list_of_processes_that_is_not_told_is_not_an_empty_one(rig: Box, fake: FakeGpus, said: str) -> None:
    fake.set(FakeGpu(), FakeGpu(unlisted=said), FakeGpu())
    (fault,) = rig.prove_clean().faults
    assert fault == f"the GPUs of this machine cannot be read (NVML: processes of GPU 1: {said})"


def test_a_gpu_that_has_no_list_of_processes_is_judged_by_its_memory(rig: Box, fake: FakeGpus) -> None:
    fake.set(FakeGpu(), FakeGpu(unlisted="Not Supported"), FakeGpu())
    assert rig.prove_clean().clean
    fake.set(FakeGpu(), FakeGpu(unlisted="Not Supported", used_gb=9.0), FakeGpu())
    assert rig.prove_clean().faults == ("GPU 1 holds 9.0 GiB that no process owns (idle: 0.5)",)


def test_a_process_whose_memory_is_not_told_is_named_without_it(rig: Box, fake: FakeGpus) -> None:
    with running("train") as pid:
        fake.set(FakeGpu(processes=[(pid, 30.0)], told=False), FakeGpu(), FakeGpu())
        (fault,) = rig.prove_clean().faults
    assert fault.startswith(f"pid {pid} (")
    assert fault.endswith(": train) holds memory of GPU 0")


# .. programs that live on the GPUs


def test_an_mps_server_is_no_stranger_and_its_clients_are(rig: Box, fake: FakeGpus) -> None:
    with running(MPS) as server, running("train") as client:
        fake.set(FakeGpu(processes=[(server, 0.03)]), FakeGpu(), FakeGpu())
        assert rig.prove_clean().clean
        fake.set(FakeGpu(processes=[(server, 0.03), (client, 0.2)], clients=[client]), FakeGpu(), FakeGpu())
        (fault,) = rig.prove_clean().faults
    assert fault.startswith(f"pid {client} (")
    assert fault.endswith(": train) holds 0.2 GiB of GPU 0")


def test_an_mps_server_that_our_own_launch_brings_makes_no_trial_void(rig: Box, fake: FakeGpus) -> None:
    run = started(rig)
    with running(MPS) as server:
        fake.set(FakeGpu(processes=[(server, 0.03)], util=7), FakeGpu(), FakeGpu())
        heard_with(run, 7)
        report = run.stop(0.0)
    assert (report.box_changed, report.faults) == ((), ())


def test_memory_of_a_resident_belongs_to_the_baseline_and_not_more_of_it(rig: Box, fake: FakeGpus) -> None:
    with running(MPS) as server:
        fake.set(FakeGpu(processes=[(server, 8.0)]), FakeGpu(), FakeGpu())
        (fault,) = rig.prove_clean().faults
    assert fault.startswith(f"GPU 0 holds 8.5 GiB that belong to pid {server} (")
    assert fault.endswith(f": {MPS}), or to nobody (idle: 1.5)")


def test_who_lives_on_the_gpus_is_said_by_the_settings(fake: FakeGpus) -> None:
    with running("gnome-shell") as desktop:
        fake.set(FakeGpu(processes=[(desktop, 0.2)]), FakeGpu(), FakeGpu())
        with box_with(fake, gpu_residents=("gnome-shell",)) as box:
            assert box.prove_clean().clean
        with box_with(fake) as box:
            assert not box.prove_clean().clean


def test_one_of_ours_that_the_driver_lists_too_long_is_no_stranger(rig: Box, fake: FakeGpus) -> None:
    run = started(rig)
    server = int(run.dossier()["processes"][0]["pid"])
    fake.set(FakeGpu(processes=[(0, 30.0, server)], util=7), FakeGpu(), FakeGpu())
    heard_with(run, 7)
    report = run.stop(0.0)
    assert report.box_changed == ()
    assert report.faults[0].startswith(f"pid {server} (")


# .. none at all


def of_a_machine(monkeypatch: pytest.MonkeyPatch, folder: Path, *, files: list[str]) -> list[str]:
    """What is wrong with a machine whose driver shows no GPU, and that has these files of GPUs."""
    monkeypatch.setattr(cleaning, "device_files", lambda: files)
    monkeypatch.setattr(Gpus, "_open_nvml", lambda self: NoGpu())
    box = {"gpus": [], "gpu_residents": [], "gpu_idle_gb": 1.5, "gpu_slack_gb": 0.5}
    cleaner = cleaning.Cleaner(str(folder), box=box, leases=None, fence=1)  # type: ignore[arg-type]
    return cleaner._on_gpus(wait_s=0.0).faults


class NoGpu:
    def nvmlDeviceGetCount(self) -> int:
        return 0

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.1"


def test_a_driver_without_a_gpu_is_no_fault_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert of_a_machine(monkeypatch, tmp_path, files=[]) == []
    assert of_a_machine(monkeypatch, tmp_path, files=["/dev/nvidia0"]) == [
        "the GPUs of this machine cannot be read (the driver shows none)"
    ]


def test_gpus_that_are_gone_after_a_reboot_are_not_forgotten(fake: FakeGpus) -> None:
    with box_with(fake) as box:
        assert box.prove_clean().clean
    fake.set(broken="Driver Not Loaded")
    with box_with(fake) as rebooted:
        (fault,) = rebooted.prove_clean().faults
        baselines = f"{rebooted.settings.directory}/baseline.json"
    said = "the GPUs that this machine had are gone (NVML: Driver Not Loaded; nvidia-smi is not on PATH)"
    assert fault == f"{said}: is the driver loaded? (If they were taken out: rm {baselines})"


# .. a box that uses none


def test_who_computes_is_not_in_the_way_of_a_box_without_gpus(fake: FakeGpus) -> None:
    with running("train") as colleague, box_with(fake, cpu_only=True) as box:
        fake.set(FakeGpu(processes=[(colleague, 40.0)]), FakeGpu(lost="GPU is lost"), FakeGpu())
        assert box.prove_clean().clean
        run = started(box)
        fake.set(broken="Driver Not Loaded")
        report = run.stop(0.0)
        assert (report.box_changed, report.faults) == ((), ())
        assert box.hello().gpu_why == "this box uses no GPU"
        assert [check.ok for check in box.doctor() if check.check == "GPUs"] == [True]


@pytest.mark.parametrize(
    ("gpus", "there", "shared"),
    [([], ["null", "nvidia0"], True), ([1], ["nvidia1"], True), (None, ["nvidia0"], False), ([], ["null"], False)],
)
def test_a_box_that_uses_no_gpu_keeps_a_book_of_its_own(
    monkeypatch: pytest.MonkeyPatch, gpus: list[int] | None, there: list[str], shared: bool
) -> None:
    monkeypatch.setattr(lease.os, "listdir", lambda path: there)
    found = lease.lease_dir("/home/ada/box", {"gpus": gpus, "lease_dir": ""})
    assert found == (lease.MACHINE_WIDE_LEASES if shared else "/home/ada/box/lease")


# .. whose a number is


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> tuple[GpuWatch, list[str]]:
    """One who sees a number that no process here has, on a machine whose /proc hides strangers."""
    monkeypatch.setattr(senses, "hides_others", lambda: True)
    monkeypatch.setattr(senses, "pids_of_our_own", lambda: False)
    said: list[str] = []
    found = GpuWatch([], residents=(), note=said.append)
    found._gpus.source = "nvml"
    monkeypatch.setattr(Gpus, "processes", lambda self: [GpuProcess(0, 4_000_000, 1.0)])
    return found, said


def test_a_stranger_whom_proc_hides_is_noticed_when_he_stays(watch: tuple[GpuWatch, list[str]]) -> None:
    looks, said = watch
    looks.look_for_foreigners({1})
    assert said == [], "it may have ended just now"
    looks.look_for_foreigners({1})
    assert said == ["pid 4000000 (?: not visible from here) came to GPU 0 during the trial"]


def test_one_of_ours_that_ended_is_not_taken_for_him(watch: tuple[GpuWatch, list[str]]) -> None:
    looks, said = watch
    for _ in range(3):
        looks.look_for_foreigners({4_000_000})
    assert said == []


@pytest.mark.parametrize(
    ("name", "value"),
    [("hides_others", False), ("pids_of_our_own", True)],
    ids=["a thread of ours that ended (560 names those)", "ours under the host's number"],
)
def test_a_number_that_may_be_ours_is_not_taken_for_him(
    watch: tuple[GpuWatch, list[str]], monkeypatch: pytest.MonkeyPatch, name: str, value: bool
) -> None:
    monkeypatch.setattr(senses, name, lambda: value)
    looks, said = watch
    for _ in range(3):
        looks.look_for_foreigners({1})
    assert said == []


# .. which GPUs a server sees


@pytest.mark.parametrize("visible", ["1", "2,1", "GPU-1", "GPU-0, GPU-1"])
def test_a_server_that_would_see_gpus_of_others_is_not_started(fake: FakeGpus, visible: str) -> None:
    with box_with(fake, gpus=(0, 2)) as box:
        with pytest.raises(UsageError, match="which is not among `gpus` of the box"):
            launch(box, "--line", "up", env={"CUDA_VISIBLE_DEVICES": visible})
        assert box.launches() == ()


@pytest.mark.parametrize("visible", ["2,0", "GPU-2", "GPU-2,GPU-0", "", "-1"])
def test_a_server_may_see_some_of_its_own(fake: FakeGpus, visible: str) -> None:
    with box_with(fake, gpus=(0, 2)) as box:
        run = launch(box, "--show-env", "CUDA_VISIBLE_DEVICES", env={"CUDA_VISIBLE_DEVICES": visible})
        assert listen(run).log.decode().splitlines()[0] == f"CUDA_VISIBLE_DEVICES={visible}"
        run.stop(0.0)


# .. nvidia-smi

SMI = """\
#!/bin/sh
case $1 in
*=index) echo 0 ;;
*driver_version) echo 580.1 ;;
*compute-apps*) {apps} ;;
*utilization.gpu) {memory} ;;
esac
"""
READS = "echo '0, GPU-0, Fake RTX, 98304, 1, 0'"
FAILS = "echo 'Unable to determine the device handle for GPU0000:07:00.0: Unknown Error'; exit 255"


@contextmanager
def box_with_smi(
    folder: Path, *, apps: str = "true", memory: str = READS, named: tuple[int, ...] = ()
) -> Iterator[Box]:
    """A box whose ``nvidia-smi`` answers with these commands."""
    smi = folder / "bin" / "nvidia-smi"
    smi.parent.mkdir()
    smi.write_text(SMI.format(apps=apps, memory=memory))
    smi.chmod(0o755)
    prefix = ("env", f"PATH={smi.parent}:{os.environ['PATH']}")
    shared = {"lease_directory": str(folder / "lease"), "gpu_budget_s": 0.1}
    with leased(settings_for(folder, prefix=prefix, gpus=named, **shared), folder) as box:
        yield box


def through_smi(folder: Path, **said: Any) -> tuple[str, ...]:
    with box_with_smi(folder, **said) as box:
        return box.prove_clean().faults


def test_a_stranger_who_came_is_seen_at_the_end_where_nvidia_smi_is_not_asked_before(tmp_path: Path) -> None:
    arrived = tmp_path / "arrived"
    with running("train") as colleague, box_with_smi(tmp_path, apps=f"cat {arrived} 2>/dev/null; true") as box:
        assert box.prove_clean().clean
        run = started(box)
        arrived.write_text(f"GPU-0, {colleague}, 40000\n")
        (changed,) = run.stop(0.0).box_changed
    assert changed.startswith(f"after the launch pid {colleague} (")
    assert changed.endswith(": train) holds 39.1 GiB of GPU 0")


def test_an_idle_gpu_that_nvidia_smi_tells_is_clean(tmp_path: Path) -> None:
    assert through_smi(tmp_path) == ()


@pytest.mark.parametrize("failing", ["apps", "memory"])
def test_an_nvidia_smi_that_fails_says_why(tmp_path: Path, failing: str) -> None:
    (fault,) = through_smi(tmp_path, **{failing: FAILS}, named=(0,))
    assert "cannot be read (nvidia-smi: Unable to determine the device handle for GPU0000:07:00.0" in fault


@pytest.mark.parametrize("cell", ["[N/A]", "[Not Supported]", "[Insufficient Permissions]", "[GPU is lost]"])
def test_a_cell_without_a_number_is_no_memory(tmp_path: Path, cell: str) -> None:
    (fault,) = through_smi(tmp_path, memory=f"echo '0, GPU-0, Fake RTX, {cell}, {cell}, {cell}'")
    assert f"cannot be read (nvidia-smi: memory of GPU 0: {cell})" in fault


def test_a_row_without_an_index_is_a_gpu_that_cannot_be_read(tmp_path: Path) -> None:
    (fault,) = through_smi(tmp_path, memory=f"{READS}; echo '[Unknown Error], [Unknown Error], x, 1, 2, 3'", named=(0,))
    assert "cannot be read" in fault


def test_a_process_whose_memory_nvidia_smi_does_not_tell_is_named(tmp_path: Path) -> None:
    (fault,) = through_smi(tmp_path, apps=f"echo 'GPU-0, {os.getpid()}, [N/A]'")
    assert fault.startswith(f"pid {os.getpid()} (")
    assert fault.endswith("holds memory of GPU 0")


# .. a slow driver


def test_the_first_answer_may_take_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "ANSWER_S", 0.01)

    def slowly() -> str:
        signal.sigtimedwait([], 0.1)
        return "there"

    with pytest.raises(TimeoutError):
        InTime()(slowly)
    assert InTime()(slowly, within_s=30.0) == "there"


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("RM has detected an NVML/RM version mismatch.", "reboot, or unload the old one"),
        ("Driver/library version mismatch", "reboot, or unload the old one"),
        ("GPU requires restart", "nvidia-smi --gpu-reset"),
        ("GPU requires reset", "nvidia-smi --gpu-reset"),
        ("Unknown Error", "restart the container"),
        ("something new", "nvidia-smi -q"),
    ],
)
def test_doctor_says_what_mends_a_driver_that_refuses(
    fake: FakeGpus, monkeypatch: pytest.MonkeyPatch, said: str, remedy: str
) -> None:
    class Refusing(Gpus):
        def _open_nvml(self) -> None:
            self.why = f"NVML: {said}"

    monkeypatch.setattr(doctor, "Gpus", Refusing)
    monkeypatch.setattr(doctor, "device_files", lambda: ["/dev/nvidia0"])
    (check,) = doctor._gpus("", {"gpus": []})
    assert not check["ok"]
    assert said in check["detail"]
    assert remedy in check["remedy"]
