"""A search at work on several boxes."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from patchbisect.bisection.course import Drifted
from patchbisect.bisection.driving import drive


class Asking:
    """Asks for three points at once."""

    def ask(self, parallel):
        assert parallel == 3
        return ["drifts", "interrupted", "waiting"]

    def explain(self):
        return ""


class Course:
    """The launch of ``drifts`` shows that its box did; the others end later, and one of them by Ctrl-C."""

    def __init__(self):
        self.drifted, self.cancelled = threading.Event(), threading.Event()
        self.ended = []
        self.bench = SimpleNamespace(width=3, cancel=self.cancelled.set)

    def try_out(self, spot, *, purpose):
        if spot.content == "interrupted":
            assert self.drifted.wait(10)
            raise KeyboardInterrupt
        if spot.content == "waiting":
            assert self.cancelled.wait(10), "it would have gone on to its own end"
        self.ended.append(spot.content)

    def note(self, spot, trial, *, purpose, why):
        assert spot.content == "drifts"
        self.drifted.set()
        raise Drifted("the driver changed", (), box="box0", alone=False)


def test_an_interruption_ends_the_launches_that_are_waited_for_after_a_machine_drifted():
    course = Course()
    with pytest.raises(KeyboardInterrupt):
        drive(course, Asking(), place=lambda key: SimpleNamespace(content=key), changes=3, purpose="search")
    assert course.ended == ["drifts", "waiting"]
