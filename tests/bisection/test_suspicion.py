from pathlib import Path

import pytest

from patchbisect.bisection.suspicion import Frame, frames, weights
from patchbisect.model import Axis, Change, Patch
from patchbisect.patchqueue import Queue
from tests.bisection.world import World, broken_by, found, point, question, queue, slugs

ROOT = Path(__file__).parents[1]
LOG = b"""\
[2026-11-29 18:00:00] Scheduler hit an exception: Traceback (most recent call last):
  File "/opt/trees/abc/python/sglang/srt/managers/scheduler.py", line 2937, in run_scheduler_process
    scheduler = Scheduler(
                ^^^^^^^^^^
  File "/opt/trees/abc/python/sglang/srt/model_executor/runner.py", line 200, in profile
    print(f"layers {effective_layer_ids}")
                    ^^^^^^^^^^^^^^^^^^^
UnboundLocalError: cannot access local variable
Traceback (most recent call last):
  File "/usr/lib/python3.11/asyncio/base_events.py", line 1, in run
    self._run()
asyncio.CancelledError
"""


def editing(number, file, added="x = 1"):
    diff = f"--- a/python/{file}\n+++ b/python/{file}\n@@ -1 +1,2 @@\n one\n+    {added}\n"
    patch = Patch(number, f"p{number}", "", "", "s", "", (), diff, f"text {number}", (f"python/{file}",))
    return Change(axis=Axis.QUEUE, subject=patch.slug, before=None, after=patch)


def test_the_last_traceback_with_sglangs_frames_counts():
    assert frames(LOG) == (
        Frame("sglang/srt/managers/scheduler.py", "scheduler = Scheduler("),
        Frame("sglang/srt/model_executor/runner.py", 'print(f"layers {effective_layer_ids}")'),
    )
    assert frames(b"killed\n") == ()


@pytest.mark.parametrize("log", ["04-unbound.log"])
def test_a_real_log_names_the_patch_whose_line_raised(log):
    seen = frames((ROOT / "startup" / "cases" / "cpu" / log).read_bytes())
    assert seen
    assert seen[-1].file.startswith("sglang/srt/")


def test_the_patch_that_added_the_failing_line_is_suspected_most():
    changes = [
        editing(1, "sglang/srt/other.py"),
        editing(2, "sglang/srt/model_executor/runner.py"),
        editing(3, "sglang/srt/model_executor/runner.py", 'print(f"layers {effective_layer_ids}")'),
        editing(4, "sglang/srt/managers/scheduler.py"),
    ]
    found = weights(changes, frames(LOG), findings=())
    assert found[2] > found[1] > found[3] > found[0] == 1.0


def test_a_fault_that_a_check_found_makes_suspect_too():
    changes = [editing(1, "sglang/srt/a.py"), editing(2, "sglang/srt/b.py")]
    assert weights(changes, (), findings={"p2"}) == (1.0, 8.0)
    assert weights(changes, (), findings=()) == ()


def queue_with(suspect, count=32):
    line = 'print(f"layers {effective_layer_ids}")'
    diff = f"+++ b/x\n+    {line}\n"
    files = ("python/sglang/srt/model_executor/runner.py",)
    patches = list(queue(count))
    old = patches[suspect - 1]
    patches[suspect - 1] = Patch(
        old.number, old.slug, old.author, "", old.subject, "", (), diff, f"{old.text} suspect", files
    )
    return tuple(patches)


def asked(suspect):
    from patchbisect.timeline import timeline

    line = timeline(point("clean"), point("HEAD", queue_with(suspect)), applies=lambda base, patches: True)
    return question(timeline=line)


def test_a_right_suspicion_is_confirmed_in_two_launches(tmp_path):
    world = World.at(tmp_path, broken_by("p23"), logs=lambda at: LOG if "p23" in slugs(at) else b"")
    finding = found(world, asked(23))
    assert finding.culprit.subject == "p23"
    assert sum(step.purpose == "search" for step in finding.steps) == 2
    assert finding.launches == 6


@pytest.mark.parametrize("guilty", [1, 12, 22, 24, 32])
def test_a_wrong_suspicion_costs_at_most_two_launches(tmp_path, guilty):
    world = World.at(tmp_path, broken_by(f"p{guilty}"), logs=lambda at: LOG)
    finding = found(world, asked(23))
    assert finding.culprit.subject == f"p{guilty}"
    assert sum(step.purpose == "search" for step in finding.steps) <= 5 + 2


def test_the_made_up_story_names_its_own_patch():
    folder = ROOT / "queues" / "observer-effect"
    files = {path.name: path.read_bytes() for path in folder.glob("*.patch")}
    patches = Queue.read(files, where="observer-effect").enabled
    changes = [Change(axis=Axis.QUEUE, subject=patch.slug, before=None, after=patch) for patch in patches]
    guilty = next(patch for patch in patches if patch.number == 6)
    added = next(
        line[1:].strip() for line in guilty.diff.splitlines() if line.startswith("+") and "effective_layer_ids" in line
    )
    seen = (Frame(guilty.files[0].removeprefix("python/"), added),)
    found = weights(changes, seen, findings=())
    assert max(range(len(found)), key=found.__getitem__) == 5
