"""``doctor`` and ``box``: whether a box can do its work, and whose it is."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import invoke

from patchbisect.tasks.face import console, emit, negative, say, task
from patchbisect.tasks.lab import box_of, mirror_of, prepared

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from rich.table import Table

    from patchbisect.bisection import Station
    from patchbisect.box import LeaseHeld
    from patchbisect.box.values import Check
    from patchbisect.config import Project
    from patchbisect.trial import Rig

_BOX = {"box": "the box; default: the one that the settings name"}


@task(help={**_BOX, "json": "print one JSON document"})
def doctor(ctx: invoke.Context, box: str = "", json: bool = False) -> None:
    """Check everything on a box that a trial needs, with a remedy for each fault. Exits 1 when one is found.

    Example: invoke doctor --box rig
    """
    from patchbisect.config import load_project

    with box_of(load_project(), box) as opened:
        checks = opened.doctor()
    if json:
        emit({"box": opened.name, "checks": [asdict(check) for check in checks]})
    else:
        console().print(_table(checks))
    if not all(check.ok for check in checks):
        raise negative()


def _table(checks: Sequence[Check]) -> Table:
    from rich.text import Text

    from patchbisect.report.tables import add, table

    shown = table("", "check", "found", "remedy")
    for check in checks:
        mark = Text("ok", style="green") if check.ok else Text("FAULT", style="red")
        add(shown, mark, check.check, check.detail, check.remedy)
    return shown


@task(help={**_BOX, "wait-for-box": "seconds to wait for it", "json": "print one JSON document"})
def gpu_check(ctx: invoke.Context, box: str = "", wait_for_box: float = 0.0, json: bool = False) -> None:
    """Check that what a box says of its GPUs is true: a known allocation, memory back after a kill, a real OOM.

    Takes half a minute and 4 GiB of a GPU, then all of one for a moment. Exits 1 when something is not right.

    Example: invoke gpu-check --box rig
    """
    from patchbisect.box.gpu_check import gpu_check as checked
    from patchbisect.config import load_project
    from patchbisect.model import Outcome, Signals
    from patchbisect.records import new_id
    from patchbisect.startup import classify
    from patchbisect.tasks.lab import rig_of

    project = load_project()
    with rig_of(project, mirror=mirror_of(project), box=box, reason="gpu-check", wait_s=wait_for_box) as rig:
        found = checked(rig.box, new_id=new_id, wait_s=wait_for_box, say=say)
    exit_code = found.oom_exit.exit_code if found.oom_exit else None
    verdict = classify(found.oom_log, Signals(exit_code=exit_code, alive=False)) if found.oom_log else None
    known = verdict is None or verdict.outcome is Outcome.OOM
    if json:
        checks = [asdict(check) for check in found.checks]
        emit({"checks": checks, "classified": verdict.outcome.value if verdict else None})
    else:
        console().print(_table(found.checks))
        if verdict:
            print(f"a real out-of-memory is classified as {verdict.outcome}")
    if not known or not all(check.ok for check in found.checks):
        raise negative()


@task(default=True, help={**_BOX, "json": "print one JSON document"})
def status(ctx: invoke.Context, box: str = "", json: bool = False) -> None:
    """Say who holds a box, until when and what for, and which launches of ours run there.

    Example: invoke box.status --box rig
    """
    from patchbisect.config import load_project

    with box_of(load_project(), box) as opened:
        facts, leases, launches = opened.hello(), opened.leases(), opened.launches()
        environments = opened.environments()
        warm = opened.warm()
    if json:
        emit(
            {
                "box": opened.name,
                "machine": asdict(facts),
                "leases": [asdict(held) for held in leases],
                "launches": [asdict(launch) for launch in launches],
                "environments": [asdict(environment) for environment in environments],
                "warm": [asdict(one) for one in warm],
            }
        )
        return
    print(f"{opened.name}: {facts.hostname}, {facts.cores} cores, {facts.ram_gb:.0f} GiB, {len(facts.gpus)} GPUs")
    print(f"lease: {', '.join(map(str, leases)) or 'free'}")
    for launch in launches:
        kept = ", kept" if launch.keep else ""
        print(f"launch {launch.launch_id} on port {launch.port}: {launch.processes} processes{kept}")
    for one in environments:
        added = ", ".join(f"{name} {version}" for name, version in one.added.items()) or "nothing besides"
        print(f"environment {one.key}: {added}; {one.size_gb:.2f} GiB{', in use' if one.busy else ''}")
    for process in warm:
        print(f"warm process {process.pid} of {process.python}: {process.modules} modules, {process.age_s:.0f} s old")


@task(help={**_BOX, "keep-gb": "how much may stay, the ones used last first (GiB)"})
def gc(ctx: invoke.Context, box: str = "", keep_gb: float = 0.0) -> None:
    """Drop environments that were built on a box for bases that need other wheels; none that is in use.

    The box drops the ones not used for longest by itself where they take more than its setting environments-gb.

    Example: invoke box.gc --box rig --keep-gb 20
    """
    from patchbisect.config import load_project

    with box_of(load_project(), box) as opened:
        sizes = {one.key: one.size_gb for one in opened.environments()}
        dropped = opened.drop_environments(limit_gb=keep_gb)
    freed = sum(sizes.get(key, 0.0) for key in dropped)
    print(f"{len(dropped)} of {len(sizes)} environments dropped on {opened.name}, {freed:.2f} GiB freed")


@task(help={**_BOX, "reason": "what others are told", "minutes": "how long", "wait-for-box": "seconds to wait for it"})
def acquire(
    ctx: invoke.Context, box: str = "", reason: str = "reserved", minutes: float = 60.0, wait_for_box: float = 0.0
) -> None:
    """Reserve a box for this project; its tasks use the reservation and keep it. box.release gives it back.

    Example: invoke box.acquire --box rig --reason "Kimi baseline" --minutes 90
    """
    _take(box, reason=reason, minutes=minutes, wait_s=wait_for_box, steal=False)


@task(help={**_BOX, "reason": "what others are told", "minutes": "how long"})
def steal(ctx: invoke.Context, box: str = "", reason: str = "stolen", minutes: float = 60.0) -> None:
    """Reserve a box that somebody else holds: their next command there is refused. For work that is dead.

    Example: invoke box.steal --box rig --reason "Ada is on holiday"
    """
    _take(box, reason=reason, minutes=minutes, wait_s=0.0, steal=True)


def _take(box: str, *, reason: str, minutes: float, wait_s: float, steal: bool) -> None:
    from patchbisect.box import Reservations
    from patchbisect.config import load_project

    project = load_project()
    with box_of(project, box) as opened:
        before = _holders(opened.leases()) if steal else ""
        fence = opened.acquire(reason, wait_s=wait_s, steal=steal, lease_s=minutes * 60)
        Reservations(project.state).keep(opened.name, fence)
    taken = f", taken from {before}" if before else ""
    print(f"box {opened.name} is yours for {minutes:g} minutes (fencing number {fence}){taken}")


def _holders(leases: tuple[LeaseHeld, ...]) -> str:
    return ", ".join(f"{held.owner} on {held.host} ({held.reason})" for held in leases if held.expires_in_s > 0)


@task(help=_BOX)
def release(ctx: invoke.Context, box: str = "") -> None:
    """Give back this project's reservation of a box. Exits 1 when there was none.

    Example: invoke box.release --box rig
    """
    from patchbisect.box import Reservations
    from patchbisect.config import load_project

    project = load_project()
    kept = Reservations(project.state)
    with box_of(project, box) as opened:
        fence = kept.fence(opened)
        if not fence or not opened.release(fence):
            print(f"box {opened.name} was not reserved by this project")
            raise negative()
        kept.forget(opened.name)
    print(f"box {opened.name} is free")


@task(help={**_BOX, "scheduler": "where the Dask scheduler is, like tcp://head:8786"})
def worker(ctx: invoke.Context, scheduler: str = "", box: str = "") -> None:
    """Make the trials of a Dask cluster's bisections on a box, one at a time, until Ctrl-C.

    Example: invoke box.worker --scheduler tcp://head:8786 --box rig
    """
    from patchbisect.bisection.cluster import serve
    from patchbisect.config import load_project
    from patchbisect.errors import UsageError

    if not scheduler:
        raise UsageError("a worker needs a scheduler", remedy="like --scheduler tcp://head:8786")
    station = station_of(load_project(), box)
    serve(station, scheduler, ready=lambda: say(f"worker {station.name}: waits for trials from {scheduler}"))
    say(f"worker {station.name}: done, no server was left behind")


def station_of(project: Project, box: str) -> Station:
    """A worker's side for that box. In records it is ``box@host``: every host may have one that is called ``local``."""
    import socket

    from patchbisect.bisection import Station
    from patchbisect.trial import Desk, open_rig, reach

    name, config = project.settings.box_named(box or None)
    embedded = prepared(project) if config.embedded else None
    mirror = mirror_of(project)

    def opening(asked: Project, reason: str, wait_s: float) -> AbstractContextManager[Rig]:
        return open_rig(asked, mirror=mirror, box=name, embedded=embedded, reason=reason, wait_s=wait_s)

    def machine() -> dict[str, Any]:
        with reach(project, box=name, embedded=embedded) as opened:
            return asdict(opened.hello())

    desk = Desk.of(project, mirror=mirror, box=name, embedded=embedded)
    return Station(project, name=f"{name}@{socket.gethostname()}", desk=desk, opening=opening, machine=machine)


collection = invoke.Collection("box", status, acquire, steal, release, worker, gc)
