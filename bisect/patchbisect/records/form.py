"""What a record holds, and whether a document that may come from anywhere is one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from patchbisect import __version__
from patchbisect.errors import UsageError
from patchbisect.model import Verdict
from patchbisect.wire import Json, verdict_from_json

SCHEMA = 1
"""Raised when a reader of the last one would misread a record. A new field with a default does not raise it."""


class PatchEntry(BaseModel):
    """One patch of a recorded point; its text stands beside the record as ``patches/<name>.patch``."""

    model_config = ConfigDict(frozen=True)

    name: str
    subject: str
    sha256: str


class PointEntry(BaseModel):
    """The recorded point. Values of secrets are never here, only their names (``secret_env``)."""

    model_config = ConfigDict(frozen=True)

    name: str
    profile: str
    until: str
    upstream: str
    pin: str
    release: str = ""
    wheel_sha256: str = ""
    tag: str = ""
    base_rev: str = ""
    patches: tuple[PatchEntry, ...] = ()
    flags: Mapping[str, Any] = Field(default_factory=dict)
    env: Mapping[str, str] = Field(default_factory=dict)
    secret_env: tuple[str, ...] = ()
    packages: Mapping[str, str] = Field(default_factory=dict)


class Record(BaseModel):
    """All that is kept of one trial."""

    model_config = ConfigDict(frozen=True)

    schema_version: int = SCHEMA
    id: str
    created: str
    """UTC, ISO 8601."""
    box: str
    point: PointEntry
    content_id: str
    code: Mapping[str, Any] = Field(default_factory=dict)
    """Commit, tree of ``python/sglang``, base commit, source, what was shifted."""
    provenance: Mapping[str, Any] = Field(default_factory=dict)
    """What the box itself said: tree id proven there, import path, package versions."""
    machine: Mapping[str, Any] = Field(default_factory=dict)
    command: tuple[str, ...] = ()
    by_hand: str = ""
    """One shell line that repeats the launch on the box; secrets are named, not shown."""
    verdict: Mapping[str, Any]
    timings: Mapping[str, float] = Field(default_factory=dict)
    """Seconds: prepare, launch, decide, stop, total; ``settled`` is the part of ``decide`` in which the server, having
    got there, was watched to stay."""
    stop: Mapping[str, Any] = Field(default_factory=dict)
    tags: tuple[str, ...] = ()
    made_by: str = Field(default_factory=lambda: __version__)
    """The version of patchbisect that wrote it; empty in records of before it was noted."""
    origin: str = "trial"
    """``trial``: launched by us. ``adopted``: made from the log of a server that somebody started by hand.
    ``imported``: came in a bundle. Only a trial may stand in for a launch."""
    warm: bool = False
    """Started from a warm process, not as shipped; ``command`` and ``by_hand`` are those of the normal start."""

    @property
    def judged(self) -> Verdict:
        return verdict_from_json(self.verdict)


@dataclass(frozen=True, slots=True)
class Attachments:
    """Files that stand beside ``record.json``: the whole log as bytes, and the patches' texts by name."""

    log: bytes = b""
    patches: Mapping[str, bytes] = field(default_factory=dict)
    events: Iterable[Json] = ()
    """What the log said, with ``t``, seconds after the launch."""
    dossier: Mapping[str, Any] = field(default_factory=dict)
    """Of a hang: ``last_lines``, ``stacks``, ``processes``, ``ranks_missing``."""
    samples: Iterable[Json] = ()
    """The box's samples: ``t`` in seconds after the launch (or of the epoch), ``gpus`` as
    ``[[index, used GiB, utilisation %], …]`` or ``gpu_used_gb`` of the fullest one, and what else was known."""


def _current(document: Any, path: Path) -> Json:
    """``document`` in today's schema. Raises UsageError for one of a later patchbisect; ValueError."""
    if not isinstance(document, dict):
        raise ValueError("it holds no JSON object")
    schema = document.get("schema_version", SCHEMA)
    if not isinstance(schema, int):
        raise ValueError(f"'{schema}' is no schema")
    if schema > SCHEMA:
        raise UsageError(f"{path}: schema {schema}, this patchbisect reads up to {SCHEMA}", remedy="update patchbisect")
    return {"made_by": "", **document}


def listed(document: Any, path: Path) -> Json:
    """A record's JSON with all that lists look at in its place. Raises UsageError, ValueError."""
    current = {"timings": {}, "tags": [], "code": {}, **_current(document, path)}
    words = {"created": current, "box": current, "name": current.get("point"), "profile": current.get("point")}
    words["outcome"] = current.get("verdict")
    for name, holder in words.items():
        if not isinstance(holder, dict) or not isinstance(holder.get(name), str):
            raise ValueError(f"it has no '{name}'")
    if not all(isinstance(current[name], dict) for name in ("timings", "code")) or not isinstance(
        current["tags"], list
    ):
        raise ValueError("its timings, code or tags are damaged")
    if datetime.fromisoformat(current["created"]).tzinfo is None:
        raise ValueError("'created' has no time zone")
    return current


FAULTS = (ValueError, TypeError, KeyError, AttributeError, RecursionError)
"""What :func:`checked` raises for a document that is no record."""


def checked(document: Any, path: Path) -> Record:
    """The record of a JSON document that may come from anywhere. Raises UsageError, and :data:`FAULTS`."""
    record = Record.model_validate(listed(document, path))
    _check_words(record)
    return record


def _check_words(record: Record) -> None:
    """Raises KeyError, TypeError or ValueError where what the record holds freely is not of the form that we write.

    Somebody else's record may hold anything, and whoever shows it relies on these.
    """
    _ = record.judged
    gpus = record.machine.get("gpus", ())
    if not isinstance(gpus, str | list | tuple) or not all(isinstance(gpu, dict | str) for gpu in gpus):
        raise ValueError("'machine' has damaged 'gpus'")
    for gpu in (gpu for gpu in gpus if isinstance(gpu, dict)):
        if not _is_number(gpu.get("total_gb", 0.0)):
            raise ValueError("'machine' has a GPU of no size")
    if not _is_number(record.machine.get("ram_gb") or 0.0):
        raise ValueError("'machine' has a damaged 'ram_gb'")
    for name, holder in (("packages", record.provenance), ("server_args", record.provenance)):
        if not isinstance(holder.get(name, {}), dict):
            raise ValueError(f"'provenance' has damaged '{name}'")
    if not isinstance(record.code.get("shifted", []), list):
        raise ValueError("'code' has a damaged 'shifted'")
    facts = record.verdict.get("facts", {})
    probes = facts.get("probes", {}) if isinstance(facts, dict) else None
    if not isinstance(probes, dict) or not all(isinstance(ranks, dict) for ranks in probes.values()):
        raise ValueError("'verdict' has damaged 'facts'")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def is_event(item: Any) -> bool:
    """Whether it has the form of one of :attr:`Attachments.events`."""
    return isinstance(item, dict) and _is_number(item.get("t", 0.0)) and isinstance(item.get("line", 0), int)


def is_sample(item: Any) -> bool:
    """Whether it has the form of one of :attr:`Attachments.samples`."""
    if not isinstance(item, dict) or not _is_number(item.get("t")):
        return False
    gpus = item.get("gpus") or []
    fullest = item.get("gpu_used_gb")
    return isinstance(gpus, list) and all(map(_is_gpu, gpus)) and (fullest is None or _is_number(fullest))


def is_dossier(item: Any) -> bool:
    """Whether it has the form of :attr:`Attachments.dossier`."""
    if not isinstance(item, dict):
        return False
    processes = item.get("processes", [])
    lists = (item.get("ranks_missing", []), item.get("ranks_alive", []), processes)
    maps = (item.get("last_lines", {}), item.get("stacks", {}), *(processes if isinstance(processes, list) else ()))
    return all(isinstance(each, list) for each in lists) and all(isinstance(each, dict) for each in maps)


def _is_gpu(gpu: Any) -> bool:
    """``[index, used GiB, utilisation %]``, where not all need be known."""
    return isinstance(gpu, list) and len(gpu) > 1 and all(each is None or _is_number(each) for each in gpu)


def first_fault(error: Exception) -> str:
    """One line: pydantic tells of every field at once."""
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return str(error)
