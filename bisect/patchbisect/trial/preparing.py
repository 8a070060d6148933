"""A point made ready to launch."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from patchbisect import command
from patchbisect.model import Base, CodeCommit, Point, content_id
from patchbisect.redact import split_secrets
from patchbisect.trial.desk import Desk
from patchbisect.trial.rig import Rig
from patchbisect.trial.wheels import Wants
from patchbisect.upstream import PROJECT_FILE, Needs


@dataclass(frozen=True, slots=True)
class Prepared:
    """A point made ready to launch: its code is a commit, its arguments are final but for host and port."""

    point: Point
    code: CodeCommit
    arguments: tuple[str, ...]
    env: Mapping[str, str]
    secret_env: Mapping[str, str]
    content_id: str
    wants: Wants
    warm: bool = False
    """To be started from a warm process."""


def prepare(rig: Rig | Desk, point: Point, *, warm: bool = False) -> Prepared:
    """Build the point's code and resolve its arguments. Raises PointUnbuildable, UsageError."""
    code = rig.mirror.materialize(point.base, point.patches)
    wants = Wants(needs=_needs(rig, point, code), packages=point.packages)
    variables = rig.embedded.variables if rig.embedded else {}
    arguments = command.arguments(point.flags, variables=variables)
    inherited = {**(rig.embedded.env if rig.embedded else {}), **rig.config.env}
    env, secret_env = split_secrets({**inherited, **point.env}, more=rig.secret_names)
    # A secret decides a start as much as any variable; only its digest may be kept, and that inside another one.
    digests = {name: hashlib.sha256(value.encode()).hexdigest() for name, value in secret_env.items()}
    return Prepared(
        point=point,
        code=code,
        arguments=arguments,
        env=env,
        secret_env=secret_env,
        content_id=content_id(
            tree=code.tree, arguments=arguments, env={**env, **digests}, packages=wants.content, warm=warm
        ),
        wants=wants,
        warm=warm,
    )


def _needs(rig: Rig | Desk, point: Point, code: CodeCommit) -> Needs:
    """What the point's base asks for, beside what the project's pin does, which the box's environment was made for."""
    at_pin = point.base == Base(pin=rig.pin) and not any(PROJECT_FILE in patch.files for patch in point.patches)
    if at_pin or rig.config.wheels_policy == "ignore":
        return Needs()
    return rig.mirror.needs(point.base, code, pin=rig.pin)
