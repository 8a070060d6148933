"""What ``~/.ssh/config`` and known_hosts say about a host, and what of it Paramiko does not apply."""

from __future__ import annotations

import getpass
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

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
    known_hosts: tuple[Path, ...]

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
    def by_hand(self) -> str:
        """The command that reaches the host with OpenSSH."""
        host = parse_target(self.target)
        port = ["-p", str(host.port)] if host.port else []
        return " ".join(map(shlex.quote, ["ssh", *port, *(["-l", host.user] if host.user else []), "--", host.host]))

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
        r"(?:(?P<user>[^@\s]+)@)?(?:\[(?P<six>[0-9A-Fa-f:.%]+)\]|(?P<host>[^@:\s\[\]]+))(?::(?P<port>\d+))?", target
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
    config = paramiko.SSHConfig()
    if config_path().is_file():
        try:
            config = paramiko.SSHConfig.from_path(str(config_path()))
            found = config.lookup(asked.host)
        except Exception as problem:  # Paramiko lets ConfigParseError, ImportError and plain Exception out
            raise UsageError(
                f"{config_path()}: {problem}", remedy="use `prefix: [ssh, HOST]` for this box instead"
            ) from problem
    else:
        found = config.lookup(asked.host)
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
        known_hosts=_known_hosts(found),
    )


def _path(text: str) -> Path:
    return Path(text).expanduser()


def _jumps(text: str) -> tuple[str, ...]:
    return (
        () if text.lower() in ("", "none") else tuple(part.strip().removeprefix("ssh://") for part in text.split(","))
    )


def _known_hosts(found: paramiko.SSHConfigDict) -> tuple[Path, ...]:
    user = found.get("userknownhostsfile", "~/.ssh/known_hosts ~/.ssh/known_hosts2")
    machine = found.get("globalknownhostsfile", "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2")
    return tuple(map(_path, shlex.split(f"{user} {machine}")))


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
    found = []
    config = config_path()
    for number, line in enumerate(_numbered(config), start=1):
        word = re.split(r"[\s=]", line.strip(), maxsplit=1)[0].lower()
        if word and not word.startswith("#") and word not in APPLIED | WITHOUT_EFFECT:
            found.append(f"{config}:{number}: {word} is not applied")
    found += [f"{path}: a {fields[0]} line is not applied" for path, fields in _marked(lookup(target).known_hosts)]
    return found


def _numbered(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
