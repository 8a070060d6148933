"""Where the agent and the supervisor begin."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Sequence

from .supervisor import supervise
from .verbs import Agent


def main(words: Sequence[str]) -> int:
    """``serve DIR`` or ``supervise DIR LAUNCH [PID SOCKET]``."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if words[0] == "supervise":
        return supervise(*words[1:])
    with contextlib.suppress(BrokenPipeError):
        Agent(words[1]).serve()
    return 0
