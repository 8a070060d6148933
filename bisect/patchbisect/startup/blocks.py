"""Tracebacks, as they arrive line by line: chained, interleaved between ranks, cut short."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum

HOLDER = re.compile(r"(?P<who>\w+) hit an exception: ?(?P<rest>.*)")
TRACEBACK = "Traceback (most recent call last):"
FRAME = re.compile(r'\s+File "(?P<path>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>.+))?')
EXCEPTION = re.compile(r"(?P<type>(?:[A-Za-z_]\w*\.)*[A-Z]\w*)(?:: ?(?P<message>.*)|)$")
CHAIN = re.compile(
    r"The above exception was the direct cause of the following exception:"
    r"|During handling of the above exception, another exception occurred:"
)
SOURCE_LIMIT = 300
"""Indented lines kept of one exception: the outermost half and the innermost half of a deep recursion."""
MESSAGE_LIMIT = 60
_DRAFT_WORKER = re.compile(
    r"\b(?:self\.)?draft_(?:worker|model_runner)\b|DraftWorker|EAGLEWorker|/speculative/\w*worker"
)

_COMMAND = re.compile(
    r"(?:^|[\s'\"\[])(?:[\w./+-]*/)?(?:[\w-]+-)?(?:nvcc|hipcc|gcc|g\+\+|cc|c\+\+|clang|clang\+\+|icpx|ninja|cmake|ptxas|ld)"
    r"(?:-\d+)?['\",]*\s.*?(?<=[\s'\"])-\w"
)
"""A compiler with its options: what was tried, not why it failed."""
_NAMES_A_CAUSE = re.compile(
    r"\bfatal\b|\berror\b(?! generated)|Error\b|not found|No such|not defined|undefined"
    r"|Segmentation fault|Killed|core dumped|[Nn]o space left|out of memory"
    r"|[Ff]ailed to|[Cc]annot\b|Unsupported|not supported"
)
_SAYS_NOTHING = re.compile(r"FAILED\b|ninja: |\[\d+/\d+\]|std(?:out|err):|During |[\s^~|]*$|\d+ errors? generated")
_ADVICE_FOLLOWS = "Possible solutions:"

# What cannot be a further line of an exception's message, though it has no prefix.
_NO_MESSAGE = (
    *('  File "', TRACEBACK, "Fatal Python error: ", "terminate called", "Killed", "usage: "),
    *("Segmentation fault", "Aborted", "Bus error", "Exception in thread", "Process SpawnProcess"),
)

_LAUNCHING = frozenset(
    {
        *("run_server", "launch_server", "_launch_subprocesses", "launch_subprocesses", "_wait_for_scheduler_ready"),
        *("_launch_scheduler_processes", "launch_engine", "serve"),
    }
)
"""Functions of the launcher that run once the arguments are known."""

_CAMEL = re.compile(r"[A-Z][a-z0-9]+[A-Z]\w*$")  # somebody's own exception without a telling end
_EXCEPTION_NAME = re.compile(
    r"(?:Error|Exception|Exit|Interrupt|Failed|Failure|Warning|Timeout|Errors|Unsupported|NotFound|OOM|Group"
    r"|TimedOut|Abort\w*|OutOfResources|Unavailable|EnginesDead|Died|Invalid\w*|StopIteration|Empty|Full)$"
)


@dataclass(slots=True)
class Frame:
    """One frame. ``own`` is the path below the ``sglang`` package, or "" for foreign code."""

    path: str
    line: int
    function: str

    @property
    def own(self) -> str:
        _, found, rest = self.path.rpartition("/sglang/")
        if not found:
            return self.path.removeprefix("sglang/") if self.path.startswith("sglang/") else ""
        foreign = re.search(r"(?:site|dist)-packages/|/lib/python3", "/" + rest)
        return "" if foreign or not rest.endswith(".py") or rest.startswith("sgl_kernel/") else rest


@dataclass(slots=True)
class Exc:
    """One exception of a chain; ``line`` is where its type and message stand.

    ``source`` holds the indented lines before it as they came; they are read when somebody asks.
    """

    type: str
    message: list[str]
    line: int
    text: str
    source: list[str]
    direct: bool = False
    """Raised ``from`` the one before it in the chain."""
    numbers: list[int] = field(default_factory=list)
    """Where the further lines of ``message`` stand in the log."""

    @property
    def names_no_cause(self) -> bool:
        """Its first line only introduces ("... raised:"), or is the command line of a compiler."""
        return self.text.rstrip().endswith(":") or _COMMAND.search(self.text) is not None

    @property
    def telling(self) -> tuple[int, str]:
        """(line, text) of the line that names the cause: its own, or a further one where that names none."""
        own = (self.line, self.text)
        if not self.names_no_cause:
            return own
        further = list(zip(self.numbers, self.message[1:], strict=True))
        told = [text for _, text in further]
        if _ADVICE_FOLLOWS in told:
            del further[told.index(_ADVICE_FOLLOWS) :]
        lines = [
            (number, text)
            for number, text in further
            if not _SAYS_NOTHING.match(text.strip()) and not _COMMAND.search(text)
        ]
        return next((line for line in lines if _NAMES_A_CAUSE.search(line[1])), lines[0] if lines else own)

    @property
    def full_message(self) -> str:
        return "\n".join(self.message)

    @property
    def frames(self) -> list[Frame]:
        """Outermost first."""
        found = (FRAME.match(text) for text in self.source)
        return [Frame(match["path"], int(match["line"]), match["function"] or "") for match in found if match]

    @property
    def innermost_own(self) -> Frame | None:
        return next((frame for frame in reversed(self.frames) if frame.own), None)

    @property
    def drafty(self) -> bool:
        """A frame or a source line speaks of the draft worker."""
        return any(_DRAFT_WORKER.search(text) for text in self.source)


class Mode(Enum):
    FRAMES = 1
    MESSAGE = 2
    GAP = 3
    """A blank line after the message: the chain may go on."""
    CLOSED = 4


@dataclass(slots=True)
class Block:
    """One traceback (with its chain) of one rank.

    ``who`` is the process that announced it ("Scheduler"), "" for one that Python printed on its own.
    ``handled``: somebody logged it and went on.
    """

    who: str
    rank: str
    line: int
    time: str
    handled: bool = False
    mode: Mode = Mode.FRAMES
    chain: list[Exc] = field(default_factory=list)
    source: list[str] = field(default_factory=list)
    announced: str = ""
    _direct: bool = False

    def wants(self, text: str) -> bool:
        """Whether an unprefixed line can belong here."""
        if self.mode is Mode.CLOSED:
            return False
        if self.mode is Mode.MESSAGE:
            return not text.startswith(_NO_MESSAGE) or self.chain[-1].message[-1] == '"""'
        if self.mode is Mode.GAP:
            return not text or CHAIN.match(text) is not None
        return text == "" or text[0] in " \t" or text.startswith(TRACEBACK) or is_exception(text) or text[0] in "[|+"

    def take(self, line: int, text: str) -> None:
        """Add a line that ``wants`` accepted."""
        if self.mode is Mode.FRAMES:
            self._in_frames(line, text)
        elif self.mode is Mode.MESSAGE:
            self._in_message(line, text)
        elif text:
            self._link(text)

    def _link(self, text: str) -> None:
        self._direct = text.startswith("The above")
        self.mode = Mode.FRAMES

    def take_indented(self, text: str) -> None:
        """Add a frame or a source line; ``mode`` must be ``FRAMES``."""
        self.source.append(text)
        if len(self.source) > SOURCE_LIMIT:
            del self.source[SOURCE_LIMIT // 2]

    def _in_frames(self, line: int, text: str) -> None:
        if text[:1] in " \t":
            self.take_indented(text)
        elif is_exception(text):
            found = EXCEPTION.match(text)
            assert found is not None
            self.chain.append(Exc(found["type"], [found["message"] or ""], line, text, self.source, self._direct))
            self.source = []
            self.mode = Mode.MESSAGE

    def _in_message(self, line: int, text: str) -> None:
        if not text.strip():
            self.mode = Mode.GAP
        elif CHAIN.match(text):
            self._link(text)
        elif len(self.chain[-1].message) < MESSAGE_LIMIT:
            self.chain[-1].message.append(text)
            self.chain[-1].numbers.append(line)

    @property
    def drafty(self) -> bool:
        return any(link.drafty for link in self.chain)

    @property
    def fails_before_launch(self) -> bool:
        """Whether a new process failed while importing SGLang or reading its arguments."""
        if self.who or not self.chain:
            return False
        functions = {frame.function for frame in self.chain[0].frames}
        fresh = "_run_module_as_main" in functions or "prepare_server_args" in functions
        return fresh and not functions & _LAUNCHING

    @property
    def complete(self) -> bool:
        return bool(self.chain) and self.mode in (Mode.GAP, Mode.CLOSED)


def is_exception(text: str) -> bool:
    """Whether ``text`` is the last line of a traceback: ``package.TypeError: message`` or a bare type."""
    found = EXCEPTION.match(text)
    if found is None:
        return False
    name = found["type"]
    if _EXCEPTION_NAME.search(name) is not None or "." in name:
        return True
    return found["message"] is not None and _CAMEL.match(name) is not None
