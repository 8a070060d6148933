"""One record as one file to attach to an issue, and back.

The file is a zip: ``record.json``, ``server.log``, ``patches/``, and events, samples and dossier where there are any.
Secrets, host names, addresses and user names are taken out on the way out.
"""

from __future__ import annotations

import io
import json
import os
import re
import socket
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from patchbisect.config import Settings
from patchbisect.errors import UsageError
from patchbisect.records import (
    FAULTS,
    ID,
    Attachments,
    Record,
    Store,
    checked,
    first_fault,
    is_dossier,
    is_event,
    is_sample,
)
from patchbisect.redact import is_secret
from patchbisect.report.scrub import Scrubber
from patchbisect.wire import Json

_RECORD, _LOG, _EVENTS, _SAMPLES, _DOSSIER = (
    "record.json",
    "server.log",
    "events.jsonl",
    "samples.jsonl",
    "dossier.json",
)
_PATCH = re.compile(r"patches/(?P<name>\d{4}-[\w.+-]{1,120})\.patch")
_LARGEST_BYTES = 512 * 2**20
"""Of a bundle unpacked: far above any log that we keep, far below what fills a disk."""
_LARGEST_LOG_BYTES = 128 * 2**20
"""Of a log in a bundle: of a longer one the beginning and the end are kept."""
_MOST_MEMBERS = 2000
_WHOSE = frozenset({"hostname", "boot_id", "user", "directory"})
"""Parts of a machine's description that tell whose it is, and nothing about the run."""

# What every bundle is dated, so that the same record gives the same bytes.
_EPOCH = (1980, 1, 1, 0, 0, 0)


def exported(store: Store, identifier: str, *, scrubber: Scrubber) -> bytes:
    """The record as a bundle. Raises UsageError for an unknown run."""
    record = store.load(identifier)
    machine = record.machine
    scrubber = scrubber.knowing(hosts=_told(machine, "hostname"), users=_told(machine, "user"))
    document = scrubber.document(record.model_dump(mode="json", exclude={"tags"}))
    document["machine"] = {name: value for name, value in document["machine"].items() if name not in _WHOSE}
    # The name of a box is how its owner calls the machine.
    document["box"] = record.box if record.box == "local" else "box"
    members: dict[str, bytes] = {
        _RECORD: (json.dumps(document, indent=1) + "\n").encode(),
        _LOG: scrubber.log(_shortened(store.log_chunks(record.id))),
    }
    for name, text in store.patch_texts(record.id).items():
        members[f"patches/{name}"] = scrubber.log(text)
    if events := store.events(record.id):
        members[_EVENTS] = _as_lines(scrubber.document(events))
    if samples := store.samples(record.id):
        members[_SAMPLES] = _as_lines(scrubber.document(samples))
    if dossier := store.dossier(record.id):
        members[_DOSSIER] = (json.dumps(scrubber.document(dossier), indent=1) + "\n").encode()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as bundle:
        for name, data in members.items():
            bundle.writestr(zipfile.ZipInfo(name, _EPOCH), data, zipfile.ZIP_DEFLATED)
    return out.getvalue()


def _shortened(chunks: Iterable[bytes]) -> bytes:
    """The log, without the middle of one that would be too large for whoever imports it."""
    head, size, tail = bytearray(), 0, bytearray()
    for chunk in chunks:
        size += len(chunk)
        room = max(_LARGEST_LOG_BYTES // 2 - len(head), 0)
        head += chunk[:room]
        tail += chunk[room:]
        if len(tail) > 2 * _LARGEST_LOG_BYTES:
            del tail[: -_LARGEST_LOG_BYTES // 2]
    kept = bytes(tail[-(_LARGEST_LOG_BYTES // 2) :])
    left_out = size - len(head) - len(kept)
    note = f"\n[{left_out} bytes left out by export-run]\n".encode() if left_out else b""
    return bytes(head) + note + kept


def _told(machine: Mapping[str, Any], name: str) -> list[str]:
    return [str(machine[name])] if machine.get(name) else []


def scrubber_for(settings: Settings) -> Scrubber:
    """What this machine and its settings know to be secret or private."""
    boxes = settings.boxes.values()
    values = [value for name, value in os.environ.items() if is_secret(name, more=settings.secrets)]
    for box in boxes:
        values += [value for name, value in box.env.items() if is_secret(name, more=settings.secrets)]
    return Scrubber(
        values=values,
        names=settings.secrets,
        hosts=[socket.gethostname(), socket.getfqdn(), *(box.host for box in boxes if box.host)],
        users=[box.user for box in boxes if box.user],
    )


def imported(store: Store, path: Path, *, name: str = "") -> Record:
    """Keep a bundle's record among ours, tagged ``name`` if one is given.

    It is marked, so that it never stands in for a launch on our own box. Raises UsageError for a file that is no
    bundle, or a run that is here already.
    """
    members = _members(path)
    try:
        document = json.loads(members[_RECORD])
        if not isinstance(document, dict):
            raise ValueError("it holds no JSON object")
        record = checked({**document, "origin": "imported", "tags": []}, path)
        events, samples = (
            [json.loads(line) for line in members.get(name, b"").splitlines()] for name in (_EVENTS, _SAMPLES)
        )
        if not all(map(is_event, events)) or not all(map(is_sample, samples)):
            raise ValueError("its events or samples are damaged")
        dossier = json.loads(members.get(_DOSSIER, b"{}"))
        if not is_dossier(dossier):
            raise ValueError("its dossier is damaged")
    except FAULTS as error:
        raise _not_a_bundle(path, f"its record cannot be read: {first_fault(error)}") from error
    if not ID.fullmatch(record.id):
        raise _not_a_bundle(path, f"'{record.id}' is no run id")
    patches = {found["name"]: data for member, data in members.items() if (found := _PATCH.fullmatch(member))}
    attachments = Attachments(
        log=members.get(_LOG, b""), patches=patches, events=events, samples=samples, dossier=dossier
    )
    store.save(record, attachments)
    return store.tag(record.id, name) if name else record


def _members(path: Path) -> dict[str, bytes]:
    """Every member that a bundle may have. Nothing is unpacked to a path of the file's choosing."""
    try:
        if path.exists() and not path.is_file():
            raise _not_a_bundle(path, "it is no plain file")
        with zipfile.ZipFile(path) as bundle:
            return dict(_read(bundle, path))
    except FileNotFoundError as error:
        raise UsageError(f"{path}: no such file", remedy="name a file made by invoke export-run") from error
    except (OSError, zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise _not_a_bundle(path, str(error)) from error


def _read(bundle: zipfile.ZipFile, path: Path) -> Iterator[tuple[str, bytes]]:
    infos = bundle.infolist()
    if len(infos) > _MOST_MEMBERS:
        raise _not_a_bundle(path, f"{len(infos)} members")
    left = _LARGEST_BYTES
    for info in infos:
        if info.filename not in (_RECORD, _LOG, _EVENTS, _SAMPLES, _DOSSIER) and not _PATCH.fullmatch(info.filename):
            raise _not_a_bundle(path, f"a member '{info.filename[:80]}'")
        # The declared size may lie: read no more than is left.
        with bundle.open(info) as member:
            data = member.read(left + 1)
        left -= len(data)
        if left < 0:
            raise _not_a_bundle(path, f"more than {_LARGEST_BYTES // 2**20} MiB unpacked")
        yield info.filename, data


def _not_a_bundle(path: Path, why: str) -> UsageError:
    return UsageError(f"{path}: not a run made by export-run: {why}", remedy="ask its sender for another export")


def _as_lines(items: list[Json]) -> bytes:
    return "".join(json.dumps(item) + "\n" for item in items).encode()
