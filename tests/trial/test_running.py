"""What becomes of a launch whose box refuses, whose kernel killed it, or whose code cannot be proven."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from patchbisect.box import Exited, LogChunk, PlacedCode, Run
from patchbisect.box.failures import CannotLaunch, LinkLost
from patchbisect.errors import BoxError
from patchbisect.model import Outcome, Persistence, Signals, Stage, Verdict
from patchbisect.trial import Silent, Stoppable
from patchbisect.trial.following import Follower
from patchbisect.trial.recording import _cleaned
from patchbisect.trial.running import _provenance, _unless_wrong_code

LOG = Path(__file__).parents[1] / "startup" / "cases" / "cpu" / "01b-success-warm.log"
TOO_SMALL = LOG.with_name("10a-tiny-max-total.log")
CODE = PlacedCode(commit="c" * 40, tree="t" * 40, path="/box/trees/t/python", placed=True, seconds=0.0)


def follower(until: Stage = Stage.SERVING) -> Follower:
    settings = SimpleNamespace(silence={})
    rig = SimpleNamespace(project=SimpleNamespace(settings=settings), lease=None, mirror=None)
    prepared = SimpleNamespace(point=SimpleNamespace(patches=()), env={}, code=None)
    return Follower(rig=cast(Any, rig), prepared=cast(Any, prepared), until=until, settle_s=0, watcher=Silent())


class Told:
    """A run that tells these items."""

    def __init__(self, *items: object) -> None:
        self.items = items

    def events(self) -> object:
        return iter(self.items)


def test_how_long_a_ready_server_was_watched_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = itertools.count()
    monkeypatch.setattr("patchbisect.trial.following.time.monotonic", lambda: float(next(seconds)))
    watched = follower()
    watched.settle_s = 3.0
    ready = watched.follow(cast(Run, Told(LogChunk(0, LOG.read_bytes()), *[Signals(alive=True)] * 9)))
    assert ready.outcome is Outcome.READY
    assert 3 <= watched.settled_s <= 5


def up_to(text: bytes) -> bytes:
    lines = LOG.read_bytes().splitlines(keepends=True)
    return b"".join(lines[: next(n for n, line in enumerate(lines) if text in line) + 1])


def begun() -> bytes:
    """The log up to the weights, as of a server that is killed while it loads them."""
    return up_to(b"Load weight begin")


def test_a_pool_is_waited_for_until_it_can_no_longer_be_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    tenths = itertools.count()
    monkeypatch.setattr("patchbisect.trial.following.time.monotonic", lambda: next(tenths) / 10)
    pool, totals = up_to(b"Memory pool end"), up_to(b"max_total_num_tokens=")
    items = [Signals(alive=True)] * 9
    waited, told, refuted = (follower(Stage.KV_ALLOC) for _ in range(3))
    assert waited.follow(cast(Run, Told(LogChunk(0, pool), *items))).outcome is Outcome.KV_ALLOCATED
    assert waited.settled_s >= 0.3
    assert told.follow(cast(Run, Told(LogChunk(0, totals)))).outcome is Outcome.KV_ALLOCATED
    assert told.settled_s < 0.3
    to_the_pool, refused = TOO_SMALL.read_bytes().split(b"[2026-11-29 16:33:18] Scheduler hit", 1)
    late = Told(LogChunk(0, to_the_pool), LogChunk(len(to_the_pool), b"[2026-11-29 16:33:18] Scheduler hit" + refused))
    assert refuted.follow(cast(Run, late)).outcome is Outcome.CRASH


def test_what_the_kernel_killed_for_memory_is_an_oom_and_not_a_kill_by_somebody() -> None:
    kernel = ("Out of memory: Killed process 4711 (python) total-vm:1kB, anon-rss:1kB",)
    silent = follower().follow(cast(Run, Told(LogChunk(0, begun()), Exited(exit_code=-9, offset=0))))
    told = follower().follow(cast(Run, Told(LogChunk(0, begun()), Exited(exit_code=-9, offset=0, kernel=kernel))))
    assert (silent.outcome, silent.cause) == (Outcome.CRASH, "killed")
    assert (told.outcome, told.cause) == (Outcome.OOM, "host-ram")


def test_a_launch_that_is_interrupted_from_another_thread_is_followed_no_further() -> None:
    watched = follower()
    watched.watcher = stoppable = Stoppable(Silent())
    stoppable.stop()
    with pytest.raises(KeyboardInterrupt):
        watched.follow(cast(Run, Told(Signals(alive=True), Exited(exit_code=0, offset=0))))


def test_a_lease_that_was_taken_ends_the_trial_at_once() -> None:
    class Taken:
        def check(self) -> None:
            raise BoxError("taken")

    watched = follower()
    watched.lease = cast(Any, Taken())
    with pytest.raises(BoxError, match="taken"):
        watched.follow(cast(Run, Told(Signals(alive=True))))


class Mute:
    """A run whose box cannot say what ran."""

    def __init__(self, problem: BoxError) -> None:
        self.problem = problem

    def provenance(self) -> object:
        raise self.problem


def test_a_failure_is_believed_where_python_itself_does_not_start_and_a_success_is_not() -> None:
    unknown = _provenance(cast(Run, Mute(CannotLaunch("python does not start"))))
    crash = Verdict(outcome=Outcome.CRASH)
    assert _unless_wrong_code(crash, unknown, CODE) is crash
    void = _unless_wrong_code(Verdict(outcome=Outcome.READY), unknown, CODE)
    assert (void.outcome, void.persistence) == (Outcome.VOID, Persistence.PERMANENT)
    assert "python does not start" in void.why


def test_a_lost_link_is_never_taken_for_an_answer() -> None:
    with pytest.raises(LinkLost):
        _provenance(cast(Run, Mute(LinkLost("gone"))))


def test_other_code_than_was_asked_for_is_a_permanent_void() -> None:
    ready = Verdict(outcome=Outcome.READY)
    right = {"tree": CODE.tree, "sglang": f"{CODE.path}/sglang/__init__.py"}
    assert _unless_wrong_code(ready, right, CODE) is ready
    for wrong in ({**right, "tree": "x" * 40}, {**right, "sglang": "/usr/lib/sglang/__init__.py"}):
        assert _unless_wrong_code(ready, wrong, CODE).persistence is Persistence.PERMANENT


def test_no_secret_is_left_in_what_was_found_of_a_hang() -> None:
    found = {"stacks": {"7": "key=s3cr3t-value"}, "processes": [{"pid": 7, "title": "serve --api-key s3cr3t-value"}]}
    assert _cleaned(found, ["s3cr3t-value"]) == {
        "stacks": {"7": "key=***"},
        "processes": [{"pid": 7, "title": "serve --api-key ***"}],
    }
