"""Which distributions a base of SGLang asks for: from its ``pyproject.toml``, or from the wheel of a release."""

from __future__ import annotations

import email.parser
import tomllib
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.markers import default_environment
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

PROJECT_FILE = "python/pyproject.toml"
"""What SGLang's repository says of its package; a released wheel's tree has none."""

_SERVER_EXTRA = "srt"
"""Up to 0.5.2 the server's own requirements are this extra of the package, from 0.5.3 on they are its plain ones."""

_RENAMED = {"sglang-kernel": "sgl-kernel"}
"""One package under two names: the kernels are called so from 0.5.10 on (its METADATA)."""


@dataclass(frozen=True, slots=True)
class Need:
    """One requirement. ``package`` is what it is about, whatever it is called; ``text`` is as it was written."""

    package: str
    text: str

    @classmethod
    def of(cls, text: str) -> Need:
        """Raises InvalidRequirement."""
        return cls(package=package_of(Requirement(text).name), text=str(Requirement(text)))

    @property
    def requirement(self) -> Requirement:
        return Requirement(self.text)


@dataclass(frozen=True, slots=True)
class Needs:
    """What a base asks for, beside what the pin asks for. Both are empty where one of them does not say."""

    pin: tuple[Need, ...] = ()
    base: tuple[Need, ...] = ()

    @property
    def moved(self) -> tuple[Need, ...]:
        """What the base words otherwise than the pin, or asks for anew."""
        known = set(self.pin)
        return tuple(need for need in self.base if need not in known)


def package_of(name: str) -> str:
    """The one name of a package that has several spellings, or was renamed."""
    plain = str(canonicalize_name(name))
    return _RENAMED.get(plain, plain)


def needs_of_project(text: bytes) -> tuple[Need, ...]:
    """From ``pyproject.toml``; empty where that says nothing that can be understood."""
    try:
        project = tomllib.loads(text.decode("utf-8")).get("project", {})
    except (UnicodeDecodeError, tomllib.TOMLDecodeError):
        return ()
    extras = project.get("optional-dependencies", {})
    return _sorted([*project.get("dependencies", ()), *_of_extra(extras, _SERVER_EXTRA, own=project.get("name", ""))])


def needs_of_wheel(path: Path) -> tuple[Need, ...]:
    """From the metadata inside a wheel; empty where it has none. Raises OSError, BadZipFile."""
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        if not names:
            return ()
        metadata = email.parser.BytesHeaderParser().parsebytes(archive.read(names[0]))
    lines = [str(line) for line in metadata.get_all("Requires-Dist") or ()]
    return _sorted(line for text in lines if (line := _for_server(text)))


def _of_extra(extras: Mapping[str, Sequence[str]], extra: str, *, own: str) -> Iterator[str]:
    """The lines of an extra, and of those that it names as ``sglang[other]``."""
    for line in extras.get(extra, ()):
        wanted = _read(line)
        if wanted and canonicalize_name(wanted.name) == canonicalize_name(own):
            for inner in wanted.extras - {extra}:
                yield from _of_extra(extras, inner, own=own)
        else:
            yield line


def _for_server(line: str) -> str:
    """A ``Requires-Dist`` line without its mention of an extra; empty where it is for another extra than ours."""
    wanted = _read(line)
    if wanted is None or wanted.marker is None or "extra" not in str(wanted.marker):
        return line if wanted else ""
    here = {name: str(value) for name, value in default_environment().items()}
    if not wanted.marker.evaluate({**here, "extra": _SERVER_EXTRA}):
        return ""
    wanted.marker = None
    return str(wanted)


def _sorted(lines: Iterable[str]) -> tuple[Need, ...]:
    needs = {Need.of(line) for line in lines if _read(line)}
    return tuple(sorted(needs, key=lambda need: (need.package, need.text)))


def _read(line: str) -> Requirement | None:
    try:
        return Requirement(line)
    except InvalidRequirement:
        return None
