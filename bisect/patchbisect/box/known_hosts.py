"""What ssh's known_hosts files (sshd(8)) say of a host, and whether the key that it shows is one of those."""

from __future__ import annotations

import base64
import hmac
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import paramiko
from paramiko.hostkeys import HostKeyEntry, InvalidHostKey

RSA = ("rsa-sha2-512", "rsa-sha2-256")
"""What an ``ssh-rsa`` key signs with."""


class Known(paramiko.MissingHostKeyPolicy):
    """Decides on a host's key as OpenSSH does. Paramiko itself would know one key of each kind, and no patterns.

    A key that is kept by ``name`` alone counts where none is kept of ``known_as``, the name with its port.
    """

    def __init__(self, paths: Sequence[Path], *, known_as: str, name: str) -> None:
        self._kept = keys_of(paths, known_as)
        self._by_name = keys_of(paths, name)

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        """Raises BadHostKeyException for a key that has changed, SSHException for one that is not known."""
        if self._kept and key not in self._kept:
            alike = [kept for kept in self._kept if kept.get_name() == key.get_name()]
            raise paramiko.BadHostKeyException(hostname, key, (alike or self._kept)[0])
        if not self._kept and key not in self._by_name:
            paramiko.RejectPolicy().missing_host_key(client, hostname, key)

    def transport(self, sock: Any, **options: Any) -> paramiko.Transport:
        """One that asks the host for a kind of key that is known of it, if it has such a one."""
        transport = paramiko.Transport(sock, **options)
        security = transport.get_security_options()
        names = [key.get_name() for key in self._kept or self._by_name]
        kinds = [kind for name in names for kind in (RSA if name == "ssh-rsa" else (name,))]
        security.key_types = sorted(security.key_types, key=lambda kind: kind not in kinds)
        return transport


def keys_of(paths: Sequence[Path], name: str) -> list[paramiko.PKey]:
    """The keys that these files have of ``name``.

    Lines with a marker are left out (Paramiko 5.1 raises on them): a revoked key is never a known one, and what a
    certificate authority vouches for is refused as unknown. So are lines that are damaged.
    """
    revoked = {fields[3] for _, fields in marked(paths) if fields[0] == "@revoked" and len(fields) > 3}
    found = []
    for path in paths:
        for fields in map(str.split, _lines(path)):
            if len(fields) > 2 and fields[2] not in revoked and _speaks_for(fields[0], name):
                found.append(_key(fields))
    return [key for key in found if key is not None]


def marked(paths: Sequence[Path]) -> Iterator[tuple[Path, list[str]]]:
    """The fields of the lines that begin with a marker."""
    for path in paths:
        for line in _lines(path):
            if line.startswith("@"):
                yield path, line.split()


def _lines(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]


def _key(fields: list[str]) -> paramiko.PKey | None:
    """None for a kind that Paramiko has not, and for a damaged line, of which it may say much or little."""
    try:
        entry = HostKeyEntry.from_line(" ".join(fields))
    except (InvalidHostKey, paramiko.SSHException, ValueError, OverflowError):
        return None
    return entry.key if entry else None


def _speaks_for(names: str, name: str) -> bool:
    """Whether ``names``, the first field of a line, has ``name``."""
    if names.startswith("|"):
        return _hashed(names, name)
    holding = [pattern for pattern in names.lower().split(",") if _matches(pattern.removeprefix("!"), name.lower())]
    return bool(holding) and not any(pattern.startswith("!") for pattern in holding)


def _hashed(entry: str, name: str) -> bool:
    """Of such a line one can tell only whether it is that name: ``|1|salt|HMAC-SHA1 of it``."""
    try:
        salt, digest = map(base64.b64decode, entry.split("|")[2:])
    except ValueError:
        return False
    return hmac.compare_digest(hmac.digest(salt, name.encode(), "sha1"), digest)


def _matches(pattern: str, name: str) -> bool:
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".*").replace(r"\?", "."), name) is not None
