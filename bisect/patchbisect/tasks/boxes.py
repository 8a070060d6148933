"""``doctor`` and ``box``: whether a box can do its work, and whose it is."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import invoke

from patchbisect.tasks.face import console, emit, negative, task
from patchbisect.tasks.lab import box_of

if TYPE_CHECKING:
    from patchbisect.box import LeaseHeld

_BOX = {"box": "the box; default: the one that the settings name"}


@task(help={**_BOX, "json": "print one JSON document"})
def doctor(ctx: invoke.Context, box: str = "", json: bool = False) -> None:
    """Check everything on a box that a trial needs, with a remedy for each fault. Exits 1 when one is found.

    Example: invoke doctor --box rig
    """
    from rich.table import Table
    from rich.text import Text

    from patchbisect.config import load_project

    with box_of(load_project(), box) as opened:
        checks = opened.doctor()
    if json:
        emit({"box": opened.name, "checks": [asdict(check) for check in checks]})
    else:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for heading in ("", "check", "found", "remedy"):
            table.add_column(heading, overflow="fold")
        for check in checks:
            mark = Text("ok", style="green") if check.ok else Text("FAULT", style="red")
            table.add_row(mark, check.check, check.detail, check.remedy)
        console().print(table)
    if not all(check.ok for check in checks):
        raise negative()


@task(default=True, help={**_BOX, "json": "print one JSON document"})
def status(ctx: invoke.Context, box: str = "", json: bool = False) -> None:
    """Say who holds a box, until when and what for, and which launches of ours run there.

    Example: invoke box.status --box rig
    """
    from patchbisect.config import load_project

    with box_of(load_project(), box) as opened:
        facts, leases, launches = opened.hello(), opened.leases(), opened.launches()
    if json:
        emit(
            {
                "box": opened.name,
                "machine": asdict(facts),
                "leases": [asdict(held) for held in leases],
                "launches": [asdict(launch) for launch in launches],
            }
        )
        return
    print(f"{opened.name}: {facts.hostname}, {facts.cores} cores, {facts.ram_gb:.0f} GiB, {len(facts.gpus)} GPUs")
    print(f"lease: {', '.join(map(str, leases)) or 'free'}")
    for launch in launches:
        kept = ", kept" if launch.keep else ""
        print(f"launch {launch.launch_id} on port {launch.port}: {launch.processes} processes{kept}")


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


collection = invoke.Collection("box", status, acquire, steal, release)
