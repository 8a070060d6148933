"""Text in as it arrives, events out, a verdict at any moment."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from patchbisect.model import Signals, Stage, Verdict
from patchbisect.startup import vocabulary
from patchbisect.startup.blocks import Mode
from patchbisect.startup.causes import Grade
from patchbisect.startup.decide import LineOwner, Question, decide, nobody
from patchbisect.startup.events import Event, What
from patchbisect.startup.hang import Budgets
from patchbisect.startup.life import Life, has_words
from patchbisect.startup.shapes import RANK, SHAPE_LIMIT, Prefix, shape_of
from patchbisect.startup.text import Splitter, peel, strip_colours, unwrap_json
from patchbisect.startup.vocabulary import HEAD_LENGTH, HEADS, NOISE_HEADS, NOISE_LENGTH, Kind

BRACKET = re.compile(rf"\[(\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?)(?: ({RANK}(?: {RANK})*))?\] ?")
LED = re.compile(rf"{RANK}(?: {RANK})* ?[-:|\]] ")  # "TP0 - ", left of a custom format once a wrapper's part is peeled
RANKED = re.compile(rf"(?<![\w-]){RANK}(?![\w.])")
_CUT_BRACKET = re.compile(r"\[[\d :.,A-Z_-]*")
TORCH = re.compile(r"\[rank(\d+)\]:(?:\[[EWIF](\d+) (\d\d:\d\d:\d\d)[.\d]*[^\]]*\])? ?")

EARLIER_LIVES_LIMIT = 50
PREFIX_LIMIT = 2000
"""Bracketed prefixes remembered: ranks times the seconds that are still being logged."""
HEAD_LIMIT = 500
DULL_LIMIT, DULL_LENGTH = 2000, 500
"""Messages remembered as saying nothing: every rank prints them, and each takes a look for many words."""
LEARN_AFTER = 3
"""A prefix of no known form is taken for one when it has stood before this many bracketed lines."""


class Classifier:
    """Reads one log.

    ``until`` is the stage that the caller wants to see: ``Stage.SERVING``, or ``Stage.KV_ALLOC`` to stop as soon
    as every rank of the target has its pools. ``patched_files`` maps a path below ``python/``
    (``"sglang/srt/x.py"``) to the patch that touches it (``"0007-slug"``), ``line_owner`` says which patch wrote a
    line of it; ``promised_probes`` maps the name of a
    probe to (patch, the stage by whose end it must have fired).
    """

    def __init__(
        self,
        until: Stage = Stage.SERVING,
        patched_files: Mapping[str, str] | None = None,
        *,
        line_owner: LineOwner = nobody,
        promised_probes: Mapping[str, tuple[str, Stage]] | None = None,
        budgets: Budgets | None = None,
    ) -> None:
        self._question = Question(
            until=until,
            patched_files=dict(patched_files or {}),
            line_owner=line_owner,
            promised_probes=dict(promised_probes or {}),
            budgets=budgets or Budgets(),
        )
        self._splitter = Splitter()
        self._life = Life(1)
        self._earlier: list[str] = []
        self._lives = 1
        self._prefixes: dict[str, tuple[str, str, int]] = {}
        self._cut: list[tuple[int, str]] = []
        self._coloured = False
        self._dull: set[str] = set()
        self._heads: set[str] = set()
        self._outers: list[str] = []
        self._shapes: list[re.Pattern[str]] = []
        self._unknown_outer: dict[str, int] = {}
        self._closed = False

    # --- in ---------------------------------------------------------------------------------------

    def feed(self, chunk: str | bytes) -> list[Event]:
        """Read some more text; what the finished lines of it said. Never raises for what is in the text."""
        events: list[Event] = []
        if not self._coloured:
            self._coloured = (b"\x1b" in chunk) if isinstance(chunk, bytes) else ("\x1b" in chunk)
        self._read(self._splitter.feed(chunk), events)
        return events

    def close(self) -> list[Event]:
        """Say that no more text will come: an unfinished last line counts."""
        events: list[Event] = []
        self._read(self._splitter.close(), events)
        if self._cut:
            self._mended(self._life.last_line, "", events)
        self._closed = True
        return events

    # --- out --------------------------------------------------------------------------------------

    def verdict(self, signals: Signals | None = None) -> Verdict:
        """What the log says so far, together with what else is known of the server.

        ``Verdict.final`` is True as soon as nothing that may follow can change it. ``ready`` is never final while
        the server lives, for it may die while serving; a caller that waits for ``ready`` stops when it sees it.
        """
        return decide(
            self._life,
            self._question,
            signals or Signals(),
            closed=self._closed,
            earlier=tuple(self._earlier),
        )

    @property
    def life(self) -> Life:
        """The newest life of the server in this log: what the ledger and the renderers read."""
        return self._life

    # --- lines ------------------------------------------------------------------------------------

    def _read(self, segments: Iterable[tuple[int, str]], events: list[Event]) -> None:
        prefixes, coloured = self._prefixes, self._coloured
        line = 0
        for line, text in segments:
            if self._cut and self._mended(line, text, events):
                continue
            if not text:
                self._life.blank(line)
                continue
            if coloured and "\x1b" in text:
                text = strip_colours(text)
                if not text:
                    continue
            if text[0] == " " and "[20" not in text:
                self._life.indented(line, text)
                continue
            known = prefixes.get(text[: text.find("]") + 2])
            if known is not None and text.find("[20", known[2]) < 0:
                time, rank, start = known
                self._record(line, text[start:], time, rank, events)
            else:
                self._unusual(line, text, events)
        if line:
            self._life.last_line = line

    def _unusual(self, line: int, text: str, events: list[Event]) -> None:
        """A line that does not begin with a bracket seen before: learn it, or take it apart."""
        if text[0] == "{":
            record = unwrap_json(text)
            if record is not None:
                self._json(line, *record, events)
                return
        at = text.find("[20")
        found = BRACKET.search(text, at) if at >= 0 else None
        if found is None:
            self._loose(line, text, events)
            return
        if found.start() == 0 or self._is_prefix(line, text[: found.start()], events):
            if len(self._prefixes) > PREFIX_LIMIT:
                self._prefixes.clear()
            self._prefixes[text[: found.end()]] = (found[1], found[2] or "", found.end())
        self._bracketed(line, text, found, events)

    def _json(self, line: int, message: str, rest: str, events: list[Event]) -> None:
        """A record of a collector, or of a logger that writes JSON and keeps ranks in a field of their own."""
        self._coloured = True
        first, *more = message.splitlines() or [""]
        if first and BRACKET.search(first) is None and RANKED.search(rest):
            self._shaped(line, rest, first, events)
        else:
            self._read([(line, first)], events)
        self._read([(line, piece) for piece in more], events)

    def _is_prefix(self, line: int, head: str, events: list[Event]) -> bool:
        """Whether a wrapper wrote what stands before the first bracket; else it is a bar without its newline."""
        if head in self._heads or head in self._outers:
            return True
        if not peel(head).strip():
            if len(self._heads) > HEAD_LIMIT:
                self._heads.clear()
            self._heads.add(head)
            return True
        if _CUT_BRACKET.fullmatch(head):
            self._cut.append((line, head))
            return False
        if len(head) < 120 and "%|" not in head and len(self._unknown_outer) < 64:
            count = self._unknown_outer[head] = self._unknown_outer.get(head, 0) + 1
            if count >= LEARN_AFTER:
                self._outers.append(head)
        self._loose(line, head, events)
        return False

    def _bracketed(self, line: int, text: str, found: re.Match[str], events: list[Event]) -> None:
        """One or more messages of SGLang in one line."""
        while True:
            glued = text.find("[20", found.end())
            following = BRACKET.search(text, glued) if glued > 0 else None
            if following is None:
                self._record(line, text[found.end() :], found[1], found[2] or "", events)
                return
            self._cut.append((line, text[found.start() : following.start()]))
            found = following

    def _mended(self, line: int, text: str, events: list[Event]) -> bool:
        """Two ranks wrote into each other: whether ``text`` is the rest of a message that the other one cut.

        What was cut but has no rest lacked only its newline, and is read now.
        """
        cut, self._cut = self._cut, []
        rest = text if text and BRACKET.match(text) is None else ""
        mended = False
        for at, piece in reversed(cut):
            whole = BRACKET.match(piece + rest)
            if rest and not mended and whole is not None and _completes(piece, rest, whole):
                self._record(line, (piece + rest)[whole.end() :], whole[1], whole[2] or "", events)
                mended = True
                continue
            alone = BRACKET.match(piece)
            if alone is not None:
                self._record(at, piece[alone.end() :], alone[1], alone[2] or "", events)
            else:
                self._loose(at, piece, events)
        return mended

    def _record(self, line: int, message: str, time: str, rank: str, events: list[Event]) -> None:
        life = self._life
        if life.blocks:
            life.close_messages()
        life.last_time = time
        head = message[:HEAD_LENGTH]
        if not life.first_time and head != "server_a":
            life.first_time = time
        rows = HEADS.get(head)
        if rows is not None:
            for row in rows:
                if row.gate.match(message) is not None:
                    if row.kind is Kind.DIST_BEGIN and self._starts_anew(rank):
                        self._begin_life(line, events)
                        life = self._life
                    events.append((life.tracks.get(rank) or life.track(rank)).tell(row, line, time, message))
                    return
        if message[:NOISE_LENGTH] in NOISE_HEADS:
            return
        if head == "INFO:   " and "Uvicorn" not in message and "hutdown" not in message:
            return
        if head == "server_a" and message.startswith("server_args="):
            self._server_args(line, message, time, events)
        elif message not in self._dull:
            if has_words(message):
                event = life.message(line=line, text=message, time=time, rank=rank)
                if event is not None:
                    events.append(event)
            elif len(message) < DULL_LENGTH:
                if len(self._dull) > DULL_LIMIT:
                    self._dull.clear()
                self._dull.add(message)

    def _loose(self, line: int, text: str, events: list[Event]) -> None:
        """A line without SGLang's bracket: part of a traceback, a bar, another logger, or a custom format."""
        rank = time = ""
        for prefix in self._outers:
            if text.startswith(prefix):
                text = text[len(prefix) :]
                break
        else:
            if text[0] not in " \t":
                text = peel(text)
        if text.startswith("[rank"):
            torch = TORCH.match(text)
            if torch is not None:
                if torch[2]:
                    self._life.close_messages()
                rank, time = self._rank_of(int(torch[1])), self._torch_time(torch)
                text = text[torch.end() :]
        if not text:
            self._life.blank(line)
            return
        if text[0] == " ":
            self._life.indented(line, text)
            return
        led = LED.match(text) if text[1:2].isupper() else None
        if led is not None:
            self._shaped(line, led[0], text[led.end() :], events)
            return
        if "%|" in text or "it/s]" in text:
            self._life.bar(line, text)
            return
        if text[0] == "/" and "Warning: " in text:
            return
        if self._custom_format(line, text, events):
            return
        event = self._life.loose(line=line, text=text, time=time, rank=rank)
        if event is not None:
            events.append(event)
        reborn = self._life.reborn
        if reborn is not None:
            self._begin_life(reborn.line, events)
            self._life.adopt(reborn)

    def _torch_time(self, found: re.Match[str]) -> str:
        """The time of ``[E425 04:12:43.118]`` as SGLang would write it, with the year of the line before."""
        if not found[2]:
            return ""
        date = found[2].zfill(4)
        return f"{self._life.last_time[:4] or '2000'}-{date[:2]}-{date[2:]} {found[3]}"

    def _custom_format(self, line: int, text: str, events: list[Event]) -> bool:
        """A message behind a prefix that ``SGLANG_LOGGING_CONFIG_PATH`` made, or a milestone without any."""
        for shape in self._shapes:
            found = shape.match(text)
            if found is not None:
                self._shaped(line, found[0], text[found.end() :], events)
                return True
        if self._wanted_by_a_traceback(text):
            return False
        at = vocabulary.embedded(text)
        if at is None:
            return False
        shape_found = shape_of(text[:at])
        if shape_found is not None and len(self._shapes) < SHAPE_LIMIT:
            self._shapes.append(shape_found)
        self._shaped(line, text[:at], text[at:], events)
        return True

    def _shaped(self, line: int, head: str, message: str, events: list[Event]) -> None:
        prefix = Prefix.read(head)
        time = prefix.time or self._life.last_time
        if message[:1] in " \t" and message:
            self._life.indented(line, message)
        elif self._wanted_by_a_traceback(message):
            self._life.loose(line=line, text=message, time=time, rank=prefix.rank)
        else:
            self._record(line, message, time, prefix.rank, events)

    def _wanted_by_a_traceback(self, text: str) -> bool:
        """Whether an open traceback waits for a line like ``text``: it may quote a milestone's words."""
        return bool(text) and any(b.mode is Mode.FRAMES and b.wants(text) for b in self._life.blocks)

    def _rank_of(self, number: int) -> str:
        """The label of torch's global rank ``number``, where the labels seen so far make it plain."""
        wanted = f"TP{number}"
        return next((label for label in self._life.tracks if wanted in label.split()), wanted)

    # --- lives ------------------------------------------------------------------------------------

    def _server_args(self, line: int, text: str, time: str, events: list[Event]) -> None:
        life = self._life
        if life.args_line and self._is_other_node(text):
            life.nodes += 1
            return
        late = bool(life.first_time) and time <= life.first_time  # its ranks' lines overtook it
        if life.args_line or ((life.has_fatal or life.signs[Grade.CLUE]) and not late):
            self._begin_life(line, events)
        self._life.begins_with(text)
        if not events or events[-1].what is not What.LIFE:
            events.append(Event(What.LIFE, line, self._life.last_time, "", None, None, ""))

    def _is_other_node(self, text: str) -> bool:
        mine = re.search(r"node_rank'?[=:] ?(\d+)", self._life.args_line)
        other = re.search(r"node_rank'?[=:] ?(\d+)", text)
        return bool(mine and other and mine[1] != other[1]) and not self._life.has_fatal

    def _starts_anew(self, rank: str) -> bool:
        """A rank that failed, or whose launcher gave up, and now begins again."""
        life = self._life
        track = life.tracks.get(rank)
        if track is None or not track.met:
            return False
        return any(sign.rank == rank for sign in life.signs[Grade.FATAL]) or bool(
            life.told_line and life.has_fatal and track.told[-1].line < life.told_line
        )

    def _begin_life(self, line: int, events: list[Event]) -> None:
        if len(self._earlier) < EARLIER_LIVES_LIMIT:
            verdict = decide(self._life, self._question, Signals(alive=False), closed=True, earlier=())
            self._earlier.append(f"life {self._lives} (line {self._life.first_line}): {verdict.why}")
        before = self._life
        time = before.last_time
        self._lives += 1
        self._life = Life(line)
        self._life.last_time = time
        if before.told_line and before.fraction_line > before.told_line:
            self._life.fraction = before.fraction  # said before the first line that tells a new life
        events.append(Event(What.LIFE, line, time, "", None, None, "", more={"number": str(self._lives)}))


def _completes(piece: str, rest: str, whole: re.Match[str]) -> bool:
    """Whether ``piece`` and ``rest`` say more together than ``piece`` alone."""
    together = (piece + rest)[whole.end() :]
    row = vocabulary.milestone(together)
    if row is None:
        return together.startswith("Scheduler hit an exception: Traceback")
    alone = piece[whole.end() :]
    return len(row.read(together)) > len(row.read(alone)) or row.gate.match(alone) is None


def classify(
    text: str | bytes | Iterable[str | bytes],
    signals: Signals | None = None,
    *,
    until: Stage = Stage.SERVING,
    patched_files: Mapping[str, str] | None = None,
    promised_probes: Mapping[str, tuple[str, Stage]] | None = None,
    budgets: Budgets | None = None,
) -> Verdict:
    """The verdict on a whole log: a text, bytes, or an iterable of either."""
    reader = Classifier(until, patched_files, promised_probes=promised_probes, budgets=budgets)
    for chunk in (text,) if isinstance(text, (str, bytes)) else text:
        reader.feed(chunk)
    reader.close()
    return reader.verdict(signals)


__all__ = ["Classifier", "classify"]
