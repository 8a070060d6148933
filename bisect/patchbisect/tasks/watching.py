"""A trial as plain lines on stderr: our steps, and the server's milestones with the seconds since the launch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from patchbisect.tasks.face import say

if TYPE_CHECKING:
    from patchbisect.startup import Event

_WIDTH = 110


class Lines:
    """Watches a trial, one line at a time."""

    def step(self, text: str) -> None:
        say(f"  {text}")

    def event(self, event: Event, elapsed_s: float) -> None:
        stage = str(event.stage or event.what)
        rank = f" {event.rank}" if event.rank else ""
        text = event.text.removesuffix(": Traceback (most recent call last):")
        say(f"  {elapsed_s:6.1f} s  {stage:13}{rank} {text[:_WIDTH]}".rstrip())
