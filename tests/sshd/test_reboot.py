"""The box reboots: what ran is void, what is left is dealt with, and the next trial is as if nothing had been."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from patchbisect.model import Outcome, Persistence
from patchbisect.trial import Rig
from tests.box.lab import launch, listen, none_left, until_log
from tests.sshd.openssh import Machine, Proxy
from tests.sshd.scene import FakeServer, Moments, Scene, trial_of

pytestmark = pytest.mark.sshd


@pytest.fixture
def sshd(machine: Machine) -> Machine:
    return machine


@pytest.fixture
def scene(tmp_path: Path, home: Path, sshd: Machine, proxy: Proxy) -> Scene:
    return Scene.over(tmp_path, server=FakeServer(tmp_path), sshd=sshd, proxy=proxy)


@pytest.fixture
def rig(scene: Scene) -> Iterator[Rig]:
    with scene.rig() as opened:
        yield opened
    with scene.another_client() as box:
        assert box.leases() == ()
        assert box.launches() == ()
    assert none_left(scene.box)


def judged(rig: Rig, watcher: Moments | None = None) -> tuple[object, ...]:
    verdict = trial_of(rig, "HEAD", watcher).verdict
    return (verdict.outcome, verdict.stage, verdict.cause)


@pytest.mark.parametrize("moment", ["proving", "placing", "launching"])
def test_a_reboot_before_the_launch_changes_nothing(rig: Rig, sshd: Machine, moment: str) -> None:
    reboot = Moments([moment], sshd.reboot)
    assert judged(rig, reboot) == FakeServer.failure
    assert not reboot.to_come


@pytest.mark.parametrize("moment", ["dist-init", "weight-load", "stopping"])
def test_a_trial_under_which_the_box_reboots_is_void_and_the_next_one_works(
    rig: Rig, sshd: Machine, moment: str
) -> None:
    reboot = Moments([moment], sshd.reboot)
    verdict = trial_of(rig, "HEAD", reboot).verdict
    assert not reboot.to_come
    assert (verdict.outcome, verdict.persistence) == (Outcome.VOID, Persistence.TRANSIENT), verdict
    assert "the box was rebooted" in verdict.why
    assert judged(rig) == FakeServer.failure


def test_what_a_dead_client_left_on_a_box_that_rebooted_is_cleared_away(rig: Rig, sshd: Machine) -> None:
    box = rig.box
    run = launch(box, "--line", "up", "--end", "hang")
    listen(run, until=until_log(b"up"))
    sshd.reboot()
    assert [found.processes for found in box.launches()] == [0]
    report = box.prove_clean()
    assert report.clean
    assert report.swept == ()
    assert box.launches() == ()
    assert judged(rig) == FakeServer.failure


@pytest.mark.usefixtures("rig")
def test_the_lease_of_a_box_that_rebooted_goes_to_the_first(scene: Scene, sshd: Machine) -> None:
    sshd.reboot()
    with scene.another_client() as other, other.lease("quicker"):
        assert [held.reason for held in other.leases()] == ["quicker"]
