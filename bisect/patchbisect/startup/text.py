"""Bytes in any chunking -> numbered segments of text, and what a wrapper put in front of them.

A *segment* is what a terminal would have shown between two carriage returns or newlines. Line numbers
count newlines only, so they are those of an editor. Memory is bounded: a segment keeps its first
``SEGMENT_LIMIT`` characters, whatever comes.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable
from datetime import date
from itertools import chain

SEGMENT_LIMIT = 1 << 16

ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
Segment = tuple[int, str]


class Splitter:
    """Cuts chunks into (line number, segment); an empty segment stands for a blank line."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
        self._tail = ""
        self._line = 1
        self._line_has_text = False

    def feed(self, chunk: str | bytes) -> Iterable[Segment]:
        text = self._decode(chunk) if isinstance(chunk, (bytes, bytearray, memoryview)) else chunk
        segments: list[Segment] = []
        first, *rest = text.split("\n")
        self._grow(first)
        if not rest:
            self._cut_tail_at_returns(segments)
            return segments
        self._end_line(self._tail, segments)
        self._tail = rest.pop()
        line = self._line
        if "\r" not in text and len(text) <= SEGMENT_LIMIT:
            self._line = line + len(rest)
            return chain(segments, enumerate(rest, line))
        for piece in rest:
            if "\r" in piece or len(piece) > SEGMENT_LIMIT:
                self._line = line
                self._end_line(piece, segments)
            else:
                segments.append((line, piece))
            line += 1
        self._line = line
        self._grow("")
        self._cut_tail_at_returns(segments)
        return segments

    def close(self) -> list[Segment]:
        """What is left when no more text will come."""
        segments: list[Segment] = []
        self._grow(self._decode(b"", True))
        if self._tail:
            self._end_line(self._tail, segments)
            self._tail = ""
        return segments

    def _grow(self, text: str) -> None:
        room = SEGMENT_LIMIT - len(self._tail)
        if len(text) <= room:
            self._tail += text
            return
        # A carriage return starts a new segment, so a bar of any length stays cheap; all else is cut.
        newest = (self._tail + text).rsplit("\r", 1)
        self._line_has_text = self._line_has_text or len(newest) > 1
        self._tail = newest[-1][:SEGMENT_LIMIT]

    def _cut_tail_at_returns(self, segments: list[Segment]) -> None:
        """Hand out what a bar has drawn so far: it may run for minutes without a newline."""
        if "\r" not in self._tail:
            return
        *drawn, self._tail = self._tail.split("\r")
        self._add(drawn, segments)

    def _end_line(self, text: str, segments: list[Segment]) -> None:
        if "\r" in text:
            self._add(text.split("\r"), segments)
        elif text:
            self._add([text], segments)
        if not self._line_has_text:
            segments.append((self._line, ""))
        self._line += 1
        self._line_has_text = False

    def _add(self, pieces: list[str], segments: list[Segment]) -> None:
        for piece in pieces:
            if piece:
                self._line_has_text = True
                segments.append((self._line, piece[:SEGMENT_LIMIT]))


def strip_colours(text: str) -> str:
    """``text`` without ANSI sequences."""
    return ANSI.sub("", text)


# --- what containers, collectors and wrappers put before a line ---------------------------------------

_ISO_TIME = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
_LEVEL = r"(?:TRACE|DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL|SUCCESS)"

_COMPOSE = re.compile(r"\[?[\w.\-/]{1,80}\]? *\| ")  # docker compose, honcho, pm2: "name-1  | "
_KUBECTL = re.compile(r"\[pod/[^\]\s]+\] ")  # kubectl logs --prefix
_RAY = re.compile(r"\([^()]{0,120}?\bpid=\d+[^()]{0,80}\) ")  # "(SGLangActor pid=1234, ip=10.0.0.1) "
_REPEATED = re.compile(r" \[repeated \d+x across cluster\]$")
_ROOT_LOGGER = re.compile(_LEVEL + r":[\w.]+:(?=\[)")  # Python's unconfigured logging: "INFO:wrapper:"
_SYSLOG = re.compile(  # journald and syslog: "Sep 04 12:12:40 host unit[123]: "
    r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)? [\w.\-]+ [\w.@/:\-]+(?:\[\d+\])?: "
)
_DATED = re.compile(
    _ISO_TIME
    + r" (?:"
    # Python's own logging in a wrapper: "2025-03-07 23:50:20,740 - __main__ - INFO - "
    + (r"- [\w.\-:]+ - " + _LEVEL + r" - ")
    # loguru: "2026-01-01 10:00:00.123 | INFO     | module:function:12 - "
    + (r"|\| " + _LEVEL + r"\s*\| [^|\s]+ - ")
    # journalctl -o short-iso: time, host, unit
    + (r"|(?!" + _LEVEL + r"\b)[\w.\-]+ [\w.@/:\-]+(?:\[\d+\])?: ")
    # docker logs -t, containerd's CRI format: time, perhaps stream and P or F
    + (r"|(?:std(?:out|err) [PF] )?(?!" + _LEVEL + r"\b)(?!- )(?!\[ )(?!\| )")
    + ")"
)
_COUNTED = re.compile(r"\d{1,4}: |\d\d:\d\d:\d\d(?:\.\d+)? ")  # srun --label: "12: "; a bare time of day
_TS = re.compile(r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)? ")  # moreutils' ts
_TAGGED = re.compile(r"\[\d+,\d+\]<std(?:out|err)>: ?|\[default\d+\]:")  # mpirun --tag-output, torchrun


def peel(text: str) -> str:
    """``text`` without the prefixes of wrappers, however deeply nested (at most four)."""
    for _ in range(4):
        found = _outer(text)
        if found is None:
            return text
        text = text[found.end() :]
        if text.endswith(" across cluster]"):  # Ray: one line stands for several
            text = _REPEATED.sub("", text)
    return text


_JSON_KEYS = ("log", "message", "msg", "text", "line")


def unwrap_json(text: str) -> tuple[str, str] | None:
    """The line inside a JSON record (Docker's json-file, Loki, Fluent Bit, a logger's own), and the record's other
    texts; None if it is none."""
    if not text.endswith("}") or not any(f'"{key}"' in text for key in _JSON_KEYS):
        return None
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    key = next((key for key in _JSON_KEYS if isinstance(record.get(key), str)), None)
    if key is None:
        return None
    message = record.pop(key)
    return message, " ".join(value for value in record.values() if isinstance(value, str))


def _outer(text: str) -> re.Match[str] | None:
    """The outermost prefix. Cheap tests come first: this runs for every line without SGLang's bracket."""
    first = text[:1]
    if first.isdigit():
        found = _DATED.match(text) or _COUNTED.match(text)
        if found is not None:
            return found
    elif first == "(":
        return _RAY.match(text)
    elif first == "[":
        found = _KUBECTL.match(text) if text.startswith("[pod/") else _TAGGED.match(text)
        if found is not None:
            return found
    elif first.isupper():
        found = (_SYSLOG.match(text) or _TS.match(text)) if text[3:4] == " " else _ROOT_LOGGER.match(text)
        if found is not None:
            return found
    return _COMPOSE.match(text) if "| " in text[:100] else None


_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d(?:[.,]\d+)?)")


def seconds(time: str) -> float | None:
    """A time stamp as seconds since a fixed day, for differences; None where it is none."""
    found = _TIME.match(time)
    if found is None:
        return None
    try:
        day = date(int(found[1]), int(found[2]), int(found[3])).toordinal()
    except ValueError:
        return None
    return day * 86400.0 + int(found[4]) * 3600 + int(found[5]) * 60 + float(found[6].replace(",", "."))
