"""Every way to start, or not, that a machine without a GPU can show on a real server."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from patchbisect.model import Milestone, Outcome, Role, Stage
from patchbisect.startup import Event
from patchbisect.trial import Rig
from tests.sglang.conftest import Launch

pytestmark = pytest.mark.real

KV_PASSED = Milestone(Role.TARGET, Stage.KV_ALLOC)


def of_this_launch(rig: Rig) -> list[int]:
    """Processes that work in a run directory of the box, by pid."""
    runs = str(rig.project.state / "box" / "runs")
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if str((entry / "cwd").readlink()).startswith(runs):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def test_ready_with_every_probe_of_the_queue_firing(launch: Launch, rig: Rig) -> None:
    trial = launch("worktree")
    verdict = trial.verdict
    assert verdict.outcome is Outcome.READY
    assert verdict.reached_ready
    assert KV_PASSED in verdict.passed
    assert verdict.facts["kv_tokens"] == 4096
    fired = verdict.facts["probes"]
    assert fired["kv_sizing"][""]["cell_size"] == 256 if "" in fired["kv_sizing"] else fired["kv_sizing"]
    assert {"kv_sizing", "memory_before_weights", "memory_after_weights", "memory_after_pool"} <= set(fired)
    assert "all_reduce" not in fired
    record = rig.store.load(trial.record)
    assert record.provenance["tree"] == record.code["tree"]
    assert record.provenance["sglang"].startswith(str(rig.project.state / "box"))
    assert record.provenance["packages"]["torch"]
    assert not record.stop["faults"]
    assert of_this_launch(rig) == []


def test_stops_when_the_kv_pool_is_allocated(launch: Launch, rig: Rig) -> None:
    trial = launch("clean", until=Stage.KV_ALLOC)
    assert trial.verdict.outcome is Outcome.KV_ALLOCATED
    assert not trial.verdict.reached_ready
    assert trial.verdict.facts["kv_tokens"] == 4096
    assert of_this_launch(rig) == []


def test_a_fraction_that_is_too_low_is_an_oom_at_sizing_and_the_fix_says_the_numbers(launch: Launch, rig: Rig) -> None:
    trial = launch("worktree", profile="big", settings=("flag:mem-fraction-static=0.0012",))
    verdict = trial.verdict
    assert (verdict.outcome, verdict.stage, verdict.cause) == (Outcome.OOM, Stage.KV_PROFILE, "kv-profile")
    assert KV_PASSED not in verdict.passed
    log = rig.store.log(trial.record).decode(errors="replace")
    assert "The smallest --mem-fraction-static that would work is" in log
    assert "PROBE kv_sizing" in log
    assert "PROBE memory_after_pool" not in log


def test_an_unbound_name_is_found_in_the_patch_that_reads_it(launch: Launch) -> None:
    verdict = launch("HEAD", queue="observer-effect").verdict
    assert (verdict.outcome, verdict.stage, verdict.cause) == (Outcome.CRASH, Stage.KV_PROFILE, "unbound-name")
    assert verdict.deciding is not None
    assert "UnboundLocalError" in verdict.deciding.text
    assert verdict.patch == "0006-log-rest-memory"


def test_a_syntax_error_in_a_patch_names_the_patch(launch: Launch) -> None:
    verdict = launch("HEAD", queue="syntax-error").verdict
    assert (verdict.outcome, verdict.stage, verdict.cause) == (Outcome.CRASH, Stage.IMPORT, "syntax-error")
    assert verdict.patch.startswith("0002-")


def test_a_wrong_model_path(launch: Launch) -> None:
    verdict = launch("clean", settings=("flag:model-path=/no/such/model",)).verdict
    assert (verdict.outcome, verdict.stage, verdict.cause) == (Outcome.CRASH, Stage.IMPORT, "missing-model")


def test_a_flag_that_sglang_does_not_know(launch: Launch) -> None:
    verdict = launch("clean", settings=("flag:no-such-flag=1",)).verdict
    assert (verdict.outcome, verdict.stage, verdict.cause) == (Outcome.CRASH, Stage.IMPORT, "bad-flag")


def test_a_server_that_somebody_kills_is_a_crash_of_its_own_kind(launch: Launch, rig: Rig) -> None:
    class Killer:
        def step(self, text: str) -> None:
            pass

        def event(self, event: Event, elapsed_s: float) -> None:
            if event.stage is Stage.DIST_INIT:
                for pid in of_this_launch(rig):
                    if b"sglang" in Path(f"/proc/{pid}/cmdline").read_bytes():
                        os.kill(pid, signal.SIGKILL)

    verdict = launch("clean", watcher=Killer()).verdict
    assert (verdict.outcome, verdict.cause) == (Outcome.CRASH, "killed")
    assert of_this_launch(rig) == []


def test_two_ranks_and_the_all_reduce_probe(launch: Launch, rig: Rig) -> None:
    trial = launch("worktree", profile="tiny-tp2", settings=("env:SGLANG_PROBE_ALL_REDUCE=1",))
    assert trial.verdict.outcome is Outcome.READY
    assert trial.verdict.facts["tp"] == 2
    log = rig.store.log(trial.record).decode(errors="replace")
    for rank in ("TP0", "TP1"):
        for probe in ("kv_sizing", "memory_before_weights", "memory_after_weights", "memory_after_pool", "all_reduce"):
            assert f"{rank}] PROBE {probe} " in log, f"{rank} never printed {probe}"
    assert "calls=5" in log


def test_a_warm_start_ends_as_a_normal_one(launch: Launch, rig: Rig) -> None:
    """The first launch teaches the warm process what to import; the second one has it, and two ranks."""
    first = launch("clean", profile="tiny-tp2", until=Stage.KV_ALLOC, warm=True)
    assert first.verdict.outcome is Outcome.KV_ALLOCATED
    (process,) = rig.box.warm()
    trial = launch("HEAD", queue="observer-effect", profile="tiny-tp2", warm=True)
    assert rig.box.warm()[0].modules > 100, "learned, besides those that it begins with"
    assert trial.verdict.outcome is Outcome.CRASH
    assert (trial.verdict.cause, trial.verdict.stage) == ("unbound-name", Stage.KV_PROFILE)
    record = rig.store.load(trial.record)
    assert record.warm
    assert record.provenance["tree"] == record.code["tree"]
    assert record.provenance["sglang"].startswith(str(rig.project.state / "box"))
    assert record.provenance["packages"]["torch"]
    assert not record.stop["faults"]
    assert of_this_launch(rig) == []
    assert [one.pid for one in rig.box.warm()] == [process.pid], "it is no leftover of a launch"
    log = rig.store.log(trial.record).decode(errors="replace")
    assert "UnboundLocalError" in log
    assert "start_method=" not in log
