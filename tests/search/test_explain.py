"""Each reason is said where it is the reason; the stories in ``golden/`` show them in context."""

from __future__ import annotations

from patchbisect.search import CulpritSearch, CulpritSet, Observation, Rates

GOOD, BAD = Observation.GOOD, Observation.BAD


def test_before_the_first_ask_there_is_nothing_to_explain():
    assert CulpritSearch(changes=4).explain() == CulpritSet(toggles=4).explain() == "Nothing was asked yet."


def test_an_end_that_was_not_seen():
    search = CulpritSearch(changes=4, rates=Rates.deterministic())
    search.tell(0, GOOD)
    search.tell(3, GOOD)
    assert search.ask() == [4]
    assert search.explain().startswith("Point 4: the end was not seen yet.")
    assert "nothing is guilty with 10%" in search.explain()


def test_a_confirmation():
    search = CulpritSearch(changes=16, prior=[0.99 if c == 7 else 0.001 for c in range(1, 17)])
    search.tell(0, GOOD)
    search.tell(16, BAD)
    (k,) = search.ask()
    wanted = {6: "good", 7: "bad"}[k]
    assert f"change 7 must not be blamed before its own side was seen {wanted}" in search.explain()


def test_it_tells_what_was_known_at_the_ask_not_later():
    search = CulpritSearch(changes=16, rates=Rates.deterministic())
    search.tell(0, GOOD)
    search.tell(16, BAD)
    search.ask()
    before = search.explain()
    search.tell(8, BAD)
    assert search.explain() == before
