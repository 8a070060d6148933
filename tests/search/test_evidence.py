"""Counting: per point, in any order."""

from __future__ import annotations

from patchbisect.search.evidence import Evidence


def test_a_point_is_closed_until_it_gives_a_verdict():
    evidence = Evidence()
    evidence.add(3, skip=2)
    assert evidence.closed() == {3}
    evidence.add(3, bad=1)
    assert evidence.closed() == frozenset()


def test_totals_are_over_a_range_of_points():
    evidence = Evidence()
    evidence.add(0, good=2)
    evidence.add(4, good=1, bad=3)
    evidence.add(9, bad=5)
    assert evidence.total(0, 4) == (3, 3)
    assert evidence.total(5, 9) == (0, 5)


def test_supposing_changes_nothing():
    evidence = Evidence()
    evidence.add(4, good=1)
    assert evidence.supposing([(4, True), (5, False)]) == {4: (1, 1), 5: (1, 0)}
    assert evidence.counts == {4: (1, 0)}
