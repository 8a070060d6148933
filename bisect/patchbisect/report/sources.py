"""A name on the command line → something that can be read: a recorded run, or a log file."""

from __future__ import annotations

import gzip
import shutil
import subprocess
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path

from patchbisect.errors import UsageError
from patchbisect.records import Store
from patchbisect.report.reading import Reading, read
from patchbisect.wire import Json, verdict_from_json


@dataclass(frozen=True, slots=True)
class Source:
    """One start: its log, and its record where it has one."""

    name: str
    log: bytes
    record: Json | None
    reading: Reading
    samples: tuple[Json, ...] = ()


def source(store: Store, name: str) -> Source:
    """The run of that name, or the log file. Raises UsageError for neither, with the nearest run."""
    if name == "-" or (("/" in name or "." in name) and Path(name).is_file()):
        log = read_log(name)
        return Source(name=name, log=log, record=None, reading=read(log))
    return recorded(store, name)


def recorded(store: Store, name: str) -> Source:
    """A run of the store. Raises UsageError for an unknown one."""
    record = store.load(name).model_dump(mode="json")
    log = store.log(record["id"])
    reading = read(log, events=store.events(record["id"]), verdict=verdict_from_json(record["verdict"]))
    return Source(
        name=record["id"], log=log, record=record, reading=reading, samples=tuple(store.samples(record["id"]))
    )


def read_log(name: str) -> bytes:
    """A log file as bytes: ``-`` is standard input, ``.gz`` and ``.zst`` are unpacked. Raises UsageError."""
    if name == "-":
        return sys.stdin.buffer.read()
    path = Path(name)
    try:
        if path.suffix == ".zst":
            return _zstd(path)
        data = path.read_bytes()
        return gzip.decompress(data) if path.suffix == ".gz" else data
    except FileNotFoundError as error:
        raise UsageError(f"{name}: no such file", remedy="name a log file, or - for standard input") from error
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(f"{name}: cannot be read: {error}", remedy="unpack it by hand") from error


def _zstd(path: Path) -> bytes:
    tool = shutil.which("zstd")
    if not tool:
        raise UsageError(
            f"{path}: this machine has no zstd to unpack it", remedy="unpack it elsewhere, or install zstd"
        )
    done = subprocess.run([tool, "-dcq", "--", str(path)], capture_output=True, check=False)
    if done.returncode:
        raise UsageError(f"{path}: {done.stderr.decode(errors='replace').strip()}", remedy="unpack it by hand")
    return done.stdout
