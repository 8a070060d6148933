"""A name on the command line → a start that can be read: a recorded run, or a log file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

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

    @property
    def label(self) -> str:
        """Short, for a picture: the run's own name, its id, or the file's."""
        if self.record is None:
            return Path(self.name).stem
        return str(self.record["tags"][0]) if self.record["tags"] else self.name


def source(store: Store, name: str, *, load: Callable[[str], bytes]) -> Source:
    """The log file of that name (read by ``load``; ``-`` is standard input), else the run. Raises UsageError."""
    if name == "-" or Path(name).is_file():
        log = load(name)
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
