"""The reasons of a search in plain sentences, for the live view and for reports."""

from __future__ import annotations

from dataclasses import dataclass

from patchbisect.search.belief import Belief
from patchbisect.search.conclusion import Block, leading_block, likeliest, unconfirmed
from patchbisect.search.evidence import Evidence


@dataclass(frozen=True, slots=True)
class Moment:
    """What was known when ``points`` were asked for."""

    points: tuple[int, ...]
    belief: Belief
    evidence: Evidence
    closed: frozenset[int]
    confidence: float


def explained(moment: Moment) -> str:
    """Why these points, then what is known: one sentence each."""
    reasons = [_reason(moment, point) for point in dict.fromkeys(moment.points)]
    return " ".join([*reasons, _known(moment)])


def _reason(moment: Moment, point: int) -> str:
    belief, evidence = moment.belief, moment.evidence
    block = leading_block(belief, moment.closed)
    suspect = f"change {block.first}" if block.first == block.last else f"changes {block.first}-{block.last}"
    times = moment.points.count(point)
    launch = f"Point {point}" + (f", {times} times at once" if times > 1 else "")
    if block.doubt <= 1 - moment.confidence and point in unconfirmed(block, evidence, moment.closed):
        wanted = "bad" if point == block.last else "good"
        return f"{launch}: {suspect} must not be blamed before its own side was seen {wanted}."
    good, bad = evidence.good(point), evidence.bad(point)
    if not good and not bad:
        below = float(belief.change[:point].sum()) / max(float(belief.change.sum()), 1e-300)
        if point in (0, len(belief.change)):
            return f"{launch}: the end was not seen yet."
        return f"{launch}: parts the suspicion, {below:.0%} up to it and {1 - below:.0%} past it."
    seen = " and ".join(f"{count} {word}" for count, word in ((good, "good"), (bad, "bad")) if count)
    if point == block.first - 1:
        return f"{launch}, seen {seen}: if {suspect} is guilty, it is good again."
    if point == block.last:
        return f"{launch}, seen {seen}: if {suspect} is guilty, it is bad again."
    return f"{launch}, seen {seen}: whether that can be trusted decides most."


def _known(moment: Moment) -> str:
    belief, changes = moment.belief, len(moment.belief.change)
    suspected = len(likeliest(belief, confidence=moment.confidence))
    block = leading_block(belief, moment.closed)
    which = f"change {block.first} has" if block.first == block.last else f"changes {block.first}-{block.last} have"
    nothing = f"; nothing is guilty with {belief.idle:.0%}" if belief.idle >= 0.01 else ""
    bear = "bears" if suspected == 1 else "bear"
    return (
        f"{suspected} of {changes} changes {bear} {moment.confidence:.0%} of the suspicion, "
        f"{which} {block.probability:.0%}{nothing}.{_doubted(belief, block)}"
    )


def _doubted(belief: Belief, block: Block) -> str:
    """How sure an answer could be, once it bears most of the suspicion and the rates are not known."""
    if block.probability < 0.5 or len(belief.grid.before) == 1:
        return ""
    error = belief.feared_rates(block.first, block.last)
    case = "nothing is guilty"
    if error is not None:
        case = f"launches fail {error[0]:.0%} before the culprit, {error[1]:.0%} after it"
    sure = max(0.0, 1 - block.doubt)
    return f" An answer now could claim {sure:.0%}; the error feared most: {case}."
