"""What good starts on record say about how long a start may be silent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from patchbisect.model import Stage
from patchbisect.records import Attachments, Record, Store
from patchbisect.startup import learnt, usual_silence
from patchbisect.trial import usual
from tests.bisection.world import FAILS, READY, World, point

EVENTS = [
    {"t": 12.0, "stage": "dist-init"},
    {"t": 12.5, "stage": "kv-profile"},
    {"t": 12.6, "stage": "kv-alloc"},
    {"t": 16.6, "stage": "warmup"},
    {"t": 16.7, "stage": None},
]


def test_the_longest_gap_belongs_to_the_stages_on_both_sides_of_it() -> None:
    found = {stage: round(seconds, 1) for stage, seconds in usual_silence(EVENTS).items()}
    assert found == {Stage.DIST_INIT: 12.0, Stage.KV_PROFILE: 0.5, Stage.KV_ALLOC: 4.0, Stage.WARMUP: 4.0}


def test_ten_times_that_is_too_long_but_never_less_than_twenty_seconds() -> None:
    budgets = learnt({Stage.IMPORT: 1.0, Stage.KV_PROFILE: 0.1, Stage.KV_ALLOC: 4.0, Stage.WARMUP: 900.0})
    assert budgets == {Stage.KV_PROFILE: 20.0, Stage.KV_ALLOC: 40.0, Stage.WARMUP: 9000.0}


def launched(
    tmp_path: Path,
    *,
    box: str = "rig",
    fails: bool = False,
    flags: dict[str, str] | None = None,
    warm: bool = False,
) -> Record:
    world = World.at(tmp_path, lambda at: FAILS if fails else READY, box=box, warm=warm)
    trial = world.launch(replace(point("clean"), flags=flags or {}), purpose="")
    record = world.store.load(trial.record)
    world.store.remove(trial.record)
    world.store.save(record, Attachments(events=EVENTS))
    return record


def test_only_good_starts_with_the_same_flags_on_the_same_box_count(tmp_path: Path) -> None:
    here = replace(point("clean"), flags={"tp-size": "8"})
    launched(tmp_path, flags={"tp-size": "8"}, fails=True)
    launched(tmp_path, flags={"tp-size": "8"}, box="other")
    launched(tmp_path, flags={"tp-size": "4"})
    launched(tmp_path, flags={"tp-size": "8"}, warm=True)
    store = Store(tmp_path / "runs")
    assert usual(store, here, box="rig") == {}
    launched(tmp_path, flags={"tp-size": "8"})
    assert round(usual(store, here, box="rig")[Stage.KV_ALLOC], 3) == 4.0
