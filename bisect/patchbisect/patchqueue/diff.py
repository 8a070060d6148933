"""Read a unified diff as git writes it, line by line, so that each fault has its place.

``git apply`` reports "corrupt patch at line 12" and little more, and the readers on the registries
know neither modes nor links; both say nothing about paths that leave the tree until it is too late.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from patchbisect.patchqueue.faults import Fault, PatchFault

SYMLINK = "120000"
SUBMODULE = "160000"

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_INDEX = re.compile(r"index ([0-9a-f]{4,64})\.\.([0-9a-f]{4,64})(?: (\d{6}))?$")
_GIT_HEADER = re.compile(r'diff --git (?:"?a/|"?b/|"?[^ ])')
_ESCAPE = re.compile(r"\\([abtnvfr\"\\]|[0-7]{3})")
_ESCAPED = {"a": 7, "b": 8, "t": 9, "n": 10, "v": 11, "f": 12, "r": 13, '"': 34, "\\": 92}
_ATTRIBUTES = {
    "old mode ": "old_mode",
    "new mode ": "new_mode",
    "new file mode ": "new_mode",
    "deleted file mode ": "old_mode",
}


def split_lines(text: str) -> list[str]:
    """Lines with their ``\\n``. Not ``splitlines``: a form feed or a bare ``\\r`` ends no line for git."""
    lines = [line + "\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


@dataclass(frozen=True, slots=True)
class Hunk:
    """One hunk: ``line`` of its header in the patch file; ``number`` within its file; both from 1.

    ``body`` holds its lines with their first character and their line end; a last line without a line end
    (``\\ No newline at end of file``) has none here either.
    """

    line: int
    number: int
    old_start: int
    old_count: int
    new_start: int
    new_count: int
    body: tuple[str, ...]

    @property
    def before(self) -> list[str]:
        return [line[1:] for line in self.body if line[0] in " -"]

    @property
    def after(self) -> list[str]:
        return [line[1:] for line in self.body if line[0] in " +"]

    @property
    def first_old_line(self) -> int:
        """Where the hunk begins in the old file. A count of 0 names the line *before* in a unified diff."""
        return self.old_start if self.old_count else self.old_start + 1

    @property
    def first_new_line(self) -> int:
        return self.new_start if self.new_count else self.new_start + 1


@dataclass(frozen=True, slots=True)
class FileDiff:
    """What a patch does to one file. ``old_path`` is None where it is created, ``new_path`` where it is deleted."""

    line: int
    old_path: str | None
    new_path: str | None
    old_mode: str = ""
    new_mode: str = ""
    old_blob: str = ""
    new_blob: str = ""
    hunks: tuple[Hunk, ...] = ()
    copied: bool = False

    @property
    def path(self) -> str:
        return self.new_path or self.old_path or ""


@dataclass(frozen=True, slots=True)
class Diff:
    """All files of a diff; ``end`` is the index of the first line after it in the patch file, from 0."""

    files: tuple[FileDiff, ...]
    end: int


def starts_file(lines: Sequence[str], index: int) -> bool:
    """Whether a file's part of a diff begins at this line."""
    if _GIT_HEADER.match(lines[index]):
        return True
    return lines[index].startswith("--- ") and index + 1 < len(lines) and lines[index + 1].startswith("+++ ")


def parse_diff(lines: Sequence[str], *, start: int, filename: str) -> Diff:
    """Read the diff that begins at ``lines[start]``; ``filename`` is for messages.

    Raises PatchFault for the first thing that is corrupt, binary, or leaves the tree.
    """
    reader = _Reader(lines=lines, index=start, filename=filename)
    files = tuple(reader.files())
    return Diff(files=files, end=reader.index)


class _Reader:
    def __init__(self, *, lines: Sequence[str], index: int, filename: str) -> None:
        self.lines = lines
        self.index = index
        self.filename = filename

    def files(self) -> Iterator[FileDiff]:
        seen: dict[str, int] = {}
        while self.index < len(self.lines):
            if starts_file(self.lines, self.index):
                file = self._file()
                first = seen.setdefault(file.path, file.line)
                if first != file.line:
                    raise self._fault("corrupt", f"{file.path} is changed twice, first at line {first}", at=file.line)
                yield file
            elif self._line() == "-- ":
                return
            elif self._line().strip():
                raise self._stray()
            else:
                self.index += 1

    def _stray(self) -> PatchFault:
        text = self._line()
        if text[0] in " +-\\@":
            return self._fault("corrupt", f"a hunk is longer than its header says, or has lost it: {text[:60]!r}")
        return self._fault("corrupt", f"neither a diff nor the end of one: {text[:60]!r}")

    def _file(self) -> FileDiff:
        line = self.index + 1
        if self._line().startswith("diff --git "):
            file = self._git_header(line)
        else:
            file = FileDiff(line=line, old_path="", new_path="")
        file = self._names(file)
        self._check_paths(file)
        file = replace(file, hunks=tuple(self._hunks(file)))
        self._check_content(file)
        return file

    def _git_header(self, line: int) -> FileDiff:
        old, new = self._header_paths(self._line()[len("diff --git ") :])
        file = FileDiff(line=line, old_path=old, new_path=new)
        self.index += 1
        while self.index < len(self.lines):
            text = self._line()
            if text.startswith(("GIT binary patch", "Binary files ")):
                raise self._fault(
                    "binary",
                    f"{file.path} is binary",
                    remedy="Keep binary files out of the queue: a reviewer cannot read them.",
                )
            changed = self._attribute(file, text)
            if changed is None:
                return file
            file = changed
            self.index += 1
        return file

    def _attribute(self, file: FileDiff, text: str) -> FileDiff | None:
        """``file`` with one extended header line of git's taken in; None when ``text`` is not one."""
        for prefix, attribute in _ATTRIBUTES.items():
            if text.startswith(prefix):
                mode = text[len(prefix) :]
                if not re.fullmatch(r"1[0-7]{5}", mode):
                    raise self._fault("corrupt", f"not a file mode: {mode!r}")
                file = replace(file, old_mode=mode) if attribute == "old_mode" else replace(file, new_mode=mode)
                if prefix.startswith("new file"):
                    return replace(file, old_path=None)
                return replace(file, new_path=None) if prefix.startswith("deleted") else file
        if match := _INDEX.match(text):
            mode = match[3] or ""
            return replace(
                file,
                old_blob=match[1],
                new_blob=match[2],
                old_mode=file.old_mode or mode,
                new_mode=file.new_mode or mode,
            )
        for prefix in ("rename from ", "copy from "):
            if text.startswith(prefix):
                return replace(file, old_path=self._unquote(text[len(prefix) :]), copied=prefix.startswith("copy"))
        for prefix in ("rename to ", "copy to "):
            if text.startswith(prefix):
                return replace(file, new_path=self._unquote(text[len(prefix) :]))
        return file if text.startswith(("similarity index ", "dissimilarity index ")) else None

    def _names(self, file: FileDiff) -> FileDiff:
        if not (self.index < len(self.lines) and self._line().startswith("--- ")):
            if file.path == "":
                raise self._fault("corrupt", "a diff without file names")
            return file
        old = self._name(self._line()[4:])
        self.index += 1
        if not (self.index < len(self.lines) and self._line().startswith("+++ ")):
            raise self._fault("corrupt", "a '---' line without its '+++' line")
        new = self._name(self._line()[4:])
        self.index += 1
        if old is None and new is None:
            raise self._fault("corrupt", "both names are /dev/null", at=file.line)
        if file.path and (old, new) != (file.old_path, file.new_path):
            raise self._fault(
                "corrupt",
                f"the names {old} and {new} differ from the header's {file.old_path} and {file.new_path}",
                at=file.line,
            )
        return replace(file, old_path=old, new_path=new)

    def _hunks(self, file: FileDiff) -> Iterator[Hunk]:
        number, drift = 0, 0
        while self.index < len(self.lines) and self._line().startswith("@@"):
            number += 1
            hunk = self._hunk(number=number, path=file.path)
            stray = hunk.first_new_line - hunk.first_old_line - drift
            if stray:
                raise self._fault(
                    "corrupt",
                    f"hunk {number} of {file.path} says line {hunk.new_start} of the new file, "
                    f"but the hunks before it put it at {hunk.new_start - stray}",
                    at=hunk.line,
                    remedy="Line numbers were edited by hand: make the patch again with git format-patch.",
                )
            drift += hunk.new_count - hunk.old_count
            yield hunk

    def _hunk(self, *, number: int, path: str) -> Hunk:
        line = self.index + 1
        match = _HUNK.match(self._line())
        if not match:
            raise self._fault("corrupt", f"hunk {number} of {path} has no readable header: {self._line()[:60]!r}")
        old_start, old_count, new_start, new_count = (1 if group is None else int(group) for group in match.groups())
        self.index += 1
        body: list[str] = []
        old_left, new_left = old_count, new_count
        while old_left > 0 or new_left > 0:
            text = self.lines[self.index] if self.index < len(self.lines) else ""
            mark = text[:1] if text != "\n" else " "
            if mark not in (" ", "-", "+", "\\") or not text.endswith("\n"):
                raise self._short(number=number, path=path, line=line)
            self.index += 1
            if mark == "\\":
                self._drop_line_end(body)
                continue
            old_left -= mark in " -"
            new_left -= mark in " +"
            body.append(text if text != "\n" else " \n")
        if old_left < 0 or new_left < 0:
            raise self._short(number=number, path=path, line=line)
        if self.index < len(self.lines) and self.lines[self.index].startswith("\\"):
            self._drop_line_end(body)
            self.index += 1
        if all(text[0] == " " for text in body):
            raise self._fault("corrupt", f"hunk {number} of {path} changes nothing", at=line)
        return Hunk(
            line=line,
            number=number,
            old_start=old_start,
            old_count=old_count,
            new_start=new_start,
            new_count=new_count,
            body=tuple(body),
        )

    def _short(self, *, number: int, path: str, line: int) -> PatchFault:
        return self._fault(
            "corrupt",
            f"hunk {number} of {path} (header at line {line}) does not have the lines that its header counts",
            remedy="The patch was cut or edited by hand: make it again with git format-patch.",
        )

    def _drop_line_end(self, body: list[str]) -> None:
        if not body:
            raise self._fault("corrupt", "'\\ No newline' before any line")
        body[-1] = body[-1].removesuffix("\n")

    def _check_paths(self, file: FileDiff) -> None:
        for path in (file.old_path, file.new_path):
            if path is not None and (why := leaves_tree(path)):
                raise self._fault(
                    "outside", f"{path!r} {why}", at=file.line, remedy="A patch may only change files inside the tree."
                )
        if SUBMODULE in (file.old_mode, file.new_mode):
            raise self._fault("submodule", f"{file.path} is a submodule", at=file.line)

    def _check_content(self, file: FileDiff) -> None:
        """What can only be judged with the hunks read: links, and changes that change nothing."""
        if file.new_mode == SYMLINK and file.new_path is not None:
            target = "".join(line for hunk in file.hunks for line in hunk.after)
            landing = posixpath.join(posixpath.dirname(file.new_path), target)
            if not target or leaves_tree(posixpath.normpath(landing)):
                raise self._fault(
                    "symlink",
                    f"{file.new_path} is a symbolic link that leaves the tree: {target!r}",
                    at=file.hunks[0].line if file.hunks else file.line,
                    remedy="Add the file itself instead of a link to it.",
                )
        renamed = file.old_path != file.new_path
        if not file.hunks and not renamed and file.old_mode == file.new_mode:
            raise self._fault("empty", f"nothing is changed in {file.path}", at=file.line)

    def _header_paths(self, text: str) -> tuple[str, str]:
        """The two names of ``diff --git``: equal but for a/ and b/ unless later lines say otherwise."""
        if text.startswith('"') or text.endswith('"'):
            match = re.match(r'("(?:[^"\\]|\\.)*"|\S+) ("(?:[^"\\]|\\.)*"|.+)$', text)
            if match:
                return self._strip(self._unquote(match[1])), self._strip(self._unquote(match[2]))
        middle = len(text) // 2
        if text[middle : middle + 1] == " " and text[2:middle] == text[middle + 3 :]:
            return self._strip(text[:middle]), self._strip(text[middle + 1 :])
        old, _, new = text.partition(" b/")
        return self._strip(old), new

    def _name(self, text: str) -> str | None:
        name = self._unquote(text if text.startswith('"') else text.partition("\t")[0])
        return None if name == "/dev/null" else self._strip(name)

    def _strip(self, name: str) -> str:
        if not name.startswith(("a/", "b/")):
            raise self._fault(
                "path",
                f"{name!r} does not begin with a/ or b/",
                remedy="Make the patch with git format-patch and its usual prefixes.",
            )
        return name[2:]

    def _unquote(self, text: str) -> str:
        """git quotes a name with unusual bytes as a C string."""
        if not (len(text) > 1 and text.startswith('"') and text.endswith('"')):
            return text

        def byte(match: re.Match[str]) -> bytes:
            code = match[1]
            return bytes([_ESCAPED[code] if code in _ESCAPED else int(code, 8) & 0xFF])

        parts: list[bytes] = []
        at = 0
        inner = text[1:-1]
        for match in _ESCAPE.finditer(inner):
            parts += [inner[at : match.start()].encode("utf-8", "surrogateescape"), byte(match)]
            at = match.end()
        parts.append(inner[at:].encode("utf-8", "surrogateescape"))
        return b"".join(parts).decode("utf-8", "surrogateescape")

    def _line(self) -> str:
        return self.lines[self.index].removesuffix("\n")

    def _fault(self, rule: str, message: str, *, at: int = 0, remedy: str = "") -> PatchFault:
        line = at or min(self.index, len(self.lines) - 1) + 1
        return PatchFault(Fault(rule=rule, file=self.filename, line=line, message=message, remedy=remedy))


def leaves_tree(path: str) -> str:
    """Why a path is not one inside the tree, or ``""``.

    ``.git`` in any case and with the endings that some file systems drop: a patch must not reach a hook.
    """
    if path == "" or path.startswith("/") or re.match(r"[A-Za-z]:", path):
        return "is not a relative path"
    if any(ord(character) < 32 for character in path):
        return "holds a control character"
    for part in path.split("/"):
        if part == "..":
            return "leaves the tree"
        if part in ("", "."):
            return "is not a plain path"
        if part.lower().rstrip(". ") in (".git", "git~1"):
            return "is inside .git"
    return ""
