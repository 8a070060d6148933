"""The words of this project as frozen data. Imports nothing of ours.

Sizes ending in ``_gb`` are GiB (bytes / 2**30), as in SGLang's own log lines.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

Scalar = str | int | float | bool
Facts = Mapping[str, Any]

NUMBERS = frozenset(
    (
        *("kv_tokens", "kv_tokens_all_dp", "swa_tokens", "cell_size", "mem_fraction"),
        *("avail_gb", "total_gb", "weights_gb", "draft_weights_gb", "graphs_gb"),
        *("kv_gb", "draft_kv_gb", "mamba_gb", "host_pool_gb"),
        *("tp", "dp", "pp", "ep", "nnodes"),
    )
)
"""The facts of a start that can be compared with a threshold. A closed list; ``*_gb`` are GiB."""

EMPTY: Mapping[str, Any] = MappingProxyType({})


class Outcome(StrEnum):
    """How a trial ended. A closed list."""

    READY = "ready"
    KV_ALLOCATED = "kv-allocated"
    """Asked to stop there, or alive and making progress there."""
    OOM = "oom"
    CRASH = "crash"
    HANG = "hang"
    """Also a watchdog, barrier or warm-up time-out that ended the server."""
    VOID = "void"
    """Says nothing about the code: our failure, the link's or the machine's."""


class Stage(StrEnum):
    """Stages of a startup, in order. What fails in a gap belongs to the next stage."""

    IMPORT = "import"
    DIST_INIT = "dist-init"
    WEIGHT_LOAD = "weight-load"
    KV_PROFILE = "kv-profile"
    KV_ALLOC = "kv-alloc"
    KERNEL_WARMUP = "kernel-warmup"
    GRAPH_CAPTURE = "graph-capture"
    WARMUP = "warmup"
    SERVING = "serving"


class Role(StrEnum):
    """Stages restart for a draft model, so each is seen in a role."""

    TARGET = "target"
    DRAFT = "draft"


class Persistence(StrEnum):
    """Whether a void is worth another try."""

    TRANSIENT = "transient"
    PERMANENT = "permanent"


@dataclass(frozen=True, slots=True)
class Milestone:
    """A stage that *every* rank of a role has ended."""

    role: Role
    stage: Stage

    def __str__(self) -> str:
        return f"{self.role}:{self.stage}"


@dataclass(frozen=True, slots=True)
class DecidingLine:
    """The line that a verdict rests on: ``line`` counts from 1; ``rank`` is like ``"TP0"`` or ``""``."""

    line: int
    text: str
    rank: str = ""


@dataclass(frozen=True, slots=True)
class Signature:
    """What makes two failures the same failure. Numbers, ids and paths are masked before they get here."""

    outcome: Outcome
    stage: Stage | None = None
    role: Role | None = None
    cause: str | None = None
    exception: str = ""
    frame: str = ""
    """Innermost frame of SGLang's own code, as ``file.py:function``; no line number."""

    def __str__(self) -> str:
        return "/".join(
            part or "-"
            for part in (self.outcome, self.stage, self.role, self.cause, self.exception, self.frame.replace("/", ">"))
        )

    @classmethod
    def parse(cls, text: str) -> Signature:
        """The reverse of ``str``. Raises ValueError with what is wrong."""
        parts = text.strip().split("/")
        if len(parts) != 6:
            raise ValueError(f"a signature has six parts joined by '/', this one has {len(parts)}: {text!r}")
        outcome, stage, role, cause, exception, frame = ("" if part == "-" else part for part in parts)
        return cls(
            outcome=Outcome(outcome),
            stage=Stage(stage) if stage else None,
            role=Role(role) if role else None,
            cause=cause or None,
            exception=exception,
            frame=frame.replace(">", "/"),
        )


@dataclass(frozen=True, slots=True)
class Signals:
    """What is known of a server besides its log. Every field is optional; None is "not known".

    ``exit_code`` follows subprocess (−9) or a shell (137). ``http_ready``: the port is owned by this
    server's processes and health answers. ``silent_for_s``: seconds since the last byte of log.
    """

    exit_code: int | None = None
    alive: bool | None = None
    http_ready: bool | None = None
    silent_for_s: float | None = None
    gpu_util: float | None = None
    cpu_busy: bool | None = None
    cpu_util: float | None = None
    net_rx_kbps: float | None = None
    gpu_used_gb: float | None = None
    alive_ranks: tuple[int, ...] | None = None
    rank_exit: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one trial says.

    ``passed`` lists what every rank has ended, so that a search can tell "got past the target's stage"
    from "failed elsewhere" without another look at the log. ``final`` is False while the log may still
    change the verdict. ``patch`` is the patch that the failing file belongs to, as ``0007-slug``.
    """

    outcome: Outcome
    stage: Stage | None = None
    role: Role | None = None
    cause: str | None = None
    signature: Signature | None = None
    reached_ready: bool = False
    deciding: DecidingLine | None = None
    facts: Facts = field(default_factory=lambda: EMPTY)
    passed: frozenset[Milestone] = frozenset()
    patch: str = ""
    why: str = ""
    advice: str = ""
    lives: tuple[str, ...] = ()
    """One sentence for each earlier life of the server in the same log, oldest first."""
    final: bool = False
    persistence: Persistence | None = None
    """Only for ``void``."""


@dataclass(frozen=True, slots=True)
class Patch:
    """One file of the queue. ``text`` is the file as it is, byte for byte (latin-1 where not UTF-8)."""

    number: int
    slug: str
    author: str
    date: str
    subject: str
    body: str
    trailers: tuple[tuple[str, str], ...]
    diff: str
    text: str
    files: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.number:04d}-{self.slug}"

    def trailer(self, key: str) -> str | None:
        """The first trailer of that name, whatever its case."""
        return next((value for name, value in self.trailers if name.lower() == key.lower()), None)

    @property
    def enabled(self) -> bool:
        return (self.trailer("Enabled") or "yes").lower() != "no"


@dataclass(frozen=True, slots=True)
class Pin:
    """The upstream commit that the queue is written against (``patches/pin.toml``)."""

    upstream: str
    commit: str
    tag: str = ""
    release: str = ""
    wheel_sha256: str = ""


_COMMIT_ID = re.compile(r"[0-9a-f]{40,64}")


@dataclass(frozen=True, slots=True)
class Base:
    """Where a point's code starts: the pin, or another upstream revision (``rev``)."""

    pin: Pin
    rev: str = ""
    """Empty: the pin itself. Else a commit, tag or branch of upstream, or ``release:0.5.10``."""
    subject: str = field(default="", compare=False)
    """First line of the commit's message, where it is known."""

    def __str__(self) -> str:
        return self.rev or self.pin.tag or self.pin.commit[:12]

    @property
    def short(self) -> str:
        """As a person writes it: of a commit id the first twelve digits."""
        return self.rev[:12] if _COMMIT_ID.fullmatch(self.rev) else str(self)


@dataclass(frozen=True, slots=True)
class Point:
    """Everything that decides how a server starts.

    ``flags`` maps a flag without its dashes to its value: True for a bare flag, a tuple for several values.
    ``env`` holds strings. ``packages`` maps distribution to version where they are part of the question.
    """

    name: str
    base: Base
    patches: tuple[Patch, ...]
    profile: str
    flags: Mapping[str, Scalar | tuple[str, ...]] = field(default_factory=lambda: EMPTY)
    env: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    packages: Mapping[str, str] = field(default_factory=lambda: EMPTY)


class Axis(StrEnum):
    """One kind of change."""

    BASE = "base"
    QUEUE = "queue"
    PACKAGES = "packages"
    FLAGS = "flags"
    ENV = "env"


@dataclass(frozen=True, slots=True)
class Change:
    """One edit of a point: ``before`` → ``after`` of ``subject`` on ``axis``; None is "not there".

    For the queue the values are Patch, for the base Base, for flags, env and packages their values.
    ``parts`` are edits that only work together; such a change has no values of its own.
    """

    axis: Axis
    subject: str
    before: Any
    after: Any
    parts: tuple[Change, ...] = ()
    note: str = ""
    """The name of a group that has one of its own: ``commit 1a2b3c4d5e6f: Title``."""

    @property
    def verb(self) -> str:
        if self.parts:
            return "group"
        if self.before is None:
            return "add"
        if self.after is None:
            return "remove"
        moved = self.axis is Axis.QUEUE and self.before.text == self.after.text
        return "move" if moved else "replace"

    @property
    def title(self) -> str:
        if self.note:
            return self.note
        if self.parts:
            return f"together: {'; '.join(part.title for part in self.parts)}"
        if self.axis is Axis.QUEUE:
            patch = self.after or self.before
            return f"{self.verb} {patch.name}: {patch.subject}"
        if self.axis is Axis.BASE:
            if self.after.subject:
                return f"upstream {self.after.short}: {self.after.subject}"
            return f"upstream {self.before.short} -> {self.after.short}"
        if self.after is None:
            return f"unset {self.subject} (was {self.before})"
        if self.before is None:
            return f"set {self.subject}={self.after}"
        return f"{self.subject}: {self.before} -> {self.after}"


@dataclass(frozen=True, slots=True)
class Timeline:
    """An ordered list of changes from a good point to a bad one; point k = the first k changes applied."""

    good: Point
    bad: Point
    changes: tuple[Change, ...]
    stops: tuple[Point, ...] = ()
    """The first points of the timeline, good end first, where they are known otherwise than by its changes."""


@dataclass(frozen=True, slots=True)
class CodeCommit:
    """A point's code as a real commit of the mirror.

    ``tree`` is the id of ``python/sglang`` there; ``source`` says whether a git clone or a release gave the base.
    ``shifted`` tells which hunks of which patches applied away from their line (only off the pin).
    """

    commit: str
    tree: str
    base_commit: str
    source: str
    patches: tuple[str, ...] = ()
    shifted: tuple[str, ...] = ()


def content_id(
    *,
    tree: str,
    arguments: Sequence[str],
    env: Mapping[str, str],
    packages: Mapping[str, str] = EMPTY,
    warm: bool = False,
) -> str:
    """What makes two points run the same: sha256 (hex) of canonical JSON of what decides a start.

    ``tree`` is the id of ``python/sglang`` without generated files, ``arguments`` are resolved and hold neither host
    nor port, ``env`` holds the variables that matter, of a secret its digest. Titles and
    comments of patches do not count. A start from a warm process is another one than the shipped start.
    """
    content = {"tree": tree, "arguments": list(arguments), "env": dict(env), "packages": dict(packages)}
    if warm:
        content["start"] = "warm"
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()
