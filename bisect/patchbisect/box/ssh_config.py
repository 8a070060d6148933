"""What ``~/.ssh/config`` and known_hosts say about a host, and what of it Paramiko does not apply."""

from __future__ import annotations

import getpass
import glob
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import paramiko
from paramiko.hostkeys import HostKeyEntry, InvalidHostKey

from patchbisect.errors import UsageError

APPLIED = frozenset(
    """
    host match hostname user port identityfile identitiesonly proxyjump proxycommand hostkeyalias
    userknownhostsfile globalknownhostsfile
    """.split()  # noqa: SIM905
)
WITHOUT_EFFECT = frozenset(
    """
    addkeystoagent canonicalizehostname checkhostip compression connectionattempts connecttimeout
    controlmaster controlpath controlpersist escapechar exitonforwardfailure forwardagent forwardx11
    forwardx11trusted gssapiauthentication gssapidelegatecredentials hashknownhosts ignoreunknown ipqos
    loglevel permitlocalcommand preferredauthentications pubkeyauthentication requesttty sendenv
    serveralivecountmax serveraliveinterval setenv stricthostkeychecking tcpkeepalive updatehostkeys
    visualhostkey
    """.split()  # noqa: SIM905
)
"""Directives that do not change whether or where this tool connects."""


DEEPEST_INCLUDE = 16
"""OpenSSH's own limit (readconf.c, READCONF_MAX_DEPTH)."""


@dataclass(frozen=True, slots=True)
class HostSettings:
    """Where a host is and how to log in there."""

    target: str
    hostname: str
    port: int
    user: str
    identities: tuple[Path, ...]
    identities_only: bool
    jumps: tuple[str, ...]
    proxy_command: str
    alias: str
    own_known_hosts: tuple[Path, ...]
    machine_known_hosts: tuple[Path, ...]

    @property
    def known_hosts(self) -> tuple[Path, ...]:
        return self.own_known_hosts + self.machine_known_hosts

    @property
    def key_name(self) -> str:
        """The name under which the host key is looked up."""
        return self.alias or self.hostname

    @property
    def key_port(self) -> int:
        """OpenSSH leaves the port out of the name when there is an alias."""
        return 22 if self.alias else self.port

    @property
    def known_as(self) -> str:
        """The name as known_hosts writes it."""
        return self.key_name if self.key_port == 22 else f"[{self.key_name}]:{self.port}"

    @property
    def who(self) -> str:
        return f"{self.user}@{self.hostname}:{self.port}"

    @property
    def by_hand(self) -> str:
        """The command that reaches the host with OpenSSH."""
        host = parse_target(self.target)
        port = ["-p", str(host.port)] if host.port else []
        return " ".join(map(shlex.quote, ["ssh", *port, *(["-l", host.user] if host.user else []), "--", host.host]))

    @property
    def to_accept(self) -> str:
        """What to do so that the host's key is known from now on."""
        if any(path.is_file() or not path.exists() for path in self.own_known_hosts):
            return f"compare the fingerprint that this shows, and accept it: {self.by_hand}"
        kept = " ".join(map(str, self.own_known_hosts))
        return f"UserKnownHostsFile is {kept}, where no key is kept: name another for it, or use `prefix: [ssh, …]`"

    @property
    def first_identity(self) -> str:
        return shlex.quote(str(self.identities[0])) if self.identities else ""


@dataclass(frozen=True, slots=True)
class Target:
    host: str
    user: str = ""
    port: int = 0


def parse_target(target: str) -> Target:
    """``[user@]host[:port]``, an IPv6 address in brackets. Raises UsageError."""
    found = re.fullmatch(
        r"(?:(?P<user>[^@\s]+)@)?(?:\[(?P<six>[0-9A-Fa-f:.]+(?:%[\w.-]+)?)\]|(?P<host>[^@:\s\[\]]+))(?::(?P<port>\d+))?",
        target,
    )
    host = (found["six"] or found["host"]) if found else ""
    if not found or host.startswith("-") or (found["user"] or "").startswith("-"):
        raise UsageError(f"not a host: {target!r}", remedy="write it as [user@]host[:port]")
    return Target(host=host, user=found["user"] or "", port=int(found["port"] or 0))


def config_path() -> Path:
    return Path.home() / ".ssh" / "config"


def lookup(target: str) -> HostSettings:
    """All that the user's ssh configuration says of ``target``. Raises UsageError for a file that cannot be read."""
    asked = parse_target(target)
    found = _directives(asked)
    return HostSettings(
        target=target,
        hostname=found.get("hostname", asked.host),
        port=asked.port or int(found.get("port", 22)),
        user=asked.user or found.get("user", getpass.getuser()),
        identities=tuple(path for path in map(_path, found.get("identityfile", [])) if path.exists()),
        identities_only=found.get("identitiesonly", "no").lower() == "yes",
        jumps=_jumps(found.get("proxyjump", "")),
        proxy_command=found.get("proxycommand", ""),
        alias=found.get("hostkeyalias", ""),
        own_known_hosts=_paths(found.get("userknownhostsfile", "~/.ssh/known_hosts ~/.ssh/known_hosts2")),
        machine_known_hosts=_paths(
            found.get("globalknownhostsfile", "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2")
        ),
    )


def hops_to(host: HostSettings, *, _on_the_way: tuple[str, ...] = ()) -> list[HostSettings]:
    """The jump hosts before ``host``. As with OpenSSH the first of them may have jump hosts of its own."""
    names = [jump for jump in host.jumps if jump not in (*_on_the_way, host.target)]  # of `Host *` it is its own
    hops = [lookup(name) for name in names]
    return [*hops_to(hops[0], _on_the_way=(*_on_the_way, host.target)), *hops] if hops else []


def _directives(asked: Target) -> paramiko.SSHConfigDict:
    """What holds for that host, by the directive's name in small letters; those that are not applied too."""
    try:
        text = "".join(f"{line.text}\n" for line in config_lines(config_path()))
        return paramiko.SSHConfig.from_text(text).lookup(asked.host)
    except Exception as problem:  # Paramiko lets ConfigParseError, ImportError and plain Exception out
        raise UsageError(
            f"{config_path()}: {problem}", remedy="use `prefix: [ssh, HOST]` for this box instead"
        ) from problem


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


EVERY_HOST = "Host *"


def config_lines(path: Path, *, depth: int = 0) -> Iterator[ConfigLine]:
    """The lines of ``path``, each ``Include`` that holds for every host replaced by what it includes.

    One inside a narrower ``Host`` or ``Match`` stays: text cannot say that both its condition and those of the file
    have to hold. Like OpenSSH, files that are not there are passed over.
    """
    scope = ConfigLine(path, 0, EVERY_HOST)
    for number, text in enumerate(_numbered(path), start=1):
        line = ConfigLine(path, number, text)
        if line.directive in ("host", "match"):
            scope = line
        narrow = line.directive == "include" and not re.fullmatch(
            r"(?i)host[\s=]+\*|match[\s=]+all", scope.text.strip()
        )
        if line.directive != "include" or narrow or depth == DEEPEST_INCLUDE:
            yield line
            continue
        for included in _included(line.argument):
            yield from config_lines(included, depth=depth + 1)
            yield scope  # what follows is not for the last host of that file


def _included(patterns: str) -> Iterator[Path]:
    for pattern in shlex.split(patterns):
        absolute = config_path().parent / Path(pattern).expanduser()  # which stays as it is where it is absolute
        yield from map(Path, sorted(glob.glob(str(absolute))))  # noqa: PTH207 (Path.glob finds an editor's .swp too)


def _path(text: str) -> Path:
    return Path(text).expanduser()


def _jumps(text: str) -> tuple[str, ...]:
    return (
        () if text.lower() in ("", "none") else tuple(part.strip().removeprefix("ssh://") for part in text.split(","))
    )


def _paths(text: str) -> tuple[Path, ...]:
    return tuple(map(_path, shlex.split(text)))


def host_keys(host: HostSettings) -> Iterator[tuple[list[str], paramiko.PKey]]:
    """Every (names, key) of the known_hosts files that may speak for ``host``.

    Lines with a marker are left out (Paramiko 5.1 raises on them): a revoked key is never a known one, and what a
    certificate authority vouches for is refused as unknown.
    """
    revoked = {fields[3] for _, fields in _marked(host.known_hosts) if fields[0] == "@revoked" and len(fields) > 3}
    for path in host.known_hosts:
        for line in _lines(path):
            if line.startswith("@") or (len(line.split()) > 2 and line.split()[2] in revoked):
                continue
            try:
                entry = HostKeyEntry.from_line(line)
            except (InvalidHostKey, paramiko.SSHException):
                continue
            if entry is not None and entry.hostnames and entry.key is not None:
                yield list(entry.hostnames), entry.key


def _lines(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]


def _marked(paths: tuple[Path, ...]) -> Iterator[tuple[Path, list[str]]]:
    for path in paths:
        for line in _lines(path):
            if line.startswith("@"):
                yield path, line.split()


def not_applied(target: str) -> list[str]:
    """What OpenSSH would honour for ``target`` and this tool does not, one sentence each."""
    holding = _directives(parse_target(target)).keys() - APPLIED - WITHOUT_EFFECT
    lines = [line for line in config_lines(config_path()) if line.directive in holding]
    found = [f"{line.path}:{line.number}: {line.directive} is not applied" for line in lines]
    found += [f"{path}: a {fields[0]} line is not applied" for path, fields in _marked(lookup(target).known_hosts)]
    return found


def _numbered(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
