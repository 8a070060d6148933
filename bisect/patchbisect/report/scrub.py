"""Text without what must not leave the house: secrets, and in a bundle host names, addresses and users too.

Pseudonyms are consistent (the same host is ``host-1`` everywhere), so that a log still tells who talked to whom.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from patchbisect.redact import MASK, is_secret
from patchbisect.report.masking import Spans, masked, replaced

# Searched for from the first dot on: the digits before it are looked at where the rest fits.
_ADDRESS = re.compile(rb"\.\d{1,3}\.\d{1,3}\.\d{1,3}(?![\w.-])")
_DIGITS = b"0123456789"
_NO_ADDRESS_AFTER = re.compile(rb"[\w.=-]")
_HOMES = (re.compile(rb"/home/[^/\s:'\",]+"), re.compile(rb"/Users/[^/\s:'\",]+"))
_BROADCAST = ipaddress.ip_address("255.255.255.255")
_VERSIONS = frozenset({"versions", "packages"})
"""Keys whose values look like addresses (nvidia-cublas 12.9.1.4) and are none."""
_COMMON = frozenset(
    {"localhost", "local", "sglang", "python", "python3", "root", "server", "model", "cuda", "gpu", "box"}
)
"""Words that stand in every log. A host of that name cannot be told from them, and hides nobody."""


class Scrubber:
    """Takes secrets, hosts, addresses and users out of texts that belong together."""

    def __init__(
        self,
        *,
        values: Iterable[str] = (),
        names: Iterable[str] = (),
        hosts: Iterable[str] = (),
        users: Iterable[str] = (),
    ) -> None:
        self._values = tuple(values)
        self._names = tuple(names)
        self._hosts = frozenset(hosts)
        self._users = frozenset(users)
        self._host_words = _words(self._hosts)
        self._user_words = _words(self._users)
        self._pseudonyms: dict[str, str] = {}

    def knowing(self, *, hosts: Iterable[str] = (), users: Iterable[str] = ()) -> Scrubber:
        """A scrubber that knows these too."""
        return Scrubber(
            values=self._values, names=self._names, hosts={*self._hosts, *hosts}, users={*self._users, *users}
        )

    def text(self, text: str, *, addresses: bool = True) -> str:
        data = text.encode(errors="surrogateescape")
        return self.log(data, addresses=addresses).decode(errors="surrogateescape")

    def log(self, data: bytes, *, addresses: bool = True) -> bytes:
        data = masked(data, values=self._values, names=self._names)
        for home in _HOMES:
            data = home.sub(lambda found: found[0][: found[0].rindex(b"/") + 1] + b"user", data)
        data = self._renamed(data, _found(self._host_words, data), kind="host")
        data = replaced(data, _found(self._user_words, data), b"user")
        return self._renamed(data, list(_addresses(data)), kind="address") if addresses else data

    def _renamed(self, data: bytes, spans: Spans, *, kind: str) -> bytes:
        """Each of what stands there under a name of its own, in the order in which they first stand there."""
        parts, at = [], 0
        for begin, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            if begin >= at:
                parts += [data[at:begin], self._pseudonym(kind, data[begin:end].decode(errors="replace")).encode()]
                at = end
        return b"".join([*parts, data[at:]])

    def document(self, value: Any, *, key: str = "") -> Any:
        """A JSON document with every string of it scrubbed; names of its keys stay."""
        if isinstance(value, Mapping):
            return {
                name: MASK
                if is_secret(name, more=self._names) and isinstance(inner, str) and inner
                else self.document(inner, key=key if key in _VERSIONS else name)
                for name, inner in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.document(inner, key=key) for inner in value]
        return self.text(value, addresses=key not in _VERSIONS) if isinstance(value, str) else value

    def _pseudonym(self, kind: str, real: str) -> str:
        known = sum(1 for name in self._pseudonyms.values() if name.startswith(kind))
        return self._pseudonyms.setdefault(real.lower(), f"{kind}-{known + 1}")


def _addresses(data: bytes) -> Iterator[tuple[int, int]]:
    """IPv4 addresses that name a machine of somebody's."""
    for found in _ADDRESS.finditer(data):
        dot = found.start()
        before = data[max(dot - 4, 0) : dot]
        first = before[len(before.rstrip(_DIGITS)) :]
        begin = dot - len(first)
        if not 1 <= len(first) <= 3 or _NO_ADDRESS_AFTER.match(data[max(begin - 1, 0) : begin]):
            continue
        try:
            address = ipaddress.ip_address(data[begin : found.end()].decode())
        except ValueError:
            continue
        if not (address.is_loopback or address.is_unspecified or address == _BROADCAST):
            yield begin, found.end()


def _found(words: Sequence[re.Pattern[bytes]], data: bytes) -> Spans:
    lowered = data.lower() if words else b""
    return [found.span() for word in words for found in word.finditer(lowered)]


def _words(names: Iterable[str]) -> tuple[re.Pattern[bytes], ...]:
    """Each of ``names`` as a whole word, in small letters."""
    telling = {name.lower().encode() for name in names if len(name) > 2 and name.lower() not in _COMMON}
    return tuple(
        re.compile(re.escape(name) + rb"(?<![\w-]" + re.escape(name) + rb")(?![\w-])") for name in sorted(telling)
    )
