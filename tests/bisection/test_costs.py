"""A point whose environment is still to be built costs more, and the search knows it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from patchbisect.model import Point
from patchbisect.search import CulpritSearch, Observation, Rates
from patchbisect.trial import Trial
from tests.bisection.world import World, broken_by, contents, found, question


def searched(costs: list[float] | None) -> int:
    """The first point that is asked for between the ends of 16 changes."""
    search = CulpritSearch(changes=16, rates=Rates.deterministic())
    search.tell(0, Observation.GOOD)
    search.tell(16, Observation.BAD)
    search.reprice(costs)
    return search.ask()[0]


def test_the_search_asks_where_nothing_has_to_be_built_unless_that_tells_too_little() -> None:
    dear = [310.0 if 6 <= k < 12 else 10.0 for k in range(17)]
    assert searched(None) == 8
    assert searched(dear) == 5
    only_the_first_is_cheap = [10.0 if k < 2 else 11.0 for k in range(17)]
    assert searched(only_the_first_is_cheap) == 8


class Building(World):
    """The middle of the range needs an environment, which the first launch there builds."""

    def launch(self, at: Point, *, purpose: str, settle: bool = False, record: str = "", box: str = "") -> Trial:
        trial = super().launch(at, purpose=purpose, settle=settle, record=record, box=box)
        if self.content(at) in self.preparation:
            self.preparation.clear()
        return trial


def contents_where(holds: Callable[[int], bool]) -> list[str]:
    line = question(16).timeline
    queues = [line.bad.patches[:k] for k in range(17) if holds(k)]
    return [contents(Point("", line.good.base, patches, line.good.profile)) for patches in queues]


def test_one_environment_is_enough_for_all_the_points_that_share_it(tmp_path: Path) -> None:
    world = Building.at(tmp_path, broken_by("p9"))
    world.preparation = dict.fromkeys(contents_where(lambda k: 6 <= k < 12), 600.0)
    answer = found(world, question(16))
    assert answer.culprit is not None
    assert answer.culprit.subject == "p9"
    searched = [step.position for step in answer.steps if step.purpose == "search"]
    assert searched[:2] == [5, 12]
    assert all(6 <= k < 12 for k in searched[2:] if k is not None)
