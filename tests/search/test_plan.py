"""Forecasts: exact where verdicts do not lie, and near what happens where they do."""

from __future__ import annotations

import numpy as np
import pytest

from patchbisect.search import CulpritSearch, CulpritSet, Observation, Rates
from tests.bench.search.worlds import World, run


def opened(changes, **options):
    search = CulpritSearch(changes=changes, **options)
    search.tell(0, Observation.GOOD)
    search.tell(changes, Observation.BAD)
    return search


@pytest.mark.parametrize(("changes", "expected", "worst"), [(1, 0, 0), (2, 1, 1), (64, 6, 6), (100, 6.72, 7)])
def test_deterministic_forecasts_are_exact(changes, expected, worst):
    plan = opened(changes, rates=Rates.deterministic()).plan()
    assert plan.expected == pytest.approx(expected)
    assert plan.worst == worst


def test_ends_that_nobody_told_are_planned_for():
    told = opened(64, rates=Rates.deterministic()).plan()
    untold = CulpritSearch(changes=64, rates=Rates.deterministic()).plan()
    assert told.worst < untold.worst <= told.worst + 2


def test_a_prior_makes_it_shorter():
    prior = [0.9 if c == 5 else 0.1 / 63 for c in range(1, 65)]
    assert opened(64, rates=Rates.deterministic(), prior=prior).plan().expected < 3.5


def test_noise_is_forecast_about_right():
    rates, rng = Rates.told(0.05, 0.95), np.random.default_rng(3)
    plan = opened(32, rates=rates).plan()
    played = [run(World(32, 0.05, 0.95), rates, rng).launches for _ in range(60)]
    assert plan.expected == pytest.approx(np.mean(played), rel=0.2)
    assert plan.expected < plan.worst


def test_seconds_follow_the_costs():
    plan = opened(16, rates=Rates.deterministic(), costs=[60.0] * 17).plan()
    assert plan.expected_seconds == pytest.approx(240)
    assert plan.worst_seconds == 240
    assert opened(16).plan().expected_seconds is None


def test_planning_changes_nothing():
    search, sets = opened(32), CulpritSet(toggles=6)
    for one in (search, sets):
        before = one.fork().ask(parallel=2)
        one.plan()
        assert one.launches == 0
        assert one.ask(parallel=2) == before


def test_what_was_told_shortens_the_plan():
    search = opened(64, rates=Rates.deterministic())
    search.tell(32, Observation.BAD)
    assert search.plan().expected == pytest.approx(5)


def test_sets_have_a_plan_too():
    plan = CulpritSet(toggles=5, rates=Rates.deterministic()).plan()
    assert 3 < plan.expected <= plan.worst < 20
