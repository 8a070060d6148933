"""One patch file in ``git format-patch`` form: bytes → Patch → the same bytes.

``Patch.text`` is the truth and the other fields are views of it, so writing what was read changes no byte.
A byte that is not UTF-8 is kept as a surrogate escape (PEP 383) in ``text`` and ``diff``; the fields that
are shown read such bytes as latin-1.
"""

from __future__ import annotations

import difflib
import email.header
import email.utils
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath

from patchbisect.model import Patch, Stage
from patchbisect.patchqueue.diff import Diff, parse_diff, split_lines, starts_file
from patchbisect.patchqueue.faults import Fault, PatchFault, did_you_mean

KINDS = ("instrumentation", "fix", "experiment", "backport")

_FILENAME = re.compile(r"(\d{4})-([A-Za-z0-9][A-Za-z0-9._-]*)\.patch$")
_TRAILER = re.compile(r"([A-Za-z][A-Za-z0-9-]*):[ \t]+(\S.*)$")
_SUBJECT_TAG = re.compile(r"^(?:\[[^\]]*\]\s*)+")
_REQUIRED_HEADERS = ("From", "Date", "Subject")
_FORMAT_PATCH = "Write the patch with git format-patch."


def _one_of(*allowed: str) -> Callable[[str], str]:
    def check(value: str) -> str:
        return "" if value in allowed else f"{value!r} is none of {', '.join(allowed)}{did_you_mean(value, allowed)}"

    return check


def _forwarded(value: str) -> str:
    if value in ("no", "not-needed") or re.match(r"https?://\S+$", value):
        return ""
    return f"{value!r} is neither a URL nor no nor not-needed"


def _word(value: str) -> str:
    return "" if re.fullmatch(r"[A-Za-z0-9_.-]+", value) else f"{value!r} is not one word"


_PROBE = re.compile(r"(?P<name>[A-Za-z0-9_.-]+)(?: by (?P<stage>[a-z-]+))?(?: when (?P<variable>\w+)=(?P<value>\S+))?")


def _promise(value: str) -> str:
    found = _PROBE.fullmatch(value)
    if not found:
        return f"{value!r} is not NAME [by STAGE] [when VARIABLE=VALUE]"
    stage = found["stage"]
    return f"{stage!r} is no stage{did_you_mean(stage, list(Stage))}" if stage and stage not in list(Stage) else ""


def _slug_list(value: str) -> str:
    return "" if all(not _word(slug) for slug in _slugs(value)) else f"{value!r} is not a list of slugs"


def _range(value: str) -> str:
    return "" if re.fullmatch(r"\S*\.\.\S*", value) and value != ".." else f"{value!r} is not a range A..B"


def _waive(value: str) -> str:
    return "" if len(value.split(None, 1)) == 2 else f"{value!r} names a rule without a reason"


TRAILERS: Mapping[str, Callable[[str], str]] = {
    "Kind": _one_of(*KINDS),
    "Forwarded": _forwarded,
    "Probe": _promise,
    "Requires": _slug_list,
    "Upstream": _range,
    "Enabled": _one_of("yes", "no"),
    "Waive": _waive,
}
"""The trailers that mean something here; each check says what is wrong with a value, or ``""``."""

LARGEST = 20 * 2**20
"""Bytes of one patch. Arbitrary; beyond it nobody reads a patch, and it is vendored code."""

REQUIRED_TRAILERS = ("Kind", "Forwarded")


@dataclass(frozen=True, slots=True)
class _Parts:
    """Where the parts of a file begin, as indices into its lines."""

    header: int
    message: int
    separator: int
    diff: int


def parse_patch(data: bytes, *, filename: str) -> Patch:
    """Read one patch file; ``filename`` is ``NNNN-slug.patch`` with or without a folder.

    Raises PatchFault (a UsageError) for the first thing that is wrong, with file and line.
    """
    patch, faults = survey_patch(data, filename=filename)
    if faults:
        raise PatchFault(faults[0])
    assert patch is not None
    return patch


def survey_patch(data: bytes, *, filename: str) -> tuple[Patch | None, tuple[Fault, ...]]:
    """As parse_patch, but with every fault of header and trailers. The Patch is None where it cannot be read."""
    faults: list[Fault] = []
    try:
        return _read(data, filename=filename, faults=faults), tuple(faults)
    except PatchFault as error:
        return None, (*faults, error.fault)


def _read(data: bytes, *, filename: str, faults: list[Fault]) -> Patch:
    number, slug = _name_of(filename)
    if not data.strip():
        raise _fault(filename, 0, "empty", "the file is empty", _FORMAT_PATCH)
    if len(data) > LARGEST:
        told = f"has {len(data) / 2**20:.0f} MiB: more than anybody reads"
        remedy = f"The limit is {LARGEST // 2**20} MiB. Split it, or vendor the code instead of patching it in."
        raise _fault(filename, 0, "size", told, remedy)
    if data.startswith(b"\xef\xbb\xbf"):
        raise _fault(filename, 1, "encoding", "begins with a byte-order mark", "Take the first three bytes away.")
    text = data.decode("utf-8", "surrogateescape")
    lines = split_lines(text)
    parts = _split(lines, filename=filename)
    headers = _headers(lines, parts=parts, filename=filename, faults=faults)
    message = [_shown(line.rstrip("\n")) for line in lines[parts.message : parts.separator]]
    body, trailers, trailers_at = split_trailers(message)
    _check_trailers(trailers, at=parts.message + trailers_at + 1, filename=filename, faults=faults)
    diff = parse_diff(lines, start=parts.diff, filename=filename)
    return Patch(
        number=number,
        slug=slug,
        author=headers["From"],
        date=headers["Date"],
        subject=_SUBJECT_TAG.sub("", headers["Subject"]),
        body=body,
        trailers=tuple((key, value) for key, value, _ in trailers),
        diff="".join(lines[parts.diff : diff.end]),
        text=text,
        files=_touched(diff),
    )


def format_patch(patch: Patch) -> bytes:
    """The file of a patch: what was read, byte for byte."""
    return patch.text.encode("utf-8", "surrogateescape")


def sha256_of(patch: Patch) -> str:
    """By which a record tells whether a patch has the same text still, in hexadecimal."""
    return hashlib.sha256(format_patch(patch)).hexdigest()


def compose(
    *,
    number: int,
    slug: str,
    author: str,
    date: str,
    subject: str,
    body: str,
    trailers: Sequence[tuple[str, str]],
    diff: str,
) -> Patch:
    """A new patch from its fields, in one fixed form. ``date`` is RFC 2822. Raises PatchFault as parse_patch does."""
    paragraphs = [body.strip("\n"), "\n".join(f"{key}: {value}" for key, value in trailers)]
    message = "\n\n".join(paragraph for paragraph in paragraphs if paragraph)
    lines = diff if diff.endswith("\n") else diff + "\n"
    text = f"From: {author}\nDate: {date}\nSubject: [PATCH] {subject}\n\n{message}\n---\n\n{lines}-- \npatchbisect\n"
    return parse_patch(text.encode("utf-8", "surrogateescape"), filename=f"{number:04d}-{slug}.patch")


def renamed(patch: Patch, *, number: int, slug: str = "") -> Patch:
    """The same file under another number (and slug)."""
    return parse_patch(format_patch(patch), filename=f"{number:04d}-{slug or patch.slug}.patch")


def diff_of(patch: Patch) -> Diff:
    """The diff of a patch that was read before, with line numbers of its file."""
    lines = split_lines(patch.text)
    at = next(index for index in range(len(lines)) if starts_file(lines, index))
    return parse_diff(lines, start=at, filename=f"{patch.name}.patch")


def requires(patch: Patch) -> tuple[str, ...]:
    """Slugs of the patches that this one says it needs."""
    return tuple(slug for key, value in patch.trailers if key.lower() == "requires" for slug in _slugs(value))


@dataclass(frozen=True, slots=True)
class Probe:
    """What one ``Probe:`` trailer promises: lines ``PROBE name ...`` by the end of ``stage``.

    ``variable`` and ``value``: only where the server's environment says so; empty: always.
    """

    name: str
    stage: Stage
    variable: str = ""
    value: str = ""

    def is_on(self, env: Mapping[str, str]) -> bool:
        return not self.variable or env.get(self.variable) == self.value


def probes(patch: Patch) -> tuple[Probe, ...]:
    """The probes that a patch promises. Where no stage is named, they fire by the end of ``graph-capture``."""
    found = (_PROBE.fullmatch(value) for key, value in patch.trailers if key.lower() == "probe")
    return tuple(
        Probe(
            name=match["name"],
            stage=Stage(match["stage"] or Stage.GRAPH_CAPTURE),
            variable=match["variable"] or "",
            value=match["value"] or "",
        )
        for match in found
        if match
    )


def commit_message(patch: Patch) -> str:
    """What a commit of this patch says: subject, body, trailers."""
    trailers = "\n".join(f"{key}: {value}" for key, value in patch.trailers)
    return "\n\n".join(part for part in (patch.subject, patch.body, trailers) if part) + "\n"


def author_of(patch: Patch) -> tuple[str, str]:
    """Name and mail address of the author, without the marks that git's own form keeps for itself."""
    name, address = (re.sub(r"[<>\0\n]", "", part).strip() for part in email.utils.parseaddr(patch.author))
    return name or address, address


def git_date(patch: Patch) -> str:
    """The author date as git takes it: seconds since the epoch and the zone, ``1700000000 +0100``."""
    moment = _date(patch.date)
    return f"{int(moment.timestamp())} {moment.strftime('%z')[:5]}"


def split_trailers(message: Sequence[str]) -> tuple[str, list[tuple[str, str, int]], int]:
    """Body, trailers as (key, value, line from 0), and the line where they begin.

    Trailers are the last paragraph when each of its lines is one (or continues one with leading white space).
    """
    end = len(message)
    while end and not message[end - 1].strip():
        end -= 1
    begin = end
    while begin and message[begin - 1].strip():
        begin -= 1
    trailers: list[tuple[str, str, int]] = []
    for index in range(begin, end):
        line = message[index]
        if match := _TRAILER.match(line):
            trailers.append((match[1], match[2].strip(), index))
        elif line[0] in " \t" and trailers:
            key, value, first = trailers[-1]
            trailers[-1] = (key, f"{value} {line.strip()}", first)
        else:
            return "\n".join(message[:end]).strip("\n"), [], end
    return "\n".join(message[:begin]).strip("\n"), trailers, begin


def _name_of(filename: str) -> tuple[int, str]:
    match = _FILENAME.match(PurePosixPath(filename).name)
    if not match:
        raise _fault(
            filename,
            0,
            "name",
            "a patch is named NNNN-slug.patch",
            "Rename it: four digits, a dash, then letters, digits, - . _",
        )
    return int(match[1]), match[2]


def _split(lines: Sequence[str], *, filename: str) -> _Parts:
    header = 1 if re.match(r"From [0-9a-f]{40,64} ", lines[0]) else 0
    if not re.match(r"[A-Za-z-]+:", lines[header] if header < len(lines) else ""):
        raise _fault(filename, header + 1, "header", "has no From, Date and Subject lines", _FORMAT_PATCH)
    message = header
    while message < len(lines) and lines[message].strip():
        if lines[message].endswith("\r\n"):
            raise _fault(
                filename, message + 1, "encoding", "the header has CRLF line ends", "Convert the header to LF."
            )
        message += 1
    separator = message
    while separator < len(lines) and lines[separator] != "---\n" and not starts_file(lines, separator):
        separator += 1
    diff = separator
    while diff < len(lines) and not starts_file(lines, diff):
        diff += 1
    if diff == len(lines):
        raise _fault(filename, separator + 1, "empty", "holds no diff: nothing would be changed", _FORMAT_PATCH)
    return _Parts(header=header, message=min(message + 1, separator), separator=separator, diff=diff)


def _headers(lines: Sequence[str], *, parts: _Parts, filename: str, faults: list[Fault]) -> dict[str, str]:
    unfolded: dict[str, tuple[int, str]] = {}
    key = ""
    for index in range(parts.header, parts.message):
        line = _shown(lines[index].rstrip("\n"))
        if line[:1] in (" ", "\t") and key:
            unfolded[key] = (unfolded[key][0], f"{unfolded[key][1]} {line.strip()}")
        elif ":" in line:
            key, _, value = line.partition(":")
            key = key.title()
            unfolded.setdefault(key, (index + 1, value.strip()))
    headers: dict[str, str] = {}
    for required in _REQUIRED_HEADERS:
        at, value = unfolded.get(required, (parts.header + 1, ""))
        headers[required] = _decoded(value)
        if not value:
            faults.append(_new_fault(filename, at, "header", f"has no {required}: line", _FORMAT_PATCH))
        elif required == "Date" and (why := _bad_date(value)):
            faults.append(_new_fault(filename, at, "header", why, "Write it as Mon, 23 Feb 2026 08:13:52 +0000."))
        elif required == "From" and "@" not in value:
            faults.append(_new_fault(filename, at, "header", f"From: {value!r} has no mail address", "Name <mail>"))
    return headers


def _check_trailers(trailers: Sequence[tuple[str, str, int]], *, at: int, filename: str, faults: list[Fault]) -> None:
    """``at`` is the line of the first trailer, or where it would be."""
    offset = at - (trailers[0][2] if trailers else 0)
    given = {key.lower() for key, _, _ in trailers}
    for required in REQUIRED_TRAILERS:
        if required.lower() not in given:
            allowed = " | ".join(KINDS) if required == "Kind" else "URL | no | not-needed"
            remedy = f"Add it to the last paragraph of the message: {required}: {allowed}"
            faults.append(_new_fault(filename, at, "trailer", f"has no {required}: trailer", remedy))
    by_name = {name.lower(): check for name, check in TRAILERS.items()}
    for key, value, index in trailers:
        check = by_name.get(key.lower())
        if check and (why := check(value)):
            faults.append(_new_fault(filename, offset + index, "trailer", f"{key}: {why}", ""))
        elif not check and (close := difflib.get_close_matches(key.title(), TRAILERS, n=1, cutoff=0.8)):
            faults.append(
                _new_fault(filename, offset + index, "trailer", f"unknown trailer {key} (did you mean {close[0]}?)", "")
            )


def _touched(diff: Diff) -> tuple[str, ...]:
    paths = [path for file in diff.files for path in (file.old_path, file.new_path) if path is not None]
    return tuple(dict.fromkeys(paths))


def _slugs(value: str) -> list[str]:
    return [slug for slug in re.split(r"[,\s]+", value) if slug]


def _shown(line: str) -> str:
    """A line with the bytes that were not UTF-8 read as latin-1."""
    if not any("\udc80" <= character <= "\udcff" for character in line):
        return line
    return line.encode("utf-8", "surrogateescape").decode("latin-1")


def _decoded(value: str) -> str:
    """RFC 2047 words (``=?UTF-8?q?...?=``) as the text they stand for."""
    if "=?" not in value:
        return value
    try:
        return str(email.header.make_header(email.header.decode_header(value)))
    except (LookupError, UnicodeDecodeError, ValueError):
        return value


def _date(text: str) -> datetime:
    moment = email.utils.parsedate_to_datetime(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _bad_date(text: str) -> str:
    try:
        seconds = _date(text).timestamp()
    except (ValueError, TypeError, OverflowError):
        return f"Date: {text!r} is not a date of RFC 2822"
    return "" if seconds >= 0 else f"Date: {text!r} is before 1970: git cannot hold it"


def _new_fault(filename: str, line: int, rule: str, message: str, remedy: str) -> Fault:
    return Fault(rule=rule, file=filename, line=line, message=message, remedy=remedy)


def _fault(filename: str, line: int, rule: str, message: str, remedy: str) -> PatchFault:
    return PatchFault(_new_fault(filename, line, rule, message, remedy))
