"""Which values are secret, and text with them taken out.

A secret reaches the server's own environment or argv and nothing else: no record, report, log copy or message.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

MASK = "***"

_SECRET_NAME = re.compile(
    r"(^|[_-])(token|key|secret|password|passwd|passphrase|credentials?|auth)([_-]?(id|file))?$", re.IGNORECASE
)
_NOT_SECRET = re.compile(
    r"(^|[_-])(max|min|num|pad|bos|eos|skip|prefill)[_-].*token|token[_-]?id|keyfile$"
    r"|(^|[_-])(per|first|next|last)[_-]token$|(^|[_-])(routing|sort|group)[_-]key$",
    re.IGNORECASE,
)
_URL_PASSWORD = re.compile(r"(?<=://)([^/\s:@]*):([^/\s@]+)@")

# Shorter values would blank out half a log (a token "1" is no secret that masking can keep).
_SHORTEST_MASKED = 6


def is_secret(name: str, *, more: Iterable[str] = ()) -> bool:
    """Whether a variable or flag of that name holds a secret: by its look, or because the settings list it."""
    if any(name.lower() == other.lower() for other in more):
        return True
    return bool(_SECRET_NAME.search(name)) and not _NOT_SECRET.search(name)


def masked_url(text: str) -> str:
    """``text`` with the passwords of its URLs taken out: ``http://ada:***@proxy``."""
    return _URL_PASSWORD.sub(rf"\1:{MASK}@", text)


def has_password(value: str) -> bool:
    """Whether a value is a URL with a password in it."""
    return bool(_URL_PASSWORD.search(value))


def split_secrets(values: Mapping[str, str], *, more: Iterable[str] = ()) -> tuple[dict[str, str], dict[str, str]]:
    """(harmless, secret), each a new dict. A URL with a password in it is secret whatever its name."""
    names = tuple(more)
    secret = {name: value for name, value in values.items() if is_secret(name, more=names) or has_password(value)}
    return {name: value for name, value in values.items() if name not in secret}, secret


def redacted(data: bytes, values: Iterable[str]) -> bytes:
    """``data`` with every one of ``values`` replaced by ``***``, longest first."""
    for value in sorted(set(values), key=len, reverse=True):
        if len(value) >= _SHORTEST_MASKED:
            data = data.replace(value.encode(), MASK.encode())
    return data
