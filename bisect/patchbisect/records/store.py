"""The store of records: ``runs/<id>/`` with all that is kept of one trial.

``record.json``, ``server.log.gz``, ``patches/<name>.patch``, and where they were taken ``events.jsonl.gz`` and
``samples.jsonl.gz``. A record is written once, under a temporary name, and renamed when whole; only its tags
change later.
"""

from __future__ import annotations

import errno
import gzip
import json
import os
import re
import secrets
import shutil
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from patchbisect.config import DEMO, Project, remedy_for
from patchbisect.errors import UsageError
from patchbisect.records.form import (
    FAULTS,
    Attachments,
    Record,
    checked,
    first_fault,
    is_dossier,
    is_event,
    is_sample,
    listed,
)
from patchbisect.wire import Json

RECORD, LOG, EVENTS, SAMPLES, DOSSIER, PATCHES = (
    "record.json",
    "server.log.gz",
    "events.jsonl.gz",
    "samples.jsonl.gz",
    "dossier.json",
    "patches",
)
_DISOWNED = "disowned"
"""A file beside the record: somebody took it back, or the machine changed under it. Its text says which."""

ID = re.compile(r"\d{8}-\d{6}-[0-9a-z]{4}")
_FILE = re.compile(rf"{RECORD}|{LOG}|{EVENTS}|{SAMPLES}|{DOSSIER}|{PATCHES}/\d{{4}}-[\w.+-]{{1,120}}\.patch")
_NEAREST_RUNS = 20
"""Ids that an unknown name is compared with, beside every name that was given."""
_SUFFIX_LETTERS = "bcdfghjkmnpqrstvwxz"
"""In the order of the alphabet: but for the last, those of an id's suffix count the parts of its second."""
_PARTS = len(_SUFFIX_LETTERS) ** 3
_naming = threading.Lock()
_TAG = re.compile(r"[A-Za-z][\w.+-]{0,63}")
_TAKEN = {
    "last": "it is always the newest run",
    DEMO: "it is the demo's last run",
    **dict.fromkeys(("clean", "HEAD", "worktree"), "it is a point"),
}
"""Names that mean something wherever a run is named, or beside one on the command line; and what."""
_DRAFT_IS_DEAD_AFTER_S = 24 * 3600.0
_CHUNK_BYTES = 1 << 20


def new_id() -> str:
    """Sorts by time, those of one process within the second too, and is easy to say: ``20261129-181502-kfrt``.

    No digit at the end: ``run:…-6713`` would read as "that run without patch 6713".
    """
    with _naming:
        time.sleep(1 / _PARTS)
        now = datetime.now(UTC)
    part, letters = now.microsecond * _PARTS // 1_000_000, [secrets.choice(_SUFFIX_LETTERS)]
    for _ in range(3):
        part, letter = divmod(part, len(_SUFFIX_LETTERS))
        letters.insert(0, _SUFFIX_LETTERS[letter])
    return f"{now:%Y%m%d-%H%M%S}-{''.join(letters)}"


@dataclass(frozen=True, slots=True)
class Store:
    """The directory of records. Runs of the demo are found by id, but are none of ``ids``, and never ``last``."""

    directory: Path
    demo: Path | None = None

    @classmethod
    def of(cls, project: Project) -> Store:
        """A project's records, with the demo's within reach."""
        return cls(project.runs, demo=None if project.shelf else project.demo.runs)

    @property
    def of_demo(self) -> Store:
        """The demo's records alone; the same store where there are none."""
        return Store(self.demo) if self.demo else self

    def path(self, identifier: str) -> Path:
        own = self.directory / identifier
        if self.demo and not own.exists() and (there := self.demo / identifier).exists():
            return there
        return own

    def save(self, record: Record, attachments: Attachments) -> Path:
        """Write the record whole or not at all. Raises UsageError where it is here already, or cannot be written."""
        final = self.path(record.id)
        if final.exists():
            raise UsageError(f"run {record.id} is here already: {final}", remedy=f"invoke show {record.id}")
        draft = final.with_name(f".{record.id}.draft")
        try:
            self._write(draft, record, attachments)
            draft.rename(final)
        except OSError as problem:
            shutil.rmtree(draft, ignore_errors=True)
            full = problem.errno in (errno.ENOSPC, errno.EDQUOT)
            mend = "make room there (invoke gc drops old runs)" if full else f"make {self.directory} writable"
            raise UsageError(
                f"{final}: cannot be written: {problem.strerror or problem}",
                remedy=f"{mend}, then launch it again, or invoke bisect --resume",
            ) from problem
        return final

    def _write(self, draft: Path, record: Record, attachments: Attachments) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(draft, ignore_errors=True)
        (draft / PATCHES).mkdir(parents=True)
        for patch, text in attachments.patches.items():
            (draft / PATCHES / f"{patch}.patch").write_bytes(text)
        (draft / LOG).write_bytes(_compressed(attachments.log))
        if attachments.dossier:
            (draft / DOSSIER).write_text(json.dumps(dict(attachments.dossier), indent=1) + "\n", encoding="utf-8")
        for name, items in ((EVENTS, attachments.events), (SAMPLES, attachments.samples)):
            if lines := "".join(json.dumps(item) + "\n" for item in items):
                (draft / name).write_bytes(_compressed(lines.encode()))
        (draft / RECORD).write_text(_written(record), encoding="utf-8")

    def load(self, identifier: str) -> Record:
        """The record of that id, of its unambiguous beginning, of a tag, ``last`` or ``demo``. Raises UsageError."""
        return self._read(self.path(self.resolve(identifier)) / RECORD)

    def resolve(self, identifier: str) -> str:
        """The full id. Raises UsageError that names the nearest."""
        known = self.ids()
        shown = self.of_demo.ids() if self.demo else []
        if identifier in known or identifier in shown:
            return identifier
        if identifier == "last":
            return _newest(known, shown=shown)
        if identifier == DEMO and shown:
            return shown[-1]
        beginning = [name for name in (*known, *shown) if name.startswith(identifier)] if identifier else []
        if len(beginning) > 1:
            remedy = f"say more of it: {', '.join(beginning[:5])}"
            raise UsageError(f"'{identifier}' begins {len(beginning)} runs", remedy=remedy)
        hits = beginning or self._tagged(identifier)
        if len(hits) == 1:
            return hits[0]
        if hits:
            raise UsageError(f"{len(hits)} runs are tagged '{identifier}'", remedy=f"say which: {', '.join(hits[-5:])}")
        sayable = [*known[-_NEAREST_RUNS:], *(tag for document in self.documents() for tag in document["tags"])]
        raise UsageError(f"no run '{identifier}' in {self.directory}", remedy=remedy_for(identifier, sayable))

    def _tagged(self, name: str) -> list[str]:
        """The ids of the runs of that name. Only records whose text has it are parsed: there may be thousands."""
        word = json.dumps(name).encode()
        return [document["id"] for document in self.documents(having=word) if name in document["tags"]]

    def ids(self) -> list[str]:
        """Every record's id, oldest first."""
        if not self.directory.is_dir():
            return []
        return sorted(entry.name for entry in os.scandir(self.directory) if ID.fullmatch(entry.name))

    def all(self) -> Iterator[Record]:
        """Every record, oldest first. Raises UsageError on one that cannot be read."""
        for identifier in self.ids():
            yield self._read(self.path(identifier) / RECORD)

    def documents(
        self, *, fault: Callable[[str], None] = lambda text: None, newest_first: bool = False, having: bytes = b""
    ) -> Iterator[Json]:
        """Every record as plain JSON, oldest first, without the cost of validation.

        What cannot be read is told to ``fault`` and left out: one damaged record must not hide the others.
        ``having``: only records whose text has these bytes.
        """
        known = self.ids()
        for identifier in reversed(known) if newest_first else known:
            path = self.path(identifier) / RECORD
            try:
                data = path.read_bytes()
                document = listed(json.loads(data), path) if having in data else None
            except FileNotFoundError:
                if path.parent.exists():
                    fault(f"{path.parent}: not a record, it has no {RECORD}: remove it, or put the file back")
            except (OSError, ValueError, RecursionError) as error:
                fault(f"{path}: not readable as a record: {error}")
            except UsageError as error:
                fault(error.message)
            else:
                if document is not None:
                    yield {**document, "id": identifier}

    def row(self, document: Json) -> Json:
        """What a list shows of one of :meth:`documents`; a fact that is not known is None."""
        verdict, point = document["verdict"], document["point"]
        return {
            "id": document["id"],
            "created": document["created"],
            "box": document["box"],
            "point": point["name"],
            "commit": document["code"].get("commit"),
            "profile": point["profile"],
            "outcome": verdict["outcome"],
            "stage": verdict.get("stage"),
            "cause": verdict.get("cause"),
            "kv_tokens": verdict.get("facts", {}).get("kv_tokens"),
            "seconds": document["timings"].get("total"),
            "bytes": self.size(document["id"]),
            "tags": document["tags"],
        }

    def tag(self, identifier: str, name: str) -> Record:
        """Give the run a name of its own. Raises UsageError where the name is no name, or another run's."""
        if name in _TAKEN:
            raise UsageError(
                f"'{name}' cannot name a run: {_TAKEN[name]}",
                remedy="give another name, as in invoke tag last baseline",
            )
        if not _TAG.fullmatch(name):
            raise UsageError(f"'{name}' cannot name a run", remedy="a letter first, then letters, digits and . _ + -")
        record = self.load(identifier)
        holder = next((other for other in self._tagged(name) if other != record.id), None)
        if holder:
            raise UsageError(f"'{name}' is the name of {holder}", remedy=f"invoke tag {holder} {name} --remove")
        return self._retagged(record, tuple(dict.fromkeys((*record.tags, name))))

    def untag(self, identifier: str, name: str) -> Record:
        """Take a name away again. Raises UsageError where the run does not have it."""
        record = self.load(identifier)
        if name not in record.tags:
            raise UsageError(f"{record.id} is not tagged '{name}'", remedy=remedy_for(name, record.tags))
        return self._retagged(record, tuple(tag for tag in record.tags if tag != name))

    def disown(self, identifier: str, reason: str) -> None:
        """From now on the run stands in for no launch. ``identifier`` is a full id; nothing for one that is gone."""
        path = self.path(identifier)
        if path.is_dir():
            (path / _DISOWNED).write_text(f"{reason}\n", encoding="utf-8")

    def is_disowned(self, identifier: str) -> bool:
        """Whether the run was taken back."""
        return (self.path(identifier) / _DISOWNED).exists()

    def remove(self, identifier: str) -> None:
        """Delete one record, in one step for everybody who looks on. ``identifier`` is a full id."""
        path = self.path(identifier)
        if path.is_symlink():
            path.unlink()
            return
        shutil.rmtree(path.rename(path.with_name(f".{identifier}.draft")))

    def packed(self, identifier: str) -> dict[str, bytes]:
        """Every file of the record by its path there, to be sent elsewhere. ``identifier`` is a full id."""
        home = self.path(identifier)
        files = (path for path in home.rglob("*") if path.is_file() and path.name != _DISOWNED)
        return {path.relative_to(home).as_posix(): path.read_bytes() for path in files}

    def unpack(self, identifier: str, files: Mapping[str, bytes]) -> None:
        """Keep a record that was packed elsewhere, whole or not at all; one that is here already is left as it is.

        Raises ValueError for an id or a file that no record has.
        """
        odd = [name for name in files if not _FILE.fullmatch(name)]
        if odd or not ID.fullmatch(identifier):
            raise ValueError(f"not a record: {odd[0] if odd else identifier}")
        if self.path(identifier).exists():
            return
        self.directory.mkdir(parents=True, exist_ok=True)
        draft = self.directory / f".{identifier}.draft"
        shutil.rmtree(draft, ignore_errors=True)
        (draft / PATCHES).mkdir(parents=True)
        for name, content in files.items():
            (draft / name).write_bytes(content)
        draft.rename(self.path(identifier))

    def size(self, identifier: str) -> int:
        """Bytes on disk."""
        return _size(self.path(identifier))

    def dead_drafts(self) -> list[Path]:
        """What killed writers left behind, a day ago or longer."""
        dead_before = datetime.now(UTC).timestamp() - _DRAFT_IS_DEAD_AFTER_S
        drafts = self.directory.glob(".*.draft")
        return sorted(path for path in drafts if path.stat().st_mtime < dead_before)

    def remove_drafts(self, drafts: Iterable[Path]) -> None:
        """Delete what :meth:`dead_drafts` found."""
        for path in drafts:
            shutil.rmtree(path, ignore_errors=True)

    def log(self, identifier: str) -> bytes:
        """The server's log, whole. Raises UsageError where the run is unknown or its log is damaged."""
        return self._packed(identifier, LOG)

    def log_chunks(self, identifier: str) -> Iterator[bytes]:
        """The same in pieces: a log may be larger than the memory of who reads it."""
        path = self.path(self.resolve(identifier)) / LOG
        try:
            with gzip.open(path) as file:
                while chunk := file.read(_CHUNK_BYTES):
                    yield chunk
        except FileNotFoundError:
            return
        except (OSError, EOFError, zlib.error) as error:
            raise _damaged(path, error) from error

    def events(self, identifier: str) -> list[Json]:
        """What the log said while it ran; empty where nobody noted it."""
        return self._packed_lines(identifier, EVENTS, is_event)

    def samples(self, identifier: str) -> list[Json]:
        """The box's samples (see :class:`Attachments`); empty where none were taken."""
        return self._packed_lines(identifier, SAMPLES, is_sample)

    def dossier(self, identifier: str) -> Json:
        """What was found out about a server that hung, before it was ended; empty for any other. Raises UsageError."""
        path = self.path(self.resolve(identifier)) / DOSSIER
        try:
            found: Json = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
            if not is_dossier(found):
                raise ValueError("it is none of its kind")
        except (OSError, ValueError, RecursionError) as error:
            raise _damaged(path, error) from error
        return found

    def patch_texts(self, identifier: str) -> dict[str, bytes]:
        """The texts of the recorded point's patches by file name, in number order."""
        directory = self.path(self.resolve(identifier)) / PATCHES
        try:
            return {path.name: path.read_bytes() for path in sorted(directory.glob("*.patch"))}
        except OSError as error:
            raise _damaged(directory, error) from error

    def _packed(self, identifier: str, name: str) -> bytes:
        path = self.path(self.resolve(identifier)) / name
        try:
            return gzip.decompress(path.read_bytes())
        except FileNotFoundError:
            return b""
        except (OSError, EOFError, zlib.error) as error:
            raise _damaged(path, error) from error

    def _packed_lines(self, identifier: str, name: str, is_one: Callable[[Any], bool]) -> list[Json]:
        try:
            items = [json.loads(line) for line in self._packed(identifier, name).splitlines()]
            if odd := next((number for number, item in enumerate(items, start=1) if not is_one(item)), 0):
                raise ValueError(f"line {odd} is none of its kind")
        except (ValueError, RecursionError) as error:
            raise _damaged(self.path(self.resolve(identifier)) / name, error) from error
        return items

    def _retagged(self, record: Record, tags: tuple[str, ...]) -> Record:
        changed = record.model_copy(update={"tags": tags})
        path = self.path(record.id) / RECORD
        draft = path.with_name(f".{RECORD}.draft")
        draft.write_text(_written(changed), encoding="utf-8")
        draft.replace(path)
        return changed

    def _read(self, path: Path) -> Record:
        try:
            return checked(json.loads(path.read_text(encoding="utf-8")), path)
        except FileNotFoundError as error:
            raise UsageError(
                f"{path.parent}: not a record, it has no {RECORD}", remedy="remove it, or put the file back"
            ) from error
        except (OSError, *FAULTS) as error:
            raise UsageError(f"{path}: not readable as a record: {first_fault(error)}", remedy=_MEND) from error


_MEND = "the log beside it may still be read (zcat server.log.gz); remove the directory when you are done with it"


def _newest(own: Sequence[str], *, shown: Sequence[str]) -> str:
    """What ``last`` means. Raises UsageError where there is no run; the demo's are never meant."""
    if own:
        return own[-1]
    remedy = "invoke launch makes one" + (f"; the demo's last run is called '{DEMO}'" if shown else "")
    raise UsageError("there is no run yet" if not shown else "there is no run of your own yet", remedy=remedy)


def _damaged(path: Path, error: Exception) -> UsageError:
    return UsageError(f"{path}: damaged: {error}", remedy="the rest of the record can still be read")


def _written(record: Record) -> str:
    return record.model_dump_json(indent=1) + "\n"


def _compressed(data: bytes) -> bytes:
    return gzip.compress(data, compresslevel=6, mtime=0)


def _size(directory: Path) -> int:
    """Bytes on disk; of what another shell is removing, what is left."""
    total = 0
    with suppress(FileNotFoundError):
        for entry in os.scandir(directory):
            inside = entry.is_dir(follow_symlinks=False)
            total += _size(Path(entry.path)) if inside else entry.stat(follow_symlinks=False).st_size
    return total
