"""``queue`` and ``apply-queue``: what the patches are, and what a box runs."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import invoke

from patchbisect.tasks.face import console, emit, say, task
from patchbisect.tasks.lab import mirror_of, rig_of

if TYPE_CHECKING:
    from patchbisect.model import Patch


@task(
    help={
        "at": "worktree (the files on disk), HEAD, or any revision here",
        "json": "print one JSON document",
    }
)
def queue(ctx: invoke.Context, at: str = "worktree", json: bool = False) -> None:
    """List the patches in order: kind, where they were sent, what they probe and touch; and the pin they stand on.

    Example: invoke queue --at HEAD
    """
    from patchbisect.config import load_project
    from patchbisect.points import PointResolver
    from patchbisect.report.queue import queue_table

    project = load_project()
    pin, patches = PointResolver.of(project, mirror=mirror_of(project)).queue(at)
    for warning in patches.warnings:
        say(f"note: {warning}")
    if json:
        emit({"pin": asdict(pin), "patches": [described(patch) for patch in patches.patches]})
        return
    console().print(f"pin {pin.tag or pin.commit} ({pin.commit[:12]}) of {pin.upstream}")
    console().print(queue_table(described(patch) for patch in patches.patches))


def described(patch: Patch) -> dict[str, Any]:
    """One patch as ``queue --json`` prints it."""
    from patchbisect.patchqueue import probes

    return {
        "name": patch.name,
        "number": patch.number,
        "subject": patch.subject,
        "kind": patch.trailer("Kind"),
        "forwarded": patch.trailer("Forwarded"),
        "probes": [probe.name for probe in probes(patch)],
        "enabled": patch.enabled,
        "files": [name.removeprefix("python/") for name in patch.files],
    }


@task(
    help={
        "to": "the point whose code is wanted there; default: HEAD (clean takes the patches off again)",
        "box": "the box",
        "wait-for-box": "seconds to wait while somebody else has the box",
        "in-place": "into your own checkout there (`checkout` of the box) instead of a directory of the tool's",
        "rescue": "set aside what was changed there by hand instead of refusing",
        "json": "print one JSON document",
    }
)
def apply_queue(
    ctx: invoke.Context,
    to: str = "HEAD",
    box: str = "",
    in_place: bool = False,
    rescue: bool = False,
    wait_for_box: float = 0.0,
    json: bool = False,
) -> None:
    """Put pin and queue onto the box, and print what it now runs, as read back there.

    A second call changes nothing and says so; a byte that was changed there by hand is noticed.

    Example: invoke apply-queue --box rig
    """
    from patchbisect.config import load_project
    from patchbisect.errors import UsageError
    from patchbisect.points import PointResolver

    project = load_project()
    name, config = project.settings.box_named(box or None)
    if in_place and not config.checkout:
        raise UsageError(
            f"box '{name}' names no checkout of yours", remedy=f"set patchbisect.boxes.{name}.checkout in invoke.yaml"
        )
    mirror = mirror_of(project)
    resolved = PointResolver.of(project, mirror=mirror).resolve(to)
    for warning in resolved.warnings:
        say(f"note: {warning}")
    point = resolved.point
    code = mirror.materialize(point.base, point.patches)
    with rig_of(project, mirror=mirror, box=box, reason=f"apply-queue --to {to}", wait_s=wait_for_box) as rig:
        placed = rig.box.apply(mirror.path, code.commit, patches=code.patches, rescue=rescue, in_place=in_place)
    document = {"box": rig.box_name, "source": code.source, "shifted": list(code.shifted), **asdict(placed)}
    if json:
        emit(document)
        return
    out = console()
    done = "now runs" if placed.placed else "already ran"
    out.print(f"box {rig.box_name} {done} {to}: {point.base} (from {code.source}) with {len(code.patches)} patches")
    for name in code.patches:
        out.print(f"  {name}")
    for shift in code.shifted:
        out.print(f"  moved: {shift}")
    if placed.note:
        out.print(f"note    {placed.note}")
    out.print(f"commit  {placed.commit}\ntree    {placed.tree}  (python/sglang, read back on the box)")
    out.print(f"path    {placed.path}  (put it on PYTHONPATH)", soft_wrap=True)
