"""A box that fills up, servers that will not die or never stop talking, and many of them: nothing is left."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from patchbisect.box import Box, LaunchSpec, open_box
from patchbisect.errors import BoxError
from tests.box.lab import launch, links_into, listen, none_left, until_log
from tests.fake_project import GOOD
from tests.sshd.faults import fill_disk, small_disk, void
from tests.sshd.openssh import Proxy, Sshd
from tests.sshd.scene import FakeServer, Scene, trial_of

pytestmark = pytest.mark.sshd


@pytest.fixture
def scene(tmp_path: Path, home: Path, sshd: Sshd, proxy: Proxy) -> Scene:
    flooding = (*GOOD[:2], "--flood", str(64 << 20), "--end", "exit:1")
    return Scene.over(tmp_path, server=FakeServer(tmp_path, base=flooding, pace=()), sshd=sshd, proxy=proxy)


def test_a_disk_that_the_server_fills_is_void(scene: Scene) -> None:
    with small_disk(scene) as full, full.rig() as rig:
        void("disk")(full, trial_of(rig, "clean").verdict)
    assert none_left(full.box)


def test_a_disk_that_is_full_before_the_launch_is_told(scene: Scene) -> None:
    with small_disk(scene) as full, full.another_client() as box:
        box.hello()
        fill_disk(full)
        with box.lease("x"):
            (fault,) = box.prove_clean().faults
            assert fault.startswith("only 0.00 GiB are free in ")
        nowhere = dataclasses.replace(full.settings, lease_directory="")
        refused = pytest.raises(BoxError, match=r"disk of the box is full")
        with open_box("rig", nowhere, state=scene.folder) as other, refused, other.lease("x"):
            pass


def test_a_lease_book_on_a_read_only_disk_is_told_also_by_doctor(box: Box, tmp_path: Path) -> None:
    place = tmp_path / "lease"
    place.mkdir()
    subprocess.run(["mount", "--bind", str(place), str(place)], check=True)
    box.settings = dataclasses.replace(box.settings, lease_directory=str(place))
    try:
        assert box.leases() == ()
        subprocess.run(["mount", "-o", "remount,bind,ro", str(place)], check=True)
        with pytest.raises(BoxError, match=f"cannot be kept in {place}: Read-only file system"), box.lease("x"):
            pass
        found = {check.check: check for check in box.doctor()}["lease"]
        assert not found.ok
        assert "`lease-dir` of the box" in found.remedy
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


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
