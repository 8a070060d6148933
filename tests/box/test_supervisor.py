"""The supervisor's own accidents: no room for its state, a reading that fails, the kernel's words."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from patchbisect.box import Box, LaunchSpec
from patchbisect.box.agent import cleaning, gpus, stopping, supervisor
from patchbisect.box.agent.gpus import Gpu, Gpus
from patchbisect.box.agent.processes import process_table, wait_gone
from patchbisect.box.agent.rundir import RunDir
from patchbisect.box.agent.senses import GpuWatch, kernel_kills
from tests.box.lab import alive, launch, listen, until_log

ONE, TWO = (Gpu(number, f"GPU-{number}", "Fake RTX", 96.0, 0.5, None) for number in (0, 1))


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    run = RunDir(str(tmp_path), "launch")
    Path(run.path).mkdir(parents=True)
    return run


def order(**more: Any) -> dict[str, Any]:
    return {
        "argv": [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"],
        "env": dict(os.environ),
        "python": "",
        "port": 0,
        "tree": "",
        "keep": False,
        "fence": 1,
        "gpus": [],
        "residents": [],
        "abandon_s": 60.0,
        **more,
    }


@pytest.fixture
def full_disk_after_start(monkeypatch: pytest.MonkeyPatch) -> None:
    save = supervisor.Supervisor._save_state

    def save_if_there_is_room(self: supervisor.Supervisor) -> None:
        if self._server != (0, 0):
            raise OSError(errno.ENOSPC, "No space left on device")
        save(self)

    monkeypatch.setattr(supervisor.Supervisor, "_save_state", save_if_there_is_room)


@pytest.mark.usefixtures("full_disk_after_start")
def test_a_server_whose_state_cannot_be_saved_is_ended(run: RunDir) -> None:
    started = supervisor.Supervisor(run, order())
    with pytest.raises(OSError, match="No space left"):
        started.start()
    server, _ = started._server
    assert server
    assert not alive(server)
    assert not any(proc.session == server for proc in process_table().values())


def test_a_gpu_has_fallen_off_when_two_readings_in_a_row_lack_it(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([[ONE, TWO], [ONE], [ONE, TWO], [ONE], [ONE]])
    monkeypatch.setattr(Gpus, "read", lambda self: next(readings))
    said: list[str] = []
    watch = GpuWatch([], residents=(), note=said.append)
    for number, fell_off in enumerate([False, False, False, True], 1):
        watch.read(number * 1000.0)
        assert any("GPU-1 fell off" in text for text in said) is fell_off, f"reading {number}"


# .. GPUs that can only be read in part, or not at all


class NotSupported(Exception):
    """What pynvml raises where a GPU does not have what is asked for."""


class Nvml:
    """An NVML that refuses what is named in ``refused``, for the GPU of that number."""

    NVMLError_NotSupported = NotSupported

    def __init__(self, **refused: int) -> None:
        self.refused = refused
        self.refusal: Exception = NotSupported("Not Supported")

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def __getattr__(self, name: str) -> Any:
        answers = {
            "nvmlDeviceGetHandleByIndex": lambda index: index,
            "nvmlSystemGetDriverVersion": lambda: "580.1",
            "nvmlDeviceGetMemoryInfo": lambda index: type("Memory", (), {"total": 96 << 30, "used": 1 << 29}),
            "nvmlDeviceGetUUID": lambda index: f"GPU-{index}",
            "nvmlDeviceGetName": lambda index: "Fake RTX",
            "nvmlDeviceGetUtilizationRates": lambda index: type("Rates", (), {"gpu": 7}),
            "nvmlDeviceGetComputeRunningProcesses": lambda index: [],
        }

        def asked(*index: int) -> Any:
            if index and self.refused.get(name) == index[0]:
                raise self.refusal
            return answers[name](*index)

        return asked


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Iterator[Nvml]:
    fake = Nvml()
    monkeypatch.setattr(Gpus, "_open_nvml", lambda self: fake)
    yield fake


def faults_of(folder: Path, *, named: Sequence[int] = ()) -> list[str]:
    box = {"gpus": list(named), "gpu_residents": [], "gpu_idle_gb": 1.5, "gpu_slack_gb": 0.5}
    cleaner = cleaning.Cleaner(str(folder), box=box, leases=None, fence=1)  # type: ignore[arg-type]
    return cleaner._on_gpus(wait_s=0.0).faults


def test_gpus_that_are_named_on_a_machine_that_has_none_are_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Gpus, "_open_nvml", lambda self: None)
    monkeypatch.setattr(Gpus, "_open_smi", lambda self: False)
    monkeypatch.setattr(cleaning, "device_files", list)
    assert faults_of(tmp_path) == []
    assert faults_of(tmp_path, named=(0, 1)) == ["this machine has no GPU, and `gpus` of the box names 0, 1"]


def test_a_gpu_without_utilisation_has_its_memory_read(nvml: Nvml, tmp_path: Path) -> None:
    nvml.refused = {"nvmlDeviceGetUtilizationRates": 0}
    assert [(gpu.used_gb, gpu.util) for gpu in Gpus().read()] == [(0.5, None), (0.5, 7.0)]
    assert faults_of(tmp_path) == []


def test_a_utilisation_that_fails_otherwise_is_told(nvml: Nvml, tmp_path: Path) -> None:
    nvml.refused = {"nvmlDeviceGetUtilizationRates": 0}
    nvml.refusal = RuntimeError("GPU is lost")
    (fault,) = faults_of(tmp_path)
    assert "cannot be read (NVML: GPU 0: GPU is lost)" in fault


def test_a_reading_that_breaks_off_is_not_clean(nvml: Nvml, tmp_path: Path) -> None:
    nvml.refused = {"nvmlDeviceGetMemoryInfo": 1}
    (fault,) = faults_of(tmp_path)
    assert "cannot be read (NVML: GPU 1: Not Supported)" in fault


@pytest.mark.parametrize("devices", [[], ["/dev/nvidia0"]], ids=["no GPUs", "GPUs"])
def test_gpus_that_are_there_and_cannot_be_read_are_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, devices: list[str]
) -> None:
    monkeypatch.setattr(Gpus, "_open_nvml", lambda self: None)
    monkeypatch.setattr(gpus.shutil, "which", lambda name: None)
    monkeypatch.setattr(cleaning, "device_files", lambda: devices)
    faults = faults_of(tmp_path)
    assert bool(faults) is bool(devices)
    assert all("cannot be read" in said and "nvidia-smi is not on PATH" in said for said in faults)


def test_a_driver_that_does_not_answer_is_told_and_not_waited_for_twice(
    nvml: Nvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpus, "ANSWER_S", 0.05)
    answered, asked = threading.Event(), []

    def hang(index: int) -> None:
        asked.append(index)
        answered.wait()

    fallen = Gpus()
    monkeypatch.setattr(nvml, "nvmlDeviceGetMemoryInfo", hang, raising=False)
    assert fallen.read() == []
    assert fallen.incomplete
    assert fallen.why == "NVML: the driver has not answered for 0 s"
    assert fallen.driver == ""
    assert fallen.processes() == []
    assert asked == [0], "a second question would wait behind the first"
    answered.set()


def test_a_thread_of_ours_on_a_gpu_is_no_stranger(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    watch = GpuWatch([], residents=(), note=said.append)
    watch._gpus.source = "nvml"
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    on_gpu = [gpus.GpuProcess(0, thread.native_id or 0, 1.0)]
    monkeypatch.setattr(Gpus, "processes", lambda self: on_gpu)
    watch.look_for_foreigners({os.getpid()})
    assert said == []
    watch.look_for_foreigners(set())
    assert [f"pid {os.getpid()} (" in text for text in said] == [True]
    done.set()
    thread.join()


# .. a colleague's locks


def test_a_lock_that_is_removed_while_we_look_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = tmp_path / "ours" / "lock", tmp_path / "theirs" / "lock"
    for path in (ours, theirs):
        path.parent.mkdir()
        path.touch()
    walk = os.walk

    def walk_slowly(top: str) -> Iterator[Any]:
        for step in list(walk(top)):
            yield step
            theirs.unlink(missing_ok=True)

    monkeypatch.setattr(stopping.os, "walk", walk_slowly)
    assert stopping.sweep_build_locks([str(tmp_path)], since=0.0) == [str(ours)]


@pytest.mark.ci
def test_a_supervisor_that_fails_leaves_its_last_words(box: Box, tmp_path: Path) -> None:
    run = launch(box, "--line", "up", "--end", "hang")
    listen(run, until=until_log(b"up"))
    folder = RunDir(str(tmp_path / "box"), run.launch_id)
    Path(folder.file("followed")).unlink()
    supervisor = folder.supervisor()
    assert supervisor is not None
    assert wait_gone([supervisor], 10.0) == []
    assert "FileNotFoundError" in Path(folder.file("supervisor.err")).read_text()
    assert run.stop(0.0).killed


@pytest.mark.ci
@pytest.mark.parametrize("adopted", [False, True])
def test_a_server_whose_directory_is_removed_does_not_live_on_unknown(box: Box, tmp_path: Path, adopted: bool) -> None:
    run = launch(box, "--grandchildren", "2", "--escape", "--line", "up", "--end", "hang", keep=True)
    listen(run, until=lambda story: b"up" in story.log and story.signals)
    folder = RunDir(str(tmp_path / "box"), run.launch_id)
    members = folder.members()
    if adopted:
        os.kill(folder.state()["supervisor"], signal.SIGKILL)
        listen(run, until=lambda story: folder.supervisor())
    shutil.rmtree(folder.path)
    assert len(members) == 3
    assert wait_gone(members, 20.0) == []


# .. what an exit carries


@pytest.fixture
def kernel_log() -> Iterator[tuple[int, socket.socket]]:
    """What /dev/kmsg is to its reader: one record a read, and nothing to wait for."""
    reader, writer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    reader.setblocking(False)
    yield reader.fileno(), writer
    reader.close()
    writer.close()


def test_the_kernels_lines_about_our_processes_are_told(kernel_log: tuple[int, socket.socket]) -> None:
    log, kernel = kernel_log
    ours = "Out of memory: Killed process 4242 (python3) total-vm:1kB, anon-rss:1kB"
    for text in ("eth0: link up", "Out of memory: Killed process 14242 (other)", ours):
        kernel.send(f"4,1234,99,-;{text}\n SUBSYSTEM=memory\n".encode())
    assert kernel_kills(log, {4242}) == [ours]
    assert kernel_kills(-1, {4242}) == []


def test_an_exit_carries_the_ranks_codes_and_the_kernels_lines(
    run: RunDir, monkeypatch: pytest.MonkeyPatch, kernel_log: tuple[int, socket.socket]
) -> None:
    log, kernel = kernel_log
    monkeypatch.setattr(supervisor, "open_kernel_log", lambda: log)
    watch = supervisor.Supervisor(run, order())
    watch._known = {(4242, 1): "sglang::scheduler_TP1"}
    watch._rank_exit = {"1": -9}
    kernel.send(b"4,1234,99,-;Memory cgroup out of memory: Killed process 4242 (python3)\n")
    watch._tell_exit([])
    told = run.exit()
    assert told is not None
    assert told["rank_exit"] == {"1": -9}
    assert told["kernel"] == ["Memory cgroup out of memory: Killed process 4242 (python3)"]


def test_the_server_does_not_inherit_our_deafness(box: Box) -> None:
    heard = "import signal; print([int(signal.getsignal(n) == signal.SIG_IGN) for n in (1, 2, 15)], flush=True)"
    story = listen(box.start(LaunchSpec("deaf", (sys.executable, "-c", heard))))
    assert story.log == b"[0, 0, 0]\n"


@pytest.mark.ci
def test_a_supervisor_outlives_the_signals_of_a_hangup(box: Box, tmp_path: Path) -> None:
    run = launch(box, "--line", "up", "--end", "hang")
    listen(run, until=until_log(b"up"))
    pid = RunDir(str(tmp_path / "box"), run.launch_id).state()["supervisor"]
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(pid, number)
    assert run.stop(0.0).exit_code == -9, "only the parent of the server can know"
