"""Log formats of somebody's own (``SGLANG_LOGGING_CONFIG_PATH``), learned from the first known message in them."""

from __future__ import annotations

import re
from dataclasses import dataclass

RANK = r"(?:DP|TP|PP|EP|ATTN_CP|MOE_DP)\d+"
TIME = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?"
SHAPE_LIMIT = 8
"""Formats remembered: processes of one server may have some of their own."""

_TIME = re.compile(TIME)
_RANKS = re.compile(rf"(?<![\w-]){RANK}(?![\w.])")
_PIECE = re.compile(rf"(?P<time>{TIME}Z?)|(?P<ranks>{RANK}(?: {RANK})*)|(?P<space>\s+)|(?P<word>[\w.]+)|(?P<other>.)")


@dataclass(frozen=True, slots=True)
class Prefix:
    """What a prefix tells; both may be ""."""

    time: str
    rank: str

    @classmethod
    def read(cls, text: str) -> Prefix:
        time = _TIME.search(text)
        return cls(time[0].replace("T", " ").replace(",", ".") if time else "", " ".join(_RANKS.findall(text)))


def shape_of(prefix: str) -> re.Pattern[str] | None:
    """A pattern for prefixes like ``prefix``: times, words and numbers may differ, ranks may come and go.

    None for one without a time: too little to tell a prefix from the text of a message.
    """
    if _TIME.search(prefix) is None:
        return None
    ranks = rf"(?:\s*{RANK})*"
    parts = []
    for piece in _PIECE.finditer(prefix):
        if piece["time"]:
            parts.append(TIME + "Z?")
        elif piece["ranks"]:
            parts.append(ranks)
        elif piece["space"]:
            parts.append(rf"{ranks}\s*")
        else:
            parts.append(r"[\w.]+" if piece["word"] else re.escape(piece["other"]))
    pattern = "".join(parts)
    # The last space belongs to the prefix, further ones to the message: a traceback's lines are indented.
    return re.compile(pattern.removesuffix(rf"{ranks}\s*") + (" ?" if prefix[-1:].isspace() else ""))
