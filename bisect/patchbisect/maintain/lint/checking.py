"""Lint of a queue: each patch on top of those before it, at the pin. The analysers are passed in."""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from patchbisect.maintain.lint.analysers import Diagnose, Diagnostic, new_diagnostics
from patchbisect.maintain.lint.effects import Effect, Read, Texts
from patchbisect.maintain.lint.findings import BEHAVIOUR, Finding, waive
from patchbisect.maintain.lint.instrumentation import judge
from patchbisect.maintain.lint.sources import tree_of
from patchbisect.model import Patch
from patchbisect.patchqueue import Fault, Severity, diff_of, probes, survey

_PROBE = re.compile(r"\bPROBE ([A-Za-z0-9_.-]+)")
_NAMES = ("unbound", "makes-local")
_ABOUT_NAMES = ("F821", "F823", "possibly-unresolved-reference")


@dataclass(frozen=True, slots=True)
class Linted:
    """One patch with what it makes of each file."""

    patch: Patch
    effects: tuple[Effect, ...]

    @property
    def python(self) -> Iterator[Effect]:
        """The effects on Python files, both texts there or created."""
        for effect in self.effects:
            if effect.path.endswith(".py") and effect.after is not None:
                yield effect


def lint(
    files: Mapping[str, bytes],
    *,
    read: Read,
    diagnose: Diagnose,
    where: str = "patches",
    only: Sequence[int] = (),
    elsewhere: Collection[str] = (),
    unknown: Callable[[str], bool] = lambda name: False,
) -> list[Finding]:
    """Every finding for a folder of patches by name, in patch order; ``only`` limits it to some numbers.

    ``read`` gives the pin's files. Patches with ``Enabled: no``, and those named in ``elsewhere`` (their Upstream:
    range does not hold the pin), are read, but not applied. ``unknown``: whether no file of SGLang holds a word.
    """
    queue, faults = survey(files, where=where)
    findings = [_of_fault(fault) for fault in faults]
    texts = Texts(read)
    done = [
        Linted(patch=patch, effects=tuple(texts.apply(file) for file in diff_of(patch).files))
        for patch in queue.patches
        if patch.enabled and patch.name not in elsewhere
    ]
    wanted = [linted for linted in done if not only or linted.patch.number in only]
    said = diagnose({text for linted in wanted for effect in linted.python for text in _compiling(effect)})
    for linted in wanted:
        found = [*_placement(linted), *_code(linted, said=said, unknown=unknown), *_message(linted)]
        findings += waive(linted.patch, found)
    names = {linted.patch.name for linted in wanted}
    chosen = [found for found in findings if not only or found.patch in names]
    return sorted(chosen, key=lambda found: (found.patch, found.line, found.rule))


def lint_change(patch: Patch, *, read: Read, diagnose: Diagnose) -> list[Finding]:
    """The findings for one patch on top of what ``read`` gives."""
    texts = Texts(read)
    linted = Linted(patch=patch, effects=tuple(texts.apply(file) for file in diff_of(patch).files))
    said = diagnose({text for effect in linted.python for text in _compiling(effect)})
    return waive(patch, [*_placement(linted), *_code(linted, said=said), *_message(linted)])


def _of_fault(fault: Fault) -> Finding:
    name = PurePosixPath(fault.file).name.removesuffix(".patch")
    return Finding(
        patch=name, rule=fault.rule, why=fault.message, remedy=fault.remedy, line=fault.line, severity=fault.severity
    )


def _placement(linted: Linted) -> Iterator[Finding]:
    """``exact`` and ``anchor``."""
    for effect in linted.effects:
        if effect.missing:
            why = f"there is no {effect.diff.old_path} at the pin"
            if effect.diff.old_path is None or effect.before is not None:
                why = f"{effect.path} is there already"
            yield Finding(
                patch=linted.patch.name,
                rule="exact",
                why=why,
                line=effect.diff.line,
                path=effect.path,
                remedy="A release holds python/sglang alone; for other files set upstream.clone to a clone of SGLang.",
            )
        for misfit in effect.misfits:
            hunk = effect.diff.hunks[misfit.hunk - 1]
            yield Finding(
                patch=linted.patch.name,
                rule="exact",
                why=str(misfit),
                line=hunk.line,
                path=effect.path,
                path_line=misfit.expected,
                remedy="invoke refresh writes the patch again on the code that it stands on.",
            )
        yield from _anchors(linted.patch, effect)


def _anchors(patch: Patch, effect: Effect) -> Iterator[Finding]:
    lines = (effect.before or "").split("\n")
    for hunk in effect.diff.hunks:
        wanted = [line.rstrip("\n") for line in hunk.before]
        if not wanted:
            continue
        places = [at + 1 for at in range(len(lines) - len(wanted) + 1) if lines[at : at + len(wanted)] == wanted]
        others = [str(place) for place in places if place != hunk.first_old_line]
        if hunk.first_old_line in places and others:
            yield Finding(
                patch=patch.name,
                rule="anchor",
                why=f"hunk {hunk.number} of {effect.path} would fit at line {', '.join(others[:3])} too",
                line=hunk.line,
                path=effect.path,
                path_line=hunk.first_new_line,
                severity=Severity.WARNING,
                remedy="Give it more lines of context: on another base it may land in the wrong place.",
            )


def _code(
    linted: Linted, *, said: Mapping[str, tuple[Diagnostic, ...]], unknown: Callable[[str], bool] = lambda name: False
) -> Iterator[Finding]:
    instrumentation = (linted.patch.trailer("Kind") or "").lower() == "instrumentation"
    if instrumentation:
        yield from _files(linted)
    for effect in linted.python:
        assert effect.after is not None
        if fault := _syntax_fault(effect.after):
            line, why = fault
            yield _finding(linted.patch, effect, rule="compiles", line=line, why=why, remedy="Mend the syntax.")
            continue
        before = effect.before or ""
        if _syntax_fault(before):
            continue
        complaints = (
            judge(before, effect.after, unknown=unknown) if instrumentation and effect.before is not None else []
        )
        for complaint in complaints:
            assert complaint.rule in BEHAVIOUR
            yield _finding(
                linted.patch,
                effect,
                rule=complaint.rule,
                line=complaint.line,
                why=complaint.why,
                remedy=complaint.remedy,
                old=complaint.gone,
                severity=Severity.WARNING if complaint.warning else Severity.ERROR,
            )
        lines = {complaint.line for complaint in complaints if complaint.rule in _NAMES}
        for diagnostic in new_diagnostics(before, effect.after, said=said):
            if diagnostic.code in _ABOUT_NAMES and diagnostic.line in lines:
                continue
            why = f"{diagnostic.code}: {diagnostic.message}"
            # A branch may be taken only where another one was: no tool knows, and fixes are read by people.
            certain = instrumentation or diagnostic.code != "possibly-unresolved-reference"
            severity = Severity.ERROR if certain else Severity.WARNING
            yield _finding(linted.patch, effect, rule="diagnostic", line=diagnostic.line, why=why, severity=severity)


def _files(linted: Linted) -> Iterator[Finding]:
    """What an instrumentation patch does to files as such."""
    for effect in linted.effects:
        diff = effect.diff
        if diff.old_path is None:
            continue
        what = ""
        if diff.new_path is None:
            what = "is deleted"
        elif diff.new_path != diff.old_path:
            what = f"is renamed to {diff.new_path}"
        elif diff.old_mode != diff.new_mode:
            what = f"changes its mode to {diff.new_mode}"
        elif not effect.path.endswith(".py") and diff.hunks:
            what = "is no Python file: lint cannot tell what this changes"
        if what:
            yield _finding(
                linted.patch, effect, rule="changes-code", line=0, why=f"{diff.old_path} {what}", at=diff.line
            )


def _finding(
    patch: Patch,
    effect: Effect,
    *,
    rule: str,
    line: int,
    why: str,
    remedy: str = "",
    old: bool = False,
    at: int = 0,
    severity: Severity = Severity.ERROR,
) -> Finding:
    return Finding(
        patch=patch.name,
        rule=rule,
        why=why,
        remedy=remedy,
        line=at or effect.patch_line(line, old=old),
        path=effect.path,
        path_line=line,
        severity=severity,
    )


def _message(linted: Linted) -> Iterator[Finding]:
    patch = linted.patch
    if not patch.body.strip():
        yield Finding(
            patch=patch.name,
            rule="why",
            why="has no body: nobody will know what it is for",
            remedy="Say between subject and trailers what could not be seen, or what broke.",
            severity=Severity.WARNING,
        )
    named = {probe.name for probe in probes(patch)}
    printed: dict[str, int] = {}
    for effect in linted.effects:
        for hunk in effect.diff.hunks:
            for offset, line in enumerate(hunk.body, start=1):
                for match in _PROBE.finditer(line) if line[0] == "+" else ():
                    printed.setdefault(match[1], hunk.line + offset)
    code = "".join(line for effect in linted.effects for hunk in effect.diff.hunks for line in hunk.body)
    for name in sorted(named - printed.keys()):
        if name not in code:
            why = f"Probe: {name}, but no added line prints PROBE {name}"
            yield Finding(patch=patch.name, rule="probe", why=why, remedy="Take the trailer away, or print the line.")
    for name in sorted(printed.keys() - named) if patch.trailer("Kind") == "instrumentation" else ():
        why = f"prints PROBE {name}, but no trailer says Probe: {name}: its values are no facts"
        remedy = f"Add the trailer Probe: {name}."
        severity = Severity.ERROR if named else Severity.WARNING
        at = printed[name]
        yield Finding(patch=patch.name, rule="probe", why=why, remedy=remedy, line=at, severity=severity)


def _compiling(effect: Effect) -> Iterator[str]:
    for text in (effect.before or "", effect.after):
        if text is not None and not _syntax_fault(text):
            yield text


@functools.lru_cache(maxsize=512)
def _syntax_fault(text: str) -> tuple[int, str] | None:
    """Line and reason where Python cannot compile a source."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(tree_of(text), "source", "exec", dont_inherit=True)
    except SyntaxError as error:
        return error.lineno or 0, f"does not compile: {error.msg}"
    except ValueError as error:
        return 0, f"does not compile: {error}"
    return None
