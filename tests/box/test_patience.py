"""One loss of the link is waited out once, whoever needs the link meanwhile."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from patchbisect.box import Box, open_box
from patchbisect.box import patience as module
from patchbisect.box.failures import LinkLost
from patchbisect.box.link import ProcessChannel, ProcessLink
from patchbisect.box.patience import Patience
from tests.box.lab import launch, listen, settings_for, until_log

LOST = LinkLost("box rig: the link is silent")


class Clock:
    """Time that passes only where somebody waits."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def event(self) -> threading.Event:
        """One that is waited for in this time."""
        event = threading.Event()
        event.wait = lambda timeout=None: self.sleep(timeout or 0.0)
        return event


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(module, "threading", SimpleNamespace(Event=clock.event))
    return clock


def wait_it_out(patience: Patience) -> None:
    with pytest.raises(LinkLost):
        while True:
            patience.wait(LOST)


def test_patience_is_used_up_once_for_each_loss(clock: Clock) -> None:
    patience = Patience("rig", lambda: 900.0)
    wait_it_out(patience)
    assert 800.0 < clock.now <= 900.0
    at = clock.now
    wait_it_out(patience)
    assert clock.now == at, "the next who needs the link tries it once and does not wait"
    patience.renew()
    wait_it_out(patience)
    assert clock.now > at + 800.0


def test_an_interrupted_wait_is_not_begun_again(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    patience = Patience("rig", lambda: 900.0)
    with monkeypatch.context() as patch:
        patch.setattr(clock, "sleep", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            patience.wait(LOST)
    wait_it_out(patience)
    assert clock.now == 0.0


def test_who_is_hurried_waits_no_more(clock: Clock) -> None:
    patience = Patience("rig", lambda: 900.0)
    patience.hurry()
    wait_it_out(patience)
    assert clock.now == 0.0


def _interrupt(seconds: float) -> None:
    raise KeyboardInterrupt


class Way:
    """The way to the box, which can be taken away."""

    def __init__(self) -> None:
        self.gone = False

    def cut(self, box: Box) -> None:
        self.gone = True
        box._hang_up()


@pytest.fixture
def way(monkeypatch: pytest.MonkeyPatch) -> Way:
    opened = ProcessLink.open
    way = Way()

    def open_unless_gone(self: ProcessLink) -> ProcessChannel:
        if way.gone:
            raise LinkLost("box local: the network is down")
        return opened(self)

    monkeypatch.setattr(ProcessLink, "open", open_unless_gone)
    return way


@pytest.mark.ci
def test_following_stopping_and_giving_back_the_lease_wait_once(
    tmp_path: Path, clock: Clock, way: Way, caplog: pytest.LogCaptureFixture
) -> None:
    with open_box("local", settings_for(tmp_path), state=tmp_path) as box:
        with pytest.raises(LinkLost), box.lease("test"):
            run = launch(box, "--line", "up", "--end", "hang")
            listen(run, until=until_log(b"up"))
            way.cut(box)
            try:
                listen(run)
            finally:
                run.stop(0.0)
        assert 0.0 < clock.now <= box.settings.link_patience_s
        assert "the lease was not given back" in caplog.text
        way.gone = False
        assert run.stop(0.0).ended


def test_a_link_that_is_lost_when_the_lease_ends_does_not_hide_what_happened(
    tmp_path: Path, clock: Clock, way: Way
) -> None:
    with open_box("local", settings_for(tmp_path), state=tmp_path) as box:
        with pytest.raises(ZeroDivisionError), box.lease("test"):
            way.cut(box)
            raise ZeroDivisionError
        assert clock.now > 0.0
