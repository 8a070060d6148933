"""The boxes of a bisection: leased, behind workers, or on paper only."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from patchbisect.errors import BoxError
from patchbisect.tasks.face import say
from patchbisect.tasks.lab import box_of, mirror_of, prepared, rig_of

if TYPE_CHECKING:
    from patchbisect.bisection import Asked, Bench, Equipment, Question, Shut
    from patchbisect.config import Project
    from patchbisect.trial import Desk, Rig, Wheels
    from patchbisect.upstream import Mirror


@contextmanager
def crew_of(
    project: Project, asked: Asked, *, reason: str, wait_s: float
) -> Iterator[tuple[list[str], Callable[..., Bench]]]:
    """The boxes of a bisection by name, and what makes its bench of them."""
    from functools import partial

    from patchbisect.bisection import Call, Door, bench_on, bench_through
    from patchbisect.trial import swept

    mirror = mirror_of(project)
    if not asked.engine:
        with rigs_of(project, mirror=mirror, boxes=asked.boxes or (asked.box,), reason=reason, wait_s=wait_s) as rigs:
            yield [rig.box_name for rig in rigs], partial(bench_on, rigs)
            for sentence in itertools.chain.from_iterable(swept(rig) for rig in rigs):
                say(f"note: {sentence}")
        return
    from patchbisect.bisection.cluster import workers_at

    desk, call = desk_of(project, asked), Call(project=project, reason=reason, wait_s=wait_s)
    with workers_at(asked.scheduler, only=asked.boxes) as roster, Door(roster.newcomers).kept() as door:
        yield [worker.name for worker in door.inside], partial(bench_through, door, desk=desk, call=call)


def desk_of(project: Project, asked: Asked) -> Desk:
    """What the settings say of the bisection's boxes: all of them are alike."""
    from patchbisect.trial import Desk

    name = asked.on_paper or None
    _, config = project.settings.box_named(name)
    embedded = prepared(project) if config.embedded else None
    return Desk.of(project, mirror=mirror_of(project), box=name, embedded=embedded)


def on_paper(project: Project, asked: Asked, *, warm: bool = False) -> Shut:
    """What the bisection's points run, with no box reached and no lease taken."""
    from patchbisect.bisection import OnDesk, Shut
    from patchbisect.records import Store

    return Shut(OnDesk(desk_of(project, asked), store=Store.of(project), warm=warm))


@contextmanager
def rigs_of(
    project: Project, *, mirror: Mirror, boxes: Sequence[str], reason: str, wait_s: float = 0.0
) -> Iterator[list[Rig]]:
    """These boxes, ours until the end; ``""`` is the default one. One that cannot be had is left out, but not all.

    Raises BoxError for the last one where none can be had; UsageError for an unknown one.
    """
    wanted = list(dict.fromkeys(boxes))
    rigs: list[Rig] = []
    with ExitStack() as stack:
        for box in wanted:
            try:
                rigs.append(stack.enter_context(rig_of(project, mirror=mirror, box=box, reason=reason, wait_s=wait_s)))
            except BoxError as error:
                if not rigs and box == wanted[-1]:
                    raise
                say(f"note: {error.message}; going on without it")
        yield rigs


def equipped(project: Project, question: Question, *, box: str) -> Equipment | None:
    """The environments that the points need on the box, which is only looked at; None where nothing can tell yet."""
    from patchbisect.bisection import OnDesk, equipment
    from patchbisect.embedded import find
    from patchbisect.records import Store
    from patchbisect.trial import Desk, Wheels

    _, config = project.settings.box_named(box)
    embedded = find(project.state) if config.embedded else None
    if config.embedded and embedded is None:
        say(f"note: the first launch installs the server of box {box}; until then nobody knows what points need there")
        return None

    @contextmanager
    def wheels() -> Iterator[Wheels]:
        with box_of(project, box) as opened:
            yield Wheels(opened, policy=config.wheels_policy)

    desk = Desk.of(project, mirror=mirror_of(project), box=box, embedded=embedded)
    try:
        return equipment(question, OnDesk(desk, store=Store.of(project)), wheels=wheels)
    except BoxError as error:
        say(f"note: which environments are needed is not known: {error.message}")
        return None
