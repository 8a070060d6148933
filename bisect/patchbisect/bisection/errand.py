"""A trial that is made elsewhere: what travels to the worker that makes it, what comes back, and the worker's side.

No secret travels: a point goes as a record holds it, with secrets by name, and the worker takes their values from its
own environment and settings. That it runs what was asked for is shown by the content id, which covers them.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path

from patchbisect import __file__ as PACKAGE
from patchbisect import __version__, command, errors
from patchbisect.config import PIN_FILE, Project
from patchbisect.errors import BoxError, PatchbisectError, UsageError
from patchbisect.model import Point, Stage
from patchbisect.patchqueue import format_patch, format_pin, parse_pin
from patchbisect.points import point_of
from patchbisect.records import PointEntry, Store
from patchbisect.trial import (
    SETTLE_S,
    Desk,
    Prepared,
    Rig,
    Steps,
    Stoppable,
    pin_of,
    point_entry,
    prepare,
    rejoin_trial,
    run_trial,
)
from patchbisect.wire import Json

TRIAL, REJOIN, LOOK = "trial", "rejoin", "look"
"""What a worker can be asked: make a trial, say how an earlier one went, or describe its box."""


def packed(document: Json) -> bytes:
    """The document for the way: builtin types only, and nothing to read in a log that quotes it."""
    return zlib.compress(pickle.dumps(document, protocol=4))


def unpacked(parcel: bytes) -> Json:
    """The reverse. Only for parcels of a scheduler that is trusted: whoever reaches it can run code anyway."""
    document: Json = pickle.loads(zlib.decompress(parcel))
    return document


@cache
def fingerprint() -> str:
    """Which patchbisect this is: its version and a digest of its source, for two checkouts have one version."""
    home = Path(PACKAGE).parent
    digest = hashlib.sha256()
    for path in sorted(home.rglob("*.py")):
        digest.update(f"{path.relative_to(home)}\0".encode() + path.read_bytes())
    return f"{__version__} ({digest.hexdigest()[:10]})"


def errand(
    verb: str,
    prepared: Prepared,
    *,
    project: Project,
    record: str,
    until: Stage,
    settle: bool,
    reason: str,
    wait_s: float,
) -> Json:
    """What a worker needs to make the trial ``record`` for ``reason``, waiting ``wait_s`` seconds for its box."""
    point, secrets = prepared.point, project.settings.secrets
    return {
        "made_by": fingerprint(),
        "verb": verb,
        "record": record,
        "point": point_entry(prepared, until=until, more_secrets=secrets).model_dump(mode="json"),
        "patches": {f"{patch.name}.patch": format_patch(patch) for patch in point.patches},
        "until": until.value,
        "settle": settle,
        "content_id": prepared.content_id,
        "runs": _shown(prepared, secrets=secrets),
        "pin": format_pin(pin_of(project)),
        "settings": project.settings.model_dump(mode="json", include={"secrets", "silence"}),
        "reason": reason,
        "wait_s": wait_s,
    }


def _shown(prepared: Prepared, *, secrets: tuple[str, ...]) -> Json:
    """What decides the content id, as far as it may be shown."""
    arguments = command.masked(prepared.arguments, more=secrets)
    return {"tree": prepared.code.tree, "arguments": list(arguments), "env": {**prepared.env, **prepared.wants.content}}


def fault(reply: Json, *, worker: str) -> PatchbisectError | None:
    """The error that a worker sent back instead of a trial."""
    if "fault" not in reply:
        return None
    kind = getattr(errors, reply["fault"]["kind"])
    error: PatchbisectError = kind(f"worker {worker}: {reply['fault']['message']}", remedy=reply["fault"]["remedy"])
    return error


def _sent_back(error: PatchbisectError) -> Json:
    kind = next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == errors.__name__)
    return {"fault": {"kind": kind, "message": error.message, "remedy": error.remedy}}


Opening = Callable[[Project, str, float], AbstractContextManager[Rig]]
"""Opens the worker's box for ``reason``, waiting so many seconds for it."""


class Station:
    """A worker's side: one box, one trial at a time, each under a lease of its own."""

    def __init__(
        self,
        project: Project,
        *,
        name: str,
        desk: Desk,
        opening: Opening,
        machine: Callable[[], Json],
        tell: Callable[[str, str], None] = lambda record, text: None,
    ) -> None:
        """``name`` stands for the box in records."""
        self.project = project
        self.name = name
        self.tell = tell
        """Hears a record's id and a line of how its trial goes."""
        self._desk = desk
        self._opening = opening
        self._machine = machine
        self._store = Store.of(project)
        self._idle = threading.Event()
        self._idle.set()
        self._lock = threading.Lock()
        self._running: dict[str, Stoppable] = {}

    def perform(self, parcel: bytes) -> bytes:
        """Do what the parcel asks for; every failure that a person can mend goes back as an answer."""
        document = unpacked(parcel)
        try:
            return packed(self._perform(document))
        except PatchbisectError as error:
            return packed(_sent_back(error))
        except KeyboardInterrupt:
            return packed({"interrupted": True})

    def stop(self, record: str = "") -> bool:
        """End the trial of that record, or whichever runs, soon and cleanly; whether there was one to end."""
        with self._lock:
            ended = [watcher for name, watcher in self._running.items() if record in ("", name)]
        for watcher in ended:
            watcher.stop()
        return bool(ended)

    def rest(self) -> None:
        """Wait until no trial runs."""
        self._idle.wait()

    def _perform(self, document: Json) -> Json:
        if document["made_by"] != fingerprint():
            raise UsageError(
                f"it runs patchbisect {fingerprint()}, and the bisection {document['made_by']}",
                remedy="install the same commit of patchbisect on both, then start the worker again",
            )
        record = document["record"]
        if record and self._store.path(record).exists():
            # Made before, for a bisection that did not live to hear of it.
            return self._files(record)
        project = self._asked_for(document)
        point = self._point(document, project)
        pin = parse_pin(document["pin"], filename=PIN_FILE.name)
        desk = replace(self._desk, secret_names=project.settings.secrets, pin=pin)
        self._prove_same(prepare(desk, point), document)
        if document["verb"] == LOOK:
            return {"machine": self._machine()}
        with self._watched(record) as watcher, self._opening(project, document["reason"], document["wait_s"]) as opened:
            rig = replace(opened, box_name=self.name, pin=pin)
            trial = self._made(rig, prepare(rig, point), document, watcher)
        return self._files(trial) if trial else {"gone": True}

    def _asked_for(self, document: Json) -> Project:
        """The project as it is here, but for the settings that decide what a log means: those are the asker's."""
        asked = document["settings"]
        settings = self.project.settings.model_validate(
            {**self.project.settings.model_dump(), "secrets": asked["secrets"], "silence": asked["silence"]}
        )
        return replace(self.project, settings=settings)

    def _point(self, document: Json, project: Project) -> Point:
        entry = PointEntry.model_validate(document["point"])
        profile = project.settings.profiles.get(entry.profile)
        environ = {**(profile.env if profile else {}), **os.environ}
        return point_of(entry, document["patches"], whose="the point", environ=environ, settings=project.settings)

    def _prove_same(self, prepared: Prepared, document: Json) -> None:
        """Raises UsageError where this worker would run something else than the bisection asks for."""
        if prepared.content_id == document["content_id"]:
            return
        here, there = _shown(prepared, secrets=self._desk.secret_names), document["runs"]
        different = "; ".join(_differences(there, here)) or "a secret has another value there"
        raise UsageError(
            f"it would run something else than the bisection asks for: {different}",
            remedy="make its settings and environment the same, or leave it out (--boxes)",
        )

    def _made(self, rig: Rig, prepared: Prepared, document: Json, watcher: Stoppable) -> str:
        """The record's id; empty where there is no earlier launch to join."""
        record, until = document["record"], Stage(document["until"])
        settle_s = SETTLE_S if document["settle"] else 0.0
        if document["verb"] == REJOIN:
            joined = rejoin_trial(rig, prepared, launch_id=record, until=until, watcher=watcher, settle_s=settle_s)
            return joined.record if joined else ""
        trial = run_trial(rig, prepared, until=until, watcher=watcher, settle_s=settle_s, record_id=record or None)
        return trial.record

    @contextmanager
    def _watched(self, record: str) -> Iterator[Stoppable]:
        watcher = Stoppable(Steps(lambda text: self.tell(record, text)))
        with self._lock:
            self._running[record] = watcher
            self._idle.clear()
        try:
            yield watcher
        finally:
            with self._lock:
                del self._running[record]
            self._idle.set()

    def _files(self, record: str) -> Json:
        return {"record": record, "files": self._store.packed(record)}


def _differences(there: Json, here: Json) -> Iterator[str]:
    """How what a worker would run differs from what it was asked for."""
    if there["tree"] != here["tree"]:
        yield f"its code is tree {here['tree'][:12]}, not {there['tree'][:12]}"
    if there["arguments"] != here["arguments"]:
        yield f"its arguments are {' '.join(here['arguments'])}, not {' '.join(there['arguments'])}"
    for name in sorted(there["env"].keys() | here["env"].keys()):
        if there["env"].get(name) != here["env"].get(name):
            yield f"{name} is {here['env'].get(name)!r}, not {there['env'].get(name)!r}"


_here: list[Station] = []
"""The station of this process, once it is a worker."""


def serve_here(station: Station) -> None:
    """Let ``perform`` and ``stop`` of this process mean that station."""
    _here[:] = [station]


def perform(parcel: bytes) -> bytes:
    """What an executor is given to run on a worker. Raises BoxError in a process that is none."""
    if not _here:
        raise BoxError("this worker has no box", remedy="start it with: invoke box.worker --scheduler ADDRESS")
    return _here[0].perform(parcel)


def stop(record: str) -> bool:
    """End that trial in this process, if it runs here."""
    return bool(_here) and _here[0].stop(record)
