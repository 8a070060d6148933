"""Reading a server's log until it decides."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from patchbisect.box import Exited, LogChunk, Run
from patchbisect.errors import BoxError
from patchbisect.model import Milestone, Outcome, Patch, Role, Signals, Stage, Verdict
from patchbisect.patchqueue import probes
from patchbisect.startup import SILENCE, Budgets, Classifier, learnt
from patchbisect.trial.preparing import Prepared
from patchbisect.trial.rig import Rig
from patchbisect.trial.watching import SampleWatcher, Watcher
from patchbisect.wire import Json

_SPACE_FOR_LOG = 64 * 1024 * 1024
"""Bytes of log kept in memory and in the record; a flood beyond it is counted, not kept."""

_MOST_EVENTS = 20_000
"""Events kept in the record. A start makes a few hundred; a probe in a hot loop must not eat memory."""


_AFTER_POOL_S = 0.3
"""A pool that is too small is refused some milliseconds after "Memory pool end", unless the totals are told before."""


class Follower:
    """Feeds the classifier until the verdict is final, the wanted stage is reached, or the server is gone."""

    def __init__(
        self,
        *,
        rig: Rig,
        prepared: Prepared,
        until: Stage,
        settle_s: float,
        watcher: Watcher,
        usual: Mapping[Stage, float] | None = None,
    ) -> None:
        self.classifier = Classifier(
            until=until,
            patched_files=_patched_files(prepared.point.patches),
            line_owner=lambda path, line: rig.mirror.line_owner(prepared.code, f"python/{path}", line),
            promised_probes=_promised(prepared),
            budgets=_budgets(rig.project.settings.silence, usual=usual or {}),
        )
        self.lease = rig.lease
        self.until = until
        self.settle_s = settle_s
        self.watcher = watcher
        self.log = bytearray()
        self.events: list[Json] = []
        self.samples: list[Json] = []
        self.settled_s = 0.0
        """How long the server was seen to stay where it was to get to."""
        self.early = False
        """Whether the verdict came while the server was still there, so that it needs no grace."""
        self._pool_holds = False
        self._signals = Signals(alive=True)

    def follow(self, run: Run) -> Verdict:
        """Until nothing can change the verdict, or the server has stayed where it was to get to, or is gone.

        Raises BoxError where the box stops reporting, LeaseLost where it is somebody else's by now.
        """
        begun = time.monotonic()
        reached_at: float | None = None
        for item in run.events():
            if isinstance(item, Exited):
                return self._of_the_dead(item)
            elapsed = time.monotonic() - begun
            if isinstance(item, LogChunk):
                self._hear(item.data, elapsed)
            elif isinstance(item, Signals):
                self._measure(item, elapsed)
            verdict = self.classifier.verdict(self._signals)
            if verdict.final and verdict.outcome not in (Outcome.READY, Outcome.KV_ALLOCATED):
                self.early = True
                return verdict
            if self._reached(verdict):
                reached_at = reached_at or time.monotonic()
                self.settled_s = time.monotonic() - reached_at
                if self.settled_s >= self._settle_s(verdict):
                    return verdict
        raise BoxError("the box stopped reporting on the server", remedy="invoke doctor")

    def _hear(self, data: bytes, elapsed: float) -> None:
        # That silence is over; kept, it would be held against the budget of the stage that now begins.
        self._signals = replace(self._signals, silent_for_s=0.0)
        self._keep(data)
        for event in self.classifier.feed(data):
            self._pool_holds = self._pool_holds or event.tells_totals
            if len(self.events) < _MOST_EVENTS:
                self.events.append({"t": round(elapsed, 3), **event.document()})
            self.watcher.event(event, elapsed)

    def _measure(self, signals: Signals, elapsed: float) -> None:
        if self.lease:
            self.lease.check()
        if signals != self._signals:
            self.samples.append({"t": round(elapsed, 3), **_known(signals)})
        if isinstance(self.watcher, SampleWatcher):
            self.watcher.signals(signals, elapsed)
        self._signals = signals

    def _of_the_dead(self, exited: Exited) -> Verdict:
        """The last word, with what the kernel said of the launch: a server that it killed cannot say so itself."""
        self.classifier.close()
        if exited.kernel:
            self.classifier.feed("\n" + "\n".join(exited.kernel) + "\n")
            self.classifier.close()
        known = replace(self._signals, alive=False, exit_code=exited.exit_code, rank_exit=exited.rank_exit or None)
        return self.classifier.verdict(known)

    def _settle_s(self, verdict: Verdict) -> float:
        known = verdict.outcome is Outcome.READY or self._pool_holds
        return self.settle_s if known else max(self.settle_s, _AFTER_POOL_S)

    def _reached(self, verdict: Verdict) -> bool:
        if verdict.outcome is Outcome.READY:
            return True
        return self.until is Stage.KV_ALLOC and Milestone(Role.TARGET, Stage.KV_ALLOC) in verdict.passed

    def _keep(self, data: bytes) -> None:
        room = _SPACE_FOR_LOG - len(self.log)
        self.log += data[: max(room, 0)]


def _budgets(asked: Mapping[Stage, float], *, usual: Mapping[Stage, float]) -> Budgets:
    """What the settings ask for holds, whatever good starts were like."""
    idle = {stage: seconds for stage, seconds in learnt(usual).items() if stage not in asked}
    return Budgets(silence={**SILENCE, **asked}, idle=idle)


def _known(signals: Signals) -> Json:
    """What a sample is kept of: the numbers that were known."""
    names = ("gpu_used_gb", "gpu_util", "cpu_util", "net_rx_kbps", "silent_for_s")
    return {name: value for name in names if (value := getattr(signals, name)) is not None}


def _promised(prepared: Prepared) -> dict[str, tuple[str, Stage]]:
    """Probe -> (the patch that promises it in this environment, the stage by whose end it must have fired)."""
    return {
        probe.name: (patch.name, probe.stage)
        for patch in prepared.point.patches
        for probe in probes(patch)
        if probe.is_on(prepared.env)
    }


def _patched_files(patches: Sequence[Patch]) -> dict[str, str]:
    """Path below ``python/`` -> the names of all patches that touch it."""
    touching: dict[str, list[str]] = {}
    for patch in patches:
        for name in patch.files:
            touching.setdefault(name.removeprefix("python/"), []).append(patch.name)
    return {name: ", ".join(names) for name, names in touching.items()}
