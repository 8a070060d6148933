"""What a Dask worker answers; whole bisections through a cluster are in ``tests/tasks/test_cluster.py``."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import CancelledError
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from distributed import Client, LocalCluster
from distributed.comm import CommClosedError
from distributed.scheduler import KilledWorker

from patchbisect.bisection import cluster
from patchbisect.bisection.cluster import BOX, DaskWorker
from patchbisect.errors import BoxError

pytestmark = pytest.mark.ci


@pytest.fixture
def client() -> Iterator[Client]:
    local = {"processes": False, "dashboard_address": "127.0.0.1:0", "resources": {BOX: 1}}
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, **local) as running,
        Client(running, set_as_default=False) as c,
    ):
        yield c


@pytest.fixture
def worker(client: Client) -> DaskWorker:
    (address,) = client.nthreads()
    return DaskWorker(client, address=address, name="a", lines=deque())


def test_the_answer_of_a_worker_that_has_left_since_is_an_answer(
    client: Client, worker: DaskWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "perform", bytes.upper)
    gather = Client._gather

    async def gathered_and_left(self: Client, futures: Any, **options: Any) -> Any:
        answers = await gather(self, futures, **options)
        for state in self.futures.values():
            state.lose()
        return answers

    monkeypatch.setattr(Client, "_gather", gathered_and_left)
    assert worker.send(b"made").result(10) == b"MADE"


class Lab:
    """What the worker of this process has performed. A task travels by name, and locks do not travel at all."""

    begun = threading.Event()
    let_go = threading.Event()
    performed: ClassVar[list[bytes]] = []


def performed_slowly(parcel: bytes) -> bytes:
    Lab.performed.append(parcel)
    Lab.begun.set()
    Lab.let_go.wait(10)
    return parcel


def wait_for_tasks(client: Client, number: int) -> None:
    """Until that many wait at the worker itself: the way from client to worker takes a while, both ways."""
    (worker,) = client.cluster.workers.values()
    while len(worker.state.tasks) != number:
        time.sleep(0.01)


def test_what_is_cancelled_is_never_performed(
    client: Client, worker: DaskWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "perform", performed_slowly)
    first = worker.send(b"first")
    assert Lab.begun.wait(10)
    second = worker.send(b"second")
    wait_for_tasks(client, 2)
    second.cancel()
    with pytest.raises(CancelledError):
        second.result(10)
    wait_for_tasks(client, 1)
    Lab.let_go.set()
    assert first.result(10) == b"first"
    assert worker.send(b"third").result(10) == b"third"
    assert Lab.performed == [b"first", b"third"]


@pytest.mark.parametrize(
    "error", [KilledWorker("perform", SimpleNamespace(address="tcp://a"), 1), CommClosedError("the scheduler is gone")]
)
def test_what_the_cluster_loses_is_said_as_a_fault_of_the_box(
    error: Exception, worker: DaskWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(self: Client, futures: Any, **options: Any) -> Any:
        raise error

    monkeypatch.setattr(Client, "_gather", lost)
    with pytest.raises(BoxError, match="the cluster lost a trial"):
        worker.send(b"made").result(10)
