"""The box reboots: what ran is void, what is left is dealt with, and the next trial is as if nothing had been."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from patchbisect.box import BoxSettings, open_box
from patchbisect.model import Outcome, Persistence
from patchbisect.trial import Rig
from tests.box.lab import launch, listen, none_left, until_log
from tests.fake_project import GOOD, OOM, fake_project
from tests.sshd.openssh import Machine, install, running
from tests.sshd.rig import Moment, rig_over_ssh, trial_of

pytestmark = pytest.mark.sshd

PACE = ("--pace", "0.003")
WITHOUT_FAULT = ("oom", "kv-profile", "kv-profile")


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Machine]:
    missing = install()
    if missing:
        pytest.skip(missing)
    with running(Machine(tmp_path / "machine")) as machine:
        assert isinstance(machine, Machine)
        yield machine


@pytest.fixture
def rig(tmp_path: Path, settings: BoxSettings) -> Iterator[Rig]:
    fake = fake_project(tmp_path, patches=2, guilty=2, base=(*GOOD, *PACE), bad=(*OOM, *PACE))
    quick = dataclasses.replace(settings, link_timeout_s=1.5, link_patience_s=60.0)
    with rig_over_ssh(fake, quick) as opened:
        yield opened
    with open_box("rig", quick, state=tmp_path) as box:
        assert box.leases() == ()
        assert box.launches() == ()
    assert none_left(tmp_path / "box")


def judged(rig: Rig, watcher: Moment | None = None) -> tuple[object, ...]:
    verdict = trial_of(rig, "HEAD", watcher).verdict
    return (verdict.outcome, verdict.stage, verdict.cause)


@pytest.mark.parametrize("moment", ["proving", "placing", "launching"])
def test_a_reboot_before_the_launch_changes_nothing(rig: Rig, sshd: Machine, moment: str) -> None:
    reboot = Moment(moment, sshd.reboot)
    assert judged(rig, reboot) == WITHOUT_FAULT
    assert reboot.struck


@pytest.mark.parametrize("moment", ["dist-init", "weight-load", "stopping"])
def test_a_trial_under_which_the_box_reboots_is_void_and_the_next_one_works(
    rig: Rig, sshd: Machine, moment: str
) -> None:
    reboot = Moment(moment, sshd.reboot)
    verdict = trial_of(rig, "HEAD", reboot).verdict
    assert reboot.struck
    assert (verdict.outcome, verdict.persistence) == (Outcome.VOID, Persistence.TRANSIENT), verdict
    assert "the box was rebooted" in verdict.why
    assert judged(rig) == WITHOUT_FAULT


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
    assert judged(rig) == WITHOUT_FAULT


def test_the_lease_of_a_box_that_rebooted_goes_to_the_first(rig: Rig, sshd: Machine, tmp_path: Path) -> None:
    sshd.reboot()
    with open_box("rig", rig.box.settings, state=tmp_path) as other, other.lease("quicker"):
        assert [held.reason for held in other.leases()] == ["quicker"]
