"""One point on one box → verdict. The only place where a box and the meaning of a log meet."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Protocol, runtime_checkable

from patchbisect import command
from patchbisect.box import (
    Box,
    BoxSettings,
    CleanReport,
    Exited,
    LaunchSpec,
    LogChunk,
    PlacedCode,
    Run,
    StopReport,
    open_box,
)
from patchbisect.config import BoxConfig, Project
from patchbisect.embedded import Embedded
from patchbisect.errors import BoxError, UsageError
from patchbisect.model import (
    CodeCommit,
    Milestone,
    Outcome,
    Patch,
    Persistence,
    Point,
    Role,
    Signals,
    Stage,
    Verdict,
    content_id,
)
from patchbisect.patchqueue import format_patch
from patchbisect.records import Attachments, PatchEntry, PointEntry, Record, Store, new_id
from patchbisect.redact import MASK, is_secret, redacted, split_secrets
from patchbisect.startup import SILENCE, Budgets, Classifier, Event
from patchbisect.upstream import Mirror
from patchbisect.wire import Json, verdict_to_json

# A server that has just said it is ready is left alone this long (seconds) when the question is about
# warm-up or serving: some die on the first health request.
SETTLE_S = 3.0

# SIGTERM's grace (seconds) for a server that was not decided early; an early verdict gives none.
STOP_GRACE_S = 1.0

_SPACE_FOR_LOG = 64 * 1024 * 1024
"""Bytes of log kept in memory and in the record; a flood beyond it is counted, not kept."""


class Watcher(Protocol):
    """Hears of a trial while it runs. Every method may be slow only at the cost of the verdict's latency."""

    def step(self, text: str) -> None:
        """A step of ours: placing code, proving the box clean, stopping."""

    def event(self, event: Event, elapsed_s: float) -> None:
        """Something that the log said, ``elapsed_s`` seconds after the launch."""


@runtime_checkable
class SampleWatcher(Protocol):
    """A watcher that wants the box's samples too."""

    def signals(self, signals: Signals, elapsed_s: float) -> None:
        """What the box measured, ``elapsed_s`` seconds after the launch."""


class Silent:
    """A watcher that does not care."""

    def step(self, text: str) -> None:
        pass

    def event(self, event: Event, elapsed_s: float) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Rig:
    """What trials of one box share. Open it with :func:`open_rig`."""

    project: Project
    mirror: Mirror
    store: Store
    box: Box
    box_name: str
    config: BoxConfig
    embedded: Embedded | None

    @property
    def secret_names(self) -> tuple[str, ...]:
        return self.project.settings.secrets


@dataclass(frozen=True, slots=True)
class Prepared:
    """A point made ready to launch: its code is a commit, its arguments are final but for host and port."""

    point: Point
    code: CodeCommit
    arguments: tuple[str, ...]
    env: Mapping[str, str]
    secret_env: Mapping[str, str]
    content_id: str


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


@contextmanager
def open_rig(
    project: Project, *, mirror: Mirror, box: str | None, embedded: Embedded | None, reason: str, wait_s: float = 0.0
) -> Iterator[Rig]:
    """Reach the box and have it to ourselves, for ``reason``, waiting up to ``wait_s`` seconds for it.

    One lease for all that is done with it: between two trials of a bisection nobody else gets in.
    Raises UsageError for an unknown box, BoxError when it cannot be reached or somebody holds it.
    """
    name, config = project.settings.box_named(box)
    if config.embedded and embedded is None:
        raise UsageError(f"box '{name}' has no environment yet", remedy="invoke setup")
    settings = _box_settings(config, embedded, project)
    with open_box(name, settings, state=project.state) as opened, opened.lease(reason=reason, wait_s=wait_s):
        yield Rig(
            project=project,
            mirror=mirror,
            store=Store(project.state / "runs"),
            box=opened,
            box_name=name,
            config=config,
            embedded=embedded if config.embedded else None,
        )


def _box_settings(config: BoxConfig, embedded: Embedded | None, project: Project) -> BoxSettings:
    """A box as its package wants it. The embedded one brings its own interpreter."""
    user = f"{config.user}@" if config.user else ""
    port = f":{config.port}" if config.port else ""
    return BoxSettings(
        host=f"{user}{config.host}{port}" if config.host else "",
        prefix=config.prefix,
        directory=config.dir or "",
        python=str(embedded.python) if config.embedded and embedded else config.python or "python3",
        lease_directory=config.lease_dir,
        agent_python=config.agent_python or "",
        checkout=config.checkout or "",
        env=dict(config.env),
        pythonpath=config.pythonpath,
        gpus=config.gpus,
        secrets=project.settings.secrets,
        build=config.build,
    )


def prepare(rig: Rig, point: Point) -> Prepared:
    """Build the point's code and resolve its arguments. Raises PointUnbuildable, UsageError."""
    code = rig.mirror.materialize(point.base, point.patches)
    variables = rig.embedded.variables if rig.embedded else {}
    arguments = command.arguments(point.flags, variables=variables)
    inherited = {**(rig.embedded.env if rig.embedded else {}), **rig.config.env}
    env, secret_env = split_secrets({**inherited, **point.env}, more=rig.secret_names)
    return Prepared(
        point=point,
        code=code,
        arguments=arguments,
        env=env,
        secret_env=secret_env,
        content_id=content_id(tree=code.tree, arguments=arguments, env=env, packages=point.packages),
    )


def run_trial(
    rig: Rig,
    prepared: Prepared,
    *,
    until: Stage,
    watcher: Watcher | None = None,
    settle_s: float = 0.0,
    keep: bool = False,
    port: int | None = None,
    tags: Sequence[str] = (),
    record_id: str | None = None,
) -> Trial:
    """Launch, follow until the log decides, stop, prove the box clean again, record.

    ``until`` is ``KV_ALLOC`` or ``SERVING``; ``port`` a free one where none is named. With ``keep`` a server that
    got there stays up.
    Raises BoxError when box or link fail: then there is no verdict, and so no record.
    """
    watcher = watcher or Silent()
    clock = _Clock()
    port = port or rig.box.free_port()
    watcher.step("proving the box clean")
    clean = rig.box.prove_clean(port)
    if not clean.clean:
        launched = _Launched(verdict=_dirty(clean))
        return _recorded(rig, prepared, launched, until=until, clock=clock, tags=tags, record_id=record_id)
    watcher.step(f"placing code {prepared.code.commit[:12]}")
    placed = rig.box.put_code(rig.mirror.path, prepared.code.commit)
    clock.lap("prepare")
    launched = _launch(
        rig, prepared, placed, port=port, until=until, watcher=watcher, settle_s=settle_s, keep=keep, clock=clock
    )
    return _recorded(rig, prepared, launched, until=until, clock=clock, tags=tags, record_id=record_id)


class _Clock:
    """Seconds by name; ``lap`` closes the one that is running."""

    def __init__(self) -> None:
        self.begun = self.last = time.monotonic()
        self.laps: dict[str, float] = {}

    def lap(self, name: str) -> None:
        now = time.monotonic()
        self.laps[name] = self.laps.get(name, 0.0) + now - self.last
        self.last = now

    def total(self) -> float:
        return time.monotonic() - self.begun


@dataclass(frozen=True, slots=True)
class _Launched:
    verdict: Verdict
    log: bytes = b""
    events: Sequence[Json] = ()
    samples: Sequence[Json] = ()
    port: int = 0
    argv: tuple[str, ...] = ()
    placed: PlacedCode | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    machine: Mapping[str, Any] = field(default_factory=dict)
    stop: StopReport | None = None


def _dirty(clean: CleanReport) -> Verdict:
    return Verdict(
        outcome=Outcome.VOID,
        persistence=Persistence.TRANSIENT,
        why="the box is not clean: " + "; ".join(clean.faults),
        advice="end what holds the box, or wait for it, then try again",
        final=True,
    )


def _launch(
    rig: Rig,
    prepared: Prepared,
    placed: PlacedCode,
    *,
    port: int,
    until: Stage,
    watcher: Watcher,
    settle_s: float,
    keep: bool,
    clock: _Clock,
) -> _Launched:
    argv = (
        _python(rig),
        *command.MODULE,
        *prepared.arguments,
        *(() if "host" in prepared.point.flags else ("--host", "127.0.0.1")),
        "--port",
        str(port),
    )
    spec = LaunchSpec(
        launch_id=new_id(),
        argv=argv,
        env=prepared.env,
        secret_env=prepared.secret_env,
        port=port,
        code=placed,
        pythonpath=_stand_ins(rig),
        keep=keep,
    )
    watcher.step(f"launching on port {port}")
    run = rig.box.start(spec)
    kept = False
    try:
        follower = _Follower(rig=rig, prepared=prepared, until=until, settle_s=settle_s, watcher=watcher)
        verdict = follower.follow(run)
        clock.lap("decide")
        provenance = run.provenance()
        machine = asdict(rig.box.hello())
        verdict = _unless_wrong_code(verdict, provenance, placed)
        kept = keep and verdict.outcome in (Outcome.READY, Outcome.KV_ALLOCATED)
    finally:
        if not kept:
            watcher.step("stopping")
            report = run.stop(grace_s=0.0 if follower.early else STOP_GRACE_S)
            clock.lap("stop")
    return _Launched(
        verdict=verdict if kept else _unless_box_changed(verdict, report),
        log=bytes(follower.log),
        events=follower.events,
        samples=follower.samples,
        port=port,
        argv=argv,
        placed=placed,
        provenance=provenance,
        machine=machine,
        stop=None if kept else report,
    )


def _stand_ins(rig: Rig) -> tuple[str, ...]:
    return tuple(str(path) for path in rig.embedded.pythonpath) if rig.embedded else ()


def _python(rig: Rig) -> str:
    if rig.embedded:
        return str(rig.embedded.python)
    if not rig.config.python:
        raise UsageError(
            f"box '{rig.box_name}' names no interpreter for the server",
            remedy=f"set patchbisect.boxes.{rig.box_name}.python in invoke.yaml",
        )
    return rig.config.python


def _unless_wrong_code(verdict: Verdict, provenance: Mapping[str, Any], placed: PlacedCode) -> Verdict:
    """A verdict counts only for the code that was asked for."""
    found = str(provenance.get("sglang", ""))
    wanted = f"{placed.path.rstrip('/')}/sglang/"
    if provenance.get("tree") == placed.tree and found.startswith(wanted):
        return verdict
    return Verdict(
        outcome=Outcome.VOID,
        persistence=Persistence.PERMANENT,
        why=f"wrong code found running: sglang comes from {found or 'nowhere'} with tree {provenance.get('tree')}, "
        f"wanted {wanted} with tree {placed.tree}",
        advice="look for an editable install or a PYTHONPATH that comes before the point's code",
        final=True,
    )


def _unless_box_changed(verdict: Verdict, report: StopReport) -> Verdict:
    """A verdict counts only on a box that stayed the same from start to end."""
    if not report.box_changed:
        return verdict
    return Verdict(
        outcome=Outcome.VOID,
        persistence=Persistence.TRANSIENT,
        why="the box changed during the launch: " + "; ".join(report.box_changed),
        advice="find out what happened to the box, then try again",
        final=True,
    )


class _Follower:
    """Feeds the classifier until the verdict is final, the wanted stage is reached, or the server is gone."""

    def __init__(self, *, rig: Rig, prepared: Prepared, until: Stage, settle_s: float, watcher: Watcher) -> None:
        self.classifier = Classifier(
            until=until,
            patched_files=_patched_files(prepared.point.patches),
            line_owner=lambda path, line: rig.mirror.line_owner(prepared.code, f"python/{path}", line),
            budgets=Budgets(silence={**SILENCE, **rig.project.settings.silence}),
        )
        self.until = until
        self.settle_s = settle_s
        self.watcher = watcher
        self.log = bytearray()
        self.events: list[Json] = []
        self.samples: list[Json] = []
        self.early = False
        """Whether the verdict came while the server was still there, so that it needs no grace."""

    def follow(self, run: Run) -> Verdict:
        begun = time.monotonic()
        signals = Signals(alive=True)
        reached_at: float | None = None
        for item in run.events():
            if isinstance(item, LogChunk):
                self._keep(item.data)
                for event in self.classifier.feed(item.data):
                    elapsed = time.monotonic() - begun
                    self.events.append({"t": round(elapsed, 3), **event.document()})
                    self.watcher.event(event, elapsed)
            elif isinstance(item, Signals):
                signals = item
                elapsed = time.monotonic() - begun
                self.samples.append({"t": round(elapsed, 3), **_known(item)})
                if isinstance(self.watcher, SampleWatcher):
                    self.watcher.signals(item, elapsed)
            elif isinstance(item, Exited):
                self.classifier.close()
                return self.classifier.verdict(replace(signals, alive=False, exit_code=item.exit_code))
            verdict = self.classifier.verdict(signals)
            if verdict.final and verdict.outcome not in (Outcome.READY, Outcome.KV_ALLOCATED):
                self.early = True
                return verdict
            if self._reached(verdict):
                reached_at = reached_at or time.monotonic()
                if time.monotonic() - reached_at >= self.settle_s:
                    return verdict
        raise BoxError("the box stopped reporting on the server", remedy="invoke doctor")

    def _reached(self, verdict: Verdict) -> bool:
        if verdict.outcome is Outcome.READY:
            return True
        return self.until is Stage.KV_ALLOC and Milestone(Role.TARGET, Stage.KV_ALLOC) in verdict.passed

    def _keep(self, data: bytes) -> None:
        room = _SPACE_FOR_LOG - len(self.log)
        self.log += data[: max(room, 0)]


def _known(signals: Signals) -> Json:
    """What a sample is kept of: the numbers that were known."""
    names = ("gpu_used_gb", "gpu_util", "cpu_util", "net_rx_kbps", "silent_for_s")
    return {name: value for name in names if (value := getattr(signals, name)) is not None}


def _masked(event: Json, secrets: Sequence[str]) -> Json:
    """The event with secrets taken out of its line and of what was read from it."""

    def clean(value: Any) -> Any:
        return redacted(value.encode(), secrets).decode() if isinstance(value, str) else value

    values = {name: clean(value) for name, value in event["values"].items()}
    return {**{name: clean(value) for name, value in event.items()}, "values": values}


def _patched_files(patches: Sequence[Patch]) -> dict[str, str]:
    """Path below ``python/`` -> the names of all patches that touch it."""
    touching: dict[str, list[str]] = {}
    for patch in patches:
        for name in patch.files:
            touching.setdefault(name.removeprefix("python/"), []).append(patch.name)
    return {name: ", ".join(names) for name, names in touching.items()}


def _recorded(
    rig: Rig,
    prepared: Prepared,
    launched: _Launched,
    *,
    until: Stage,
    clock: _Clock,
    tags: Sequence[str],
    record_id: str | None,
) -> Trial:
    clock.lap("finish")
    timings = {**{name: round(seconds, 3) for name, seconds in clock.laps.items()}, "total": round(clock.total(), 3)}
    code = prepared.code
    record = Record(
        id=record_id or new_id(),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        box=rig.box_name,
        point=_point_entry(prepared, until=until, more_secrets=rig.secret_names),
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
        timings=timings,
        stop=asdict(launched.stop) if launched.stop else {},
        tags=tuple(tags),
    )
    secrets = (*prepared.secret_env.values(), *command.secret_values(launched.argv, more=rig.secret_names))
    attachments = Attachments(
        log=redacted(launched.log, secrets),
        patches={patch.name: format_patch(patch) for patch in prepared.point.patches},
        events=[_masked(event, secrets) for event in launched.events],
        samples=launched.samples,
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
    )


def _by_hand(rig: Rig, prepared: Prepared, launched: _Launched) -> str:
    if launched.placed is None:
        return ""
    return command.by_hand(
        launched.argv,
        env=prepared.env,
        secret_env=prepared.secret_env,
        pythonpath=(launched.placed.path, *_stand_ins(rig), *rig.config.pythonpath),
        more_secrets=rig.secret_names,
    )


def _point_entry(prepared: Prepared, *, until: Stage, more_secrets: Sequence[str]) -> PointEntry:
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
            PatchEntry(name=patch.name, subject=patch.subject, sha256=hashlib.sha256(format_patch(patch)).hexdigest())
            for patch in point.patches
        ),
        flags={name: MASK if is_secret(name, more=more_secrets) else value for name, value in point.flags.items()},
        env=env,
        secret_env=tuple(sorted(secret_env)),
        packages=dict(point.packages),
    )
