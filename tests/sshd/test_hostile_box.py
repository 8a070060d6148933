"""A box that colleagues use, that fills up, and servers that will not die: void or the true verdict, nothing left."""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from patchbisect.box import Box, BoxSettings, LaunchSpec, open_box
from patchbisect.box.failures import BoxBusy
from patchbisect.model import Outcome, Persistence, Stage, Verdict
from patchbisect.testing.fake_gpus import FakeGpu, FakeGpus
from patchbisect.trial import Rig
from tests.box.lab import alive, launch, links_into, listen, none_left, until_log
from tests.fake_project import GOOD, FakeProject, fake_project
from tests.sshd.openssh import Proxy
from tests.sshd.rig import Moment, rig_over_ssh, trial_of

pytestmark = pytest.mark.sshd

MODES = ("--pace", "0.003")


@pytest.fixture
def fake(tmp_path: Path) -> FakeProject:
    return fake_project(tmp_path, patches=1, guilty=0, base=(*GOOD, *MODES))


@pytest.fixture
def rig(tmp_path: Path, fake: FakeProject, settings: BoxSettings) -> Iterator[Rig]:
    with rig_over_ssh(fake, settings) as opened:
        yield opened
    assert none_left(tmp_path / "box")


def transient_void(verdict: Verdict) -> bool:
    return (verdict.outcome, verdict.persistence) == (Outcome.VOID, Persistence.TRANSIENT)


def server_pids(folder: Path) -> list[int]:
    import json

    states = [json.loads(path.read_text()) for path in (folder / "runs").glob("*/state.json")]
    return [state["server"] for state in states]


def test_a_healthy_start_is_ready(rig: Rig) -> None:
    assert trial_of(rig, "HEAD").verdict.outcome is Outcome.READY


def test_a_server_that_is_killed_is_a_crash_not_a_void(tmp_path: Path, settings: BoxSettings) -> None:
    begun = tmp_path / "begun.log"
    begun.write_bytes(Path(GOOD[1]).read_bytes().partition(b"Load weight end")[0])
    loading = fake_project(tmp_path, patches=1, guilty=0, base=("--log", str(begun), "--end", "hang"))

    def kill() -> None:
        for pid in server_pids(tmp_path / "box"):
            os.kill(pid, signal.SIGKILL)

    with rig_over_ssh(loading, settings) as rig:
        verdict = trial_of(rig, "HEAD", Moment("weight-load", kill)).verdict
    assert (verdict.outcome, verdict.stage, verdict.cause) == (Outcome.CRASH, Stage.WEIGHT_LOAD, "killed")


def test_a_port_that_is_taken_is_void(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr(type(rig.box), "free_port", lambda self: taken.getsockname()[1])
        verdict = trial_of(rig, "HEAD").verdict
    assert transient_void(verdict)
    assert f"is held by pid {os.getpid()}" in verdict.why


@pytest.mark.parametrize("when", ["before", "during"])
def test_a_colleague_on_the_gpu_is_void_and_left_alone(
    tmp_path: Path, fake: FakeProject, settings: BoxSettings, when: str
) -> None:
    gpus = FakeGpus(tmp_path, FakeGpu())
    colleague = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    shared = dataclasses.replace(
        settings, agent_python=str(gpus.python), lease_directory=str(tmp_path / "lease"), gpu_budget_s=0.5
    )

    def arrive() -> None:
        gpus.set(FakeGpu(used_gb=40.0, processes=[(colleague.pid, 39.5)]))

    try:
        with rig_over_ssh(fake, shared) as rig:
            if when == "before":
                arrive()
            verdict = trial_of(rig, "HEAD", Moment("dist-init", arrive)).verdict
        assert transient_void(verdict), verdict
        assert f"pid {colleague.pid} (" in verdict.why
        assert colleague.poll() is None
    finally:
        colleague.kill()
        colleague.wait()


def test_a_lease_that_was_stolen_during_the_launch_is_void(rig: Rig, settings: BoxSettings, tmp_path: Path) -> None:
    with open_box("rig", settings, state=tmp_path) as thief:
        verdict = trial_of(rig, "HEAD", Moment("dist-init", lambda: (thief.acquire("mine now", steal=True), None)[1]))
        assert transient_void(verdict.verdict), verdict.verdict
        assert "lease" in verdict.verdict.why
        assert [held.reason for held in thief.leases()] == ["mine now"]


def test_a_lease_that_expired_unnoticed_does_no_harm(fake: FakeProject, settings: BoxSettings) -> None:
    with rig_over_ssh(fake, dataclasses.replace(settings, lease_s=0.2)) as rig:
        assert trial_of(rig, "HEAD").verdict.outcome is Outcome.READY


def test_two_clients_at_once_take_turns(box: Box, settings: BoxSettings, tmp_path: Path) -> None:
    with box.lease("mine"):
        run = launch(box, "--line", "up", "--end", "hang")
        listen(run, until=until_log(b"up"))
        with (
            open_box("rig", settings, state=tmp_path) as other,
            pytest.raises(BoxBusy, match=r"\(mine\)"),
            other.lease("also"),
        ):
            pass
        assert alive(server_pids(tmp_path / "box")[0])
        run.stop(0.0)


@contextmanager
def small_disk(path: Path, *, size: str) -> Iterator[None]:
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def test_a_disk_that_fills_up_during_the_launch_is_void(tmp_path: Path, settings: BoxSettings) -> None:
    fake = fake_project(tmp_path, patches=1, guilty=0, base=(*GOOD[:2], "--flood", str(64 << 20), "--end", "exit:1"))
    disk = tmp_path / "disk"
    with small_disk(disk, size="24m"):
        with rig_over_ssh(fake, dataclasses.replace(settings, directory=str(disk / "box"))) as rig:
            verdict = trial_of(rig, "HEAD").verdict
        assert transient_void(verdict), verdict
        assert "disk" in verdict.why
        assert none_left(disk)


def test_a_disk_that_is_full_before_the_launch_is_told(tmp_path: Path, settings: BoxSettings) -> None:
    disk = tmp_path / "disk"
    full = dataclasses.replace(settings, directory=str(disk / "box"))
    with small_disk(disk, size="24m"), open_box("rig", full, state=tmp_path) as box:
        box.hello()
        handle = os.open(disk / "ballast", os.O_CREAT | os.O_WRONLY)
        with pytest.raises(OSError, match="space"):
            while True:
                os.write(handle, b"x" * 4096)
        os.close(handle)
        with pytest.raises(Exception, match=r"disk of the box is full|cannot be written"), box.lease("x"):
            box.prove_clean()


def test_a_read_only_checkout_lends_its_objects(tmp_path: Path, settings: BoxSettings, fake: FakeProject) -> None:
    checkout = tmp_path / "checkout"
    subprocess.run(["git", "clone", "--quiet", str(fake.upstream.path), str(checkout)], check=True)
    subprocess.run(["mount", "--bind", str(checkout), str(checkout)], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(checkout)], check=True)
        with rig_over_ssh(fake, dataclasses.replace(settings, checkout=str(checkout))) as rig:
            assert trial_of(rig, "HEAD").verdict.outcome is Outcome.READY
    finally:
        subprocess.run(["umount", "--lazy", str(checkout)], check=True)


@pytest.mark.parametrize("escape", [(), ("--escape",)], ids=["same session", "own session"])
def test_a_server_that_will_not_die_is_ended(box: Box, tmp_path: Path, escape: tuple[str, ...]) -> None:
    with box.lease("stubborn"):
        arguments = ("--ignore-sigterm", "--title", "sglang::x", "--grandchildren", "4", *escape)
        run = launch(box, *arguments, "--line", "up", "--end", "hang")
        listen(run, until=until_log(b"up"))
        report = run.stop(0.1)
        assert report.ended
        assert len(report.killed) == 5
    box.close()
    assert none_left(tmp_path / "box")


@pytest.mark.ci
def test_a_flood_of_a_gigabyte_is_told_whole_and_can_be_stopped(box: Box) -> None:
    size = 1 << 30
    with box.lease("flood"):
        run = launch(box, "--flood", str(size), "--line", "x" * 1023, "--end", "hang")
        got = 0
        for item in run.events():
            got += len(getattr(item, "data", b""))
            if got >= size:
                break
        assert run.stop(0.0).ended


@pytest.mark.ci
def test_a_hundred_launches_leave_nothing(box: Box, tmp_path: Path, proxy: Proxy) -> None:
    def things() -> tuple[int, set[str], set[str]]:
        return (
            len(list(Path("/proc/self/fd").iterdir())),
            {path.name for path in Path("/dev/shm").iterdir() if "patchbisect" in path.name or "psm" in path.name},
            set(map(str, links_into(tmp_path))),
        )

    with box.lease("hundred"):
        launch_once(box, 0)
        before = things()
        for number in range(1, 100):
            launch_once(box, number)
        assert things() == before
        assert len(list((tmp_path / "box" / "runs").iterdir())) < 100, "old run directories are dropped"
    box.close()
    assert none_left(tmp_path / "box")


def launch_once(box: Box, number: int) -> None:
    port = box.free_port()
    assert box.prove_clean(port).clean
    run = box.start(LaunchSpec(f"n{number}", (sys.executable, "-c", "print('up')"), port=port))
    assert listen(run).log == b"up\n"
    report = run.stop(0.0)
    assert report.ended
    assert report.faults == ()
