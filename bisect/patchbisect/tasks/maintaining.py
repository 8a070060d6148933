"""Every task on the queue as such, for the namespace."""

from __future__ import annotations

from typing import Any

import invoke

from patchbisect.tasks import checking, editing, exchanging, repinning


def tasks() -> list[invoke.Task[Any]]:
    return [*checking.TASKS, *editing.TASKS, *exchanging.TASKS, *repinning.TASKS]
