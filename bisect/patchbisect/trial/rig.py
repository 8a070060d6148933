"""What trials of one box share: the box itself, leased, with the project, the mirror and the store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from patchbisect.box import Box, BoxSettings, Lease, Reservations, open_box
from patchbisect.config import BoxConfig, Project
from patchbisect.embedded import Embedded
from patchbisect.errors import BoxError, UsageError
from patchbisect.model import Pin
from patchbisect.records import Store
from patchbisect.trial.desk import pin_of
from patchbisect.trial.wheels import Wheels
from patchbisect.upstream import Mirror


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
    wheels: Wheels
    pin: Pin
    """The project's own, as it is on disk: what the box's environment was made for."""
    lease: Lease | None = None
    """None under a reservation, which nobody renews."""
    wait_s: float = 0.0
    """How long who has the box's port, GPUs or disk may stay before a trial is void."""

    @property
    def stand_ins(self) -> tuple[str, ...]:
        """Entries of PYTHONPATH after the code, that the embedded environment brings."""
        return tuple(str(path) for path in self.embedded.pythonpath) if self.embedded else ()

    @property
    def python(self) -> str:
        """The interpreter of the server. Raises UsageError where the settings name none."""
        if self.embedded:
            return str(self.embedded.python)
        if not self.config.python:
            raise UsageError(
                f"box '{self.box_name}' names no interpreter for the server",
                remedy=f"set patchbisect.boxes.{self.box_name}.python in invoke.yaml",
            )
        return self.config.python

    @property
    def secret_names(self) -> tuple[str, ...]:
        return self.project.settings.secrets


@contextmanager
def reach(project: Project, *, box: str | None, embedded: Embedded | None) -> Iterator[Box]:
    """The box by its name, without a lease: to look at. Raises UsageError for an unknown one."""
    name, config = project.settings.box_named(box)
    if config.embedded and embedded is None:
        raise UsageError(f"box '{name}' has no environment yet", remedy="invoke setup")
    with open_box(name, _box_settings(config, embedded, project), state=project.state) as opened:
        yield opened


@contextmanager
def open_rig(
    project: Project, *, mirror: Mirror, box: str | None, embedded: Embedded | None, reason: str, wait_s: float = 0.0
) -> Iterator[Rig]:
    """Reach the box and have it to ourselves, for ``reason``, waiting up to ``wait_s`` seconds.

    Each trial waits as long for a box that is not clean.

    One lease for all that is done with it: between two trials of a bisection nobody else gets in. A reservation of
    this project is used, by one command at a time, and kept. Raises UsageError for an unknown box, BoxError when it
    cannot be reached or somebody holds it.
    """
    name, config = project.settings.box_named(box)
    with reach(project, box=box, embedded=embedded) as opened:
        ours = Reservations(project.state)
        held = ours.used if ours.fence(opened) else Box.lease
        with held(opened, reason=reason, wait_s=wait_s) as lease:
            yield Rig(
                project=project,
                mirror=mirror,
                store=Store.of(project),
                box=opened,
                box_name=name,
                config=config,
                embedded=embedded if config.embedded else None,
                wheels=Wheels(opened, policy=config.wheels_policy),
                pin=pin_of(project),
                lease=lease,
                wait_s=wait_s,
            )


def swept(rig: Rig) -> tuple[str, ...]:
    """End what a killed client of ours left running on the box, and nobody asked for again; one sentence for each.

    A box that has gone meanwhile is left as it is: what runs there is ended by whoever uses it next.
    """
    try:
        return rig.box.prove_clean().swept
    except BoxError:
        return ()


_TUNED = (
    *("min_free_gb", "environments_gb", "build_sources"),
    *("gpu_residents", "gpu_idle_gb", "gpu_slack_gb", "gpu_budget_s"),
    *("lease_s", "abandon_s", "link_timeout_s", "link_patience_s"),
)
"""Settings whose defaults are the box's own."""


def _box_settings(config: BoxConfig, embedded: Embedded | None, project: Project) -> BoxSettings:
    """A box as its package wants it. The embedded one brings its own interpreter."""
    tuned = {name: value for name in _TUNED if (value := getattr(config, name)) is not None}
    return BoxSettings(
        **tuned,
        host=_target(config),
        prefix=config.prefix,
        directory=config.dir or "",
        python=str(embedded.python) if config.embedded and embedded else config.python or "python3",
        lease_directory=config.lease_dir,
        agent_python=config.agent_python or "",
        checkout=config.checkout or "",
        env=dict(config.env),
        pythonpath=config.pythonpath,
        gpus=config.gpus,
        cpu_only=config.embedded,
        secrets=project.settings.secrets,
        build=config.build,
        pip_args=config.pip_args,
    )


def _target(config: BoxConfig) -> str:
    """``[user@]host[:port]``; an IPv6 address stands in brackets there."""
    if not config.host:
        return ""
    host = f"[{config.host}]" if config.host.count(":") > 1 and "[" not in config.host else config.host
    return f"{config.user}@" * bool(config.user) + host + f":{config.port}" * bool(config.port)
