"""The lines of ssh's configuration: the user's file, then the machine's, with what they include."""

from __future__ import annotations

import glob
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

MACHINE_CONFIG = Path("/etc/ssh/ssh_config")
SCOPES = ("host", "match")
EVERY_HOST = "Host *"
NO_HOST = "Host !*"
CRITERIA = frozenset({"all", "canonical", "final", "exec", "host", "originalhost", "user", "localuser"})
"""Of ``Match``, those that Paramiko knows. It takes any other for one that holds."""
BARE_CRITERIA = frozenset({"all", "canonical", "final"})

DEEPEST_INCLUDE = 16
"""OpenSSH's own limit (readconf.c, READCONF_MAX_DEPTH)."""


def config_files() -> tuple[Path, Path]:
    """The user's file, then the machine's: of each directive the first value counts."""
    return Path.home() / ".ssh" / "config", MACHINE_CONFIG


class ConfigLine(NamedTuple):
    """A line of an ssh configuration, and where it stands."""

    path: Path
    number: int
    text: str

    @property
    def directive(self) -> str:
        """In small letters; empty for a comment."""
        word = re.split(r"[\s=]", self.text.strip(), maxsplit=1)[0].lower()
        return "" if word.startswith("#") else word

    @property
    def argument(self) -> str:
        return re.split(r"\s*=\s*|\s+", self.text.strip(), maxsplit=1)[-1]

    @property
    def holds_for_every_host(self) -> bool:
        """Of a ``Host`` or ``Match``: whether what follows it does."""
        return bool(re.fullmatch(r"(?i)host[\s=]+\*|match[\s=]+all", self.text.strip()))

    @property
    def unknown_criteria(self) -> list[str]:
        """Of a ``Match``: those that Paramiko cannot tell."""
        found = criteria(self.argument) if self.directive == "match" else ()
        return [keyword for keyword, _ in found if keyword.lstrip("!") not in CRITERIA]

    @property
    def as_paramiko_reads(self) -> str:
        """The same for Paramiko, which takes a criterion in capitals for a foreign one, and refuses ``final all``."""
        if self.directive != "match":
            return self.text
        if self.unknown_criteria:
            return NO_HOST
        found = criteria(self.argument)
        if len(found) > 1:
            found = [one for one in found if one != ("all", "")]
        words = (f"{keyword} {shlex.quote(value)}" if value else keyword for keyword, value in found)
        return " ".join(["Match", *words])


def criteria(argument: str) -> list[tuple[str, str]]:
    """What a ``Match`` asks: keywords in small letters, ``!`` before one that must not hold, and the value of each."""
    words = iter(shlex.split(argument))
    return [(word.lower(), "" if word.lower().lstrip("!") in BARE_CRITERIA else next(words, "")) for word in words]


def config_lines(
    path: Path, *, base: Path | None = None, scope: ConfigLine | None = None, depth: int = 0
) -> Iterator[ConfigLine]:
    """The lines of ``path``, each ``Include`` replaced by what it includes; relative to ``base``, its own folder first.

    One inside a narrower ``Host`` or ``Match`` (``scope``) stays where the file has conditions of its own: text cannot
    say that both have to hold. Like OpenSSH, files that are not there are passed over.
    """
    base = base or path.parent
    scope = scope or ConfigLine(path, 0, EVERY_HOST)
    for number, text in enumerate(_numbered(path), start=1):
        line = ConfigLine(path, number, text)
        if line.directive in SCOPES:
            scope = line
        if line.directive != "include" or depth == DEEPEST_INCLUDE:
            yield line
            continue
        files = [
            list(config_lines(file, base=base, scope=scope, depth=depth + 1)) for file in _included(line.argument, base)
        ]
        conditional = [any(inner.directive in SCOPES for inner in lines) for lines in files]
        if any(conditional) and not scope.holds_for_every_host:
            yield line
            continue
        for lines, has_conditions in zip(files, conditional, strict=True):
            yield from lines
            if has_conditions:
                yield scope  # what follows is not for the last host of that file


def _included(patterns: str, base: Path) -> Iterator[Path]:
    for pattern in shlex.split(patterns):
        absolute = base / Path(pattern).expanduser()  # which stays as it is where it is absolute
        yield from map(Path, sorted(glob.glob(str(absolute))))  # noqa: PTH207 (Path.glob finds an editor's .swp too)


def _numbered(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
