"""What one launch said, and the record that is kept of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from patchbisect import command
from patchbisect.box import PlacedCode, StopReport
from patchbisect.model import Point, Stage, Verdict
from patchbisect.patchqueue import format_patch, sha256_of
from patchbisect.records import Attachments, PatchEntry, PointEntry, Record
from patchbisect.redact import MASK, is_secret, redacted, split_secrets
from patchbisect.trial.preparing import Prepared
from patchbisect.trial.rig import Rig
from patchbisect.wire import Json, verdict_to_json


@dataclass(frozen=True, slots=True)
class Trial:
    """What one launch said. ``record`` is its id in the store."""

    record: str
    point: Point
    content_id: str
    verdict: Verdict
    by_hand: str = ""
    timings: Mapping[str, float] = field(default_factory=dict)
    reused: bool = False
    """Known from an earlier launch of the same content, which this one stands for: no server was started."""
    machine: Mapping[str, Any] = field(default_factory=dict)
    """The box as it described itself then."""
    box: str = ""
    """The name of the box."""
    warm: bool = False
    """Started from a warm process, not as shipped."""


@dataclass(frozen=True, slots=True)
class Launched:
    """A launch that is over, or was never begun because the box was not clean."""

    verdict: Verdict
    log: bytes = b""
    events: Sequence[Json] = ()
    samples: Sequence[Json] = ()
    argv: tuple[str, ...] = ()
    placed: PlacedCode | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    machine: Mapping[str, Any] = field(default_factory=dict)
    dossier: Mapping[str, Any] = field(default_factory=dict)
    """Of a hang: last line of each rank, stacks, processes, who is missing."""
    stop: StopReport | None = None


def recorded(
    rig: Rig,
    prepared: Prepared,
    launched: Launched,
    *,
    until: Stage,
    timings: Mapping[str, float],
    tags: Sequence[str],
    identifier: str,
) -> Trial:
    """Write the record of a launch. ``timings`` are seconds by step."""
    code = prepared.code
    record = Record(
        id=identifier,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        box=rig.box_name,
        point=point_entry(prepared, until=until, more_secrets=rig.secret_names),
        content_id=prepared.content_id,
        code={
            "commit": code.commit,
            "tree": code.tree,
            "base_commit": code.base_commit,
            "source": code.source,
            "shifted": list(code.shifted),
        },
        provenance=launched.provenance,
        machine=launched.machine,
        command=command.masked(launched.argv, more=rig.secret_names),
        by_hand=_by_hand(rig, prepared, launched),
        verdict=verdict_to_json(launched.verdict),
        timings=dict(timings),
        stop=asdict(launched.stop) if launched.stop else {},
        tags=tuple(tags),
        warm=prepared.warm,
    )
    secrets = (*prepared.secret_env.values(), *command.secret_values(launched.argv, more=rig.secret_names))
    attachments = Attachments(
        log=redacted(launched.log, secrets),
        patches={patch.name: format_patch(patch) for patch in prepared.point.patches},
        events=[_masked(event, secrets) for event in launched.events],
        samples=launched.samples,
        dossier={name: _cleaned(value, secrets) for name, value in launched.dossier.items()},
    )
    rig.store.save(record, attachments)
    return Trial(
        record=record.id,
        point=prepared.point,
        content_id=prepared.content_id,
        verdict=launched.verdict,
        by_hand=record.by_hand,
        timings=timings,
        machine=launched.machine,
        box=rig.box_name,
        warm=record.warm,
    )


def _by_hand(rig: Rig, prepared: Prepared, launched: Launched) -> str:
    if launched.placed is None:
        return ""
    return command.by_hand(
        launched.argv,
        env=prepared.env,
        secret_env=prepared.secret_env,
        pythonpath=(launched.placed.path, *rig.stand_ins, *rig.config.pythonpath),
        more_secrets=rig.secret_names,
    )


def point_entry(prepared: Prepared, *, until: Stage, more_secrets: Sequence[str]) -> PointEntry:
    """The point as it may be written down: secrets by name only."""
    point = prepared.point
    pin = point.base.pin
    env, secret_env = split_secrets(point.env, more=more_secrets)
    return PointEntry(
        name=point.name,
        profile=point.profile,
        until=until.value,
        upstream=pin.upstream,
        pin=pin.commit,
        release=pin.release,
        wheel_sha256=pin.wheel_sha256,
        tag=pin.tag,
        base_rev=point.base.rev,
        patches=tuple(
            PatchEntry(name=patch.name, subject=patch.subject, sha256=sha256_of(patch)) for patch in point.patches
        ),
        flags={name: MASK if is_secret(name, more=more_secrets) else value for name, value in point.flags.items()},
        env=env,
        secret_env=tuple(sorted(secret_env)),
        packages=dict(point.packages),
    )


def _cleaned(value: Any, secrets: Sequence[str]) -> Any:
    """JSON with the secrets taken out of every string of it."""
    if isinstance(value, str):
        return redacted(value.encode(), secrets).decode()
    if isinstance(value, Mapping):
        return {name: _cleaned(inner, secrets) for name, inner in value.items()}
    return [_cleaned(inner, secrets) for inner in value] if isinstance(value, list | tuple) else value


def _masked(event: Json, secrets: Sequence[str]) -> Json:
    """The event with secrets taken out of its line and of what was read from it."""

    def clean(value: Any) -> Any:
        return redacted(value.encode(), secrets).decode() if isinstance(value, str) else value

    values = {name: clean(value) for name, value in event["values"].items()}
    return {**{name: clean(value) for name, value in event.items()}, "values": values}
