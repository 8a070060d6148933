"""Workers of a Dask cluster: found by a bisection, and served by a process beside each box.

Dask brings the processes, the way to them and the queue in front of each box; what is launched next, the journal and
the records stay with the bisection. Whoever reaches a Dask scheduler can run code on its workers.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import tempfile
from collections import deque
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from patchbisect.bisection.errand import Station, perform, serve_here, stop
from patchbisect.errors import BoxError, UsageError

if TYPE_CHECKING:
    from distributed import Client
    from distributed import Future as Task

BOX = "box"
"""The resource that a worker has one of, and that a trial needs."""

_TOPIC = "patchbisect"
"""Where workers tell how their trials go."""

_ANSWER_S = 5.0
"""How long a scheduler may take to answer at all (seconds)."""

_MOST_LINES = 1000


def _reached(scheduler: str, *, role: str) -> None:
    """Raises UsageError where Dask is not installed or set up for that address, BoxError where no scheduler answers."""
    try:
        import distributed
    except ModuleNotFoundError as error:
        raise UsageError(
            "the package distributed is not installed here, and Dask needs it",
            remedy="pip install 'patchbisect[dask]'",
        ) from error
    # What goes wrong is said by us, in one line; Dask prints a traceback for a scheduler that went away, and asyncio
    # one for each task that Dask leaves unread when a worker does.
    for name in tuple(logging.root.manager.loggerDict):
        if name.partition(".")[0] in (distributed.__name__, asyncio.__name__):  # some have a level of their own
            logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        asyncio.run(_greeted(scheduler, role))
    except (OSError, TimeoutError) as error:
        raise _nobody(scheduler, error) from error
    except (TypeError, ValueError, RuntimeError) as error:
        raise UsageError(
            f"--scheduler {scheduler}: {error}", remedy="like tcp://head:8786; tls:// needs Dask's own TLS settings"
        ) from error


async def _greeted(scheduler: str, role: str) -> None:
    """Connect once and leave: a client that cannot is slow to say so, and noisy."""
    from distributed.core import connect
    from distributed.security import Security

    comm = await connect(scheduler, timeout=_ANSWER_S, **Security().get_connection_args(role))
    await comm.close()


def _nobody(scheduler: str, error: Exception) -> BoxError:
    return BoxError(f"no Dask scheduler answers at {scheduler}: {error}", remedy="start one there: dask scheduler")


class DaskWorker:
    """One worker of ours in a cluster."""

    def __init__(self, client: Client, *, address: str, name: str, lines: deque[tuple[str, str]]) -> None:
        self.name = name
        self._client = client
        self._address = address
        self._lines = lines

    def send(self, parcel: bytes) -> Future[bytes]:
        task = self._client.submit(
            perform,
            parcel,
            workers=[self._address],
            resources={BOX: 1},
            allow_other_workers=False,
            pure=False,
            retries=0,
        )
        loop: asyncio.AbstractEventLoop = self._client.loop.asyncio_loop
        return asyncio.run_coroutine_threadsafe(_answer(self._client, task), loop)

    def stop(self, record: str) -> bool:
        try:
            return bool(self._client.run(stop, record, workers=[self._address]).get(self._address))
        except (OSError, TimeoutError, KeyError) as error:
            raise BoxError(f"worker {self.name} does not answer: {error}") from error

    def alive(self) -> bool:
        try:
            return self._address in self._client.nthreads()
        except (OSError, TimeoutError) as error:
            raise BoxError(
                f"the scheduler does not answer: {error}", remedy="start it and the workers again"
            ) from error

    def told(self, record: str) -> list[str]:
        mine = [line for line in tuple(self._lines) if line[0] == record]
        for line in mine:
            self._lines.remove(line)
        return [text for _, text in mine]


async def _answer(client: Client, task: Task[bytes]) -> bytes:
    """What the task returns; whoever cancels the wait cancels the task.

    Not through Dask's own executor: that reads the task's state after its answer, and takes the answer of a worker
    that has left in between for an error.
    """
    from distributed.scheduler import KilledWorker

    try:
        answer: bytes = await client.gather(task, asynchronous=True)
    except asyncio.CancelledError:
        await client.cancel(task, asynchronous=True)
        raise
    except (OSError, KilledWorker) as error:
        raise BoxError(f"the cluster lost a trial: {error}", remedy="look at the workers' output") from error
    return answer


class Roster:
    """The workers of ours at a scheduler, by name; with ``only`` those of these names."""

    def __init__(self, client: Client, *, only: Collection[str]) -> None:
        self._client = client
        self._only = only
        self._lines: deque[tuple[str, str]] = deque(maxlen=_MOST_LINES)
        self._known: set[str] = set()
        client.subscribe_topic(_TOPIC, lambda event: self._lines.append((event[1]["record"], event[1]["text"])))

    def newcomers(self) -> list[DaskWorker]:
        """Those that were not there at an earlier call. Raises OSError or TimeoutError where nobody answers."""
        found = {name: address for name, address in _ours(self._client).items() if not self._only or name in self._only}
        new = sorted(found.keys() - self._known)
        self._known |= found.keys()
        return [DaskWorker(self._client, address=found[name], name=name, lines=self._lines) for name in new]


@contextmanager
def workers_at(scheduler: str, *, only: Collection[str] = ()) -> Iterator[Roster]:
    """Who works at that scheduler, and there is somebody; with ``only`` those of these names.

    Raises UsageError where one of them is not there, or none is; BoxError where no scheduler answers.
    """
    _reached(scheduler, role="client")
    from distributed import Client

    try:
        client = Client(scheduler, timeout=_ANSWER_S, set_as_default=False)
    except (OSError, TimeoutError) as error:
        raise _nobody(scheduler, error) from error
    try:
        _check(_ours(client), only, scheduler=scheduler)
        yield Roster(client, only=only)
    finally:
        client.close(timeout=_ANSWER_S)


def _ours(client: Client) -> dict[str, str]:
    """Name -> address of every worker that has a box."""
    known: dict[str, Any] = client.scheduler_info(n_workers=-1)["workers"]
    return {str(about["name"]): address for address, about in known.items() if about["resources"].get(BOX)}


def _check(found: Collection[str], only: Collection[str], *, scheduler: str) -> None:
    """Raises UsageError where somebody is missing, or nobody is there."""
    missing = sorted(set(only) - set(found))
    if missing:
        known = ", ".join(sorted(found)) or "none"
        raise UsageError(f"no worker {missing[0]} at {scheduler}", remedy=f"known: {known}")
    if not found:
        raise UsageError(
            f"no worker with a box at {scheduler}",
            remedy=f"beside each box: invoke box.worker --scheduler {scheduler} --box NAME",
        )


def serve(station: Station, scheduler: str, *, ready: Callable[[], None]) -> None:
    """Make trials for whoever asks at that scheduler, until SIGINT or SIGTERM: then the running one is ended first.

    ``ready`` is called once the scheduler knows this worker.
    Raises BoxError where no scheduler answers, or when it goes away; UsageError where it has that worker already.
    """
    _reached(scheduler, role="worker")
    asyncio.run(_serving(station, scheduler, ready))


async def _serving(station: Station, scheduler: str, ready: Callable[[], None]) -> None:
    from distributed import Worker

    with tempfile.TemporaryDirectory(prefix="patchbisect-worker-") as scratch:
        worker = Worker(
            scheduler, nthreads=1, name=station.name, resources={BOX: 1}, memory_limit=0, local_directory=scratch
        )
        station.tell = lambda record, text: worker.log_event(_TOPIC, {"record": record, "text": text})
        serve_here(station)
        try:
            await asyncio.wait_for(worker, _ANSWER_S)
        except (OSError, TimeoutError) as error:
            raise _nobody(scheduler, error) from error
        except RuntimeError as error:
            raise UsageError(
                f"the scheduler at {scheduler} does not take worker {station.name}: {error.__cause__ or error}",
                remedy="one worker a box: is there one already?",
            ) from error
        asked_to_end = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, asked_to_end.set)
        ready()
        gone = asyncio.ensure_future(worker.finished())
        asked = asyncio.ensure_future(asked_to_end.wait())
        await asyncio.wait({gone, asked}, return_when=asyncio.FIRST_COMPLETED)
        station.stop()
        await asyncio.to_thread(station.rest)
        if not asked_to_end.is_set():
            raise BoxError(f"the scheduler at {scheduler} is gone", remedy="start it, then this worker again")
        await worker.close()
