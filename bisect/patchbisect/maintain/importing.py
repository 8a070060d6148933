"""Patches as others keep them, made into ours: mails, plain diffs, mailboxes, quilt folders; and what was changed.

Pure: bytes in, patches and an account out. Whether they apply is another question.
"""

from __future__ import annotations

import email.utils
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import PurePosixPath

from patchbisect.errors import UsageError
from patchbisect.maintain.exporting import slug_of
from patchbisect.model import Patch
from patchbisect.patchqueue import PatchFault, compose, parse_patch
from patchbisect.patchqueue.diff import leaves_tree, split_lines
from patchbisect.patchqueue.patchfile import LARGEST, TRAILERS, split_trailers
from patchbisect.upstream import PACKAGE

NO_REASON = "Imported; it gives no reason."
"""The body of a patch that had none."""

_MAIL = re.compile(rb"^From [0-9a-f]{40} |^From \S+@\S+ .*\d{4}$|^From - ", re.MULTILINE)
_HEADER = re.compile(r"(From|Date|Subject|Author|Description|Origin|Forwarded|Last-Update|Bug|Bug-\w+): ?(.*)")
_HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_TOP = PurePosixPath(PACKAGE).parts
_INSIDE = ("srt", "lang", "multimodal_gen", "jit_kernel", "test", "cli")
"""Folders right under the package (SGLang 0.5.9)."""


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a foreign patch does not say itself."""

    author: str
    date: str
    kind: str = "experiment"


@dataclass(frozen=True, slots=True)
class Imported:
    """A patch in our form (its number is provisional), and what was changed or left out to get there."""

    patch: Patch
    account: tuple[str, ...]
    modeless: frozenset[str] = frozenset()
    """Files that came without a word on their mode: by ``diff -u``, or from quilt."""


def import_file(name: str, data: bytes, *, defaults: Defaults) -> list[Imported]:
    """Every patch of one file, which may be a mailbox. Raises UsageError, with the line, for what cannot be read."""
    if len(data) > LARGEST:
        raise UsageError(
            f"{name} has {len(data) / 2**20:.0f} MiB: more than anybody reads",
            remedy=f"The limit is {LARGEST // 2**20} MiB. Split it, or vendor the code instead of patching it in.",
        )
    account: list[str] = []
    text = _text(data, account)
    mails = _mails(text)
    if len(mails) > 1:
        account.append(f"a mailbox of {len(mails)} patches")
    return [
        _one(name if len(mails) == 1 else f"{name}, mail {at}", mail, defaults=defaults, account=list(account), at=at)
        for at, mail in enumerate(mails, start=1)
    ]


def import_series(
    files: Mapping[str, bytes], *, defaults: Defaults, guards: Iterable[str] = (), where: str = "series"
) -> tuple[list[Imported], list[str]]:
    """A quilt folder with its ``series``. Patches whose guard is not set come with ``Enabled: no``.

    Gives the patches and what concerns the folder as a whole. Raises UsageError for a file that is not there.
    """
    chosen = set(guards)
    listed: list[str] = []
    imported: list[Imported] = []
    for number, line in enumerate(files["series"].decode("utf-8", "replace").splitlines(), start=1):
        entry, _, comment = line.partition("#")
        words = entry.split()
        if not words:
            # How a patch is switched off in a series.
            listed += comment.split()[:1]
            continue
        name = words[0]
        listed.append(name)
        if name not in files:
            raise UsageError(f"{where}:{number}: lists {name}, which is not there", remedy="Add it, or drop the line.")
        marks = re.findall(r"#?([+-])(\S+)", comment)
        skipped = any((sign == "+") != (guard in chosen) for sign, guard in marks)
        for found in import_file(name, files[name], defaults=defaults):
            account = [*found.account]
            if level := next((word for word in words[1:] if re.fullmatch(r"-p\d", word)), "-p1"):
                account += [f"{level} in the series: names are found by {PACKAGE}"] if level != "-p1" else []
            patch = found.patch
            if skipped:
                wanted = ", ".join(f"{sign}{guard}" for sign, guard in marks)
                account.append(f"its guard ({wanted}) is not set: comes with Enabled: no")
                patch = _with_trailer(patch, "Enabled", "no")
            imported.append(replace(found, patch=patch, account=tuple(account)))
    left = sorted(
        name
        for name in files
        if name not in listed and name != "series" and not name.startswith(".") and name[-1:] != "~"
    )
    return imported, [f"not in the series, left out: {', '.join(left)}"] if left else []


def _text(data: bytes, account: list[str]) -> str:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        account.append("was UTF-16 (a shell's redirection): converted to UTF-8")
        return data.decode("utf-16", "replace").replace("\r\n", "\n")
    if data.startswith(b"\xef\xbb\xbf"):
        account.append("began with a byte-order mark: taken away")
        data = data[3:]
    if b"\0" in data[:8000]:
        raise UsageError("the file is binary, no patch")
    text = data.decode("utf-8", "surrogateescape")
    lines = text.split("\n")
    with_cr = sum(line.endswith("\r") for line in lines)
    if with_cr and with_cr >= len(lines) - 1:
        account.append("had CRLF line ends: converted to LF")
        return text.replace("\r\n", "\n")
    return text


def _mails(text: str) -> list[str]:
    data = text.encode("utf-8", "surrogateescape")
    starts = [match.start() for match in _MAIL.finditer(data)]
    if len(starts) < 2:
        return [text]
    bounds = [*starts, len(data)]
    parts = [data[a:b] for a, b in pairwise(bounds)]
    return [re.sub(rb"(?m)^>(>*From )", rb"\1", part).decode("utf-8", "surrogateescape") for part in parts]


def _one(name: str, text: str, *, defaults: Defaults, account: list[str], at: int) -> Imported:
    if as_is := _already_ours(text, at, named=PurePosixPath(name).name):
        return Imported(patch=as_is, account=tuple(account))
    lines = split_lines(text)
    reading = _Reading(lines=lines, name=name, account=account)
    diff = reading.diff()
    head, body, trailers = _message(lines[: reading.begins])
    subject = re.sub(r"^(?:\[[^\]]*\]\s*)+", "", head.get("Subject", "")) or head.get("Description", "")
    if not subject:
        subject = re.sub(r"^\d+[-_]", "", PurePosixPath(name).name.rpartition(".")[0] or name).replace("-", " ")
        account.append(f"has no subject: its name serves as one ({subject})")
    account += [f"{key}: {value} is dropped: {why}" for key, value in trailers if (why := _no_trailer(key, value))]
    trailers = [(key, value) for key, value in trailers if not _no_trailer(key, value)]
    trailers += [
        (key, value)
        for key, value in (("Kind", defaults.kind), ("Forwarded", _forwarded(head)))
        if key.lower() not in {known.lower() for known, _ in trailers}
    ]
    author = head.get("From") or head.get("Author") or ""
    if "@" not in author:
        account.append(f"names no author: {defaults.author}")
        author = defaults.author
    try:
        patch = compose(
            number=at,
            slug=_named(name) or slug_of(subject),
            author=_plain(author),
            date=_date(head.get("Date", ""), defaults.date, account),
            subject=_plain(subject),
            body=_plain(body) or NO_REASON,
            trailers=trailers,
            diff=diff,
        )
    except PatchFault as error:
        raise UsageError(f"{name}: {error.fault.message}", remedy=error.remedy) from error
    return Imported(patch=patch, account=tuple(account), modeless=frozenset(reading.modeless))


def _no_trailer(key: str, value: str) -> str:
    """What is wrong with a trailer that means something here."""
    check = TRAILERS.get(key.title())
    return check(value) if check else ""


def _named(filename: str) -> str:
    """The slug in a file's name of our form, ``""`` where it is of another one."""
    kept = re.fullmatch(r"\d{1,4}-([a-z0-9][a-z0-9._-]*)\.patch", PurePosixPath(filename).name)
    return kept[1] if kept else ""


def _already_ours(text: str, at: int, *, named: str) -> Patch | None:
    """A patch that is in our form already is taken byte for byte."""
    subject = re.search(r"(?m)^Subject: (?:\[[^\]]*\] *)*(.*)$", text)
    kept = re.fullmatch(r"\d{1,4}-([A-Za-z0-9][A-Za-z0-9._-]*)\.patch", named)
    try:
        filename = f"{at:04d}-{kept[1] if kept else slug_of(subject[1] if subject else 'patch')}.patch"
        patch = parse_patch(text.encode("utf-8", "surrogateescape"), filename=filename)
    except PatchFault:
        return None
    return patch if all(path.startswith(f"{PACKAGE}/") for path in patch.files) else None


def _message(lines: Sequence[str]) -> tuple[dict[str, str], str, list[tuple[str, str]]]:
    """Header fields, body and trailers of what stands before the diff."""
    head: dict[str, str] = {}
    rest: list[str] = []
    in_header = True
    key = ""
    for line in lines:
        bare = line.rstrip("\n")
        match = _HEADER.match(bare)
        if in_header and match:
            key = match[1]
            head.setdefault(key, match[2].strip())
        elif in_header and key and bare[:1] in (" ", "\t") and bare.strip():
            head[key] += " " + bare.strip()
        elif not re.match(r"From [0-9a-f]{40} |Index: |=====|diff |---$|[\w-]+: ", bare) or not in_header:
            # git's own header ends at the first blank line; headers written by hand may hold some.
            from_git = {"From", "Date", "Subject"} <= head.keys()
            in_header = in_header and not bare.strip() and not rest and not from_git
            rest.append(bare)
    cut = rest.index("---") if "---" in rest else len(rest)
    body, trailers, _ = split_trailers(rest[:cut])
    return (
        head,
        "\n".join(line for line in body.split("\n") if not line.startswith("=====")),
        [(key, value) for key, value, _ in trailers],
    )


def _forwarded(head: Mapping[str, str]) -> str:
    given = head.get("Forwarded", "") or head.get("Origin", "")
    return given if re.match(r"https?://\S+$", given) or given == "not-needed" else "no"


def _date(given: str, default: str, account: list[str]) -> str:
    try:
        moment = email.utils.parsedate_to_datetime(given)
    except (ValueError, TypeError):
        account.append("has no date: today's")
        return default
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return given if moment > datetime(1970, 1, 2, tzinfo=UTC) else default


def _plain(text: str) -> str:
    """Text with bytes that were not UTF-8 read as latin-1."""
    return "".join(chr(ord(char) - 0xDC00) if "\udc80" <= char <= "\udcff" else char for char in text)


def _with_trailer(patch: Patch, key: str, value: str) -> Patch:
    return compose(
        number=patch.number,
        slug=patch.slug,
        author=patch.author,
        date=patch.date,
        subject=patch.subject,
        body=patch.body,
        trailers=[*patch.trailers, (key, value)],
        diff=patch.diff,
    )


@dataclass(slots=True)
class _File:
    old: str = ""
    new: str = ""
    extended: list[str] = field(default_factory=list)
    """Mode, rename and index lines of git's."""
    hunks: list[str] = field(default_factory=list)
    born: bool = False
    gone: bool = False


class _Reading:
    """A diff of any make, line by line; gives it in git's form."""

    def __init__(self, *, lines: Sequence[str], name: str, account: list[str]) -> None:
        self.lines = lines
        self.name = name
        self.account = account
        self.begins = len(lines)
        self.at = 0
        self.modeless: list[str] = []

    def diff(self) -> str:
        """Raises UsageError where there is none, and for what cannot be taken over."""
        parts = [self._told(file) for file in self._files()]
        diff = "".join(parts)
        if not diff:
            raise UsageError(f"{self.name} holds no diff", remedy="diff -u, git diff or git format-patch make one.")
        return diff

    def _files(self) -> Iterator[_File]:
        file: _File | None = None
        while self.at < len(self.lines):
            line = self.lines[self.at].rstrip("\n")
            if line.startswith("diff --git "):
                if file:
                    yield file
                file = self._git_header(line)
                continue
            if line.startswith("--- ") and self._next().startswith("+++ "):
                if (file and file.hunks) or file is None:
                    if file:
                        yield file
                    file = _File()
                self._names(file)
                continue
            if line.startswith("@@ ") and file:
                self._hunk(file)
                continue
            self._other(line)
            self.at += 1
        if file:
            yield file

    def _next(self) -> str:
        return self.lines[self.at + 1] if self.at + 1 < len(self.lines) else ""

    def _begin(self) -> None:
        self.begins = min(self.begins, self.at)

    def _other(self, line: str) -> None:
        if line.startswith(("Binary files ", "GIT binary patch")):
            raise self._refused(f"a binary file: {line}", "Keep binary files out of the queue.")
        if line.startswith("Only in "):
            raise self._refused(f"{line}: the file itself is not in the diff", "Make it with diff -uN.")
        if line.startswith(("*** ", "***************")) and self.begins == len(self.lines):
            raise self._refused("a context diff", "Make it with diff -u.")
        if line.startswith(("diff -", "Index: ", "=====")):
            self._begin()

    def _git_header(self, line: str) -> _File:
        self._begin()
        file = _File()
        names = re.match(r'diff --git "?(?:a/)?(.+?)"? "?(?:b/)(.+?)"?$', line) or re.match(
            r"diff --git (\S+) (\S+)$", line
        )
        if names:
            file.old, file.new = names[1], names[2]
        self.at += 1
        while self.at < len(self.lines):
            text = self.lines[self.at].rstrip("\n")
            if not re.match(
                r"(old mode|new mode|new file mode|deleted file mode|similarity|dissimilarity|rename|copy|index) ", text
            ):
                break
            if " mode 160000" in text:
                raise self._refused(f"{file.new} is a submodule", "A queue changes files alone.")
            file.born = file.born or text.startswith("new file mode")
            file.gone = file.gone or text.startswith("deleted file mode")
            file.extended.append(text)
            self.at += 1
        return file

    def _names(self, file: _File) -> None:
        self._begin()
        old, new = (self.lines[self.at + i].rstrip("\n")[4:] for i in (0, 1))
        born, gone = old.startswith("/dev/null") or _epoch(old), new.startswith("/dev/null") or _epoch(new)
        self.at += 2
        hunk = self.lines[self.at] if self.at < len(self.lines) else ""
        file.born = file.born or (born and hunk.startswith("@@ -0,0 "))
        file.gone = file.gone or (gone and bool(re.match(r"@@ -\S+ \+0,0 @@", hunk)))
        old, new = (name.partition("\t")[0].rstrip() for name in (old, new))
        file.old = new if file.born else old
        file.new = old if file.gone else new

    def _hunk(self, file: _File) -> None:
        header = self.lines[self.at]
        match = _HUNK.match(header)
        if not match:
            raise self._refused(f"no readable hunk header: {header[:60]!r}", "Make the patch again.")
        old_left, new_left = (int(count) if count is not None else 1 for count in match.groups())
        file.hunks.append(header)
        self.at += 1
        while (old_left > 0 or new_left > 0) or (self._line().startswith("\\")):
            line = self._line()
            mark = line[:1] if line not in ("\n", "\r\n") else " "
            if mark not in (" ", "+", "-", "\\") or not line:
                raise self._refused("a hunk does not have the lines that its header counts", "Make the patch again.")
            old_left -= mark in " -"
            new_left -= mark in " +"
            file.hunks.append(line if line not in ("\n", "\r\n") else f" {line}")
            self.at += 1
        if not file.hunks[-1].endswith("\n"):
            file.hunks[-1] += "\n"

    def _line(self) -> str:
        return self.lines[self.at] if self.at < len(self.lines) else ""

    def _told(self, file: _File) -> str:
        """One file in git's form, under its name in SGLang's repository."""
        old, new = self._home(file.old), self._home(file.new)
        renamed = any(line.startswith("rename ") for line in file.extended)
        if old != new and not renamed:
            self.account.append(f"{old} was compared with {new}: taken as a change of {min(old, new, key=len)}")
            old = new = min(old, new, key=len)
        if not file.extended:
            self.modeless.append(new)
        lines = [f"diff --git a/{old} b/{new}\n"]
        for text in file.extended:
            if text.startswith(("rename from ", "copy from ")):
                text = f"{text.split(' from ')[0]} from {old}"
            elif text.startswith(("rename to ", "copy to ")):
                text = f"{text.split(' to ')[0]} to {new}"
            lines.append(text + "\n")
        if file.born and not any(text.startswith("new file mode") for text in file.extended):
            lines.append("new file mode 100644\n")
        if file.gone and not any(text.startswith("deleted file mode") for text in file.extended):
            lines.append("deleted file mode 100644\n")
        if file.hunks:
            lines.append(f"--- {'/dev/null' if file.born else f'a/{old}'}\n")
            lines.append(f"+++ {'/dev/null' if file.gone else f'b/{new}'}\n")
        return "".join([*lines, *file.hunks])

    def _home(self, name: str) -> str:
        path = home_of(name)
        if why := leaves_tree(path):
            raise self._refused(f"{name!r} {why}", "A patch may only change files inside the tree.")
        if path != re.sub(r"^[ab]/", "", name):
            note = f"{name} is {path} in SGLang's repository"
            if note not in self.account:
                self.account.append(note)
        if not path.startswith(f"{PACKAGE}/"):
            note = f"{path} is outside {PACKAGE}, which a release does not hold"
            if note not in self.account:
                self.account.append(note)
        return path

    def _refused(self, why: str, remedy: str) -> UsageError:
        return UsageError(f"{self.name}:{self.at + 1}: {why}", remedy=remedy)


def home_of(name: str) -> str:
    """The path in SGLang's repository that a name of a foreign diff means."""
    name = name.replace("\\", "/").removesuffix(".orig")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        return name
    for at in range(len(parts) - 1):
        if tuple(parts[at : at + 2]) == _TOP:
            return "/".join(parts[at:])
    for at in range(len(parts) - 1):
        inside = parts[at + 1] in _INSIDE or parts[at + 1].endswith(".py")
        if parts[at] == _TOP[1] and inside:
            return "/".join([_TOP[0], *parts[at:]])
    stripped = parts[1:] if parts and parts[0] in ("a", "b") else parts
    if stripped and stripped[0] == "srt":
        return "/".join([*_TOP, *stripped])
    return "/".join(stripped) if not name.startswith("/") else name


def _epoch(name: str) -> bool:
    """diff -N gives a file that is not there the time 0."""
    return bool(re.search(r"\t(1970-01-01|1969-12-31)|\tThu Jan +1 0", name))
