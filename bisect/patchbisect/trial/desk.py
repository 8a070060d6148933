"""A box on paper."""

from __future__ import annotations

from dataclasses import dataclass

from patchbisect.config import BoxConfig, Project
from patchbisect.embedded import Embedded
from patchbisect.upstream import Mirror


@dataclass(frozen=True, slots=True)
class Desk:
    """What the settings say of a box: enough to say what a point would run there, without reaching or leasing it."""

    mirror: Mirror
    config: BoxConfig
    embedded: Embedded | None
    secret_names: tuple[str, ...]

    @classmethod
    def of(cls, project: Project, *, mirror: Mirror, box: str | None, embedded: Embedded | None) -> Desk:
        """Raises UsageError for an unknown box."""
        _, config = project.settings.box_named(box)
        return cls(
            mirror=mirror,
            config=config,
            embedded=embedded if config.embedded else None,
            secret_names=project.settings.secrets,
        )
