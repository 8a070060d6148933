"""Launch, follow until the log decides, stop, prove the box clean again, record."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from packaging.utils import canonicalize_name

from patchbisect import command
from patchbisect.box import Environment, LaunchSpec, PlacedCode, Run, StopReport
from patchbisect.box.failures import CannotEquip, CannotLaunch, LeaseLost, LinkLost, NoSuchLaunch, WrongCode
from patchbisect.errors import BoxError, PointUnbuildable
from patchbisect.model import Outcome, Persistence, Stage, Verdict
from patchbisect.records import new_id
from patchbisect.trial.following import Follower
from patchbisect.trial.preparing import Prepared, prepare
from patchbisect.trial.recording import Launched, Trial, recorded
from patchbisect.trial.rig import Rig
from patchbisect.trial.watching import Silent, Watcher
from patchbisect.wire import Json

# A server that has just said it is ready is left alone this long (seconds) when the question is about
# warm-up or serving: some die on the first health request.
SETTLE_S = 3.0

# SIGTERM's grace (seconds) for a server that was not decided early; an early verdict gives none, nor does a warm start.
STOP_GRACE_S = 1.0


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
    usual: Mapping[Stage, float] | None = None,
) -> Trial:
    """Launch, follow until the log decides, stop, prove the box clean again, record.

    ``until`` is ``KV_ALLOC`` or ``SERVING``; ``port`` a free one where none is named. With ``keep`` a server that
    got there stays up. ``record_id`` names the record and the launch on the box; default: a new id. ``usual`` is how
    long good starts were silent in each stage (seconds): one that is so for many times as long has hung.
    Raises BoxError when box or link fail: then there is no verdict, and so no record. NotWarm among
    them, where a warm start cannot be made.
    """
    watcher = watcher or Silent()
    clock = _Clock()
    identifier = record_id or new_id()
    try:
        if environment := rig.wheels.ready(prepared.wants, say=watcher.step):
            clock.lap("environment")
        watcher.step("proving the box clean")
        port = port or rig.box.free_port()
        clean = rig.box.prove_clean(port, wait_s=rig.wait_s, say=watcher.step)
        if clean.waited_s:
            clock.lap("waited")
        if clean.clean:
            follower = Follower(
                rig=rig, prepared=prepared, until=until, settle_s=settle_s, watcher=watcher, usual=usual
            )
            watcher.step(f"placing code {prepared.code.commit[:12]}")
            placed = rig.box.put_code(rig.mirror.path, prepared.code.commit)
            clock.lap("prepare")
            spec = _spec(rig, prepared, placed, environment, launch_id=identifier, port=port, keep=keep)
            launched = _launch(rig, spec, placed, follower=follower, watcher=watcher, clock=clock)
        else:
            why = "the box is not clean: " + "; ".join(clean.faults)
            launched = Launched(
                verdict=_void(why, advice="end what holds the box, or wait: --wait-for-box 600 (seconds)")
            )
    except (CannotEquip, CannotLaunch, PointUnbuildable, WrongCode) as refusal:
        launched = Launched(verdict=_void(refusal.message, advice=refusal.remedy, persistence=Persistence.PERMANENT))
    except NoSuchLaunch as forgotten:
        launched = Launched(verdict=_void(forgotten.message, advice="is the box's directory emptied at a reboot?"))
    clock.lap("finish")
    timings = clock.timings()
    watcher.step(f"{_ending(launched.verdict)} after {timings['total']:.1f} s")
    return recorded(rig, prepared, launched, until=until, timings=timings, tags=tags, identifier=identifier)


def rejoin_trial(
    rig: Rig,
    prepared: Prepared,
    *,
    launch_id: str,
    until: Stage,
    watcher: Watcher | None = None,
    settle_s: float = 0.0,
    usual: Mapping[Stage, float] | None = None,
) -> Trial | None:
    """Go on with a launch whose client went away; its log is read from the beginning. None where there is none to join.

    A launch that was ended by us says nothing. Raises BoxError as :func:`run_trial` does.
    """
    watcher = watcher or Silent()
    clock = _Clock()
    try:
        state = rig.box.ask("launch_state", launch_id=launch_id)
    except NoSuchLaunch:
        return None
    if state["ended"]:
        return None
    if prepared.warm and not state["warm"]:
        prepared = prepare(rig, prepared.point)
    placed = rig.box.put_code(rig.mirror.path, prepared.code.commit)
    follower = Follower(rig=rig, prepared=prepared, until=until, settle_s=settle_s, watcher=watcher, usual=usual)
    environment = rig.wheels.ready(prepared.wants, say=watcher.step)
    spec = _spec(rig, prepared, placed, environment, launch_id=launch_id, port=state["port"], keep=False)
    watcher.step(f"joining launch {launch_id} again")
    run = rig.box.rejoin(spec)
    launched = _followed(rig, run, spec, placed, follower=follower, watcher=watcher, clock=clock)
    clock.lap("finish")
    return recorded(rig, prepared, launched, until=until, timings=clock.timings(), tags=(), identifier=launch_id)


class _Clock:
    """Seconds by name; ``lap`` closes the one that is running."""

    def __init__(self) -> None:
        self.begun = self.last = time.monotonic()
        self.laps: dict[str, float] = {}

    def lap(self, name: str) -> None:
        now = time.monotonic()
        self.laps[name] = self.laps.get(name, 0.0) + now - self.last
        self.last = now

    def timings(self) -> dict[str, float]:
        """Seconds by name, and in all."""
        total = time.monotonic() - self.begun
        return {name: round(seconds, 3) for name, seconds in {**self.laps, "total": total}.items()}


def _spec(
    rig: Rig,
    prepared: Prepared,
    placed: PlacedCode,
    environment: Environment | None,
    *,
    launch_id: str,
    port: int,
    keep: bool,
) -> LaunchSpec:
    python = environment.python if environment else rig.python
    host = () if "host" in prepared.point.flags else ("--host", "127.0.0.1")
    return LaunchSpec(
        launch_id=launch_id,
        argv=(python, *command.MODULE, *prepared.arguments, *host, "--port", str(port)),
        env=prepared.env,
        secret_env=prepared.secret_env,
        port=port,
        code=placed,
        pythonpath=rig.stand_ins,
        keep=keep,
        environment=environment,
        warm=prepared.warm,
    )


def _launch(
    rig: Rig, spec: LaunchSpec, placed: PlacedCode, *, follower: Follower, watcher: Watcher, clock: _Clock
) -> Launched:
    watcher.step(f"launching on port {spec.port}")
    run = _started(rig, spec)
    return _followed(rig, run, spec, placed, follower=follower, watcher=watcher, clock=clock)


def _followed(
    rig: Rig,
    run: Run,
    spec: LaunchSpec,
    placed: PlacedCode,
    *,
    follower: Follower,
    watcher: Watcher,
    clock: _Clock,
) -> Launched:
    report: StopReport | None = None
    kept = False
    try:
        verdict = follower.follow(run)
        clock.lap("decide")
        clock.laps["settled"] = follower.settled_s
        provenance = _provenance(run)
        dossier = _dossier(run) if verdict.outcome is Outcome.HANG else {}
        machine = asdict(rig.box.hello())
        samples = _samples(run, follower)
        verdict = _unless_wrong_code(verdict, provenance, placed)
        verdict = _unless_other_wheels(verdict, provenance, spec.environment)
        kept = spec.keep and verdict.outcome in (Outcome.READY, Outcome.KV_ALLOCATED)
    finally:
        if not kept:
            # Whatever becomes of the telling, the server is ended.
            try:
                watcher.step("stopping")
            finally:
                report = run.stop(grace_s=0.0 if follower.early or spec.warm else STOP_GRACE_S)
                clock.lap("stop")
    return Launched(
        verdict=_unless_box_changed(verdict, report) if report else verdict,
        log=bytes(follower.log),
        events=follower.events,
        samples=samples,
        argv=spec.argv,
        placed=placed,
        provenance=provenance,
        machine=machine,
        dossier=dossier,
        stop=report,
    )


def _dossier(run: Run) -> Mapping[str, Any]:
    """What is worth knowing of a server that hangs, before it is ended."""
    try:
        return run.dossier()
    except BoxError as problem:
        return {"unknown": problem.message}


def _samples(run: Run, follower: Follower) -> Sequence[Json]:
    """The box's own samples where it has GPUs to tell apart; else what came with the signals."""
    if not any("gpu_used_gb" in sample for sample in follower.samples):
        return follower.samples
    try:
        return run.samples() or follower.samples
    except BoxError:
        # A picture less is no reason to lose a verdict.
        return follower.samples


def _started(rig: Rig, spec: LaunchSpec) -> Run:
    """The running launch. Interrupted while the box starts it, it is ended before the interruption goes on."""
    try:
        return rig.box.start(spec)
    except KeyboardInterrupt:
        with suppress(BoxError):
            rig.box.attach(spec.launch_id).stop(grace_s=0.0)
        raise


def _ending(verdict: Verdict) -> str:
    """``ready``, or ``crash (unbound-name) at kv-profile``."""
    cause = f" ({verdict.cause})" if verdict.cause and verdict.cause != verdict.stage else ""
    reached = verdict.outcome in (Outcome.READY, Outcome.KV_ALLOCATED) or not verdict.stage
    return f"{verdict.outcome}{cause}" + ("" if reached else f" at {verdict.stage}")


def _void(why: str, *, advice: str, persistence: Persistence = Persistence.TRANSIENT) -> Verdict:
    return Verdict(outcome=Outcome.VOID, persistence=persistence, why=why, advice=advice, final=True)


def _provenance(run: Run) -> Mapping[str, Any]:
    """What the box says of the code that ran; ``unknown`` says why it cannot, as when that Python does not start."""
    try:
        return run.provenance()
    except (LeaseLost, LinkLost):
        raise
    except BoxError as problem:
        return {"unknown": problem.message}


def _unless_wrong_code(verdict: Verdict, provenance: Mapping[str, Any], placed: PlacedCode) -> Verdict:
    """A verdict counts only for the code that was asked for.

    The tree on disk was proven before the launch. Where the server's Python cannot even tell what it imports, a failure
    is believed, for it is likely the same one; a success is not.
    """
    if "unknown" in provenance:
        if verdict.outcome not in (Outcome.READY, Outcome.KV_ALLOCATED):
            return verdict
        why = f"it cannot be proven which code ran: {provenance['unknown']}"
        return _void(why, advice="invoke doctor", persistence=Persistence.PERMANENT)
    found = str(provenance.get("sglang", ""))
    wanted = f"{placed.path.rstrip('/')}/sglang/"
    if provenance.get("tree") == placed.tree and found.startswith(wanted):
        return verdict
    return _void(
        f"wrong code found running: sglang comes from {found or 'nowhere'} with tree {provenance.get('tree')}, "
        f"wanted {wanted} with tree {placed.tree}",
        advice="look for an editable install or a PYTHONPATH that comes before the point's code",
        persistence=Persistence.PERMANENT,
    )


def _unless_other_wheels(verdict: Verdict, provenance: Mapping[str, Any], environment: Environment | None) -> Verdict:
    """A verdict counts only for the wheels that the point needs, as the server's own Python saw them."""
    if environment is None or "packages" not in provenance:
        return verdict
    seen = {canonicalize_name(name): version for name, version in provenance["packages"].items()}
    other = [
        f"{name} {seen.get(canonicalize_name(name), 'not there')}, wanted {version}"
        for name, version in environment.added.items()
        if seen.get(canonicalize_name(name)) != version
    ]
    if not other:
        return verdict
    return _void(
        f"other wheels found running: {'; '.join(other)}",
        advice=f"look for what comes before {environment.python} on its path",
        persistence=Persistence.PERMANENT,
    )


def _unless_box_changed(verdict: Verdict, report: StopReport) -> Verdict:
    """A verdict counts only on a box that stayed the same from start to end."""
    if not report.box_changed:
        return verdict
    why = "the box changed during the launch: " + "; ".join(report.box_changed)
    return _void(why, advice="find out what happened to the box, then try again")
