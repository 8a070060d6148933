"""The box before and after a launch: swept of what is ours, everything else named and left alone."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Sequence
from typing import NamedTuple

from .base import Json, boot_id, free_gb, locked, read_json, since_boot, write_json, write_reserved
from .gpus import Gpu, GpuProcess, Gpus, device_files
from .lease import LeaseBook
from .processes import describe, on_gpu, pids_of_our_own, port_holder, program, whose
from .rundir import REBOOTED, RunDir, all_runs, remove_dead_links, remove_tmpdir, unfinished_runs
from .stopping import end_processes, end_supervisor, sweep_build_locks, sweep_shared_memory
from .warmth import Warmth

KEEP_RUNS = 60


class OnGpus(NamedTuple):
    """What is wrong with the GPUs: who is on them, or else what is on them, or that it cannot be read."""

    strangers: Sequence[GpuProcess] = ()
    others: Sequence[str] = ()

    @property
    def faults(self) -> list[str]:
        return [*map(holding, self.strangers), *self.others]


class Cleaner:
    """Ends launches and proves the box clean, for the client that holds the lease ``fence``."""

    def __init__(self, directory: str, *, box: Json, leases: LeaseBook, fence: int) -> None:
        self._dir = directory
        self._box = box
        self._leases = leases
        self._fence = fence
        self._baselines = f"{directory}/baseline.json"

    def prove_clean(self, port: int) -> Json:
        """Sweep what earlier launches of this tool left; name everything else that would disturb a trial."""
        self._leases.check(self._fence)
        began = time.monotonic()
        swept, faults = [], []
        for run in self._leftovers():
            if run.state().get("keep") and run.members():
                kept = f"launch {run.id} was kept running on purpose (port {run.state()['port']})"
                faults.append(f"{kept}: `invoke stop --run {run.id}` ends it")
                continue
            was_running = bool(run.members())
            if was_running:  # its own client may still be there, and must not take our kill for the server's end
                write_json(run.file("swept.json"), {"by": self._leases.holder(self._fence)})
            report = self.end(run, grace_s=0.0)
            faults += report["faults"]
            if was_running:
                swept.append(f"launch {run.id} had been left running: {len(report['killed'])} processes ended")
        orphans = Warmth(self._dir, fence=self._fence).sweep(leased=self._leases.numbers())
        if orphans:
            swept.append(f"{orphans} warm processes had been left running: ended")
        self._drop_old_runs()
        holder = port_holder(port) if port else None
        if holder:
            faults.append(f"port {port} is held by {holder}")
        faults += self._on_gpus(wait_s=0.0).faults
        free = free_gb(self._dir)
        if free < self._box["min_free_gb"]:
            faults.append(f"only {free:.2f} GiB are free in {self._dir} ({self._box['min_free_gb']} wanted)")
        return {"clean": not faults, "faults": faults, "swept": swept, "seconds": time.monotonic() - began}

    def _leftovers(self) -> list[RunDir]:
        """Launches not proven ended, but for those of who leases other GPUs of this machine now."""
        others = self._leases.numbers() - {self._fence}
        return [run for run in unfinished_runs(self._dir) if run.state()["fence"] not in others]

    def _drop_old_runs(self) -> None:
        remove_dead_links(self._dir)
        with contextlib.suppress(OSError):
            for run in sorted(all_runs(self._dir), key=lambda run: os.stat(run.path).st_mtime)[:-KEEP_RUNS]:
                if run.ended or not run.exists:
                    shutil.rmtree(run.path, ignore_errors=True)

    def _on_gpus(self, *, wait_s: float) -> OnGpus:
        """Strangers on the GPUs, and memory above the baseline after ``wait_s`` to let it fall."""
        if self._box["gpus"] is None:
            return OnGpus()
        gpus = Gpus(self._box["gpus"])
        if gpus.source == "none":
            return OnGpus(others=self._nothing_read(gpus))
        deadline = time.monotonic() + wait_s
        while True:
            found = self._on_gpus_now(gpus)
            if not found.faults or time.monotonic() >= deadline:
                return found
            time.sleep(0.1)

    def _on_gpus_now(self, gpus: Gpus) -> OnGpus:
        listed = gpus.processes()
        residents = [one for one in listed if is_resident(one.pid, self._box["gpu_residents"])]
        busy = [one for one in listed if one not in residents]
        if busy:
            return OnGpus(strangers=busy)
        kept = read_json(self._baselines) or {}
        now = {"boot": boot_id(), "driver": gpus.driver, "source": gpus.source}  # NVML counts what is reserved as used
        same = {name: kept.get(name) for name in now} == now
        baseline = dict(kept["used_gb"]) if same else {}
        found = gpus.read()
        if not found and not gpus.incomplete:
            return OnGpus(others=self._nothing_read(gpus))
        if gpus.incomplete or gpus.unlisted:
            return OnGpus(others=[unreadable(gpus)])
        faults = []
        for gpu in found:
            usual = baseline[gpu.uuid] if gpu.uuid in baseline else self._box["gpu_idle_gb"]
            if gpu.used_gb > usual + self._box["gpu_slack_gb"]:
                faults.append(too_full(gpu, usual=usual, residents=residents))
            else:
                baseline[gpu.uuid] = min(gpu.used_gb, baseline.get(gpu.uuid, gpu.used_gb))
        if not faults:
            write_json(self._baselines, {**now, "used_gb": baseline})
        return OnGpus(others=faults)

    def _nothing_read(self, gpus: Gpus) -> list[str]:
        return nothing_read(gpus, named=self._box["gpus"], baselines=self._baselines)

    def end(self, run: RunDir, *, grace_s: float) -> Json:
        """End everything of one launch and prove it. ``faults`` is empty when the proof holds."""
        with locked(run.file("ending")):
            return self._end(run, grace_s=grace_s)

    def _end(self, run: RunDir, *, grace_s: float) -> Json:
        began = time.monotonic()
        memory = run.shared_memory()
        killed, refusals = end_processes(run, grace_s=grace_s)
        faults = list(refusals)
        left = run.members()
        faults += [f"{describe(proc.pid)} of launch {run.id} does not die (state {proc.state})" for proc in left]
        state = run.state()
        if not left:
            end_supervisor(run)
        gone_s = time.monotonic() - began
        holder = port_holder(state["port"]) if state["port"] else None
        if holder:
            faults.append(f"port {state['port']} is still held by {holder}")
        on_gpus = self._on_gpus(wait_s=self._box["gpu_budget_s"])
        faults += on_gpus.faults
        changed = self._changed(run, state)
        if not left:
            changed += [f"after the launch {fault}" for fault in who_came(run, on_gpus)]
        exit_ = run.exit() or {}
        swept: list[str] = []
        if not left:
            swept = sweep_shared_memory(memory) + sweep_build_locks(state.get("builds", ()), since=began_at(run))
            remove_tmpdir(run)
            write_reserved(run.file("ended.json"), {"killed": killed[:200]})
        return {
            "ended": not left,
            "killed": killed,
            "gone_s": gone_s,
            "seconds": time.monotonic() - began,
            "faults": faults,
            "changed": changed,
            "swept": swept,
            "exit_code": exit_.get("exit_code"),
            "kernel": exit_.get("kernel", []),
        }

    def _changed(self, run: RunDir, state: Json) -> list[str]:
        """How the box is another one than when the launch began."""
        found = list((run.exit() or {}).get("changed", []))
        if not run.of_this_boot:
            found.append(REBOOTED)
        gpus = Gpus(self._box["gpus"]) if state["gpu_source"] != "none" else None
        if gpus is not None:
            if gpus.driver != state["driver"]:
                found.append(f"the driver was {state['driver']} and is now {gpus.driver or 'gone'}")
            missing = set(state["gpus"])
            for _ in range(2):  # one failed reading is no proof
                missing -= {gpu.uuid for gpu in gpus.read()}
            if missing:
                found.append(f"GPU {', '.join(sorted(missing))} fell off ({gpus.why})")
        by = (read_json(run.file("swept.json")) or {}).get("by")
        if by:
            found.append(f"the launch was ended as a leftover by another command of {by}")
        taken = self._leases.taken_over(state["fence"], own=self._fence, gpus=self._box["gpus"] or ())
        if taken:
            found.append(f"the lease of the box was taken over during the launch by {taken}")
        if free_gb(run.path) < 1 / 1024:
            found.append(f"the disk of {run.path} is full")
        return sorted(set(found))


def began_at(run: RunDir) -> float:
    """When the launch began, for comparison with files: by the wall clock of then or of now, if somebody has set it."""
    state = run.state()
    ago = since_boot() - state["started_since_boot"] if run.of_this_boot and "started_since_boot" in state else 0.0
    return min(float(state["started"]), time.time() - ago)


def who_came(run: RunDir, on_gpus: OnGpus) -> list[str]:
    """Who is on the GPUs now that ours are gone came during the launch: nvidia-smi was not asked meanwhile.

    In a container also whatever else is there may be somebody's outside. Elsewhere the driver may list ours too long.
    """
    if pids_of_our_own():
        return on_gpus.faults
    ours = {pid for pid, _ in run.known()}
    return [holding(one) for one in on_gpus.strangers if one.pid not in ours]


def is_resident(number: int, programs: Sequence[str]) -> bool:
    """Whether a driver's ``number`` is that of a program which lives on the GPUs for good."""
    pid = on_gpu(number)
    return pid is not None and program(pid) in programs


def holding(one: GpuProcess) -> str:
    much = "memory" if one.used_gb is None else f"{one.used_gb:.1f} GiB"
    return f"{whose(one.pid)} holds {much} of GPU {one.number}"


def too_full(gpu: Gpu, *, usual: float, residents: Sequence[GpuProcess]) -> str:
    there = " and ".join(whose(one.pid) for one in residents if one.number == gpu.number)
    owner = f"that belong to {there}, or to nobody" if there else "that no process owns"
    return f"GPU {gpu.number} holds {gpu.used_gb:.1f} GiB {owner} (idle: {usual:.1f})"


def nothing_read(gpus: Gpus, *, named: Sequence[int], baselines: str) -> list[str]:
    """What is wrong where no GPU can be read: nothing, on a machine that needs none and never had any.

    A driver that does not load after a reboot leaves no file of a GPU behind; ours, ``baselines``, remembers them.
    """
    if device_files():
        return [unreadable(gpus)]
    if os.path.exists(baselines):
        remedy = f"is the driver loaded? (If they were taken out: rm {baselines})"
        return [f"the GPUs that this machine had are gone ({gpus.why}): {remedy}"]
    return [f"this machine has no GPU, and `gpus` of the box names {', '.join(map(str, named))}"] if named else []


def unreadable(gpus: Gpus) -> str:
    """Memory that nobody can read may be full: that is not clean."""
    if gpus.absent:
        return gpus.why
    remedy = ": pip install nvidia-ml-py for the agent's Python" if gpus.lacks_pynvml else ""
    return f"the GPUs of this machine cannot be read ({gpus.why}){remedy}"
