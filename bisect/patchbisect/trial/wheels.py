"""The wheels that a point needs, and the environment on the box that has them.

The box's environment was made for the pin, so only what a base words otherwise than the pin can matter, and of that
only what the box does not satisfy. Where the box has something else than even the pin asks for, or lives without it,
that is its owner's choice and stays. What a point's own packages name goes before what its base asks for.
"""

from __future__ import annotations

import hashlib
import json
import statistics
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from patchbisect.box import Box, Environment, EnvironmentOrder, Installed
from patchbisect.box.failures import CannotEquip
from patchbisect.config import OtherWheels
from patchbisect.errors import PointUnbuildable
from patchbisect.model import EMPTY
from patchbisect.upstream import Need, Needs, package_of

BUILD_S = 180.0
"""What an environment is thought to take (seconds) where the box has built none. Arbitrary; a torch is 3 GB."""

_TELL_EVERY_S = 3.0
_FORMAT = 1
"""Part of every key: environments that were built otherwise are others."""


@dataclass(frozen=True, slots=True)
class Wants:
    """What decides which distributions a server must find: what its base asks for, and the point's own packages."""

    needs: Needs = field(default_factory=Needs)
    packages: Mapping[str, str] = field(default_factory=lambda: EMPTY)

    @property
    def content(self) -> Mapping[str, str]:
        """What of it makes two points run differently, whatever the box has."""
        words: dict[str, list[str]] = {}
        for need in self.needs.moved:
            words.setdefault(need.package, []).append(need.text)
        return {**{name: ", ".join(texts) for name, texts in words.items()}, **self.packages}


@dataclass(frozen=True, slots=True)
class Gap:
    """Something that a point needs and the box's environment has not: ``has`` is a version, ``""`` for none."""

    package: str
    wanted: str
    has: str

    def __str__(self) -> str:
        return f"{self.wanted}, the box has {self.has or 'none'}"


@dataclass(frozen=True, slots=True)
class Fit:
    """What stands between a point and the box's environment; without ``order`` that one will do."""

    gaps: tuple[Gap, ...] = ()
    order: EnvironmentOrder | None = None


def fitted(wants: Wants, has: Installed) -> Fit:
    """What the wants come to on a box that has that."""
    versions: dict[str, str] = {}
    for name, version in has.packages.items():
        versions.setdefault(package_of(name), version)
        versions.setdefault(str(canonicalize_name(name)), version)
    chosen = {package_of(name): f"{name}=={version}" for name, version in wants.packages.items()}

    def there(need: Need) -> str:
        """Of a package that was renamed a box may have both."""
        return versions.get(str(canonicalize_name(need.requirement.name)), versions.get(need.package, ""))

    def here(need: Need) -> bool:
        marker = need.requirement.marker
        return marker is None or marker.evaluate({**has.markers, "extra": ""})

    def met(need: Need) -> bool:
        wanted = need.requirement
        return not wanted.url and bool(there(need)) and wanted.specifier.contains(there(need), prereleases=True)

    extras = {need.package: need.requirement.extras for need in wants.needs.pin if here(need)}
    own = {need.package for need in wants.needs.pin if here(need) and not met(need)}
    asked = [need for need in wants.needs.base if here(need) and need.package not in own | chosen.keys()]
    moved = set(wants.needs.moved)
    gaps = [
        Gap(package=need.package, wanted=_bare(need.requirement), has=there(need))
        for need in asked
        if need in moved and (not met(need) or need.requirement.extras - extras.get(need.package, set()))
    ]
    gaps += [
        Gap(package=package, wanted=text, has=there(Need.of(text)))
        for package, text in chosen.items()
        if not met(Need.of(text))
    ]
    if not gaps:
        return Fit()
    wanted = sorted({_bare(need.requirement) for need in asked} | set(chosen.values()))
    kept = [name for name in has.packages if package_of(name) in own - chosen.keys()]
    held = sorted(f"{canonicalize_name(name)}=={has.packages[name]}" for name in kept)
    missed = own - versions.keys() - chosen.keys()
    absent = {need.requirement.name for need in (*wants.needs.pin, *wants.needs.base) if need.package in missed}
    without = sorted({str(canonicalize_name(name)) for name in absent})
    sought = sorted({str(canonicalize_name(Requirement(gap.wanted).name)) for gap in gaps})
    return Fit(gaps=tuple(gaps), order=_order(has, sought=sought, wanted=wanted, held=held, without=without))


class Wheels:
    """The wheels of one box: what a point lacks there, and the environment that has it."""

    def __init__(self, box: Box, *, policy: OtherWheels) -> None:
        self._box = box
        self._policy = policy
        self._has: Installed | None = None
        self._there: dict[str, float] | None = None
        """Keys of the environments on the box, and the seconds that each took."""
        self._refused: dict[str, CannotEquip] = {}
        self._fits: dict[Hashable, Fit] = {}

    def fit(self, wants: Wants) -> Fit:
        """Raises PointUnbuildable where the box's settings allow no environment; reaches the box if need be."""
        if not wants.content:
            return Fit()
        fit = self._fit(wants)
        if fit.gaps and self._policy != "build":
            held = " ".join(f"--set package:{gap.package}={gap.has}" for gap in fit.gaps if gap.has)
            instead = f"; or launch with what it has: {held}" if all(gap.has for gap in fit.gaps) else ""
            raise PointUnbuildable(
                f"needs {_listed(fit.gaps)}", remedy=f"set `other-wheels: build` of box {self._box.name}{instead}"
            )
        return fit

    def _fit(self, wants: Wants) -> Fit:
        key = wants.needs, tuple(sorted(wants.packages.items()))
        if key not in self._fits:
            self._has = self._has or self._box.installed()
            self._fits[key] = fitted(wants, self._has)
        return self._fits[key]

    def ready(self, wants: Wants, *, say: Callable[[str], None]) -> Environment | None:
        """The environment for these wants, built where it is not there; None where the box's own will do.

        Raises CannotEquip where pip cannot have the wheels, and at once when it could not before.
        """
        fit = self.fit(wants)
        if fit.order is None:
            return None
        if fit.order.key in self._refused:
            raise self._refused[fit.order.key]
        try:
            found = self._box.environment(fit.order, progress=Telling(say, key=fit.order.key))
        except CannotEquip as refusal:
            needs = f"needs {_listed(fit.gaps)}, and cannot get it: {refusal.message}"
            self._refused[fit.order.key] = CannotEquip(needs, remedy=refusal.remedy)
            raise self._refused[fit.order.key] from refusal
        self._known()[fit.order.key] = found.seconds
        if found.built:
            say(f"environment {found.key}: {_added(found)}, built in {found.seconds:.0f} s, {found.size_gb:.2f} GiB")
        return found

    def missing(self, wants: Wants) -> str:
        """The key of the environment that would have to be built first; empty where nothing has to.

        Raises PointUnbuildable.
        """
        order = self.fit(wants).order
        return order.key if order and order.key not in self._known() and order.key not in self._refused else ""

    def preparation_s(self, wants: Wants) -> float:
        """Seconds before a launch can begin: what building that environment is thought to take."""
        return self.build_s if self.missing(wants) else 0.0

    @property
    def build_s(self) -> float:
        """What building one takes (seconds), from those that the box has."""
        return statistics.mean(self._known().values()) if self._known() else BUILD_S

    def _known(self) -> dict[str, float]:
        if self._there is None:
            self._there = {one.key: one.seconds for one in self._box.environments()}
        return self._there


class Telling:
    """Progress of a build as lines: one for each thing that is done, and one now and then during a download."""

    def __init__(self, say: Callable[[str], None], *, key: str) -> None:
        self._say = say
        self._key = key
        self._detail = ""
        self._told_at = 0.0

    def __call__(self, about: Mapping[str, Any]) -> None:
        if "detail" in about:
            count = f" ({about['done']} of {about['of']})" if "done" in about else ""
            self._detail = f"{about['detail']}{count}"
            self._tell("")
        elif time.monotonic() - self._told_at > _TELL_EVERY_S:
            self._tell(f", {about['bytes'] / 2**20:.0f} of {about['of_bytes'] / 2**20:.0f} MiB")

    def _tell(self, more: str) -> None:
        self._told_at = time.monotonic()
        self._say(f"building environment {self._key}: {self._detail}{more}")


def _order(has: Installed, **lists: list[str]) -> EnvironmentOrder:
    """The key is the content: what is asked for, over which interpreter with which distributions."""
    content = {
        "format": _FORMAT,
        "interpreter": [has.executable, has.prefix, has.markers["python_full_version"], list(has.places)],
        "packages": dict(has.packages),
        **lists,
    }
    key = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
    return EnvironmentOrder(key=key, python=has.executable, **{name: tuple(names) for name, names in lists.items()})


def _bare(wanted: Requirement) -> str:
    """Without its marker, which was found to hold."""
    bare = Requirement(str(wanted))
    bare.marker = None
    return str(bare)


def _listed(gaps: Iterable[Gap]) -> str:
    return "; ".join(map(str, gaps))


def _added(environment: Environment) -> str:
    return ", ".join(f"{name} {version}" for name, version in environment.added.items()) or "nothing besides"
