"""A search at work: what it asks for is launched on as many boxes as there are, and what that says is told."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, Generic, Protocol, Self, TypeVar

from patchbisect.bisection.bench import in_journal
from patchbisect.bisection.course import Course, Drifted, Progress, Seen, paid_s, trial_threads
from patchbisect.bisection.ground import Spot
from patchbisect.search import Answer, Observation, Plan
from patchbisect.trial import Trial

Key = TypeVar("Key", bound=Hashable)


class Searching(Protocol, Generic[Key]):
    """The verbs that ``CulpritSearch`` and ``CulpritSet`` share."""

    def ask(self, parallel: int = 1) -> list[Key]: ...

    def tell(self, k: Key, observation: Observation, /, *, seconds: float = 0.0) -> None: ...

    def withdraw(self, k: Key, /) -> None: ...

    def explain(self) -> str: ...

    def plan(self) -> Plan: ...

    def answer(self) -> Answer | None: ...

    def candidates(self) -> tuple[int, ...]: ...


# More than anyone has boxes; a thread is started only when there is a launch for it.
_MOST_THREADS = 256


def drive(
    course: Course,
    search: Searching[Key],
    *,
    place: Callable[[Key], Spot],
    changes: int,
    purpose: str,
    sure: Callable[[], float] | None = None,
    before: Callable[[], None] = lambda: None,
    instead: Callable[[], bool] = lambda: False,
) -> None:
    """Ask, launch on as many boxes as there are, tell, until the search has nothing more to ask.

    ``sure`` gives P(guilty) of the likeliest change; ``before`` is called before each ask. ``instead`` tells
    what the journal has of this search and was not asked for, before anything else is launched; whether there was any.
    Raises BoxError when no box will serve.
    """
    with (
        trial_threads(course.bench, most=_MOST_THREADS) as pool,
        _Crew[Key](course, pool=pool, purpose=purpose) as crew,
    ):
        while True:
            before()
            asked = search.ask(crew.free) if crew.free else []
            if any(not in_journal(course.bench, place(key).content, purpose=purpose) for key in asked) and instead():
                # Boxes side by side were given other points then: which ones depends on which of them was done first.
                for key in asked:
                    search.withdraw(key)
                continue
            why = search.explain() if asked else ""
            for key in asked:
                crew.send(key, place(key), why=why)
            if not crew.busy:
                return
            for key, seen in crew.home():
                search.tell(key, seen.observation, seconds=paid_s(seen))
                if sure and seen.trial:
                    course.believe(seen.trial, sure=sure())
            _report(course, search, changes=changes)


def _report(course: Course, search: Searching[Any], *, changes: int) -> None:
    """Tell how far the search is, to whoever listens: a forecast takes a while."""
    if course.progress is None:
        return
    answer = search.answer()
    course.progress(
        Progress(
            changes=changes,
            candidates=len(search.candidates()),
            confidence=answer.confidence if answer else None,
            launches=course.launches,
            expected=course.launches + (0.0 if answer else search.plan().expected),
        )
    )


class _Crew(Generic[Key]):
    """Launches under way, as many as there are boxes. With one box they happen in this thread."""

    def __init__(self, course: Course, *, pool: ThreadPoolExecutor, purpose: str) -> None:
        self.course = course
        self.pool = pool
        self.purpose = purpose
        self._out: dict[Future[Trial | None], tuple[Key, Spot, str]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, Drifted):
            self._gather(without=error.box)

    @property
    def busy(self) -> bool:
        return bool(self._out)

    @property
    def width(self) -> int:
        """Boxes may come on the way."""
        return self.course.bench.width

    @property
    def free(self) -> int:
        return self.width - len(self._out)

    def send(self, key: Key, spot: Spot, *, why: str) -> None:
        if self.width > 1:
            future = self.pool.submit(self.course.try_out, spot, purpose=self.purpose)
        else:
            future = Future()
            future.set_result(self.course.try_out(spot, purpose=self.purpose))
        self._out[future] = (key, spot, why)

    def home(self) -> Iterator[tuple[Key, Seen]]:
        """Those that are done, at least one."""
        done, _ = wait(self._out, return_when=FIRST_COMPLETED)
        for future in done:
            key, spot, why = self._out.pop(future)
            yield key, self.course.note(spot, future.result(), purpose=self.purpose, why=why)

    def _gather(self, *, without: str) -> None:
        """Note what is still out when it comes home, but for what ran on the box ``without``; the search is over.

        Whether a machine changed meanwhile is noticed at its next launch.
        """
        for future, (_, spot, why) in self._out.items():
            trial = future.result()
            if trial is None or trial.box != without:
                self.course.note(spot, trial, purpose=self.purpose, why=why, watch=False)
        self._out.clear()
