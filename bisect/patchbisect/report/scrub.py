"""Text without what must not leave the house: secrets, and in a bundle host names, addresses and users too.

Pseudonyms are consistent (the same host is ``host-1`` everywhere), so that a log still tells who talked to whom.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from typing import Any

from patchbisect.redact import MASK, is_secret, redacted

# What a secret looks like wherever it stands: Hugging Face, OpenAI, GitHub, AWS, Slack, a bearer header, a JWT.
_LOOKS_SECRET = re.compile(
    r"\bhf_[A-Za-z0-9]{16,}|\bsk-[A-Za-z0-9_-]{16,}|\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_\w{20,}"
    r"|\bA(?:KIA|SIA)[A-Z0-9]{16}\b|\bxox[abprs]-[A-Za-z0-9-]{10,}|\beyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]+"
    r"|(?<=[Bb]earer )[\w.~+/=-]{8,}"
)
_IN_URL = re.compile(r"(?<=://)[^\s/@:'\"]*:[^\s/@'\"]+(?=@)")
# name=value, --name value, 'name': 'value'. Only the name tells, so the value may be anything without a blank.
_NAMED = re.compile(
    r"(?<!\w)(?P<name>[A-Za-z][\w-]{2,60})(?P<between>['\"]?\s*(?:=|:\s|\s)\s*)(?P<quote>['\"]?)(?P<value>[^\s'\",)}\]]+)"
)
# Every name that looks like a secret's has one of these; lines without any, nearly all, are not looked at closely.
_TELLING = ("token", "key", "secret", "passw", "passphrase", "credential", "auth")
_HARMLESS_VALUES = frozenset({"None", "null", "True", "False", "true", "false", MASK, "not", "is", "was", "set"})
_ADDRESS = re.compile(r"(?<![\w.=-])\d{1,3}(?:\.\d{1,3}){3}(?![\w.-])")
_HOME = re.compile(r"(?<=/home/)[^/\s:'\",]+|(?<=/Users/)[^/\s:'\",]+")
_VERSIONS = frozenset({"versions", "packages"})
"""Keys whose values look like addresses (nvidia-cublas 12.9.1.4) and are none."""
_COMMON = frozenset(
    {"localhost", "local", "sglang", "python", "python3", "root", "server", "model", "cuda", "gpu", "box"}
)
"""Words that stand in every log. A host of that name cannot be told from them, and hides nobody."""


def without_secrets(text: str, *, values: Iterable[str] = (), names: Iterable[str] = ()) -> str:
    """``text`` with secrets masked: known ``values``, what looks like one, and what a secret's name stands before.

    ``names`` are more names of secrets, from the settings.
    """
    more = tuple(names)

    def named(found: re.Match[str]) -> str:
        separated = (
            "=" in found["between"]
            or ":" in found["between"]
            or found.string[found.start() - 2 : found.start()] == "--"
        )
        if not separated or found["value"] in _HARMLESS_VALUES or not is_secret(found["name"], more=more):
            return found[0]
        return f"{found['name']}{found['between']}{found['quote']}{MASK}"

    text = redacted(text.encode(errors="surrogateescape"), values).decode(errors="surrogateescape")
    telling = re.compile(rf"^.*(?:{'|'.join(map(re.escape, (*_TELLING, *more)))}).*$", re.IGNORECASE | re.MULTILINE)
    text = _IN_URL.sub(MASK, _LOOKS_SECRET.sub(MASK, text))
    return telling.sub(lambda line: _NAMED.sub(named, line[0]), text)


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
        text = without_secrets(text, values=self._values, names=self._names)
        text = _HOME.sub("user", text)
        if self._host_words:
            text = self._host_words.sub(lambda found: self._pseudonym("host", found[0]), text)
        if self._user_words:
            text = self._user_words.sub("user", text)
        return _ADDRESS.sub(self._address, text) if addresses else text

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

    def bytes(self, data: bytes) -> bytes:
        return self.text(data.decode(errors="surrogateescape")).encode(errors="surrogateescape")

    def _address(self, found: re.Match[str]) -> str:
        try:
            address = ipaddress.ip_address(found[0])
        except ValueError:
            return found[0]
        kept = address.is_loopback or address.is_unspecified or address == ipaddress.ip_address("255.255.255.255")
        return found[0] if kept else self._pseudonym("address", found[0])

    def _pseudonym(self, kind: str, real: str) -> str:
        known = sum(1 for name in self._pseudonyms.values() if name.startswith(kind))
        return self._pseudonyms.setdefault(real.lower(), f"{kind}-{known + 1}")


def _words(names: Iterable[str]) -> re.Pattern[str] | None:
    """Matches any of ``names`` as a whole word, longest first; None where there is none."""
    telling = sorted({name for name in names if len(name) > 2 and name.lower() not in _COMMON}, key=len, reverse=True)
    if not telling:
        return None
    return re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, telling))})(?![\w-])", re.IGNORECASE)
