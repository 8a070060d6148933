"""One culprit on a timeline: what is asked, what is answered, and that neither order nor band matters."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchbisect.errors import UsageError
from patchbisect.search import Budget, CulpritSearch, Observation, Rates

GOOD, BAD, SKIP = Observation.GOOD, Observation.BAD, Observation.SKIP
RATES = [Rates.deterministic(), Rates.told(0.05, 0.9), Rates.unknown()]


def opened(changes, **options):
    """A search that was told both ends."""
    search = CulpritSearch(changes=changes, **options)
    search.tell(0, GOOD)
    search.tell(changes, BAD)
    return search


def finished(search, launch, *, at_most=400):
    """Play until the answer; returns it and the points that were launched."""
    launched = []
    while search.answer() is None:
        asked = search.ask()
        assert asked, "an open search has something to ask"
        for k in asked:
            search.tell(k, launch(k))
            launched.append(k)
        assert len(launched) <= at_most
    return search.answer(), launched


def clean(culprit, closed=()):
    return lambda k: SKIP if k in closed else BAD if k >= culprit else GOOD


class TestDeterministic:
    @given(changes=st.integers(1, 300), data=st.data())
    @settings(max_examples=60, deadline=None)
    def test_costs_what_binary_search_costs(self, changes, data):
        culprit = data.draw(st.integers(1, changes))
        answer, launched = finished(opened(changes, rates=Rates.deterministic()), clean(culprit))
        assert (answer.kind, answer.culprit) == ("found", culprit)
        assert answer.confidence == pytest.approx(1)
        assert answer.assumed_deterministic
        assert len(launched) <= math.ceil(math.log2(changes)) if changes > 1 else not launched

    def test_looks_at_both_ends_when_nobody_told_them(self):
        answer, launched = finished(CulpritSearch(changes=8, rates=Rates.deterministic()), clean(8))
        assert answer.culprit == 8
        assert {7, 8} <= set(launched)
        answer, launched = finished(CulpritSearch(changes=8, rates=Rates.deterministic()), clean(1))
        assert answer.culprit == 1
        assert {0, 1} <= set(launched)

    @pytest.mark.parametrize("culprit", [0, 9])
    def test_ends_that_agree_mean_that_nothing_in_the_range_is_guilty(self, culprit):
        answer, _ = finished(CulpritSearch(changes=8, rates=Rates.deterministic()), clean(culprit))
        assert (answer.kind, answer.candidates) == ("none", ())

    def test_a_contradiction_ends_the_belief(self):
        search = opened(16, rates=Rates.deterministic())
        search.tell(8, BAD)
        search.tell(12, GOOD)
        assert search.rates.kind == "unknown"
        assert search.answer() is None
        answer, _ = finished(search, clean(5))
        assert answer.culprit == 5
        assert not answer.assumed_deterministic

    def test_a_proof_that_disagrees_opens_the_search_again(self):
        search = opened(16, rates=Rates.deterministic())
        answer, _ = finished(search, clean(5))
        assert answer.culprit == 5
        search.tell(4, BAD)
        assert search.answer() is None
        assert search.ask()


class TestNoise:
    def test_nobody_is_blamed_on_a_prior_alone(self):
        search = opened(16, prior=[0.999 if c == 7 else 1e-4 for c in range(1, 17)])
        assert search.answer() is None
        _, launched = finished(search, clean(7))
        assert sorted(launched) == [6, 7]

    def test_a_wrong_prior_costs_launches_but_not_the_answer(self):
        search = opened(16, prior=[0.97 if c == 3 else 0.002 for c in range(1, 17)])
        answer, launched = finished(search, clean(12))
        assert answer.culprit == 12
        assert len(launched) <= 14

    def test_one_lie_is_outvoted(self):
        lies = iter([True])
        answer, _ = finished(opened(64), lambda k: GOOD if k >= 20 and next(lies, False) else clean(20)(k))
        assert answer.culprit == 20

    def test_told_rates_that_cannot_be_are_given_up(self):
        search = opened(16, rates=Rates.told(0, 1))
        search.tell(8, BAD)
        search.tell(9, GOOD)
        assert search.rates.kind == "unknown"

    def test_a_machine_that_fails_now_and_then_is_no_culprit(self):
        rng = random.Random(4)
        answer, launched = finished(opened(64), lambda _: BAD if rng.random() < 0.1 else GOOD)
        assert answer.kind == "none"
        assert answer.confidence >= 0.95
        assert len(launched) <= 100

    @pytest.mark.parametrize(("before", "after"), [(0.5, 0.5), (0.9, 0.1), (-0.1, 0.5), (0, 1.2)])
    def test_rates_must_rise(self, before, after):
        with pytest.raises(UsageError, match="before < after"):
            Rates.told(before, after)


class TestSkips:
    @pytest.mark.parametrize("rates", RATES)
    def test_when_only_skips_separate_them_the_answer_is_the_set(self, rates):
        answer, _ = finished(opened(64, rates=rates), clean(30, closed=range(25, 35)))
        assert answer.kind == "set"
        assert answer.candidates == tuple(range(25, 36))

    @pytest.mark.parametrize("rates", RATES)
    def test_it_does_not_circle_in_a_band(self, rates):
        band = range(20, 90)
        answer, launched = finished(opened(128, rates=rates), clean(110, closed=band))
        assert answer.candidates == (110,)
        assert sum(k in band for k in launched) <= 6
        assert len({k for k in launched if k in band}) == sum(k in band for k in launched)

    @pytest.mark.parametrize("rates", RATES)
    def test_everything_skips(self, rates):
        answer, launched = finished(opened(32, rates=rates), clean(9, closed=range(1, 32)))
        assert answer.kind == "set"
        assert answer.candidates == tuple(range(1, 33))
        assert len(launched) <= 32

    @given(closed=st.sets(st.integers(1, 31)), culprit=st.integers(1, 32))
    @settings(max_examples=60, deadline=None)
    def test_the_culprit_is_always_among_the_candidates(self, closed, culprit):
        answer, launched = finished(opened(32, rates=Rates.deterministic()), clean(culprit, closed))
        assert culprit in answer.candidates
        assert len(launched) == len(set(launched))

    def test_not_even_the_ends_can_be_tested(self):
        answer, _ = finished(CulpritSearch(changes=4, rates=Rates.deterministic()), lambda _: SKIP)
        assert answer.kind == "set"
        assert answer.candidates == (1, 2, 3, 4)

    def test_a_verdict_opens_a_skipped_point(self):
        search = opened(16, rates=Rates.deterministic())
        search.tell(8, SKIP)
        search.tell(8, BAD)
        answer, _ = finished(search, clean(8))
        assert answer.culprit == 8


class TestParallel:
    @pytest.mark.parametrize("rates", RATES)
    def test_answers_may_come_back_in_any_order(self, rates):
        rng, launch = random.Random(1), clean(41)
        search, out = opened(64, rates=rates), []
        while search.answer() is None:
            out += search.ask(parallel=3 - len(out))
            k = out.pop(rng.randrange(len(out)))
            search.tell(k, launch(k))
        assert search.answer().culprit == 41

    def test_withdrawn_means_never_asked(self):
        untouched, search = opened(64), opened(64)
        for k in search.ask(parallel=4):
            search.withdraw(k)
        assert search.launches == 0
        assert search.ask(parallel=4) == untouched.ask(parallel=4)

    def test_four_at_once_halve_the_rounds(self):
        search, rounds, launch = opened(1024, rates=Rates.deterministic()), 0, clean(700)
        while search.answer() is None:
            rounds += 1
            for k in search.ask(parallel=4):
                search.tell(k, launch(k))
        assert search.answer().culprit == 700
        assert rounds <= 5


class TestCosts:
    def test_cheap_points_are_preferred(self):
        costs = [600.0] * 65
        for k in range(0, 65, 4):
            costs[k] = 60.0
        search = opened(64, rates=Rates.deterministic(), costs=costs)
        _, launched = finished(search, clean(33))
        assert [k % 4 for k in launched[:3]] == [0, 0, 0]

    def test_fewer_seconds_than_without_costs(self):
        rng = np.random.default_rng(5)
        costs = rng.choice([60.0, 900.0], size=129)
        spent = {}
        for name, given_costs in (("aware", costs), ("blind", None)):
            spent[name] = 0.0
            for culprit in range(1, 129, 5):
                search = opened(128, rates=Rates.deterministic(), costs=given_costs)
                spent[name] += sum(costs[k] for k in finished(search, clean(culprit))[1])
        assert spent["aware"] < 0.7 * spent["blind"]


class TestBudget:
    def test_when_launches_are_spent_it_says_what_is_likeliest(self):
        search = opened(64, rates=Rates.deterministic(), budget=Budget(launches=3))
        answer, launched = finished(search, clean(20))
        assert answer.kind == "budget"
        assert answer.culprit is None
        assert len(launched) == 3
        assert 20 in answer.candidates
        assert sum(answer.weights) == pytest.approx(answer.confidence)

    def test_asks_that_are_out_are_not_an_answer_yet(self):
        search = opened(64, budget=Budget(launches=2))
        points = search.ask(parallel=5)
        assert len(points) == 2
        assert search.ask() == []
        assert search.answer() is None
        for k in points:
            search.tell(k, GOOD)
        assert search.answer().kind == "budget"

    def test_seconds_are_what_launches_took(self):
        search = opened(64, budget=Budget(seconds=1000))
        search.tell(search.ask()[0], GOOD, seconds=700)
        assert search.answer() is None
        search.tell(search.ask()[0], BAD, seconds=400)
        assert search.answer().kind == "budget"

    def test_a_point_that_cannot_be_paid_is_not_asked(self):
        search = opened(4, rates=Rates.deterministic(), costs=[1, 500, 500, 500, 1], budget=Budget(seconds=100))
        assert search.ask() == []
        assert search.answer().kind == "budget"

    def test_an_answer_is_worth_more_than_the_end_of_the_budget(self):
        search = opened(2, rates=Rates.deterministic(), budget=Budget(launches=1))
        answer, _ = finished(search, clean(2))
        assert answer.kind == "found"


class TestAnyHistory:
    """Whatever is told, in whatever order, the same is believed, and the search stays sound."""

    @given(
        told=st.lists(st.tuples(st.integers(0, 12), st.sampled_from(Observation)), max_size=25),
        rates=st.sampled_from(RATES),
        seed=st.integers(0, 99),
    )
    @settings(max_examples=60, deadline=None)
    def test_order_does_not_matter(self, told, rates, seed):
        shuffled = list(told)
        random.Random(seed).shuffle(shuffled)
        one, other = CulpritSearch(changes=12, rates=rates), CulpritSearch(changes=12, rates=rates)
        for search, history in ((one, told), (other, shuffled)):
            for k, observation in history:
                search.tell(k, observation)
        assert one.answer() == other.answer()
        assert one.ask(parallel=2) == other.ask(parallel=2)

    @given(
        told=st.lists(st.tuples(st.integers(0, 12), st.sampled_from(Observation)), max_size=25),
        rates=st.sampled_from(RATES),
        parallel=st.integers(1, 3),
    )
    @settings(max_examples=100, deadline=None)
    def test_it_asks_or_answers_and_both_make_sense(self, told, rates, parallel):
        search = CulpritSearch(changes=12, rates=rates)
        for k, observation in told:
            search.tell(k, observation)
        asked, answer = search.ask(parallel=parallel), search.answer()
        assert bool(asked) == (answer is None)
        assert all(0 <= k <= 12 for k in asked)
        skipped = {k for k, said in told if said is SKIP} - {k for k, said in told if said is not SKIP}
        assert not skipped & set(asked)
        belief = search.posterior()
        assert belief.min() >= 0
        assert belief.sum() <= 1 + 1e-9
        if answer:
            assert 0 <= answer.confidence <= 1
            assert answer.kind in ("found", "set", "none")


@pytest.mark.parametrize(
    "options",
    [
        {"changes": 0},
        {"changes": 4, "confidence": 1.0},
        {"changes": 4, "confidence": 0.2},
        {"changes": 4, "prior": [1, 2, 3]},
        {"changes": 4, "prior": [0, 0, 0, 0]},
        {"changes": 4, "prior": [1, -1, 1, 1]},
        {"changes": 4, "costs": [1, 1, 1, 1]},
        {"changes": 4, "costs": [1, 1, 0, 1, 1]},
    ],
)
def test_what_does_not_fit_is_refused(options):
    with pytest.raises(ValueError):
        CulpritSearch(**options)


@pytest.mark.parametrize("k", [-1, 5])
def test_points_off_the_timeline_are_refused(k):
    with pytest.raises(ValueError, match=r"not in 0\.\.4"):
        CulpritSearch(changes=4).tell(k, GOOD)
