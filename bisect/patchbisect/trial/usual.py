"""How long good starts were silent on a box: what a later one with the same flags is held to."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from patchbisect.model import Outcome, Point, Stage
from patchbisect.records import Store
from patchbisect.redact import MASK
from patchbisect.startup import usual_silence
from patchbisect.wire import Json

_LOOKED_AT = 200
"""Newest records that are looked at, and so many good ones among them are enough:"""
_ENOUGH = 5

_GOOD = (Outcome.READY.value, Outcome.KV_ALLOCATED.value)


def usual(store: Store, point: Point, *, box: str) -> Mapping[Stage, float]:
    """The longest silence (seconds) in each stage of the newest good starts there; empty where none is on record."""
    longest: dict[Stage, float] = {}
    for identifier in itertools.islice(_alike(store, point, box=box), _ENOUGH):
        for stage, seconds in usual_silence(store.events(identifier)).items():
            longest[stage] = max(seconds, longest.get(stage, 0.0))
    return longest


def _alike(store: Store, point: Point, *, box: str) -> Iterator[str]:
    flags = _comparable(point.flags)
    newest = store.documents(newest_first=True, having=point.profile.encode())
    for document in itertools.islice(newest, _LOOKED_AT):
        if _is_good(document) and document["box"] == box and _comparable(document["point"]["flags"]) == flags:
            yield document["id"]


def _is_good(document: Json) -> bool:
    shipped = document.get("origin", "trial") == "trial" and not document.get("warm")
    return shipped and document["verdict"]["outcome"] in _GOOD


def _comparable(flags: Mapping[str, Any]) -> dict[str, str]:
    values = {name: list(value) if isinstance(value, tuple) else value for name, value in flags.items()}
    return {name: str(value) for name, value in values.items() if value != MASK}
