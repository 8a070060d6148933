"""Is it still the same machine? What of a box's description decides that."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

HARDWARE = ("hostname", "cpu", "cores", "gpus", "driver")
"""What must be the same for an old verdict to count."""
SYSTEM = (*HARDWARE, "kernel", "boot_id", "system", "python")
"""What must stay the same while a bisection runs."""

KIND = ("gpus", "driver")
"""What must be the same for boxes to work side by side: a start depends on it that fails for want of memory."""

Machine = Mapping[str, Any]


def hardware(machine: Machine) -> str:
    """Equal for machines on which a verdict may be reused."""
    return json.dumps({name: _plain(machine.get(name)) for name in HARDWARE}, sort_keys=True)


def changed(before: Machine, after: Machine) -> Iterator[str]:
    """What differs, as ``driver 570.1 -> 575.2``; nothing where one of them is not known."""
    for name in SYSTEM if before and after else ():
        if _plain(before.get(name)) != _plain(after.get(name)):
            yield f"{name} {_shown(before.get(name))} -> {_shown(after.get(name))}"


def unlike(machines: Mapping[str, Machine]) -> str:
    """How the kind of these machines, by box, differs: ``driver: 570.1 (a), 575.2 (b)``; empty where it does not."""
    told: list[str] = []
    for name in KIND:
        boxes: dict[str, list[str]] = {}
        for box, machine in machines.items():
            boxes.setdefault(_kind(machine.get(name)), []).append(box)
        if len(boxes) > 1:
            told.append(f"{name}: " + ", ".join(f"{kind} ({', '.join(where)})" for kind, where in boxes.items()))
    return "; ".join(told)


def _kind(value: Any) -> str:
    """Which GPUs, whatever their index and serial number; another value as it is shown."""
    if not isinstance(value, list | tuple):
        return str(value or "none")
    kinds = Counter(f"{gpu.get('name', '?')} {gpu.get('total_gb', 0):.0f} GiB" for gpu in value)
    return " + ".join(f"{count}x {kind}" for kind, count in sorted(kinds.items())) or "none"


def _plain(value: Any) -> Any:
    """As JSON has it, so that what comes from a record equals what comes from a box."""
    return json.loads(json.dumps(value, default=str))


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple) and value and isinstance(value[0], Mapping):
        return f"{len(value)}x {value[0].get('name', '?')}"
    return str(value or "none")
