"""The store of records: ``runs/<id>/`` with ``record.json``, ``server.log.gz`` and the point's ``patches/``.

A record is all that is kept of a trial. It is written once, under a temporary name, and renamed when whole.
"""

from __future__ import annotations

import gzip
import json
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from patchbisect.config import nearest
from patchbisect.errors import UsageError
from patchbisect.model import Verdict
from patchbisect.wire import verdict_from_json

SCHEMA = 1


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
    """Seconds: prepare, launch, decide, stop, total."""
    stop: Mapping[str, Any] = Field(default_factory=dict)
    tags: tuple[str, ...] = ()

    @property
    def judged(self) -> Verdict:
        return verdict_from_json(self.verdict)


def new_id() -> str:
    """Sorts by time and is easy to say: ``1129-181502-k3f9``, with the year in front."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


@dataclass(frozen=True, slots=True)
class Attachments:
    """Files that stand beside ``record.json``: the whole log as bytes, and the patches' texts by name."""

    log: bytes = b""
    patches: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Store:
    """The directory of records."""

    directory: Path

    def path(self, identifier: str) -> Path:
        return self.directory / identifier

    def save(self, record: Record, attachments: Attachments) -> Path:
        """Write the record whole or not at all."""
        self.directory.mkdir(parents=True, exist_ok=True)
        final = self.path(record.id)
        draft = final.with_name(f".{record.id}.draft")
        shutil.rmtree(draft, ignore_errors=True)
        (draft / "patches").mkdir(parents=True)
        for name, text in attachments.patches.items():
            (draft / "patches" / f"{name}.patch").write_bytes(text)
        (draft / "server.log.gz").write_bytes(gzip.compress(attachments.log, compresslevel=6, mtime=0))
        (draft / "record.json").write_text(record.model_dump_json(indent=1) + "\n", encoding="utf-8")
        draft.rename(final)
        return final

    def load(self, identifier: str) -> Record:
        """The record of that id, of its unambiguous beginning, of a tag, or ``last``. Raises UsageError."""
        return self._read(self.path(self.resolve(identifier)) / "record.json")

    def resolve(self, identifier: str) -> str:
        """The full id. Raises UsageError that names the nearest."""
        known = self.ids()
        if identifier in known:
            return identifier
        if identifier == "last" and known:
            return known[-1]
        hits = [name for name in known if name.startswith(identifier)] if identifier else []
        hits = hits or [record.id for record in self.all() if identifier in record.tags]
        if len(hits) == 1:
            return hits[0]
        if hits:
            raise UsageError(f"'{identifier}' begins {len(hits)} runs", remedy=f"say more of it: {', '.join(hits[:5])}")
        raise UsageError(f"no run '{identifier}' in {self.directory}", remedy=nearest(identifier, known[-20:]))

    def ids(self) -> list[str]:
        """Every record's id, oldest first."""
        if not self.directory.is_dir():
            return []
        return sorted(entry.name for entry in os.scandir(self.directory) if not entry.name.startswith("."))

    def all(self) -> Iterator[Record]:
        """Every record, oldest first."""
        for identifier in self.ids():
            yield self._read(self.path(identifier) / "record.json")

    def log(self, identifier: str) -> bytes:
        """The server's log, whole. Raises UsageError where the run is unknown."""
        return gzip.decompress((self.path(self.resolve(identifier)) / "server.log.gz").read_bytes())

    def patch_texts(self, identifier: str) -> dict[str, bytes]:
        """The texts of the recorded point's patches by file name, in number order."""
        directory = self.path(self.resolve(identifier)) / "patches"
        return {path.name: path.read_bytes() for path in sorted(directory.glob("*.patch"))}

    def _read(self, path: Path) -> Record:
        try:
            return Record.model_validate(json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError as error:
            raise UsageError(f"{path.parent}: not a record", remedy="remove that directory") from error
        except (ValueError, ValidationError) as error:
            raise UsageError(f"{path}: not readable as a record: {error}", remedy="remove that directory") from error


def newest_with_content(records: Iterable[Record], *, content_id: str, box: str) -> Record | None:
    """The last record of the same content on the same box that is not void."""
    hits = [r for r in records if r.content_id == content_id and r.box == box and r.verdict["outcome"] != "void"]
    return hits[-1] if hits else None
