import threading

import pytest

from patchbisect.bisection import door
from patchbisect.bisection.door import Door
from patchbisect.errors import BoxError, UsageError


class Greeting:
    """Notes who is welcome; some are not, and ``slow`` thinks until it is cancelled."""

    def __init__(self):
        self.welcomed = []
        self.told = []
        self.asked = threading.Event()
        self.cancelled = threading.Event()

    def bench(self, worker):
        return self

    def cancel(self):
        self.cancelled.set()

    def welcome(self, worker, bench):
        self.asked.set()
        if worker == "slow":
            self.cancelled.wait(10)
            raise KeyboardInterrupt
        if worker in ("other", "mute"):
            raise (UsageError if worker == "other" else BoxError)(f"worker {worker}: no")
        self.welcomed.append(worker)

    def notify(self, text):
        self.told.append(text)


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(door, "LOOK_S", 0.001)


def visitors(*arrivals):
    """Those that come, call by call, and an event for when all have been let in or sent away."""
    left, done = list(arrivals), threading.Event()

    def newcomers():
        if not left:
            done.set()
            return []
        come = left.pop(0)
        if isinstance(come, Exception):
            raise come
        return come

    return newcomers, done


def test_who_comes_is_let_in_once_and_who_would_run_something_else_is_not():
    newcomers, done = visitors(["early"], [], ["late"], TimeoutError("nobody answers"), ["other", "mute", "last"])
    greeting = Greeting()
    door = Door(newcomers)
    door.greet(greeting, met=1)
    with door.kept() as kept:
        assert done.wait(10)
    assert greeting.welcomed == ["late", "last"]
    assert kept.inside == ["early", "late", "last"]
    assert greeting.told == ["worker other: no; it takes no part", "worker mute: no; it takes no part"]


def test_who_came_after_those_that_were_met_and_before_the_greeting_is_greeted_too():
    newcomers, done = visitors(["early"], ["late", "mute"])
    greeting = Greeting()
    with Door(newcomers).kept() as kept:
        assert done.wait(10)
        assert kept.inside == ["early", "late", "mute"], "nobody has greeted anybody yet"
        kept.greet(greeting, met=1)
    assert greeting.welcomed == ["late"]
    assert greeting.told == ["worker mute: no; it takes no part"]


def test_a_greeting_that_is_given_while_somebody_comes_in_misses_nobody():
    newcomers, _ = visitors(["early"], ["late"])
    first, second = Greeting(), Greeting()
    door = Door(newcomers)
    first.welcome = lambda worker, bench: door.greet(second, met=1)
    door.greet(first, met=1)
    with door.kept():
        assert second.asked.wait(10)
    assert second.welcomed == ["late"]


def test_the_end_waits_for_nobody():
    newcomers, _ = visitors(["early"], ["slow"])
    greeting = Greeting()
    door = Door(newcomers)
    door.greet(greeting, met=1)
    with door.kept() as kept:
        assert greeting.asked.wait(10)
    assert greeting.cancelled.is_set()
    assert kept.inside == ["early"]


def test_ctrl_c_while_who_is_there_already_is_greeted_is_not_swallowed():
    newcomers, done = visitors(["early"], ["slow"])
    greeting = Greeting()
    greeting.cancel()
    with Door(newcomers).kept() as kept:
        assert done.wait(10)
        with pytest.raises(KeyboardInterrupt):
            kept.greet(greeting, met=1)
