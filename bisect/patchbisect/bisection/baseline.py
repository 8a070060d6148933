"""What a recorded start had otherwise than today: the good one of a baseline that fails now, an end of a bisection."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from patchbisect.bisection.finding import Baseline
from patchbisect.bisection.machines import SYSTEM, changed
from patchbisect.errors import UsageError
from patchbisect.model import Outcome, Point
from patchbisect.patchqueue import sha256_of
from patchbisect.records import PointEntry, Record, Store
from patchbisect.redact import MASK, is_secret

_STARTED = (Outcome.READY.value, Outcome.KV_ALLOCATED.value)
_SAME_GB = 0.5
"""Free memory of the same start moves by less (GiB)."""


def recorded_baseline(store: Store, failed: Record, *, secrets: tuple[str, ...] = ()) -> Baseline | None:
    """The newest good start of what ``failed`` was to be, and each field that differs; None where there is none.

    A start of the same code comes first, then one of a point of the same name and profile.
    """
    before = [
        document
        for document in store.documents()
        if document["verdict"]["outcome"] in _STARTED
        and document["box"] == failed.box
        and document["id"] != failed.id
        and not document.get("warm")
        and not store.is_disowned(document["id"])
    ]
    same_code = [d for d in before if d.get("code", {}).get("tree") == failed.code.get("tree") and failed.code]
    same_name = [d for d in before if _named(d["point"]) == _named(failed.point.model_dump())]
    for document in [*same_name[-1:], *same_code[-1:]]:
        try:
            good = store.load(document["id"])
        except UsageError:
            continue
        return Baseline(
            record=good.id, created=good.created, differences=tuple(differences(good, failed, secrets=secrets))
        )
    return None


def _named(point: Mapping[str, Any]) -> tuple[str, str]:
    return point["name"], point["profile"]


def differences(then: Record, now: Record, *, secrets: tuple[str, ...] = ()) -> Iterator[tuple[str, str, str]]:
    """(field, then, now): code, patches, flags, environment, packages, machine, free memory. Secrets are masked."""
    for name in ("base_commit", "tree"):
        yield from _field(name, then.code.get(name), now.code.get(name))
    yield from _field("patches", _patches(then), _patches(now))
    for kind, mine, theirs in (
        ("flag", then.point.flags, now.point.flags),
        ("env", then.point.env, now.point.env),
        ("package", then.provenance.get("packages", {}), now.provenance.get("packages", {})),
    ):
        for name in sorted({*mine, *theirs}):
            hidden = kind != "package" and is_secret(name, more=secrets)
            values = (mine.get(name), theirs.get(name))
            shown = tuple(MASK if hidden and value is not None else value for value in values)
            if values[0] != values[1]:
                yield f"{kind} {name}", _text(shown[0]), _text(shown[1])
    if any(changed(then.machine, now.machine)):
        for name in SYSTEM:
            yield from _field(name, then.machine.get(name), now.machine.get(name))
    free = [record.verdict.get("facts", {}).get("avail_gb") for record in (then, now)]
    if None not in free and abs(free[0] - free[1]) >= _SAME_GB:
        yield "free memory (GiB)", _text(free[0]), _text(free[1])


def altered(then: PointEntry, now: Point, *, secrets: tuple[str, ...] = ()) -> Iterator[str]:
    """What a point that was launched had otherwise, as ``flag tp-size: 4 -> 8``; values of secrets are left out."""
    texts = {patch.name: sha256_of(patch) for patch in now.patches}
    for patch in then.patches:
        if texts.pop(patch.name, patch.sha256) != patch.sha256:
            yield f"patch {patch.name} has another text"
    for field, before, after in _settings(then, now):
        if before != after and not is_secret(field.partition(" ")[2], more=secrets):
            yield f"{field}: {_text(before)} -> {_text(after)}"


def _settings(then: PointEntry, now: Point) -> Iterator[tuple[str, Any, Any]]:
    pin = now.base.pin
    yield "commit", then.base_rev or then.pin or then.release, now.base.rev or pin.commit or pin.release
    for kind, before, after in (
        ("flag", then.flags, now.flags),
        ("env", then.env, now.env),
        ("package", then.packages, now.packages),
    ):
        yield from ((f"{kind} {name}", before.get(name), after.get(name)) for name in sorted({*before, *after}))


def _field(name: str, then: Any, now: Any) -> Iterator[tuple[str, str, str]]:
    if then != now:
        yield name, _text(then), _text(now)


def _patches(record: Record) -> str:
    return ", ".join(f"{patch.name} {patch.sha256[:8]}".strip() for patch in record.point.patches) or "none"


def _text(value: Any) -> str:
    return "not set" if value is None else str(value)
