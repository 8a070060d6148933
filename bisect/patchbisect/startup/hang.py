"""When silence is a hang: a budget per stage, stretched where there is proof of work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from patchbisect.model import Role, Signals, Stage
from patchbisect.startup.life import Life
from patchbisect.startup.ranks import ORDER, Mark, Progress
from patchbisect.startup.server_args import ServerArgs
from patchbisect.startup.vocabulary import Kind

SILENCE: Mapping[Stage, float] = {
    Stage.IMPORT: 300.0,
    Stage.DIST_INIT: 300.0,
    Stage.WEIGHT_LOAD: 900.0,
    Stage.KV_PROFILE: 300.0,
    Stage.KV_ALLOC: 300.0,
    Stage.KERNEL_WARMUP: 600.0,
    Stage.GRAPH_CAPTURE: 600.0,
    Stage.WARMUP: 700.0,
}
"""Seconds without a byte of log, no proof of work. Serving has none: an idle server is silent.

Where they come from: ranks meet within a minute on any machine, and a second node is waited for some minutes;
loading from a cold disk draws a bar more often than every few minutes; NCCL's own time-out is 600 s; the first
request may take 600 s by default. One DeepGEMM kernel set takes up to 20 minutes, but draws a bar.
"""


LEARNT = (Stage.KV_PROFILE, Stage.KV_ALLOC, Stage.KERNEL_WARMUP, Stage.GRAPH_CAPTURE, Stage.WARMUP)
"""Stages that take alike from start to start. What comes before hangs on disks, networks and other machines."""

TIMES = 10.0
LEAST_S = 20.0
"""A start that does nothing is silent for too long when it is so for ten times as long as good starts were in that
stage, and for twenty seconds at least: a disk of a colleague's may stall that long. Both are a judgement."""


def usual_silence(events: Iterable[Mapping[str, Any]]) -> dict[Stage, float]:
    """The longest time between two events of a recorded start, in seconds, for the stages on either side of it."""
    longest: dict[Stage, float] = {}
    before: tuple[float, Stage | None] = (0.0, None)
    for event in events:
        now = float(event["t"]), Stage(event["stage"]) if event["stage"] else None
        for stage in {before[1], now[1]} - {None}:
            assert stage is not None
            longest[stage] = max(longest.get(stage, 0.0), now[0] - before[0])
        before = now
    return longest


def learnt(usual: Mapping[Stage, float]) -> dict[Stage, float]:
    """Budgets of silence (seconds) from what was usual, for a server that is known to do nothing."""
    return {stage: max(LEAST_S, TIMES * usual[stage]) for stage in LEARNT if stage in usual}


@dataclass(frozen=True, slots=True)
class Budgets:
    """``silence`` in seconds per stage; ``at_work`` multiplies it while there is proof of work;
    ``dry_download`` is the budget for a download that receives nothing."""

    silence: Mapping[Stage, float] = field(default_factory=lambda: SILENCE)
    idle: Mapping[Stage, float] = field(default_factory=dict)
    """Shorter budgets that hold where the CPU is known to be idle, or the GPU spins: a compiler may take its time."""
    at_work: float = 4.0
    compiling: float = 2.0
    """For a stage in which a compiler was heard of, where nothing is known of the CPU."""
    dry_download: float = 300.0


@dataclass(frozen=True, slots=True)
class Hang:
    stage: Stage
    role: Role
    cause: str
    missing: tuple[str, ...]
    why: str


def silent_hang(
    life: Life, args: ServerArgs, progress: Progress, signals: Signals, budgets: Budgets, ready: bool
) -> Hang | None:
    """The hang that ``signals.silent_for_s`` proves, or None."""
    silent = signals.silent_for_s
    if silent is None or signals.alive is False or ready:
        return None
    stage, role, missing = standstill(args, progress, life)
    limit = _limit(stage, life, signals, budgets)
    if limit is None or silent < limit:
        return None
    cause = _cause(stage, life, signals, missing)
    who = f"; {_listed(missing)} did not get there" if missing else ""
    return Hang(
        stage, role, cause, missing, f"nothing was logged for {silent:.0f} s in {stage} (budget {limit:.0f} s){who}"
    )


def standstill(args: ServerArgs, progress: Progress, life: Life) -> tuple[Stage, Role, tuple[str, ...]]:
    """Which stage everybody waits in, and who is missing there."""
    if life.http_line:
        return Stage.WARMUP, Role.TARGET, ()
    mark = progress.furthest()
    if mark is None:
        return Stage.IMPORT, Role.TARGET, ()
    missing = missing_ranks(mark, args, progress)
    if missing:
        return mark.stage, mark.role, missing
    position = progress.position()
    return position.next_stage, position.role, ()


def missing_ranks(mark: Mark, args: ServerArgs, progress: Progress) -> tuple[str, ...]:
    """Ranks that lack an end that others have shown.

    A log may hold the lines of a few ranks only, so a rank that never printed a line counts as missing only where
    more than half of all ranks are there.
    """
    if not mark.at_end or mark.kind is Kind.TOTALS:
        return ()
    there = {
        label
        for label, seen in progress.marks(role=mark.role)
        if seen.ended is not None and ORDER[seen.ended] >= ORDER[mark.stage]
    }
    absent = [label for label in progress.tracks if label not in there]
    expected = args.local_ranks or len(progress.tracks)
    if len(there) * 2 > expected:
        absent += [label for label in _unheard(expected, progress) if label not in absent]
    return tuple(sorted(absent, key=_by_number))


def _unheard(expected: int, progress: Progress) -> list[str]:
    """Labels of ranks that never printed, where labels are plain ``TPn``."""
    labels = set(progress.tracks)
    if any(label.split()[:1] != [label] or not label.startswith("TP") for label in labels):
        return []
    numbers = [int(label[2:]) for label in labels]
    first = 0 if max(numbers, default=0) < expected else expected * (max(numbers) // expected)
    return [f"TP{n}" for n in range(first, first + expected) if f"TP{n}" not in labels]


def rank_number(label: str) -> int | None:
    """The global rank of ``TP3`` or ``DP3 TP3``; None where the label does not say."""
    for word in label.split():
        if word.startswith("TP") and word[2:].isdigit():
            return int(word[2:])
    return None


def _by_number(label: str) -> tuple[int, str]:
    return (rank_number(label) or 0, label)


def _limit(stage: Stage, life: Life, signals: Signals, budgets: Budgets) -> float | None:
    base = budgets.silence.get(stage)
    if base is None:
        return None
    if stage is Stage.WEIGHT_LOAD and life.activity.download_line and signals.net_rx_kbps is not None:
        return min(base, budgets.dry_download) if signals.net_rx_kbps < 1 else base * budgets.at_work
    if _at_work(stage, life, signals):
        return base * budgets.at_work
    if signals.cpu_busy is None and signals.cpu_util is None:
        return base * budgets.compiling if stage in _COMPILING and _hears_a_compiler(life) else base
    return min(base, budgets.idle.get(stage, base))


_COMPILING = (Stage.KERNEL_WARMUP, Stage.GRAPH_CAPTURE, Stage.WARMUP)


def _hears_a_compiler(life: Life) -> bool:
    return bool(life.activity.deepgemm_line or life.activity.compile_line)


def _at_work(stage: Stage, life: Life, signals: Signals) -> bool:
    """Proof of work. In ``dist-init`` a busy CPU proves nothing: NCCL spins while it waits."""
    busy = signals.cpu_busy is True or (signals.cpu_util or 0.0) >= 50.0
    if stage is Stage.DIST_INIT:
        return False
    if stage is Stage.WEIGHT_LOAD:
        return busy or (signals.net_rx_kbps or 0.0) >= 100.0
    spinning = (signals.gpu_util or 0.0) >= 95.0
    return busy and (_hears_a_compiler(life) or not spinning)


CAUSES = (
    *("nccl-init", "stuck-download", "stuck-after-load", "stuck-load"),
    *("allreduce-fusion-rendezvous", "deepgemm-warmup"),
)
"""What ``silent_hang`` may say besides ``stuck-<stage>``."""


def _cause(stage: Stage, life: Life, signals: Signals, missing: tuple[str, ...]) -> str:
    if stage is Stage.DIST_INIT:
        return "nccl-init"
    if stage is Stage.WEIGHT_LOAD:
        if life.activity.download_line or life.activity.retry_line:
            return "stuck-download"
        return "stuck-after-load" if missing else "stuck-load"
    if stage is Stage.KERNEL_WARMUP and life.activity.rendezvous_line:
        return "allreduce-fusion-rendezvous"
    if stage in (Stage.KERNEL_WARMUP, Stage.GRAPH_CAPTURE) and life.activity.deepgemm_line:
        return "deepgemm-warmup"
    return f"stuck-{stage}"


def _listed(labels: tuple[str, ...]) -> str:
    return ", ".join(label or "the only rank" for label in labels)
