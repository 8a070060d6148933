"""Is it still the same machine? What of a box's description decides that."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

HARDWARE = ("hostname", "cpu", "cores", "gpus", "driver")
"""What must be the same for an old verdict to count."""
SYSTEM = (*HARDWARE, "kernel", "boot_id", "system", "python")
"""What must stay the same while a bisection runs."""

Machine = Mapping[str, Any]


def hardware(machine: Machine) -> str:
    """Equal for machines on which a verdict may be reused."""
    return json.dumps({name: _plain(machine.get(name)) for name in HARDWARE}, sort_keys=True)


def changed(before: Machine, after: Machine) -> Iterator[str]:
    """What differs, as ``driver 570.1 -> 575.2``; nothing where one of them is not known."""
    for name in SYSTEM if before and after else ():
        if _plain(before.get(name)) != _plain(after.get(name)):
            yield f"{name} {_shown(before.get(name))} -> {_shown(after.get(name))}"


def _plain(value: Any) -> Any:
    """As JSON has it, so that what comes from a record equals what comes from a box."""
    return json.loads(json.dumps(value, default=str))


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple) and value and isinstance(value[0], Mapping):
        return f"{len(value)}x {value[0].get('name', '?')}"
    return str(value or "none")
