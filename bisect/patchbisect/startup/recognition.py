"""Whether a text can be a server's log at all: anything else has no verdict."""

from __future__ import annotations

import re
from collections.abc import Iterable

from patchbisect.startup import causes, vocabulary
from patchbisect.startup.text import Segment, Splitter, peel, strip_colours, unwrap_json

_LOOKED_AT = 400
"""Characters of a line: what tells who wrote it stands at its beginning."""

_LEVEL = r"(?:DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|FATAL)"
_STAMP = r"20\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d"
_LOGGERS = (
    rf"[^`]{{0,120}}?\[{_STAMP}|\W{{0,3}}{_STAMP}",  # SGLang's own, behind any prefix, and whatever tells the time
    rf"{_LEVEL}(?::|\s+[\d\[])|.{{0,120}}?(?:^|[\[|]|\s-\s)\s*{_LEVEL}\s*[\]|:-]",
    r"\[rank\d+\]:|\[[EWIF]\d{3,4} |\[Gloo\]|.{0,80}\bNCCL (?:INFO|WARN|version)\b",
)
_BARS = (r".{0,200}?(?:\d%\||it/s\]|s/it\])", r"Fetching \d+ files|Downloading ")
_PYTHON = (
    r"(?:.{0,80}: )?Traceback \(most recent call last\):|\s*File \"[^\"]+\", line \d+|Fatal Python error",
    r"(?:\w+\.)*[A-Za-z]\w*(?:Error|Exception|Warning|Interrupt|Exit)(?::|$)|\S+:\d+: \w*Warning: ",
)
_LAUNCHERS = (
    r"(?:\$ |\+ )?(?:\w+=\S+ )*\S*python\S* .*\bsglang|\S*python[\d.]*: |\S*(?:ba|z|da)?sh: |usage: |server_args=",
    r"\S+: (?:fatal )?error\b|ninja: |FAILED: |\[\d+/\d+\] |terminate called",
    r"Killed$|Terminated$|Aborted|Segmentation fault|Bus error",
)
_WRITTEN = re.compile("|".join((*_LOGGERS, *_BARS, *_PYTHON, *_LAUNCHERS)))
_PAGE = re.compile(r"\s*<(?:!doctype html|html)\b", re.IGNORECASE)


class Recognition:
    """Reads a text until a line of it is one that SGLang, its launcher, Python or CUDA could have written."""

    def __init__(self) -> None:
        self._splitter = Splitter()
        self._begun = False
        self._page = False
        self._found = False

    def feed(self, chunk: bytes) -> None:
        """Take some more text."""
        if not self._found:
            self._look(self._splitter.feed(chunk))

    def close(self) -> None:
        """Say that no more text will come: an unfinished last line counts."""
        if not self._found:
            self._look(self._splitter.close())

    @property
    def silent(self) -> bool:
        """Whether nothing was written at all."""
        return not self._begun

    @property
    def doubt(self) -> str:
        """Why the text is no server's log; "" where it can be one."""
        if self._found:
            return ""
        if self.silent:
            return "it is empty"
        if self._page:
            return "it is a web page"
        return "no line of it is one that SGLang, its launcher, Python or CUDA writes"

    def _look(self, segments: Iterable[Segment]) -> None:
        for _, text in segments:
            if not self._begun and text.strip():
                self._begun, self._page = True, _PAGE.match(text) is not None
            # A page of ours quotes lines of a log, and is none.
            if not self._page and _could_be_written(text):
                self._found = True
                return


def _could_be_written(text: str) -> bool:
    wrapped = unwrap_json(text) if text.startswith("{") else None
    whole = strip_colours((wrapped[0] if wrapped else text)[:_LOOKED_AT])
    text = peel(whole)
    return (
        # What a wrapper put before it may be a logger's too.
        _WRITTEN.match(whole) is not None
        or _WRITTEN.match(text) is not None
        or text[: vocabulary.NOISE_LENGTH] in vocabulary.NOISE_HEADS
        or vocabulary.milestone(text) is not None
        or vocabulary.embedded(text) is not None
        or causes.of_line(text) is not None
    )
