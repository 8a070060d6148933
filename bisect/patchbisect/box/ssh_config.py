"""What ssh's own files say about a host, and what of it Paramiko does not apply.

These are ``~/.ssh/config``, then ``/etc/ssh/ssh_config``, of which the first that says something wins, and known_hosts.
"""

from __future__ import annotations

import getpass
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import paramiko

from patchbisect.box.known_hosts import marked
from patchbisect.box.ssh_files import EVERY_HOST, ConfigLine, config_files, config_lines
from patchbisect.errors import UsageError

APPLIED = frozenset(
    """
    host match hostname user port identityfile identitiesonly proxyjump proxycommand hostkeyalias
    userknownhostsfile globalknownhostsfile
    """.split()  # noqa: SIM905
)
WITHOUT_EFFECT = frozenset(
    """
    addkeystoagent batchmode canonicalizehostname casignaturealgorithms challengeresponseauthentication checkhostip
    clearallforwardings compression connectionattempts connecttimeout controlmaster controlpath controlpersist
    dynamicforward escapechar exitonforwardfailure fingerprinthash forwardagent forwardx11 forwardx11timeout
    forwardx11trusted gatewayports gssapiauthentication gssapidelegatecredentials gssapikexalgorithms
    hashknownhosts hostbasedacceptedalgorithms hostbasedauthentication ignoreunknown ipqos
    kbdinteractiveauthentication localforward loglevel numberofpasswordprompts passwordauthentication
    permitlocalcommand preferredauthentications pubkeyauthentication rekeylimit remoteforward requesttty sendenv
    serveralivecountmax serveraliveinterval setenv stricthostkeychecking tcpkeepalive updatehostkeys
    visualhostkey
    """.split()  # noqa: SIM905
)
"""Directives that do not change whether or where this tool connects."""
ALGORITHMS = frozenset("ciphers hostkeyalgorithms kexalgorithms macs pubkeyacceptedalgorithms requiredrsasize".split())  # noqa: SIM905
"""A distribution says in the machine's file which of them it trusts, for every host: that is no news of this one."""


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


def lookup(target: str) -> HostSettings:
    """All that ssh's configuration says of ``target``. Raises UsageError for a file that cannot be read."""
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
        lines = [line for file in config_files() for line in (ConfigLine(file, 0, EVERY_HOST), *config_lines(file))]
        return paramiko.SSHConfig.from_text("".join(f"{line.as_paramiko_reads}\n" for line in lines)).lookup(asked.host)
    except Exception as problem:  # Paramiko lets ConfigParseError, ImportError and plain Exception out
        where = " or ".join(str(file) for file in config_files() if file.exists())
        raise UsageError(f"{where}: {problem}", remedy="use `prefix: [ssh, HOST]` for this box instead") from problem


def _path(text: str) -> Path:
    return Path(text).expanduser()


def _jumps(text: str) -> tuple[str, ...]:
    return (
        () if text.lower() in ("", "none") else tuple(part.strip().removeprefix("ssh://") for part in text.split(","))
    )


def _paths(text: str) -> tuple[Path, ...]:
    return tuple(map(_path, shlex.split(text)))


def not_applied(target: str) -> list[str]:
    """What OpenSSH would honour for ``target`` and this tool does not, one sentence each."""
    holding = _directives(parse_target(target)).keys() - APPLIED - WITHOUT_EFFECT
    users, machines = config_files()
    named = {users: holding, machines: holding - ALGORITHMS}
    found = []
    for file, directives in named.items():
        for line in config_lines(file):
            what = f"match {line.unknown_criteria[0]}" if line.unknown_criteria else line.directive
            if what in directives or line.unknown_criteria:
                found.append(f"{line.path}:{line.number}: {what} is not applied")
    unread = marked(lookup(target).known_hosts)
    return found + [f"{path}: a {fields[0]} line is not applied" for path, fields in unread]
