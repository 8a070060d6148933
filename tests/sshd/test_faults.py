"""Every fault at every moment: the verdict is the one without the fault, nothing is lost, nothing is left."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from patchbisect.box import BoxSettings, open_box
from patchbisect.model import Verdict
from patchbisect.trial import Rig
from tests.box.lab import children_of_our_launches, none_left
from tests.fake_project import GOOD, OOM, fake_project
from tests.sshd.openssh import Proxy, Sshd
from tests.sshd.rig import AGENT, SUPERVISOR, Moment, kill_ours, once_noticed, rig_over_ssh, trial_of

pytestmark = pytest.mark.sshd

PACE = ("--pace", "0.003")
MOMENTS = ("proving", "placing", "launching", "dist-init", "weight-load", "kv-profile", "error", "stopping")


@pytest.fixture
def quick(settings: BoxSettings) -> BoxSettings:
    return dataclasses.replace(settings, link_timeout_s=1.5, link_patience_s=60.0)


@pytest.fixture
def rig(tmp_path: Path, quick: BoxSettings) -> Iterator[Rig]:
    fake = fake_project(tmp_path, patches=2, guilty=2, base=(*GOOD, *PACE), bad=(*OOM, *PACE))
    with rig_over_ssh(fake, quick) as opened:
        yield opened
    with open_box("rig", quick, state=tmp_path) as box:
        assert box.leases() == ()
    assert none_left(tmp_path / "box")


def judged(verdict: Verdict) -> tuple[object, ...]:
    return (verdict.outcome, verdict.stage, verdict.cause, verdict.signature, verdict.deciding)


EXPECTED = ("oom", "kv-profile", "kv-profile")


def check(rig: Rig, moment: Moment, tmp_path: Path) -> None:
    trial = trial_of(rig, "HEAD", moment)
    assert moment.struck
    verdict = trial.verdict
    assert (verdict.outcome, verdict.stage, verdict.cause) == EXPECTED, verdict.why
    wanted = Path(OOM[1]).read_bytes()
    lines = rig.store.log(trial.record).splitlines(keepends=True)
    log = b"".join(line for line in lines if b'"GET /health' not in line)
    assert wanted.startswith(log[: len(wanted)])
    assert children_of_our_launches(tmp_path / "box" / "runs") == []


@pytest.mark.parametrize("moment", MOMENTS)
def test_link_cut(rig: Rig, proxy: Proxy, tmp_path: Path, moment: str) -> None:
    check(rig, Moment(moment, proxy.cut), tmp_path)


@pytest.mark.parametrize("moment", MOMENTS)
def test_link_away_for_a_while(rig: Rig, proxy: Proxy, tmp_path: Path, moment: str) -> None:
    with once_noticed(proxy.heal) as noticed:
        check(rig, Moment(moment, proxy.refuse), tmp_path)
    assert noticed.seen


@pytest.mark.parametrize("moment", MOMENTS)
def test_link_turned_into_a_black_hole(rig: Rig, proxy: Proxy, tmp_path: Path, moment: str) -> None:
    with once_noticed(proxy.heal) as noticed:
        check(rig, Moment(moment, proxy.black_hole), tmp_path)
    assert noticed.seen


@pytest.mark.parametrize("moment", MOMENTS)
def test_sshd_restarted_with_its_sessions(rig: Rig, sshd: Sshd, tmp_path: Path, moment: str) -> None:
    def restart() -> None:
        sshd.stop(sessions=True)
        sshd.start()

    check(rig, Moment(moment, restart), tmp_path)


@pytest.mark.parametrize("moment", MOMENTS)
def test_agents_killed(rig: Rig, tmp_path: Path, moment: str) -> None:
    def kill() -> None:
        assert kill_ours(tmp_path / "box", AGENT)

    check(rig, Moment(moment, kill), tmp_path)


@pytest.mark.parametrize("moment", ["dist-init", "weight-load", "kv-profile"])
def test_supervisor_killed(rig: Rig, tmp_path: Path, moment: str) -> None:
    def kill() -> None:
        assert kill_ours(tmp_path / "box", SUPERVISOR) == 1

    check(rig, Moment(moment, kill), tmp_path)
