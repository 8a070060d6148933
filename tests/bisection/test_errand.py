"""Trials that are made elsewhere: the worker's refusals, and what a client does when a worker goes away."""

import threading
from concurrent.futures import Future
from types import SimpleNamespace

import pytest

from patchbisect.bisection import errand, worker
from patchbisect.bisection.errand import Station, fault, fingerprint, packed, perform, unpacked
from patchbisect.bisection.worker import Call, OnWorker
from patchbisect.config import Project, Settings
from patchbisect.errors import BoxError, PointUnbuildable, UsageError
from patchbisect.model import Stage
from patchbisect.records import Store
from patchbisect.trial import Silent
from tests.bisection.world import READY, World, point


@pytest.fixture
def project(tmp_path):
    return Project(root=tmp_path, state=tmp_path / "state", settings=Settings())


# -- the worker's side --------------------------------------------------------------------------------------------


def station(project, **more):
    parts = {"name": "a@here", "desk": None, "opening": None, "machine": None}
    return Station(project, **{**parts, **more})


def test_another_patchbisect_is_refused_before_anything_else_is_read(project):
    reply = unpacked(station(project).perform(packed({"made_by": "0.0.1 (0123456789)"})))
    error = fault(reply, worker="a@here")
    assert isinstance(error, UsageError)
    assert error.message == f"worker a@here: it runs patchbisect {fingerprint()}, and the bisection 0.0.1 (0123456789)"
    assert "install the same commit" in error.remedy


def test_a_record_that_was_made_for_a_client_that_died_is_sent_again(project, tmp_path):
    world = World(rule=lambda at: READY, store=Store.of(project))
    made = world.launch(point("x"), purpose="search", record="20260101-000000-aaaa")
    wanted = {"made_by": fingerprint(), "verb": errand.REJOIN, "record": made.record}
    reply = unpacked(station(project).perform(packed(wanted)))
    here = Store(tmp_path / "client")
    here.unpack(reply["record"], reply["files"])
    here.unpack(reply["record"], reply["files"])
    assert here.load(made.record) == world.store.load(made.record)


@pytest.mark.parametrize("raised", [UsageError, BoxError, PointUnbuildable])
def test_what_a_person_can_mend_comes_back_as_what_it_is(project, monkeypatch, raised):
    class Sub(raised):
        pass

    def failing(self, document):
        raise Sub("it is so", remedy="do that")

    monkeypatch.setattr(Station, "_perform", failing)
    error = fault(unpacked(station(project).perform(packed({}))), worker="w")
    assert (type(error), error.message, error.remedy) == (raised, "worker w: it is so", "do that")


def test_a_worker_without_a_box_says_how_to_start_one():
    with pytest.raises(BoxError, match="this worker has no box"):
        perform(packed({}))


def test_a_stop_reaches_the_trial_that_runs_and_no_other(project):
    here = station(project)
    with here._watched("one") as watcher:
        assert not here.stop("other")
        assert here.stop("one")
        with pytest.raises(KeyboardInterrupt):
            watcher.event(SimpleNamespace(stage=None), 0.0)
    assert not here.stop("one")


# -- the client's side --------------------------------------------------------------------------------------------


class Remote:
    """A worker that answers as told, or never."""

    name = "a@there"

    def __init__(self, reply=None):
        self.future = Future()
        self.stopped = []
        self.sent = threading.Event()
        self.here = True
        if reply is not None:
            self.future.set_result(packed(reply))

    def send(self, parcel):
        self.sent.set()
        return self.future

    def stop(self, record):
        self.stopped.append(record)
        self.future.set_result(packed({"interrupted": True}))
        return True

    def alive(self):
        return self.here

    def told(self, record):
        return []


@pytest.fixture
def bench(project, monkeypatch):
    """A bench through that worker."""
    monkeypatch.setattr(worker, "prepare", lambda desk, at: at)
    monkeypatch.setattr(worker, "errand", lambda verb, prepared, **more: {"verb": verb})
    monkeypatch.setattr(worker, "LOOK_S", 0.01)

    def on(remote):
        call = Call(project=project, reason="test")
        store = Store.of(project)
        return OnWorker(remote, None, call=call, store=store, until=Stage.SERVING, watcher=Silent())

    return on


def test_a_worker_that_is_gone_is_a_box_that_fails(bench):
    remote = Remote()
    remote.here = False
    with pytest.raises(BoxError, match="worker a@there: it is gone"):
        bench(remote).launch(point("x"), purpose="search")
    assert remote.future.cancelled()


def test_a_trial_that_the_scheduler_drops_is_a_box_that_fails(bench):
    remote = Remote()
    remote.future.cancel()
    remote.future.set_running_or_notify_cancel()
    with pytest.raises(BoxError, match="the scheduler let go of its trial"):
        bench(remote).launch(point("x"), purpose="search")


def test_a_worker_that_was_stopped_is_a_box_that_fails(bench):
    with pytest.raises(BoxError, match="it was stopped, and ended its trial"):
        bench(Remote({"interrupted": True})).launch(point("x"), purpose="search")


def test_an_interruption_ends_the_trial_there_and_waits_until_it_has(bench):
    remote = Remote()
    through = bench(remote)
    threading.Thread(target=lambda: remote.sent.wait(10) and through.cancel()).start()
    with pytest.raises(KeyboardInterrupt):
        through.launch(point("x"), purpose="search", record="20260101-000000-aaaa")
    assert remote.stopped == ["20260101-000000-aaaa"]
    assert remote.future.done()


def test_an_interrupted_look_ends_nobody_s_trial(bench):
    """Without a record, a worker would end whatever it runs: perhaps the trial of another bisection."""
    remote = Remote()
    through = bench(remote)
    threading.Thread(target=lambda: remote.sent.wait(10) and through.cancel()).start()
    with pytest.raises(KeyboardInterrupt):
        through.look(point("x"))
    assert remote.stopped == []
    assert remote.future.cancelled()


def test_there_may_be_no_launch_to_join(bench):
    assert bench(Remote({"gone": True})).rejoin(point("x"), record="20260101-000000-aaaa") is None
