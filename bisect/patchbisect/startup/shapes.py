"""Log formats of somebody's own (``SGLANG_LOGGING_CONFIG_PATH``), learned from the first known message in them."""

from __future__ import annotations

import re
from dataclasses import dataclass

RANK = r"(?:DP|TP|PP|EP|ATTN_CP|MOE_DP)\d+"
TIME = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?"
PIECES_LIMIT = 40
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

    None for one without a time, or as long as prose: not to be told from the text of a message. All quantifiers are
    possessive, for the pattern is tried on every line.
    """
    ranks = rf"(?:\s*+{RANK}(?![\w.]))*+"
    parts, times = [], 0
    for piece in _PIECE.finditer(prefix):
        if piece["time"]:
            parts.append(TIME + "Z?")
            times += 1
        elif piece["ranks"]:
            parts.append(ranks)
        elif piece["space"]:
            parts.append(rf"{ranks}\s*+")
        else:
            parts.append(r"[\w.]++" if piece["word"] else re.escape(piece["other"]))
    if times != 1 or len(parts) > PIECES_LIMIT:
        return None
    # The last space belongs to the prefix, further ones to the message: a traceback's lines are indented.
    pattern = "".join(parts).removesuffix(rf"{ranks}\s*+")
    return re.compile(pattern + (" ?" if prefix[-1:].isspace() else ""))
