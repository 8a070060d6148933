"""What makes an answer more than a guess: the culprit's point, its parent, the bad end without it, it alone."""

from __future__ import annotations

from patchbisect.bisection.course import Course
from patchbisect.bisection.finding import Claim, ProofStep, opposite
from patchbisect.bisection.ground import Ground, On, Spot
from patchbisect.bisection.judging import Target, short
from patchbisect.search import Observation

CONFIRMED, REFUTED = "confirmed", "refuted"


def prove(
    course: Course, ground: Ground, guilty: On, *, stop: Spot, parent: Spot, needed: On = frozenset()
) -> tuple[ProofStep, ...]:
    """Culprit and parent rest on the search's own launches; what takes ``guilty`` out or alone is launched here.

    ``needed`` are other guilty changes: "alone" is with them.
    """
    taken = _counterfactuals(ground, guilty, needed)
    course.look_side_by_side([(ground.spot(on), "proof") for _, on, _ in taken])
    return (
        _own(course, Claim.CULPRIT_BAD, stop, Observation.BAD),
        _own(course, Claim.PARENT_GOOD, parent, Observation.GOOD),
        *(_taken(course, claim, ground.spot(on), wanted) for claim, on, wanted in taken),
    )


def _counterfactuals(ground: Ground, guilty: On, needed: On) -> tuple[tuple[Claim, On, Observation], ...]:
    return (
        (Claim.WITHOUT_CULPRIT_GOOD, ground.everything - guilty, Observation.GOOD),
        (Claim.ALONE_BAD, guilty | needed, Observation.BAD),
    )


def refuted(
    ground: Ground, guilty: On, proof: tuple[ProofStep, ...], *, needed: On = frozenset()
) -> list[tuple[On, Observation]]:
    """The spots whose launch disagreed, each with what that launch said."""
    against = {step.claim for step in proof if step.status == REFUTED}
    taken = _counterfactuals(ground, guilty, needed)
    return [(on, opposite(wanted)) for claim, on, wanted in taken if claim in against]


def doubtful(proof: tuple[ProofStep, ...]) -> bool:
    """Whether a launch disagreed with what the search believes."""
    return any(step.status == REFUTED for step in proof)


def _own(course: Course, claim: Claim, spot: Spot, wanted: Observation) -> ProofStep:
    seen = course.recall(spot, wanted)
    if seen:
        return ProofStep(claim=claim, status=CONFIRMED, trial=seen.trial)
    return ProofStep(claim=claim, status=f"not testable: {spot.unbuildable or 'no launch of it was conclusive'}")


def _taken(course: Course, claim: Claim, spot: Spot, wanted: Observation) -> ProofStep:
    """A launch of what was run before stands for itself; where launches disagree, most of them decide."""
    if spot.unbuildable:
        return ProofStep(claim=claim, status=f"not testable: {spot.unbuildable}")
    seen = course.recall(spot)
    if seen is None and course.spent:
        return ProofStep(claim=claim, status="not tested: the budget is spent")
    seen = seen or course.look(spot, purpose="proof")
    assert seen.trial is not None, "what can be built is launched"
    said = course.tally(spot)
    if said[Observation.GOOD] == said[Observation.BAD] > 0 and not course.spent:
        said[course.look(spot, purpose="proof again").observation] += 1
    if not said[Observation.GOOD] and not said[Observation.BAD]:
        verdict, judge = seen.trial.verdict, course.judge
        moved = isinstance(judge, Target) and judge.nearly(verdict)
        where = ", in another place of SGLang's code than the bad end" if moved else ""
        return ProofStep(claim=claim, status=f"not testable: it ended as {short(verdict)}{where}", trial=seen.trial)
    confirmed = said[wanted] > said.total() - said[Observation.SKIP] - said[wanted]
    shown = course.recall(spot, wanted) if confirmed else course.recall(spot, opposite(wanted))
    return ProofStep(claim=claim, status=CONFIRMED if confirmed else REFUTED, trial=shown.trial if shown else None)
