"""Which records a list shows, and which nobody misses."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from patchbisect.config import remedy_for
from patchbisect.errors import UsageError
from patchbisect.model import Outcome
from patchbisect.wire import Json

_SINCE = re.compile(r"(?P<count>\d+)(?P<unit>[mhdw])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which records a list shows; an empty field lets all pass."""

    outcome: str = ""
    point: str = ""
    """The point's name, or a patch of it (``0003`` or its slug)."""
    box: str = ""
    profile: str = ""
    tag: str = ""
    since: datetime | None = None

    def matches(self, document: Json) -> bool:
        told = _values(document)
        asked = ((name, getattr(self, name)) for name in told)
        return all(not wish or wish in told[name] for name, wish in asked) and (
            self.since is None or datetime.fromisoformat(document["created"]) >= self.since
        )

    @property
    def everything(self) -> bool:
        """Whether all pass."""
        return self == Wanted()


def unmatched(filters: Wanted, documents: Iterable[Json]) -> tuple[str, str]:
    """Why none of ``documents`` passes: what no run has, or that none has it all; and what there is instead."""
    documents = list(documents)
    for name in ("box", "profile", "tag", "point", "outcome"):
        wish = getattr(filters, name)
        found = {value for document in documents for value in _values(document)[name]}
        if wish and wish not in found:
            return f"no run has {name} '{wish}'", remedy_for(wish, found)
    newest = max((document["created"] for document in documents), default="")
    if filters.since and datetime.fromisoformat(newest) < filters.since:
        return f"no run is newer than {filters.since.isoformat(timespec='minutes')}", f"the newest is of {newest[:16]}"
    return "no run has all of that", "leave one of them out"


def _values(document: Json) -> dict[str, tuple[str, ...]]:
    """What a record has to match a filter by: a point answers to its name, and to the names of its patches."""
    point = document["point"]
    patches = [patch["name"] for patch in point.get("patches", ())]
    return {
        "outcome": (document["verdict"]["outcome"],),
        "box": (document["box"],),
        "profile": (point["profile"],),
        "tag": tuple(document["tags"]),
        "point": (point["name"], *(word for name in patches for word in (name, *name.split("-", 1)))),
    }


def wanted(*, outcome: str = "", **more: Any) -> Wanted:
    """:class:`Wanted` with its closed words checked. Raises UsageError that names the nearest."""
    if outcome and outcome not in list(Outcome):
        raise UsageError(f"unknown outcome '{outcome}'", remedy=remedy_for(outcome, Outcome))
    return Wanted(outcome=outcome, **more)


def moment(text: str, *, now: datetime | None = None) -> datetime:
    """``30m``, ``6h``, ``3d``, ``2w`` ago, or a date or time in ISO 8601 (UTC where it names no zone).

    Raises UsageError for anything else.
    """
    if found := _SINCE.fullmatch(text):
        return (now or datetime.now(UTC)) - timedelta(**{_UNITS[found["unit"]]: int(found["count"])})
    try:
        named = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"'{text}' is no time", remedy="say 6h, 3d, or 2026-11-29T18:00") from None
    return named if named.tzinfo else named.replace(tzinfo=UTC)


def collectable(documents: Sequence[Json], *, keep: int, before: datetime, held: Collection[str]) -> list[str]:
    """The ids of runs that nobody misses, oldest first.

    Those are: older than ``before``, not among the ``keep`` newest, without a name, and not ``held`` by a bisection.
    """
    older = documents[: max(len(documents) - keep, 0)]
    return [
        document["id"]
        for document in older
        if not document["tags"] and document["id"] not in held and datetime.fromisoformat(document["created"]) < before
    ]
