"""Suspects first: what the failing traceback and the checks say about each change, as weights for the search."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from patchbisect.model import Axis, Change, Patch

# How much more than an unsuspected change each kind of hint is worth. The search keeps a floor under every change, so
# a wrong hint costs launches (two at most while verdicts do not lie), never the answer.
LINE_ADDED = 400.0
"""The line that raised was added by this patch."""
INNERMOST_FILE = 12.0
ANY_FILE = 4.0
FAULT_FOUND = 8.0

_FRAME = re.compile(r'File "[^"\n]*?/(sglang/[^"\n]+)", line \d+, in [^\n]*\n(?:\[[^\]\n]*\] ?)?[ \t]*([^\n]*)')
_TRACEBACK = "Traceback (most recent call last)"


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame of SGLang's own code: ``sglang/srt/x.py`` and the source line that stands in the traceback."""

    file: str
    text: str


def frames(log: bytes) -> tuple[Frame, ...]:
    """The frames of the last traceback that shows any of SGLang's, outermost first."""
    text = log.decode("utf-8", "replace")
    for part in reversed(text.split(_TRACEBACK)[1:]):
        found = tuple(Frame(file=file, text=source.strip()) for file, source in _FRAME.findall(part))
        if found:
            return found
    return ()


def weights(changes: Sequence[Change], seen: Sequence[Frame], *, findings: Collection[str]) -> tuple[float, ...]:
    """One weight for each change; empty where nothing sets any change apart."""
    found = tuple(_weight(change, seen, findings=findings) for change in changes)
    return found if len(set(found)) > 1 else ()


def prime(found: Sequence[float]) -> int | None:
    """The index of the change that is suspected more than all others together; None where none is."""
    index = max(range(len(found)), key=found.__getitem__, default=None)
    return index if index is not None and 2 * found[index] > sum(found) else None


def _weight(change: Change, seen: Sequence[Frame], *, findings: Collection[str]) -> float:
    if change.parts:
        return max(_weight(part, seen, findings=findings) for part in change.parts)
    weight = FAULT_FOUND if change.subject in findings else 1.0
    patches = [patch for patch in (change.before, change.after) if isinstance(patch, Patch)]
    if change.axis is not Axis.QUEUE or not seen or not patches:
        return weight
    touched = {name.removeprefix("python/") for patch in patches for name in patch.files}
    if seen[-1].file in touched:
        added = _added(patches)
        return weight * (LINE_ADDED if seen[-1].text and seen[-1].text in added else INNERMOST_FILE)
    return weight * (ANY_FILE if touched & {frame.file for frame in seen} else 1.0)


def _added(patches: Iterable[Patch]) -> set[str]:
    lines = (line for patch in patches for line in patch.diff.splitlines())
    return {line[1:].strip() for line in lines if line.startswith("+") and not line.startswith("+++")}
