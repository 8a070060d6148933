"""What makes an answer more than a guess: the culprit's point, its parent, the bad end without it, it alone."""

from __future__ import annotations

from patchbisect.bisection.course import Course
from patchbisect.bisection.finding import Claim, ProofStep
from patchbisect.bisection.ground import Ground, On, Spot
from patchbisect.bisection.judging import short
from patchbisect.search import Observation

CONFIRMED, REFUTED = "confirmed", "refuted"


def prove(course: Course, ground: Ground, guilty: On, *, stop: Spot, parent: Spot) -> tuple[ProofStep, ...]:
    """Culprit and parent rest on the search's own launches; what takes ``guilty`` out or alone is launched here."""
    return (
        _own(course, Claim.CULPRIT_BAD, stop, Observation.BAD),
        _own(course, Claim.PARENT_GOOD, parent, Observation.GOOD),
        _taken(course, Claim.WITHOUT_CULPRIT_GOOD, ground.spot(ground.everything - guilty), Observation.GOOD),
        _taken(course, Claim.ALONE_BAD, ground.spot(guilty), Observation.BAD),
    )


def doubtful(proof: tuple[ProofStep, ...]) -> bool:
    """Whether a launch disagreed with what the search believes."""
    return any(step.status == REFUTED for step in proof)


def _own(course: Course, claim: Claim, spot: Spot, wanted: Observation) -> ProofStep:
    seen = course.recall(spot, wanted)
    if seen:
        return ProofStep(claim=claim, status=CONFIRMED, trial=seen.trial)
    return ProofStep(claim=claim, status=f"not testable: {spot.unbuildable or 'no launch of it was conclusive'}")


def _taken(course: Course, claim: Claim, spot: Spot, wanted: Observation) -> ProofStep:
    """A launch of what was run before stands for itself: a verdict is one observation, never two."""
    if spot.unbuildable:
        return ProofStep(claim=claim, status=f"not testable: {spot.unbuildable}")
    seen = course.recall(spot)
    if seen is None and course.spent:
        return ProofStep(claim=claim, status="not tested: the budget is spent")
    seen = seen or course.look(spot, purpose="proof")
    assert seen.trial is not None, "what can be built is launched"
    if seen.observation is Observation.SKIP:
        return ProofStep(claim=claim, status=f"not testable: it ended as {short(seen.trial.verdict)}", trial=seen.trial)
    return ProofStep(claim=claim, status=CONFIRMED if seen.observation is wanted else REFUTED, trial=seen.trial)
