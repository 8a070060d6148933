"""One life of a server: everything that a verdict rests on, gathered line by line."""

from __future__ import annotations

import re
from dataclasses import dataclass

from patchbisect.model import Stage
from patchbisect.startup import causes
from patchbisect.startup.blocks import HOLDER, TRACEBACK, Block, Mode
from patchbisect.startup.causes import Cause, Grade
from patchbisect.startup.events import Event, What
from patchbisect.startup.ranks import RankTrack
from patchbisect.startup.server_args import ServerArgs
from patchbisect.startup.vocabulary import FIRED_UP, HTTP_UP

SIGN_LIMIT = 200
"""Signs kept per grade in one life: eight ranks that all fail make about two dozen."""
BLOCK_LIMIT = 64
PROBE_LIMIT = 500


@dataclass(slots=True)
class Sign:
    """A line, or a traceback, that may say why a server ended."""

    cause: Cause
    line: int
    text: str
    rank: str
    time: str
    block: Block | None = None

    @property
    def grade(self) -> Grade:
        return self.cause.grade


@dataclass(slots=True)
class Probe:
    """The last values of one probe on one rank, and how often it fired."""

    values: dict[str, str]
    count: int = 1


@dataclass(slots=True)
class Activity:
    """Work that makes silence look like a hang, or explains one."""

    deepgemm_line: int = 0
    download_line: int = 0
    retry_line: int = 0
    rendezvous_line: int = 0
    compile_line: int = 0
    compiler_said: tuple[int, str] | None = None
    """(line, text) of the last fatal error of a compiler outside of tracebacks."""
    bar: str = ""
    bar_line: int = 0


_PROBE = re.compile(r"\bPROBE (?P<name>[\w.\-]+)(?P<rest>(?: [\w.\-]+=.*)?)$")
_PAIR = re.compile(r"([\w.\-]+)=(\"[^\"]*\"|'[^']*'|\S+)")
_EXIT_CODE = re.compile(
    r"[Ee]xit(?:ed with|ed prematurely with)? ?code[:= ]*(?:an exit code )?(-?\d+)"
    r"|exitcode=(-?\d+)|an exit code (\d+)"
)
_REDUCED = re.compile(
    r"Automatically (?:reduce|adjust|set) --?mem-fraction-static to (\d\.\d+)|mem_fraction_static is set to (\d\.\d+)"
)
_CURRENT_VALUE = re.compile(r"Current value: (?:self\.server_args\.)?mem_fraction_static=(\d*\.?\d+)")
_WAITING_FOR = re.compile(r"timed out waiting for ranks: ([\d, ]+)")
_TIMING = re.compile(r"(\w+)=(\d+(?:\.\d+)?)")
_BOUND = re.compile(r"bind on address \('[^']*', (\d+)")
_SHUTDOWN = re.compile(
    r"SIGTERM received|Gracefully exiting|Shutting down|Received SIGINT|Application shutdown complete"
)
_QUIET_LEVEL = re.compile(r"(?:^|\W)(?:WARNING|WARN|INFO|DEBUG)(?:\W|$)|\w*Warning: ")
_HANDLED = re.compile(
    r"--- Logging error ---|Exception ignored in|Exception in ASGI application"
    r"|exception was never retrieved|exception calling callback"
)

# A line that has none of these words is skipped unread; only milestones tell without them.
WORDS: tuple[str, ...] = (
    *("Uvicorn running", FIRED_UP[:20], "igquit", "hit an exception"),
    *causes.LINE_WORDS,
    *("Traceback", "PROBE ", "Granian", "SIGTERM", "raceful", "hutting down", "shutdown complete", "SIGINT"),
    *(
        "DeepGEMM",
        "ompil",
        "JIT ",
        "SymmDeviceMemory",
        "rendezvous",
        "Retrying in",
        "mem-fraction-static",
        "mem_fraction_static",
    ),
    *(
        "Engine startup timings",
        "xit code",
        "exitcode",
        "exited with code",
        "Logging error",
        "Exception ignored",
        "in ASGI",
        "never retrieved",
        "fatal error: ",
    ),
)


def _exit_code(text: str, code: int) -> int:
    """As subprocess counts. The SIGCHLD line of 0.4.4-0.4.9 shows the raw wait status: 9 is SIGKILL, 256 exit 1."""
    if "hild process unexpectedly" in text:
        return -(code & 0x7F) if code & 0x7F else code >> 8
    return code


def has_words(text: str) -> bool:
    """Whether ``text`` is worth reading. A plain loop: it runs for every unknown line."""
    for word in WORDS:  # noqa: SIM110
        if word in text:
            return True
    return False


class Life:
    """Collects from records (prefix known) and loose lines (no prefix). Bounded in memory."""

    def __init__(self, line: int) -> None:
        self.first_line = line
        self.args_line = ""
        self.nodes = 1
        """How many nodes' arguments are in this log."""
        self.tracks: dict[str, RankTrack] = {}
        self.signs: dict[Grade, list[Sign]] = {grade: [] for grade in Grade}
        self.blocks: list[Block] = []
        self.http_line = 0
        self.fired_line = 0
        self.fired_text = ""
        self.fired_time = ""
        self.ready_line = 0
        self.shutdown_line = 0
        self.exit_code: int | None = None
        self.port: int | None = None
        self.fraction: str = ""
        self.fraction_line = 0
        self.waited_for: tuple[int, ...] = ()
        self.timings: dict[str, float] = {}
        self.probes: dict[tuple[str, str], Probe] = {}
        self.activity = Activity()
        self.last_line = line
        self.first_time = ""
        self.last_time = ""
        self.told_line = 0
        self.reborn: Sign | None = None
        """A sign that belongs to the next life: this one was over, and a new process failed before its arguments."""
        self._args: ServerArgs | None = None
        self._said: set[str] = set()
        """Lines that made a sign: every rank may say the same. Of a note it matters which ranks said it."""
        self._handled_line = -10

    # --- milestones -------------------------------------------------------------------------------

    def track(self, rank: str) -> RankTrack:
        """What the rank of that label has told, for more to be added."""
        track = self.tracks.get(rank)
        if track is None:
            track = self.tracks[rank] = RankTrack(rank)
        return track

    def was_ready(self, *, line: int, time: str) -> bool:
        """Whether the server had said that it is ready; within one second it had, for a dead one cannot say it."""
        if not self.ready_line:
            return False
        return time >= self.fired_time if time and self.fired_time else line > self.ready_line

    @property
    def args(self) -> ServerArgs:
        """The server's arguments, as far as its log shows them."""
        if self._args is None:
            self._args = ServerArgs.parse(self.args_line)
        return self._args

    def begins_with(self, args_line: str) -> None:
        self.args_line, self._args = args_line, None

    @property
    def over(self) -> bool:
        """Whether nothing but last words can follow."""
        return bool(self.told_line or self.shutdown_line)

    @property
    def has_fatal(self) -> bool:
        return bool(self.signs[Grade.FATAL])

    # --- messages with words of their own ----------------------------------------------------------

    def http(self, line: int) -> Event | None:
        if self.http_line:
            return None
        self.http_line = line
        self._note_ready(line)
        return Event(What.HTTP, line, self.last_time, "", None, Stage.WARMUP, "")

    def fired_up(self, line: int, text: str) -> Event | None:
        if self.fired_line:
            return None
        self.fired_line, self.fired_text, self.fired_time = line, text, self.last_time
        self._note_ready(line)
        return Event(What.READY, line, self.last_time, "", None, Stage.SERVING, text)

    def _note_ready(self, line: int) -> None:
        if self.http_line and self.fired_line and not self.ready_line:
            self.ready_line = line

    def probe(self, found: re.Match[str], *, line: int, time: str, rank: str) -> Event:
        values = {name: value.strip("\"'") for name, value in _PAIR.findall(found["rest"])}
        key = (found["name"], rank)
        known = self.probes.get(key)
        if known is not None:
            known.values, known.count = values, known.count + 1
        elif len(self.probes) < PROBE_LIMIT:
            self.probes[key] = Probe(values)
        return Event(What.PROBE, line, time, rank, None, None, found["name"], more=values)

    def hit_an_exception(self, found: re.Match[str], *, line: int, text: str, time: str, rank: str) -> None:
        block = Block(who=found["who"], rank=rank, line=line, time=time, announced=text)
        self._open(block)
        rest = found["rest"]
        if rest and not rest.startswith("Traceback"):
            block.take(line, rest)

    def message(self, *, line: int, text: str, time: str, rank: str) -> Event | None:
        """A prefixed line that is no milestone."""
        probe = _PROBE.search(text) if "PROBE " in text else None
        if probe is not None:
            return self.probe(probe, line=line, time=time, rank=rank)
        found = HOLDER.match(text) if "hit an exc" in text else None
        if found is not None:
            self.hit_an_exception(found, line=line, text=text, time=time, rank=rank)
            return Event(What.ERROR, line, time, rank, None, None, text)
        if text.endswith(TRACEBACK):
            self._traceback_in_message(line=line, text=text, time=time, rank=rank)
            return None
        return self._words(line=line, text=text, time=time, rank=rank)

    def _traceback_in_message(self, *, line: int, text: str, time: str, rank: str) -> None:
        """A logger printed a traceback: fatal where the words say that the server goes down."""
        fatal = text.startswith(("Initialization failed", "Traceback", "ERROR:    Traceback"))
        who = "warmup" if "warmup error" in text else "logger"
        self._open(Block(who=who, rank=rank, line=line, time=time, handled=not fatal, announced=text))

    def _words(self, *, line: int, text: str, time: str, rank: str) -> Event | None:
        if text in self._said:
            return None
        if FIRED_UP in text:
            return self.fired_up(line, text)
        if ("Uvicorn" in text or "Granian" in text) and HTTP_UP.search(text):
            return self.http(line)
        if ("xception" in text or "ogging error" in text) and _HANDLED.search(text):
            self._handled_line = line
            return None
        if not self.shutdown_line and not self.has_fatal and _SHUTDOWN.search(text):
            self.shutdown_line = line
        self._notice(line=line, text=text)
        row = causes.of_line(text)
        if row is None:
            return None
        if row.name == "bad-flag" and self.over:
            self.reborn = Sign(row, line, text, rank, time)
            return None
        if row.grade in (Grade.FATAL, Grade.CLUE) and _QUIET_LEVEL.search(text) and "[Errno" not in text:
            return None
        self.sign(Sign(row, line, text, rank, time))
        if row.grade is not Grade.NOTE and len(self._said) < SIGN_LIMIT:
            self._said.add(text)
        return Event(What.ERROR, line, time, rank, None, row.stage, text) if row.grade <= Grade.CLUE else None

    def _notice(self, *, line: int, text: str) -> None:
        """Facts that other lines than milestones tell."""
        if "DeepGEMM" in text and ("Entering" in text or "warmup" in text or "Compiling" in text):
            self.activity.deepgemm_line = line
        if "ompil" in text or "JIT " in text:
            self.activity.compile_line = line
        if "fatal error: " in text:
            self.activity.compiler_said = (line, text)
        if "SymmDeviceMemory" in text or "rendezvous" in text:
            self.activity.rendezvous_line = line
        if "Retrying in" in text or "Read timed out" in text:
            self.activity.retry_line = line
        if "mem-fraction-static" in text or "mem_fraction_static" in text:
            found = _REDUCED.search(text) or _CURRENT_VALUE.search(text)
            if found is not None:
                self.fraction = next(group for group in found.groups() if group)
                self.fraction_line = line
        found = _WAITING_FOR.search(text) if "imed out" in text and not self.waited_for else None
        if found is not None:
            self.waited_for = tuple(int(part) for part in re.findall(r"\d+", found[1]))
        if "xit" in text:
            found = _EXIT_CODE.search(text)
            if found is not None:
                self.exit_code = _exit_code(text, int(next(group for group in found.groups() if group)))
        if "Engine startup timings" in text:
            self.timings = {name: float(value) for name, value in _TIMING.findall(text)}
        found = _BOUND.search(text) if "bind on address" in text else None
        if found is not None:
            self.port = int(found[1])

    def sign(self, sign: Sign) -> None:
        kept = self.signs[sign.grade]
        if len(kept) < SIGN_LIMIT:
            kept.append(sign)
        if sign.grade is Grade.CONSEQUENCE and not self.told_line:
            self.told_line = sign.line

    def adopt(self, sign: Sign) -> None:
        """Begin with a sign that the life before could not own."""
        self.sign(sign)
        if sign.block is not None:
            self.blocks.append(sign.block)

    def indented(self, line: int, text: str) -> None:
        """A line that begins with a space: of a traceback, or nothing."""
        if not self.blocks:
            if text.startswith("  what():"):
                self._words(line=line, text=text.strip(), time=self.last_time, rank="")
            return
        newest = self.blocks[-1]
        if newest.mode is Mode.FRAMES:
            newest.take_indented(text)
        else:
            self._into_block(line, text)

    # --- lines without a prefix --------------------------------------------------------------------

    def loose(self, *, line: int, text: str, time: str, rank: str) -> Event | None:
        if self._into_block(line, text):
            return None
        if text.startswith(TRACEBACK):
            handled = 0 < line - self._handled_line <= 2
            self._open(Block(who="", rank=rank, line=line, time=time or self.last_time, handled=handled))
            return None
        if text[0] in " \t":
            return None
        if not has_words(text):
            return None
        return self.message(line=line, text=text, time=time or self.last_time, rank=rank)

    def bar(self, line: int, text: str) -> None:
        self.activity.bar, self.activity.bar_line = text, line
        if "DeepGEMM" in text:
            self.activity.deepgemm_line = line
        if "B/s" in text or text.startswith(("Fetching", "Downloading")):
            self.activity.download_line = line

    # --- tracebacks --------------------------------------------------------------------------------

    def _open(self, block: Block) -> None:
        self.close_messages()
        self.blocks.append(block)
        if len(self.blocks) > BLOCK_LIMIT:
            self.blocks.pop(0).mode = Mode.CLOSED

    def _into_block(self, line: int, text: str) -> bool:
        for block in reversed(self.blocks):
            if block.wants(text):
                before = len(block.chain)
                block.take(line, text)
                if len(block.chain) > before:
                    self._signs_of(block)
                if block.chain and block.mode is Mode.MESSAGE:
                    self._notice(line=line, text=text)
                return True
            if block.mode in (Mode.GAP, Mode.MESSAGE):
                block.mode = Mode.CLOSED
        self.blocks = [block for block in self.blocks if block.mode is not Mode.CLOSED]
        return False

    def _signs_of(self, block: Block) -> None:
        """Register a block once; its cause is read when a verdict is made, for it may still grow."""
        if len(block.chain) > 1:
            return
        sign = Sign(causes.ANY_EXCEPTION, block.line, block.announced, block.rank, block.time, block)
        if self.over and block.fails_before_launch:
            self.blocks.remove(block)
            self.reborn = sign
        else:
            self.sign(sign)

    def blank(self, line: int) -> None:
        for block in reversed(self.blocks):
            if block.mode in (Mode.MESSAGE, Mode.GAP, Mode.FRAMES):
                block.take(line, "")
                return

    def close_messages(self) -> None:
        """A prefixed line ends every message that was still being read."""
        if self.blocks:
            for block in self.blocks:
                if block.mode in (Mode.MESSAGE, Mode.GAP):
                    block.mode = Mode.CLOSED
            self.blocks = [block for block in self.blocks if block.mode is not Mode.CLOSED]
