"""Text without secrets: known values, what looks like one wherever it stands, and what a secret's name stands before.

Works on bytes with patterns that begin with plain letters: those are searched for at memory speed, and logs have
hundreds of megabytes. What depends on upper and lower case is searched for in a lowered copy of the same length.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain

from patchbisect.redact import MASK, is_secret, redacted

_MASK = MASK.encode()

Spans = list[tuple[int, int]]
"""Begin and end of what is to be replaced."""

# Hugging Face, OpenAI, GitHub, AWS, Slack, a JWT. What stands before the plain letters is asked for behind them.
_LOOKS_SECRET = tuple(
    re.compile(pattern)
    for pattern in (
        rb"hf_(?<!\whf_)[A-Za-z0-9]{16,}",
        rb"sk-(?<!\wsk-)[A-Za-z0-9_-]{16,}",
        rb"gh[pousr]_(?<!\wgh[pousr]_)[A-Za-z0-9]{20,}",
        rb"github_pat_(?<!\wgithub_pat_)\w{20,}",
        rb"AKIA(?<!\wAKIA)[A-Z0-9]{16}\b",
        rb"ASIA(?<!\wASIA)[A-Z0-9]{16}\b",
        rb"xox[abprs]-(?<!\wxox[abprs]-)[A-Za-z0-9-]{10,}",
        rb"eyJ(?<!\weyJ)[\w-]{10,}\.[\w-]{10,}\.[\w-]+",
    )
)
_BEARER = re.compile(rb"earer (?<=[Bb]earer )[\w.~+/=-]{8,}")
_IN_URL = re.compile(rb"://[^\s/@:'\"]*:[^\s/@'\"]+(?=@)")

# Every name of a secret ends with one of these, or with one of them and "id" or "file".
_TELLING = ("token", "key", "secret", "password", "passwd", "passphrase", "credential", "credentials", "auth")
_NAME_CHARACTERS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
_LONGEST_NAME = 256
# name=value, 'name': 'value', and the same with its quotes escaped. A colon alone may be a time of day.
_ASSIGNED = rb"(?:[_-]?(?:id|file))?(?P<assigned>\\?['\"]?[^\S\n]*(?:=|:(?=[^\S\n]|\\?['\"]))[^\S\n]*)"
# --name value, and the same in a list of words.
_FLAG = re.compile(rb"--(?P<name>[A-Za-z][\w-]*)(?:['\"],[^\S\n]*(?=['\"])|[^\S\n]+)")
_VALUE = re.compile(
    rb"(?P<escape>\\?)(?:'(?P<single>[^'\n\\]+)(?P=escape)'|\"(?P<double>[^\"\n\\]+)(?P=escape)\"|['\"]?(?P<bare>[^\s'\",)}\]]+))"
)
_HARMLESS = frozenset({b"None", b"null", b"True", b"False", b"true", b"false", _MASK, b"not", b"is", b"was", b"set"})


def without_secrets(text: str, *, values: Iterable[str] = (), names: Iterable[str] = ()) -> str:
    """``text`` with its secrets masked. ``values`` are known secrets, ``names`` more names of secrets."""
    data = text.encode(errors="surrogateescape")
    return masked(data, values=values, names=names).decode(errors="surrogateescape")


def masked(data: bytes, *, values: Iterable[str] = (), names: Iterable[str] = ()) -> bytes:
    """The same for bytes."""
    data = redacted(data, values)
    for pattern in _LOOKS_SECRET:
        data = pattern.sub(_MASK, data)
    data = _BEARER.sub(b"earer " + _MASK, data)
    data = _IN_URL.sub(b"://" + _MASK, data)
    more = tuple(names)
    return replaced(data, [*_assigned(data, more), *_given(data, more)], _MASK)


def replaced(data: bytes, spans: Spans, by: bytes) -> bytes:
    """``data`` with every span replaced; one that begins inside another is part of it."""
    if not spans:
        return data
    parts, at = [], 0
    for begin, end in sorted(spans, key=lambda span: (span[0], -span[1])):
        if begin >= at:
            parts += [data[at:begin], by]
            at = end
    return b"".join([*parts, data[at:]])


def _assigned(data: bytes, more: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Values that stand behind a secret's name and ``=`` or ``:``."""
    lowered = data.lower()
    for pattern in _words(tuple(name.lower() for name in more)):
        for found in pattern.finditer(lowered):
            separator = found.start("assigned")
            begin = _name_begin(data, found.start())
            if not _names_secret(data[begin:separator], tuple(more)):
                continue
            # SGLang counts like this: "#token: 13, token usage: 0.00".
            count = data[begin - 1 : begin] == b"#" if begin else False
            yield from _value(data, found.end(), number_is_harmless=count)


@lru_cache(maxsize=8)
def _words(more: tuple[str, ...]) -> tuple[re.Pattern[bytes], ...]:
    return tuple(re.compile(re.escape(word.encode()) + _ASSIGNED) for word in chain(_TELLING, more))


def _name_begin(data: bytes, at: int) -> int:
    """Where the name begins that goes on at ``at``."""
    before = data[max(at - _LONGEST_NAME, 0) : at]
    return at - len(before) + len(before.rstrip(_NAME_CHARACTERS))


@lru_cache(maxsize=4096)
def _names_secret(name: bytes, more: tuple[str, ...]) -> bool:
    return is_secret(name.decode(errors="replace").lstrip("-"), more=more)


def _given(data: bytes, more: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Values of flags."""
    for found in _FLAG.finditer(data):
        if _names_secret(found["name"], tuple(more)):
            yield from _value(data, found.end())


def _value(data: bytes, at: int, *, number_is_harmless: bool = False) -> Iterator[tuple[int, int]]:
    found = _VALUE.match(data, at)
    if found is None:
        return
    group = str(found.lastgroup)
    value = found[group]
    if value in _HARMLESS or (number_is_harmless and value.isdigit()):
        return
    yield found.span(group)
