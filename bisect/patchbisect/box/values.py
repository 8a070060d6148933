"""What a box is told and what it answers, as frozen data. Sizes are GiB, times seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from patchbisect.durations import duration
from patchbisect.model import EMPTY


@dataclass(frozen=True, slots=True)
class GpuFacts:
    index: int
    uuid: str
    name: str
    total_gb: float


@dataclass(frozen=True, slots=True)
class BoxFacts:
    """The fingerprint of a machine. ``gpu_source``: ``nvml``, ``nvidia-smi`` or ``none``; ``gpu_why``: why."""

    hostname: str
    boot_id: str
    kernel: str
    system: str
    cpu: str
    cores: int
    ram_gb: float
    gpus: tuple[GpuFacts, ...]
    gpu_source: str
    gpu_why: str
    driver: str
    python: str
    git: str
    user: str
    directory: str
    free_gb: float

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> BoxFacts:
        return cls(**{**answer, "gpus": tuple(GpuFacts(**gpu) for gpu in answer["gpus"])})


@dataclass(frozen=True, slots=True)
class PlacedCode:
    """Code on the box. ``path`` is the directory to put on PYTHONPATH; ``tree`` is the id of ``python/sglang`` there.

    ``placed`` is False when it was there already. ``note`` says what was noticed (a tree changed by hand, set aside).
    """

    commit: str
    tree: str
    path: str
    placed: bool
    seconds: float
    note: str = ""
    patches: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Applied:
    """What ``apply`` put on the box, as it is on disk now. ``changed`` are files changed by hand since."""

    commit: str
    tree: str
    path: str
    patches: tuple[str, ...]
    changed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """One launch. ``secret_env`` reaches the server's environment and nothing else, on no disk.

    ``port`` is the one that the server is told to listen on (0: none). ``keep`` protects the server from being
    swept as a leftover by the next trial.
    """

    launch_id: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    secret_env: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    port: int = 0
    code: PlacedCode | None = None
    pythonpath: tuple[str, ...] = ()
    keep: bool = False
    warm: bool = False
    """Forked from a process that has imported what launches import; for ``python -m MODULE`` only."""
    environment: Environment | None = None
    """The environment of ours that it runs in; the box's own where there is none."""


@dataclass(frozen=True, slots=True)
class Installed:
    """What an interpreter on the box has: ``packages`` as they are called there, name to version.

    ``markers`` are the variables of environment markers there.
    """

    executable: str
    prefix: str
    places: tuple[str, ...]
    packages: Mapping[str, str]
    markers: Mapping[str, str]

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Installed:
        return cls(**{**answer, "places": tuple(answer["places"])})


@dataclass(frozen=True, slots=True)
class EnvironmentOrder:
    """An environment of ours over the server's: what it must have besides.

    ``key`` is its content (16 hex digits), ``sought`` the names of what the server's own lacks, ``wanted`` all
    requirements, ``held`` requirements that name what must stay as it is, ``without`` what the box lives without and
    that is not installed with others either.
    """

    key: str
    python: str
    sought: tuple[str, ...]
    wanted: tuple[str, ...]
    held: tuple[str, ...] = ()
    without: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Environment:
    """One that is there. ``added`` are the distributions that differ from the server's own, name to version.

    ``built`` is False where it was there already; ``seconds`` is what building it took. ``used`` is seconds since the
    epoch by the box's clock; ``busy``: a launch runs in it.
    """

    key: str
    python: str
    added: Mapping[str, str]
    wanted: tuple[str, ...]
    seconds: float
    size_gb: float
    built: bool = False
    used: float = 0.0
    busy: bool = False

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Environment:
        known = {name: value for name, value in answer.items() if name in cls.__slots__}
        return cls(**{**known, "wanted": tuple(answer["wanted"])})


@dataclass(frozen=True, slots=True)
class LogChunk:
    """Bytes of the log from ``offset`` on. Secret values are starred out, byte for byte, so offsets hold."""

    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Exited:
    """The launcher has ended and its log is read to the end (``offset``).

    ``exit_code`` as in subprocess (−9: killed by SIGKILL); None when the supervisor was killed and nobody could wait
    for it. ``left`` are processes of the launch that live on. ``kernel`` are the kernel's lines about killing it.
    """

    exit_code: int | None
    offset: int
    rank_exit: Mapping[str, int] = field(default_factory=lambda: EMPTY)
    left: tuple[int, ...] = ()
    kernel: tuple[str, ...] = ()
    box_changed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StopReport:
    """How a launch was ended. ``faults`` is empty when processes, port and GPU memory are proven back to normal.

    ``gone_s`` is how long the processes took to be gone, ``seconds`` the whole proof. ``box_changed`` says how the
    box became another one during the launch (reboot, driver, a GPU, a full disk, a foreign process): such a trial
    says nothing about the code.
    """

    ended: bool
    killed: tuple[int, ...]
    seconds: float
    gone_s: float
    faults: tuple[str, ...]
    box_changed: tuple[str, ...]
    exit_code: int | None
    kernel: tuple[str, ...]
    swept: tuple[str, ...] = ()
    """Files that the launch left in /dev/shm, and locks of builds that the kill interrupted: removed."""


@dataclass(frozen=True, slots=True)
class CleanReport:
    """Each fault is a sentence that names who or what is in the way; ``swept`` says what of ours was ended."""

    clean: bool
    faults: tuple[str, ...]
    swept: tuple[str, ...]
    seconds: float
    waited_s: float = 0.0
    """How long it was waited for who or what was in the way."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that a trial needs. ``remedy`` is what to do where it is not right."""

    check: str
    ok: bool
    detail: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch on the box that is not proven ended. ``started`` is seconds since the epoch by the box's clock."""

    launch_id: str
    port: int
    keep: bool
    started: float
    processes: int


@dataclass(frozen=True, slots=True)
class WarmProcess:
    """A process on the box from which launches are forked: ``modules`` is how many it was told to import ahead."""

    pid: int
    python: str
    age_s: float
    modules: int


@dataclass(frozen=True, slots=True)
class LeaseHeld:
    """A lease of the box as its book shows it. No ``gpus`` means the whole machine."""

    fence: int
    owner: str
    host: str
    reason: str
    gpus: tuple[int, ...]
    held_s: float
    expires_in_s: float
    client: str
    pid: int
    """The process that holds it, and where that pid means something."""

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> LeaseHeld:
        """The book may be written by every user of the machine: what gives orders to a terminal is left out."""
        words = {name: entry[name] for name in ("owner", "host", "reason")}
        said = {name: "".join(c if c.isprintable() else "·" for c in text) for name, text in words.items()}
        return cls(**{**entry, **said, "gpus": tuple(entry["gpus"])})

    def __str__(self) -> str:
        # What a process holds it renews long before that: the expiry counts once the process is gone.
        unless = " unless renewed" if self.pid else ""
        left = f"expires in {duration(self.expires_in_s)}{unless}" if self.expires_in_s > 0 else "expired"
        return f"{self.owner} on {self.host} ({self.reason}), for {duration(self.held_s)}, {left}"
