"""A name on the command line → a Point: ``POINT[@PROFILE][+N...][-N...]``.

``clean``, ``HEAD``, ``worktree``, ``3`` or ``0003``, any revision of this repository, ``upstream:REV``, ``run:ID``,
``ref:NAME``. Warnings are data: whoever asks prints them.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from patchbisect.config import PIN_FILE, Project, Settings
from patchbisect.errors import UsageError
from patchbisect.model import Base, Patch, Pin, Point, Scalar
from patchbisect.patchqueue import Queue, did_you_mean, parse_patch, parse_pin, requires
from patchbisect.records import PatchEntry, PointEntry, Store
from patchbisect.redact import MASK, is_secret
from patchbisect.upstream import Git, Mirror

WORDS = ("clean", "HEAD", "worktree")

_EDIT = re.compile(r"(?P<rest>.+)(?P<edit>[+-]\d{1,4})")
_NUMBER = re.compile(r"\d{1,4}")
_ARGUMENTS = "python/sglang/srt/server_args.py"
_OPTION = re.compile(r"[\"']--([a-z][a-z0-9-]*)[\"']")
_FULL_ID = re.compile(r"\b[0-9a-f]{40}\b")
_SETTING = re.compile(r"(?P<kind>flag|env|package):(?P<name>[^=\s]+)=(?P<value>.*)", re.DOTALL)

Flags = dict[str, Scalar | tuple[str, ...]]

_OF_A_QUEUE = (b".patch", b"pin.toml")
"""Endings of the files that a queue is made of."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """A point, and what its user should know about how its name was read."""

    point: Point
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Reading:
    """What the bare name stands for, before profile and edits. ``queue`` is made for ``pin``; ``+N`` takes from it."""

    base: Base
    patches: tuple[Patch, ...]
    pin: Pin
    queue: Queue
    in_order: bool = True
    """The queue in order at the pin: it must apply exactly."""
    warnings: tuple[str, ...] = ()
    recorded: Point | None = None


@dataclass(frozen=True, slots=True)
class _Name:
    """A name taken apart. ``profile`` is empty where none is given."""

    bare: str
    profile: str = ""
    edits: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class PointResolver:
    """Reads points of one queue repository. ``runs`` gives the point of a recorded run by its id."""

    def __init__(self, *, root: Path, settings: Settings, mirror: Mirror, runs: Callable[[str], Point]) -> None:
        self.root = root
        self.settings = settings
        self.mirror = mirror
        self.runs = runs
        self._git = Git(root, worktree=True)

    @classmethod
    def of(cls, project: Project, *, mirror: Mirror) -> PointResolver:
        """The resolver of a project, with its store of records."""
        store = Store.of(project)

        def runs(identifier: str) -> Point:
            return recorded_point(store, identifier, environ=os.environ, settings=project.settings)

        return cls(root=project.root, settings=project.settings, mirror=mirror, runs=runs)

    def resolve(self, name: str, *, profile: str | None = None, settings: Sequence[str] = ()) -> Resolved:
        """The point of a name. ``settings`` are edits like ``flag:tp-size=4`` and ``env:NAME=VALUE``, applied last.

        ``profile`` counts where the name has no ``@PROFILE``. The queue in order at the pin is built here, so that
        one that does not apply exactly is refused before anything starts. Raises UsageError, PointUnbuildable,
        BoxError.
        """
        parts = self._take_apart(name)
        reading = self._read(parts.bare, edited=bool(parts.edits))
        patches = _edited(reading, parts.edits, name=name)
        if reading.in_order and not parts.edits:
            self.mirror.materialize(reading.base, patches, exact=True)
        elif patches:
            self.mirror.remember(reading.pin, reading.queue.enabled)
            self.mirror.remember(reading.base.pin, reading.patches)
        shown = _FULL_ID.sub(lambda found: found[0][:12], name)
        point = self._point(shown, reading=reading, patches=patches, profile=parts.profile or profile)
        point = with_settings(point, settings)
        warnings = (
            *parts.warnings,
            *reading.warnings,
            *(str(fault) for fault in reading.queue.warnings),
            *_unmet(patches),
            *self._strange_flags(point, settings),
        )
        return Resolved(point=point, warnings=tuple(dict.fromkeys(warnings)))

    def queue(self, revision: str = "worktree") -> tuple[Pin, Queue]:
        """Pin and queue on disk (``worktree``), as ``HEAD`` means it, or at a revision here. Raises UsageError."""
        if revision == "worktree":
            return self._on_disk()
        return self._committed()[:2] if revision == "HEAD" else self._at(revision)

    def _take_apart(self, name: str) -> _Name:
        if not name or name.startswith("-") or any(ord(character) < 33 for character in name):
            raise UsageError(f"{name!r} is not a point", remedy=self._known())
        head, at, tail = self._split_profile(name)
        profile, late_edits = _split_edits(tail, known=lambda rest: rest in self.settings.profiles)
        if at:
            self.settings.profile_named(profile or "@")
        bare, edits = _split_edits(head, known=lambda rest: self._is_ref(rest.removeprefix("ref:")))
        warnings: tuple[str, ...] = ()
        if _looks_like_another(bare) and self._is_ref(bare):
            warnings = (f"{bare} is a ref of this repository, and that is what it means here",)
            bare = f"ref:{bare}"
        elif bare in ("clean", "worktree") and self._is_ref(bare):
            warnings = (f"there is also a ref {bare}: say ref:{bare} to mean that",)
        return _Name(bare=bare, profile=profile, edits=(*edits, *late_edits), warnings=warnings)

    def _strange_flags(self, point: Point, settings: Sequence[str]) -> list[str]:
        """Flags among ``settings`` that the point's SGLang does not take, as far as its text tells.

        A server that is launched with one ends at once, and that is a failure like any other.
        """
        matches = [_SETTING.fullmatch(text) for text in settings]
        names = [_flag(match["name"]) for match in matches if match and match["kind"] == "flag"]
        if not names:
            return []
        arguments = self.mirror.read(self.mirror.base(point.base).commit, _ARGUMENTS) or b""
        texts = [arguments.decode(errors="replace"), *(patch.text for patch in point.patches)]
        known = {name for text in texts for name in _OPTION.findall(text)}
        if "model-path" not in known:
            return []
        # argparse takes the beginning of a name for the name.
        strange = [name for name in names if not any(one.startswith(name) for one in known)]
        return [f"SGLang at {point.base} has no flag --{name}{did_you_mean(name, known)}" for name in strange]

    def _split_profile(self, name: str) -> tuple[str, str, str]:
        """``@{`` is git's own syntax, and a ref may hold an ``@``."""
        if "@" not in name or "@{" in name or self._is_ref(name):
            return name, "", ""
        head, at, tail = name.rpartition("@")
        return head, at, tail

    def _read(self, bare: str, *, edited: bool) -> _Reading:
        kind, colon, rest = bare.partition(":")
        if colon and kind == "upstream":
            pin, queue, warnings = self._committed(pin_alone=not edited)
            base = self.mirror.freeze(Base(pin=pin, rev=rest)) if rest else Base(pin=pin)
            return _Reading(base=base, patches=(), pin=pin, queue=queue, in_order=False, warnings=warnings)
        if colon and kind == "run":
            pin, queue, _ = self._committed()
            point = self.runs(rest)
            return _Reading(
                base=point.base, patches=point.patches, pin=pin, queue=queue, in_order=False, recorded=point
            )
        if bare in WORDS or _NUMBER.fullmatch(bare):
            return self._read_word(bare, edited=edited)
        pin, queue = self._at(bare.removeprefix("ref:"))
        return _Reading(base=Base(pin=pin), patches=queue.enabled, pin=pin, queue=queue)

    def _read_word(self, word: str, *, edited: bool) -> _Reading:
        if word == "worktree":
            pin, queue = self._on_disk()
            differs = ("the queue on disk differs from HEAD",) if self._differs_from_head() else ()
            return _Reading(base=Base(pin=pin), patches=queue.enabled, pin=pin, queue=queue, warnings=differs)
        pin, queue, warnings = self._committed(pin_alone=word == "clean" and not edited)
        if word == "clean":
            return _Reading(base=Base(pin=pin), patches=(), pin=pin, queue=queue, warnings=warnings)
        if word == "HEAD":
            return _Reading(base=Base(pin=pin), patches=queue.enabled, pin=pin, queue=queue, warnings=warnings)
        if not queue.patch(int(word)).enabled:
            warnings = (*warnings, f"patch {int(word):04d} is disabled: {word} is the queue before it")
        return _Reading(base=Base(pin=pin), patches=queue.up_to(int(word)), pin=pin, queue=queue, warnings=warnings)

    def _committed(self, *, pin_alone: bool = False) -> tuple[Pin, Queue, tuple[str, ...]]:
        """Pin and queue at HEAD; on disk where nothing is committed yet. ``pin_alone``: no patch is taken of them."""
        if not self._git.commit("HEAD"):
            return (*self._on_disk(), ("nothing is committed here yet: the queue on disk is taken",))
        what, endings = ("pin", (b"pin.toml",)) if pin_alone else ("queue", _OF_A_QUEUE)
        differs = (f"the {what} on disk differs from HEAD, which is taken; say worktree to mean the files on disk",)
        return (*self._at("HEAD"), differs if self._differs_from_head(endings) else ())

    def _on_disk(self) -> tuple[Pin, Queue]:
        folder = self.root / PIN_FILE.parent
        try:
            files = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
        except OSError as error:
            raise UsageError(f"cannot read {error.filename}: {error.strerror}", remedy="Check the rights.") from error
        return _parsed(files, where=folder.name)

    def _at(self, revision: str) -> tuple[Pin, Queue]:
        commit = self._git.commit(revision)
        if not commit:
            raise UsageError(f"unknown point {revision!r}{did_you_mean(revision, self._names())}", remedy=self._known())
        return _parsed(self._git.files(commit, PIN_FILE.parent.name), where=f"{revision}:{PIN_FILE.parent.name}")

    def _differs_from_head(self, endings: tuple[bytes, ...] = _OF_A_QUEUE) -> bool:
        if not self._git.commit("HEAD"):
            return False
        ran = self._git.run("status", "--porcelain", "--untracked-files=all", "--", PIN_FILE.parent.name)
        return ran.status == 0 and any(line.endswith(endings) for line in ran.out.splitlines())

    def _is_ref(self, name: str) -> bool:
        """A branch, tag or remote branch of that whole name; an abbreviated commit id is none."""
        ran = self._git.run("rev-parse", "--verify", "--quiet", "--symbolic-full-name", "--end-of-options", name)
        return ran.status == 0 and "refs/" in ran.text

    def _names(self) -> list[str]:
        ran = self._git.run("for-each-ref", "--format=%(refname:short)")
        return [*WORDS, *ran.text.split()]

    def _known(self) -> str:
        return (
            "A point is clean, HEAD, worktree, a patch number, a revision of this repository, upstream:REV, run:ID or "
            "ref:NAME, then @PROFILE, +N, -N."
        )

    def _point(self, name: str, *, reading: _Reading, patches: tuple[Patch, ...], profile: str | None) -> Point:
        if reading.recorded and not profile:
            return replace(reading.recorded, name=name, patches=patches)
        chosen, command = self.settings.profile_named(profile)
        return Point(
            name=name,
            base=reading.base,
            patches=patches,
            profile=chosen,
            flags=dict(command.flags),
            env=dict(command.env),
            packages=reading.recorded.packages if reading.recorded else {},
        )


def with_settings(point: Point, settings: Sequence[str]) -> Point:
    """The point with ``flag:NAME=VALUE``, ``env:NAME=VALUE``, ``package:NAME=VERSION`` applied in turn.

    Raises UsageError.

    An empty value unsets; the flag value ``true`` is a bare flag; ``***`` stands for a secret that is taken from
    today's environment (for a flag: from the variable of its name in capitals).
    """
    flags: Flags = dict(point.flags)
    env = dict(point.env)
    packages = dict(point.packages)
    for text in settings:
        match = _SETTING.fullmatch(text)
        if not match:
            raise UsageError(
                f"{text!r} is not a setting",
                remedy="Write flag:NAME=VALUE, env:NAME=VALUE or package:NAME=VERSION; no value unsets.",
            )
        name, value = match["name"], match["value"]
        if value == MASK:
            value = _by_name(name, text=text)
        if match["kind"] == "env":
            _set(env, name, value)
        elif match["kind"] == "package":
            _set(packages, canonicalize_name(name), _version(value, text=text))
        else:
            _set(flags, _flag(name), True if value == "true" else value)
    told = [masked_setting(text).partition(":")[2] for text in settings]
    return replace(point, name=" ".join([point.name, *told]), flags=flags, env=env, packages=packages)


def _flag(name: str) -> str:
    return name.lstrip("-").replace("_", "-")


def _version(value: str, *, text: str) -> str:
    try:
        return str(Version(value)) if value else ""
    except InvalidVersion as error:
        raise UsageError(f"{text!r}: {value!r} is not a version", remedy="Write package:NAME=1.2.3.") from error


def masked_setting(text: str, *, more: Iterable[str] = ()) -> str:
    """A setting as it may be kept: the value of a secret replaced by ``***``."""
    match = _SETTING.fullmatch(text)
    if not match or not match["value"] or not is_secret(match["name"], more=more):
        return text
    return f"{match['kind']}:{match['name']}={MASK}"


def _by_name(name: str, *, text: str) -> str:
    variable = name.lstrip("-").replace("-", "_")
    for known in (variable, variable.upper()):
        if known in os.environ:
            return os.environ[known]
    raise UsageError(
        f"{text}: the secret is not kept, and this environment has no {variable.upper()}",
        remedy=f"Export {variable.upper()}, then try again.",
    )


def recorded_point(store: Store, identifier: str, *, environ: Mapping[str, str], settings: Settings) -> Point:
    """Exactly what a recorded run ran; secrets come by name from ``environ`` and today's profile.

    Raises UsageError for an unknown run, for one whose code is not known (adopted from a log) or no longer whole
    (cleaned when it was exported), and for a secret that is not there today.
    """
    record = store.load(identifier)
    if record.origin == "adopted":
        raise UsageError(
            f"run {identifier} was adopted from a log: which code it ran is not known",
            remedy="Name the point that it ran, as far as you know it.",
        )
    texts = store.patch_texts(identifier)
    point = point_of(record.point, texts, whose=f"run {identifier}", environ=environ, settings=settings)
    return replace(point, name=f"run:{identifier}")


def point_of(
    entry: PointEntry, texts: Mapping[str, bytes], *, whose: str, environ: Mapping[str, str], settings: Settings
) -> Point:
    """The point that was written down as ``entry``, with the ``texts`` of its patches by file name.

    Secrets come by name from ``environ`` and today's profile. Raises UsageError as ``recorded_point`` does; ``whose``
    says there whose point it is.
    """
    patches = tuple(_as_recorded(patch, texts, whose=whose) for patch in entry.patches)
    missing = [name for name in entry.secret_env if name not in environ]
    if missing:
        raise UsageError(
            f"{whose} had secrets that this environment has not: {', '.join(missing)}",
            remedy="Export them, then try again.",
        )
    pin = Pin(
        upstream=entry.upstream,
        commit=entry.pin,
        tag=entry.tag,
        release=entry.release,
        wheel_sha256=entry.wheel_sha256,
    )
    return Point(
        name=entry.name,
        base=Base(pin=pin, rev=entry.base_rev),
        patches=patches,
        profile=entry.profile,
        flags=_unmasked(entry, whose=whose, settings=settings),
        env={**entry.env, **{name: environ[name] for name in entry.secret_env}},
        packages=dict(entry.packages),
    )


def _as_recorded(entry: PatchEntry, texts: Mapping[str, bytes], *, whose: str) -> Patch:
    """The patch whose text is the one that ran: hosts and secrets are taken out of an exported one."""
    filename = f"{entry.name}.patch"
    text = texts.get(filename, b"")
    if entry.sha256 and hashlib.sha256(text).hexdigest() != entry.sha256:
        raise UsageError(
            f"{whose}: {filename} is not the text that ran (an export takes hosts and secrets out)",
            remedy="Launch it where it was recorded.",
        )
    return parse_patch(text, filename=filename)


def _unmasked(entry: PointEntry, *, whose: str, settings: Settings) -> Flags:
    profile = settings.profiles.get(entry.profile)
    flags: Flags = {}
    for name, value in entry.flags.items():
        if value == MASK and (profile is None or name not in profile.flags):
            raise UsageError(
                f"{whose} had a secret --{name} that no profile {entry.profile!r} gives today",
                remedy="Put it into that profile, then try again.",
            )
        if value == MASK and profile is not None:
            value = profile.flags[name]
        flags[name] = tuple(value) if isinstance(value, list) else value
    return flags


def _split_edits(text: str, *, known: Callable[[str], bool]) -> tuple[str, tuple[str, ...]]:
    """The edits at the end of a name, taken off one by one until what is left is known as it stands."""
    edits: list[str] = []
    while (match := _EDIT.fullmatch(text)) and not known(text):
        text = match["rest"]
        edits.insert(0, match["edit"])
    return text, tuple(edits)


def _looks_like_another(name: str) -> bool:
    """A name that would be a patch number, or a point with an edit, were it not a ref."""
    return bool(_EDIT.fullmatch(name) or _NUMBER.fullmatch(name))


def _edited(reading: _Reading, edits: Sequence[str], *, name: str) -> tuple[Patch, ...]:
    """The patches with ``+N`` added alone and ``-N`` taken away, in number order."""
    if not edits:
        return reading.patches
    patches = {patch.number: patch for patch in reading.patches}
    for edit in edits:
        number = int(edit[1:])
        if edit[0] == "+" and number in patches:
            raise UsageError(f"{name}: patch {number:04d} is in it already", remedy=f"Leave {edit} out.")
        if edit[0] == "-" and number not in patches:
            known = ", ".join(f"{number:04d}" for number in patches) or "none"
            raise UsageError(f"{name}: there is no patch {number:04d} to take away", remedy=f"It has {known}.")
        if edit[0] == "+":
            patches[number] = reading.queue.patch(number)
        else:
            del patches[number]
    return tuple(patches[number] for number in sorted(patches))


def _unmet(patches: Sequence[Patch]) -> list[str]:
    """Patches that say they need one that the point does not have."""
    slugs = {patch.slug for patch in patches}
    return [
        f"{patch.name} says that it requires {slug}, which is not in this point"
        for patch in patches
        for slug in requires(patch)
        if slug not in slugs
    ]


def _parsed(files: Mapping[str, bytes], *, where: str) -> tuple[Pin, Queue]:
    if PIN_FILE.name not in files:
        raise UsageError(f"{where} has no {PIN_FILE.name}", remedy="Only revisions with a pin can be named.")
    pin = parse_pin(files[PIN_FILE.name], filename=f"{where}/{PIN_FILE.name}")
    return pin, Queue.read(files, where=where)


def _set(values: MutableMapping[str, Any], name: str, value: str | bool) -> None:
    if value == "":
        values.pop(name, None)
    else:
        values[name] = value
