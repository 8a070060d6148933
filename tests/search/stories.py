"""Searches told launch by launch. ``python -m tests.search.stories`` writes them to ``golden/`` anew.

To add one: add a line to ``STORIES``, run the command, and read what it wrote before you commit it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

from patchbisect.search import Answer, CulpritSearch, CulpritSet, Observation, Rates

GOLDEN = Path(__file__).with_name("golden")
GOOD, BAD, SKIP = Observation.GOOD, Observation.BAD, Observation.SKIP


def timeline(
    *,
    changes: int,
    culprit: int,
    rates: Rates | None = None,
    lies: dict[int, Observation] | None = None,
    closed: range = range(0),
    parallel: int = 1,
    prior: list[float] | None = None,
    afterwards: tuple[tuple[int, Observation], ...] = (),
) -> Iterator[str]:
    """``lies`` are the launches (counted from 1) that say something wrong; ``afterwards`` is told after the answer."""
    search = CulpritSearch(changes=changes, rates=rates, prior=prior)
    search.tell(0, GOOD)
    search.tell(changes, BAD)
    yield f"{changes} changes; told: point 0 is good, point {changes} is bad. {_forecast(search.plan())}"
    number = itertools.count(1)
    while True:
        while search.answer() is None:
            asked = search.ask(parallel=parallel)
            yield f"\n{search.explain()}"
            for k in asked:
                launch = next(number)
                truth = SKIP if k in closed else BAD if k >= culprit else GOOD
                said = (lies or {}).get(launch, truth)
                search.tell(k, said)
                yield f"  {launch}. point {k}: {said}{'' if said is truth else ' (a lie)'}"
        yield f"\n{_ending(search.answer())}"
        if not afterwards:
            return
        (k, said), afterwards = afterwards[0], afterwards[1:]
        search.tell(k, said)
        yield f"\nThe proof launches point {k} again: {said}. Rates are now {search.rates.kind}."


def toggles(*, count: int, guilty: tuple[frozenset[int], ...], rates: Rates, inverted: bool = False) -> Iterator[str]:
    everything = frozenset(range(count))
    search = CulpritSet(toggles=count, rates=rates)
    search.tell(frozenset(), BAD if inverted else GOOD)
    search.tell(everything, GOOD if inverted else BAD)
    yield f"{count} toggles; told: all off is {'bad' if inverted else 'good'}, all on {'good' if inverted else 'bad'}."
    number = itertools.count(1)
    known = False
    while asked := search.ask():
        yield f"\n{search.explain()}"
        for on in asked:
            broken = any(one <= (everything - on if inverted else on) for one in guilty)
            search.tell(on, BAD if broken else GOOD)
            yield f"  {next(number)}. on: {_members(on)}: {'bad' if broken else 'good'}"
        if not known and search.answer():
            known = True
            yield f"\n{_ending(search.answer())}"
    answer = search.answer()
    assert answer is not None
    yield f"\nIn the end: {' and '.join(_members(one) for one in answer.sets)}; nothing else: {answer.complete}."


def _forecast(plan) -> str:
    return f"Expected launches: {plan.expected:.1f}, at worst {plan.worst}."


def _members(on) -> str:
    return "{" + " ".join(map(str, sorted(on))) + "}"


def _ending(answer: Answer | None) -> str:
    assert answer is not None
    assumed = ", if no verdict lied" if answer.assumed_deterministic else ""
    whom = " ".join(map(str, answer.candidates)) or "nothing in the range"
    off = " (switched off)" if answer.inverted else ""
    return f"Answer: {answer.kind}, {whom}{off}, with {answer.confidence:.1%}{assumed}."


DETERMINISTIC = Rates.deterministic()
SUSPECT = [0.9 if c == 12 else 0.1 / 31 for c in range(1, 33)]

STORIES: dict[str, Callable[[], Iterator[str]]] = {
    "binary-search": lambda: timeline(changes=32, culprit=21, rates=DETERMINISTIC),
    "proof-disagrees": lambda: timeline(changes=16, culprit=11, rates=DETERMINISTIC, afterwards=((10, BAD),)),
    "clean-box-unknown-rates": lambda: timeline(changes=32, culprit=21),
    "one-lie": lambda: timeline(changes=32, culprit=21, lies={2: GOOD}),
    "told-rates": lambda: timeline(changes=32, culprit=21, rates=Rates.told(0.0, 0.9)),
    "nothing-guilty": lambda: timeline(changes=32, culprit=33),
    "suspect-first": lambda: timeline(changes=32, culprit=12, prior=SUSPECT),
    "band-of-skips": lambda: timeline(changes=32, culprit=21, rates=DETERMINISTIC, closed=range(10, 18)),
    "only-skips-separate-them": lambda: timeline(changes=32, culprit=14, rates=DETERMINISTIC, closed=range(10, 18)),
    "three-at-once": lambda: timeline(changes=32, culprit=21, parallel=3),
    "pair": lambda: toggles(count=8, guilty=(frozenset({2, 6}),), rates=DETERMINISTIC),
    "pair-unknown-rates": lambda: toggles(count=8, guilty=(frozenset({2, 6}),), rates=Rates.unknown()),
    "two-independent-sets": lambda: toggles(count=8, guilty=(frozenset({5}), frozenset({0, 3})), rates=DETERMINISTIC),
    "taking-away-breaks": lambda: toggles(count=8, guilty=(frozenset({4}),), rates=DETERMINISTIC, inverted=True),
}


def told(name: str) -> str:
    return "\n".join(STORIES[name]()) + "\n"


if __name__ == "__main__":
    for story in STORIES:
        (GOLDEN / f"{story}.txt").write_text(told(story), encoding="utf-8")
