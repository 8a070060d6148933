"""Sets of toggles: what breaks together, what breaks besides, and what cannot be told apart."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchbisect.search import Budget, CulpritSet, Observation, Rates

GOOD, BAD, SKIP = Observation.GOOD, Observation.BAD, Observation.SKIP
DETERMINISTIC = Rates.deterministic()


def opened(toggles, **options):
    search = CulpritSet(toggles=toggles, **options)
    search.tell(frozenset(), GOOD)
    search.tell(frozenset(range(toggles)), BAD)
    return search


def breaking(*guilty, untestable=lambda _: False):
    return lambda on: SKIP if untestable(on) else BAD if any(one <= on for one in guilty) else GOOD


def finished(search, launch, *, at_most=300):
    """Play until nothing more is asked; returns the answer and the points launched."""
    launched = []
    while asked := search.ask():
        for on in asked:
            search.tell(on, launch(on))
            launched.append(on)
        assert len(launched) <= at_most
    return search.answer(), launched


@pytest.mark.ci
@given(toggles=st.integers(1, 40), data=st.data())
@settings(max_examples=60, deadline=None)
def test_one_set_is_found_whole_and_nothing_else(toggles, data):
    guilty = data.draw(st.frozensets(st.integers(0, toggles - 1), min_size=1, max_size=min(toggles, 5)))
    answer, launched = finished(opened(toggles, rates=DETERMINISTIC), breaking(guilty))
    assert answer.sets == (tuple(sorted(guilty)),)
    assert answer.kind == ("found" if len(guilty) == 1 else "set")
    assert answer.complete
    assert len(launched) <= (len(guilty) + 1) * (math.ceil(math.log2(toggles)) + 2) + 1
    assert len(launched) == len(set(launched))


@pytest.mark.ci
@given(
    parts=st.lists(st.frozensets(st.integers(0, 11), min_size=1, max_size=3), min_size=1, max_size=3),
)
@settings(max_examples=60, deadline=None)
def test_independent_sets_are_all_found(parts):
    guilty = []
    for one in parts:
        rest = one - frozenset().union(*guilty)
        guilty += [rest] if rest else []
    answer, _ = finished(opened(12, rates=DETERMINISTIC), breaking(*guilty))
    assert {frozenset(one) for one in answer.sets} == set(guilty)
    assert answer.complete
    assert not answer.inseparable


def test_the_first_set_is_an_answer_before_the_others_are_known():
    search = opened(8, rates=DETERMINISTIC)
    launch = breaking(frozenset({2}), frozenset({5}))
    while search.answer() is None:
        for on in search.ask():
            search.tell(on, launch(on))
    assert not search.answer().complete
    assert search.ask()


@pytest.mark.parametrize("guilty", [frozenset({3}), frozenset({1, 6})])
def test_it_inverts_itself_when_taking_away_breaks(guilty):
    everything = frozenset(range(8))
    search = CulpritSet(toggles=8, rates=DETERMINISTIC)
    search.tell(frozenset(), BAD)
    search.tell(everything, GOOD)
    answer, launched = finished(search, lambda on: BAD if guilty <= everything - on else GOOD)
    assert answer.inverted
    assert frozenset(answer.candidates) == guilty
    assert all(on <= everything for on in launched)


@pytest.mark.parametrize("verdict", [GOOD, BAD])
def test_ends_that_agree_mean_that_no_toggle_is_guilty(verdict):
    answer, _ = finished(CulpritSet(toggles=6, rates=DETERMINISTIC), lambda _: verdict)
    assert (answer.kind, answer.candidates) == ("none", ())


def test_noise_is_outvoted():
    guilty = frozenset({2, 9})
    right = 0
    for seed in range(12):
        rng = random.Random(seed)

        def launch(on, rng=rng):
            return BAD if rng.random() < (0.9 if guilty <= on else 0.05) else GOOD

        answer, _ = finished(opened(12), launch)
        right += frozenset(answer.candidates) == guilty
        assert answer.confidence >= 0.95
    assert right >= 11


def test_a_contradiction_ends_the_belief_that_no_verdict_lies():
    search = opened(8, rates=DETERMINISTIC)
    search.tell(frozenset({1, 2}), BAD)
    search.tell(frozenset({1, 2, 3}), GOOD)
    assert search.rates.kind == "unknown"
    assert search.answer() is None


def test_a_step_that_evidence_throws_into_doubt_opens_again():
    search = opened(6, rates=Rates.unknown())
    launch = breaking(frozenset({1, 4}))
    while search.answer() is None:
        for on in search.ask():
            search.tell(on, launch(on))
    assert search.answer().candidates == (1, 4)
    for _ in range(4):
        search.tell(frozenset({1, 4}), GOOD)
    assert search.answer() is None or search.answer().candidates != (1, 4)


class TestSkips:
    def test_a_toggle_that_needs_another_is_tried_in_the_other_order(self):
        """Toggle 2 cannot be launched without toggle 5, which stands after it."""
        launch = breaking(frozenset({5}), untestable=lambda on: 2 in on and 5 not in on)
        answer, _ = finished(opened(8, rates=DETERMINISTIC), launch)
        assert answer.candidates == (5,)
        assert not answer.inseparable

    def test_what_only_launches_together_is_said_to_be_inseparable(self):
        launch = breaking(frozenset({3}), untestable=lambda on: (3 in on) != (6 in on))
        answer, _ = finished(opened(8, rates=DETERMINISTIC), launch)
        assert answer.candidates == (3, 6)
        assert answer.inseparable == (3, 6)

    def test_nothing_between_the_ends_can_be_tested(self):
        full = frozenset(range(5))
        answer, launched = finished(
            opened(5, rates=DETERMINISTIC), breaking(full, untestable=lambda on: 0 < len(on) < 5)
        )
        assert answer.candidates == (0, 1, 2, 3, 4)
        assert answer.inseparable == (0, 1, 2, 3, 4)
        assert len(launched) <= 12


class TestBudgetAndParallel:
    def test_when_it_is_spent_it_says_what_may_be_needed(self):
        answer, launched = finished(
            opened(16, rates=DETERMINISTIC, budget=Budget(launches=3)), breaking(frozenset({4, 11}))
        )
        assert answer.kind == "budget"
        assert len(launched) == 3
        assert not answer.complete

    def test_points_asked_together_are_different_and_withdrawn_ones_come_again(self):
        search = opened(40, rates=DETERMINISTIC)
        first = search.ask(parallel=3)
        assert len(set(first)) == 3
        for on in first:
            search.withdraw(on)
        assert search.launches == 0
        assert search.ask(parallel=3) == first

    def test_order_of_telling_does_not_matter(self):
        launch, rng = breaking(frozenset({1, 7})), random.Random(2)
        told = [frozenset(t for t in range(10) if rng.random() < 0.6) for _ in range(20)]
        one, other = opened(10), opened(10)
        for on in told:
            one.tell(on, launch(on))
        for on in reversed(told):
            other.tell(on, launch(on))
        assert one.answer() == other.answer()
        assert one.ask(parallel=2) == other.ask(parallel=2)


def test_a_suspect_set_by_prior_is_found_sooner():
    launch = breaking(frozenset({3, 17}))
    plain = len(finished(opened(40, rates=DETERMINISTIC), launch)[1])
    prior = [20.0 if t in (3, 17) else 1.0 for t in range(40)]
    assert len(finished(opened(40, rates=DETERMINISTIC, prior=prior), launch)[1]) < plain


def test_candidates_shrink_to_the_set():
    search = opened(8, rates=DETERMINISTIC)
    assert search.candidates() == tuple(range(8))
    finished(search, breaking(frozenset({2, 6})))
    assert search.candidates() == (2, 6)


@pytest.mark.parametrize(
    "options", [{"toggles": 0}, {"toggles": 3, "prior": [1, 0, 1]}, {"toggles": 3, "confidence": 1.0}]
)
def test_what_does_not_fit_is_refused(options):
    with pytest.raises(ValueError):
        CulpritSet(**options)


def test_toggles_that_are_not_there_are_refused():
    with pytest.raises(ValueError, match=r"toggles are 0\.\.3"):
        CulpritSet(toggles=4).tell(frozenset({4}), GOOD)
