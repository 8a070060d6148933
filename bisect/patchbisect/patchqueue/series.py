"""All patches of a folder in number order: a Queue. No module is called ``queue``: it would hide the standard one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from patchbisect.errors import UsageError
from patchbisect.model import Patch
from patchbisect.patchqueue.faults import Fault, Severity, did_you_mean
from patchbisect.patchqueue.patchfile import requires, survey_patch


@dataclass(frozen=True, slots=True)
class Queue:
    """Patches in number order; the disabled ones keep their place. ``where`` is the folder, for messages."""

    patches: tuple[Patch, ...] = ()
    where: str = "patches"
    warnings: tuple[Fault, ...] = ()

    @classmethod
    def read(cls, files: Mapping[str, bytes], *, where: str = "patches") -> Queue:
        """A queue from its files by name. Names that do not end in ``.patch`` are no patches and are left alone.

        Raises UsageError that tells every fault, one line each.
        """
        queue, faults = survey(files, where=where)
        errors = [fault for fault in faults if fault.severity is Severity.ERROR]
        if errors:
            raise UsageError("\n".join(str(fault) for fault in errors), remedy=errors[0].remedy)
        return queue

    @property
    def enabled(self) -> tuple[Patch, ...]:
        return tuple(patch for patch in self.patches if patch.enabled)

    def up_to(self, number: int) -> tuple[Patch, ...]:
        """The enabled patches up to and including that number. Raises UsageError for a number that is not there."""
        self.patch(number)
        return tuple(patch for patch in self.enabled if patch.number <= number)

    def patch(self, number: int) -> Patch:
        """The patch of that number. Raises UsageError that tells which ones there are."""
        for patch in self.patches:
            if patch.number == number:
                return patch
        known = f"{self.patches[0].name} to {self.patches[-1].name}" if self.patches else "none"
        raise UsageError(f"{self.where} has no patch {number:04d}; it has {known}")

    def slug(self, slug: str) -> Patch | None:
        return next((patch for patch in self.patches if patch.slug == slug), None)


def survey(files: Mapping[str, bytes], *, where: str) -> tuple[Queue, tuple[Fault, ...]]:
    """The patches that can be read, and everything that is wrong with the rest and with the whole."""
    patches: list[Patch] = []
    faults: list[Fault] = []
    names = sorted(name for name in files if name.endswith(".patch"))
    for name in names:
        patch, found = survey_patch(files[name], filename=f"{where}/{name}")
        faults += found
        if patch is not None:
            patches.append(patch)
    patches.sort(key=lambda patch: (patch.number, patch.slug))
    faults += [*_duplicates(names, where=where), *_requirements(patches, where=where)]
    gaps = _gaps(names, where=where)
    return Queue(patches=tuple(patches), where=where, warnings=tuple(gaps)), (*faults, *gaps)


def _duplicates(names: Sequence[str], *, where: str) -> list[Fault]:
    """Two files of one number, or of one slug, whether or not they can be read."""
    faults = []
    numbers: dict[str, str] = {}
    slugs: dict[str, str] = {}
    for name in sorted(names):
        number, _, slug = PurePosixPath(name).name.removesuffix(".patch").partition("-")
        for kind, key, seen in (("number", number, numbers), ("slug", slug, slugs)):
            first = seen.setdefault(key, name)
            if first != name:
                message = f"has the {kind} {key} of {first} too"
                remedy = f"Give one of the two another {kind}."
                faults.append(Fault(rule="duplicate", file=f"{where}/{name}", line=0, message=message, remedy=remedy))
    return faults


def _requirements(patches: Sequence[Patch], *, where: str) -> list[Fault]:
    by_slug = {patch.slug: patch for patch in patches}
    faults = []
    for patch in patches:
        for slug in requires(patch):
            needed = by_slug.get(slug)
            if needed is None:
                message = f"requires {slug}, which the queue does not have{did_you_mean(slug, by_slug)}"
            elif needed.number >= patch.number:
                message = f"requires {needed.name}, which comes after it"
            elif patch.enabled and not needed.enabled:
                message = f"requires {needed.name}, which is disabled"
            else:
                continue
            file = f"{where}/{patch.name}.patch"
            faults.append(Fault(rule="requires", file=file, line=_line_of(patch, "Requires"), message=message))
    return faults


def _gaps(names: Sequence[str], *, where: str) -> list[Fault]:
    numbers = sorted({int(match[1]) for name in names if (match := re.match(r"(\d{4})-", PurePosixPath(name).name))})
    missing = sorted(set(range(1, numbers[-1])) - set(numbers)) if numbers else []
    if not missing:
        return []
    listed = ", ".join(f"{number:04d}" for number in missing[:10]) + (", ..." if len(missing) > 10 else "")
    message = f"the numbers have a gap: no {listed}"
    remedy = "Nothing to do when that patch was dropped on purpose; `Enabled: no` keeps a number without applying it."
    return [Fault(rule="gap", file=where, line=0, message=message, remedy=remedy, severity=Severity.WARNING)]


def _line_of(patch: Patch, trailer: str) -> int:
    for number, line in enumerate(patch.text.split("\n"), start=1):
        if line.lower().startswith(f"{trailer.lower()}:"):
            return number
    return 0
