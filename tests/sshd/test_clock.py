"""The box's wall clock is an hour off, or is set under a trial and a lease: nothing is judged by it."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchbisect.box.failures import BoxBusy
from patchbisect.testing.fake_clock import FakeClock
from tests.box.lab import none_left
from tests.sshd.faults import HOUR, as_without
from tests.sshd.openssh import Proxy, Sshd
from tests.sshd.scene import FakeServer, Moments, Scene, trial_of

pytestmark = [pytest.mark.sshd, pytest.mark.ci]

LONGEST_S = 300.0
"""No step of these trials takes so long, on whatever machine: what is longer was measured by the wrong clock."""


@pytest.fixture
def clock(tmp_path: Path) -> FakeClock:
    return FakeClock(tmp_path)


@pytest.fixture
def scene(tmp_path: Path, home: Path, sshd: Sshd, proxy: Proxy, clock: FakeClock) -> Scene:
    """Only the box has that clock: the client's is right."""
    there = Scene.over(tmp_path, server=FakeServer(tmp_path), sshd=sshd, proxy=proxy)
    return there.changed(agent_python=str(clock.python), lease_s=60.0)


@pytest.mark.parametrize(
    ("off", "steps"),
    [
        (HOUR, (HOUR,)),
        (-HOUR, (-HOUR,)),
        (0.0, (HOUR, 0.0, HOUR)),
        (0.0, (-HOUR, 0.0, -HOUR)),
    ],
    ids=["ahead", "behind", "set forwards", "set back"],
)
def test_a_clock_that_is_wrong_changes_neither_verdict_nor_lease_nor_durations(
    scene: Scene, clock: FakeClock, off: float, steps: tuple[float, ...]
) -> None:
    to_come = list(steps)

    def strike() -> None:
        """Set the clock, and let somebody try to have the box."""
        if to_come:
            clock.set(to_come.pop(0))
        with scene.another_client() as thief:
            (held,) = thief.leases()
            assert 0.0 < held.expires_in_s <= scene.settings.lease_s
            assert held.held_s < LONGEST_S
            with pytest.raises(BoxBusy), thief.lease("too early"):
                pass

    clock.set(off)
    with scene.rig() as rig:
        assert rig.box.prove_clean().clean
        trial = trial_of(rig, "HEAD", Moments(("proving", "dist-init", "kv-profile", "stopping"), strike))
        as_without(scene, trial.verdict)
        after = rig.box.prove_clean()
        assert (after.clean, after.swept) == (True, ())
        assert after.seconds < LONGEST_S
        record = rig.store.load(trial.record)
        moments = [sample["t"] for sample in rig.box.attach(trial.record).samples()]
        rig.lease.check()
    assert not to_come
    assert all(0.0 <= seconds < LONGEST_S for seconds in record.timings.values()), record.timings
    assert 0.0 <= record.stop["seconds"] < LONGEST_S
    assert moments == sorted(moments)
    assert max(moments) - min(moments) < LONGEST_S
    with scene.another_client() as box:
        assert box.leases() == ()
    assert none_left(scene.box)
