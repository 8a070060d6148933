"""A box on paper."""

from __future__ import annotations

from dataclasses import dataclass

from patchbisect.config import PIN_FILE, BoxConfig, Project
from patchbisect.embedded import Embedded
from patchbisect.model import Pin
from patchbisect.patchqueue import parse_pin
from patchbisect.upstream import Mirror


@dataclass(frozen=True, slots=True)
class Desk:
    """What the settings say of a box: enough to say what a point would run there, without reaching or leasing it."""

    mirror: Mirror
    config: BoxConfig
    embedded: Embedded | None
    secret_names: tuple[str, ...]
    pin: Pin
    """The project's own, as it is on disk: what the box's environment was made for."""

    @classmethod
    def of(cls, project: Project, *, mirror: Mirror, box: str | None, embedded: Embedded | None) -> Desk:
        """Raises UsageError for an unknown box."""
        _, config = project.settings.box_named(box)
        return cls(
            mirror=mirror,
            config=config,
            embedded=embedded if config.embedded else None,
            secret_names=project.settings.secrets,
            pin=pin_of(project),
        )


def pin_of(project: Project) -> Pin:
    """The pin of a queue repository, as it is on disk. Raises UsageError."""
    path = project.root / PIN_FILE
    return parse_pin(path.read_bytes(), filename=str(path))
