"""Both endpoints, the axes, the search inside the guilty one, the proof.

A bisection is a deterministic function of its question and of the trials' verdicts: see
:class:`patchbisect.bisection.bench.Journaled` for what that buys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from patchbisect.bisection.bench import Bench
from patchbisect.bisection.course import Course, Drifted, Marks, Progress
from patchbisect.bisection.endpoints import Refused, settle_ends
from patchbisect.bisection.finding import AnswerKind, Claim, Finding, ProofStep, Question, opposite
from patchbisect.bisection.ground import Ground, On, Spot
from patchbisect.bisection.proving import REFUTED, doubtful, prove, refuted
from patchbisect.bisection.searching import LineAnswer, SetAnswer, search_line, search_sets
from patchbisect.bisection.suspicion import INNERMOST_FILE, frames, weights
from patchbisect.bisection.wording import BREAKS, REPAIRS, Effect, noun, nouns, on_number
from patchbisect.model import EMPTY, Axis, Change
from patchbisect.search import Answer, Observation, Rates


def bisect(
    question: Question,
    bench: Bench,
    *,
    marks: Marks = EMPTY,
    notify: Callable[[str], None] = lambda text: None,
    progress: Callable[[Progress], None] | None = None,
) -> Finding:
    """Both endpoints, the search, the proof.

    Raises BoxError when the box will not serve, PointUnbuildable where one of the ends cannot be built.
    """
    ground = Ground(question.timeline, bench)
    course = Course(question=question, bench=bench, marks=marks, notify=notify, progress=progress)
    return _Bisection(question, ground=ground, course=course).run()


@dataclass(frozen=True, slots=True)
class _Guilt:
    """What is to blame within a range: ``changes`` break together. ``stop`` fails with them, ``parent`` does not yet.

    Without ``sure`` one of them is guilty, and what lies between cannot be tested, or the budget is spent.
    """

    answer: Answer
    changes: On = frozenset()
    stop: Spot | None = None
    parent: Spot | None = None
    sure: bool = True
    others: tuple[On, ...] = ()
    """Further sets that break without these."""
    needed: On = frozenset()
    """Other guilty axes, wholly at the bad end: without them these changes break nothing."""


class _Bisection:
    def __init__(self, question: Question, *, ground: Ground, course: Course) -> None:
        self.question = question
        self.ground = ground
        self.course = course
        self._doubted: set[On] = set()
        """Culprits that were launched again because their proof disagreed."""

    def run(self) -> Finding:
        good, bad = self.ground.end(bad=False), self.ground.end(bad=True)
        if good.content == bad.content:
            return self._finding(
                AnswerKind.NONE, "both ends run the same code with the same settings: there is nothing to find"
            )
        lost: tuple[str, ...] = ()
        while True:
            try:
                return replace(self._searched(), lost=lost)
            except Refused as refusal:
                return self._finding(refusal.answer, refusal.reason, lost=lost)
            except Drifted as drift:
                lost += drift.lost
                if drift.alone:
                    return self._finding(AnswerKind.INCONCLUSIVE, drift.reason, lost=lost)
                self.course.notify(f"{drift.reason}; going on without box {drift.box}")
                self.course.withdraw(drift.lost)

    def _searched(self) -> Finding:
        settle_ends(self.course, self.ground)
        self.course.weights = self._suspicion()
        axes = self._axes()
        if len(axes) == 1:
            return self._report(self._inside(tuple(sorted(self.ground.everything))))
        return self._across(axes)

    def _suspicion(self) -> tuple[float, ...]:
        """What the bad end's traceback says about each change."""
        failed = self.course.recall(self.ground.end(bad=not self.question.fix))
        log = self.course.bench.log(failed.trial) if failed and failed.trial and failed.trial.record else b""
        found = weights(self.ground.changes, frames(log), findings=self.question.findings)
        if found and max(found) >= INNERMOST_FILE:
            prime = self.ground.changes[found.index(max(found))]
            self.course.notify(f"suspected first: {noun(prime, secrets=self.question.secrets)}")
        return found

    # -- searching ------------------------------------------------------------------------------------------------

    def _axes(self) -> dict[Axis, On]:
        """The changes of each axis, by index."""
        axes: dict[Axis, On] = {}
        for index, change in enumerate(self.ground.changes):
            axes[change.axis] = axes.get(change.axis, frozenset()) | {index}
        return axes

    def _across(self, axes: Mapping[Axis, On]) -> Finding:
        """Each axis wholly good or wholly bad first, then inside the guilty ones with the others at the bad end.

        Where verdicts turn out to err on the way, what parted the axes may have erred too: they are parted again.
        """
        self.course.notify(f"the ends differ in {', '.join(axes)}: finding out which of these matters")
        corners = search_sets(self.course, self.ground, tuple(axes.values()), purpose="axes")
        parted_by = self.course.rates.kind
        if not corners.sets:
            return self._report(_Guilt(answer=corners.answer, changes=self.ground.everything, sure=False))
        if not (corner := self._certain(corners)):
            return self._report(_Guilt(answer=corners.answer, changes=corners.sets[0], sure=False))
        corners = replace(corners, sets=(corner, *corners.sets[1:]))
        independent = [frozenset().union(*corners.sets[:i], *corners.sets[i + 1 :]) for i in range(len(corners.sets))]
        found: list[_Guilt] = []
        for corner, elsewhere in zip(corners.sets, independent, strict=True):
            parts: list[_Guilt] = []
            for axis, mine in axes.items():
                if mine <= corner:
                    self.course.notify(f"guilty axis: {axis}")
                    held = self.ground.everything - mine - elsewhere
                    parts.append(self._inside(tuple(sorted(mine)), held=held, needed=corner - mine))
            whole = _joined(parts)
            if len(parts) > 1 and whole.sure and not self._each_needed(whole.changes):
                self._doubt_all()
            if parted_by == "deterministic" != self.course.rates.kind:
                return self._across(axes)
            found.append(whole)
        guilt = replace(found[0], others=tuple(other.changes for other in found[1:] if other.sure))
        return self._report(guilt)

    def _each_needed(self, changes: On) -> bool:
        """Whether no change of a set across axes is a bystander: all others of the set passed without it, twice.

        An axis counts as needed because of a single launch without it, and that may have passed by accident. Where no
        second one did, the others are launched without that change.
        """
        for change in sorted(changes) if self.course.rates.kind == "deterministic" else ():
            others = changes - {change}
            passed = [
                seen
                for seen in self.course.evidence()
                if seen.observation is Observation.GOOD and seen.spot.on & changes == others
            ]
            spot = self.ground.spot(others)
            if len(passed) > 1 or spot.unbuildable or self.course.spent:
                continue
            if self.course.look(spot, purpose="proof again").observation is Observation.BAD:
                return False
        return True

    def _inside(self, suspects: tuple[int, ...], *, held: On = frozenset(), needed: On = frozenset()) -> _Guilt:
        """What is to blame among ``suspects``, with ``held`` made, of which ``needed`` is guilty too."""
        while True:
            line = search_line(self.course, self.ground, suspects, held=held)
            guilt = replace(self._found(line) or self._band(line, held=held), needed=needed)
            if guilt.sure and not self._fails_again(guilt):
                self._doubt_all()
                continue
            proof = self._proof(guilt)
            if not guilt.sure or not doubtful(proof) or self.course.spent:
                return guilt
            if guilt.changes not in self._doubted and self._gives_way(guilt, proof):
                continue
            interplay = self._together(line, guilt, held=held)
            if interplay is not None:
                return interplay

    def _found(self, line: LineAnswer) -> _Guilt | None:
        """The one change that stood out."""
        if line.answer.kind != "found":
            return None
        assert line.answer.culprit is not None
        stop, parent = line.stops[line.answer.culprit], line.stops[line.answer.culprit - 1]
        return _Guilt(answer=line.answer, changes=line.changes(line.answer.culprit), stop=stop, parent=parent)

    def _fails_again(self, guilt: _Guilt) -> bool:
        """Whether an end that alone shows the culprit's failure fails once more: the first time may be an accident.

        That is so for the last change of a range (for the first one, where a repair is sought). Any other culprit was
        seen to fail at a point of its own, after the end that began it all.
        """
        fix = self.question.fix
        failing, claimed = (guilt.parent, Observation.GOOD) if fix else (guilt.stop, Observation.BAD)
        end = self.ground.end(bad=not fix)
        if failing is None or failing.content != end.content:
            return True
        failed = [seen.trial for seen in self.course.evidence() if seen.spot.content == end.content and seen.trial]
        once = len(failed) == 1 and failed[0].record and not failed[0].reused
        if not once or self.course.rates.kind != "deterministic" or self.course.spent:
            return True
        return self.course.look(end, purpose="proof").observation is not opposite(claimed)

    def _certain(self, answer: SetAnswer, *, held: On = frozenset()) -> On:
        """The first set without the changes that may be bystanders in it; empty where that is not known to break.

        That it breaks without them cannot be tested. Where it is seen to pass, one of them is needed, and which one is
        not known.
        """
        needed = answer.sets[0] - answer.open
        seen = self.course.recall(self.ground.spot(held | needed)) if answer.open and needed else None
        return frozenset() if seen and seen.observation is Observation.GOOD else needed

    def _gives_way(self, guilt: _Guilt, proof: tuple[ProofStep, ...]) -> bool:
        """Launch again what the proof throws doubt on; whether something ended otherwise than before.

        If all of it stands, the contradiction is no accident: changes play together, or there is more than one culprit.
        """
        self._doubted.add(guilt.changes)
        self.course.notify("the proof disagrees: launching again what it throws doubt on")
        assert guilt.stop is not None
        assert guilt.parent is not None
        claims = {step.claim for step in proof if step.status == REFUTED}
        against = refuted(self.ground, guilt.changes, proof, needed=guilt.needed)
        doubted = [(self.ground.spot(on), seen) for on, seen in against]
        if Claim.WITHOUT_CULPRIT_GOOD in claims:
            # It fails where it should not: perhaps everything does by now, on the box where it failed.
            where = next(
                (step.trial.box for step in proof if step.claim is Claim.WITHOUT_CULPRIT_GOOD and step.trial), ""
            )
            for spot, wanted in self.course.sentinels:
                if not spot.on:
                    self.course.sentinel(spot, wanted, why="the proof disagrees with the search", box=where)
        own = [(guilt.stop, Observation.BAD), (guilt.parent, Observation.GOOD)]
        if self.course.rates.kind != "deterministic":
            doubted += own
        elif Claim.ALONE_BAD in claims:
            doubted = own if Claim.WITHOUT_CULPRIT_GOOD in claims else own[:1]
        ended = [self.course.look(spot, purpose="proof again").observation for spot, _ in doubted]
        if ended == [believed for _, believed in doubted]:
            return False
        self._doubt_all()
        return True

    def _doubt_all(self) -> None:
        if self.course.rates.kind == "deterministic":
            self.course.notify("the same point ended in two ways: searching as if every launch could err")
            self.course.rates = Rates.unknown()

    def _band(self, line: LineAnswer, *, held: On) -> _Guilt:
        """No single change stood out."""
        candidates = frozenset[int]().union(*line.candidates)
        guilt = _Guilt(answer=line.answer, changes=candidates, sure=False)
        if line.answer.kind != "set" or self.course.spent:
            return guilt
        first, last = line.answer.candidates[0], line.answer.candidates[-1]
        before = line.stops[first - 1].on
        self.course.notify("points in between cannot be tested: trying these changes in other combinations")
        answer = search_sets(self.course, self.ground, line.candidates, held=before, purpose="band")
        told_apart = answer.answer.kind in ("found", "set") and answer.sets and not answer.open
        if not told_apart or not self._stand(answer.sets, held=before):
            return guilt
        # With the culprit and just before it: two points that differ in nothing else, where the search launched both.
        own = self.ground.spot(before | answer.sets[0])
        stop = own if self.course.recall(own, Observation.BAD) else line.stops[last]
        mine, *others = answer.sets
        return _Guilt(answer=answer.answer, changes=mine, stop=stop, parent=line.stops[first - 1], others=tuple(others))

    def _together(self, line: LineAnswer, guilt: _Guilt, *, held: On) -> _Guilt | None:
        """The smallest set that breaks, where the culprit alone does not or is not the only one.

        None where a set that was seen to break does not when it is launched again: then no verdict can be trusted.
        """
        self.course.notify("one change alone does not explain it: looking for those that break together")
        toggles = tuple(line.changes(stop) for stop in range(1, len(line.stops)))
        answer = search_sets(self.course, self.ground, toggles, held=held, purpose="together")
        if not answer.sets:
            return guilt
        if not (first := self._certain(answer, held=held)):
            return _Guilt(answer=answer.answer, changes=answer.sets[0], sure=False)
        sets = (first, *answer.sets[1:])
        mine = next((one for one in sets if guilt.changes <= one), first)
        others = tuple(one for one in sets if one is not mine)
        if self.course.rates.kind == "deterministic" and not self._stand(sets, held=held):
            self._doubt_all()
            return None
        return replace(guilt, answer=answer.answer, changes=mine, others=others)

    def _stand(self, sets: tuple[On, ...], *, held: On) -> bool:
        """Launch the sets again, as far as the budget goes: does each break, and not without any one of its changes?

        One launch that erred would make a pair of a culprit and a bystander, or of a bystander a second culprit.
        """
        if sum(map(len, sets)) == 1:
            return True
        claims = [(one, Observation.BAD) for one in sets]
        claims += [(one - {change}, Observation.GOOD) for one in sets if len(one) > 1 for change in sorted(one)]
        for on, claimed in claims:
            spot = self.ground.spot(held | on)
            if self.course.spent:
                return True
            # What ends otherwise, or cannot be built, contradicts nothing.
            if not spot.unbuildable and self.course.look(spot, purpose="proof again").observation is opposite(claimed):
                return False
        return True

    # -- answering ------------------------------------------------------------------------------------------------

    def _proof(self, guilt: _Guilt) -> tuple[ProofStep, ...]:
        if guilt.stop is None or guilt.parent is None:
            return ()
        return prove(self.course, self.ground, guilt.changes, stop=guilt.stop, parent=guilt.parent, needed=guilt.needed)

    def _report(self, guilt: _Guilt) -> Finding:
        changes = [self.ground.changes[i] for i in sorted(guilt.changes)]
        answer = guilt.answer
        common = {
            "candidates": tuple(changes),
            "confidence": answer.confidence,
            "assumed_deterministic": self.course.rates.kind == "deterministic",
        }
        if answer.kind == "none":
            comes_and_goes = f"{self._effect().what} comes and goes by itself"
            return self._finding(AnswerKind.NONE, f"no change of this range is guilty: {comes_and_goes}", **common)
        if answer.kind == "budget":
            return self._finding(AnswerKind.INCONCLUSIVE, "the budget is spent before one change stood out", **common)
        if not guilt.sure:
            reason = f"at least one of {len(changes)} changes is guilty; the points between them cannot be tested"
            return self._finding(AnswerKind.SET, reason, **common)
        proof = self._proof(guilt)
        others = tuple(tuple(self.ground.changes[i] for i in sorted(other)) for other in guilt.others)
        more = {"proof": proof, "others": others, **common}
        if doubtful(proof) and not others and self.course.rates.kind != "deterministic":
            return self._finding(
                AnswerKind.INCONCLUSIVE,
                f"the evidence conflicts: {nouns(changes, secrets=self.question.secrets)} looked guilty, and the proof "
                "says otherwise",
                **more,
            )
        reason = self._because(changes, proof, others)
        if len(changes) > 1:
            return self._finding(AnswerKind.SET, reason, together=True, **more)
        position = self.ground.changes.index(changes[0]) + 1
        return self._finding(AnswerKind.FOUND, reason, culprit=changes[0], position=position, **more)

    def _because(
        self, changes: list[Change], proof: tuple[ProofStep, ...], others: tuple[tuple[Change, ...], ...]
    ) -> str:
        status = {step.claim: step for step in proof}
        without, alone = status[Claim.WITHOUT_CULPRIT_GOOD], status[Claim.ALONE_BAD]
        secrets, effect = self.question.secrets, self._effect(proof)
        if len(changes) > 1:
            said = f"{nouns(changes, secrets=secrets)} {effect.several}"
            needed = f", and without them {effect.undone}" if without.confirmed else ""
        else:
            said = f"{noun(changes[0], secrets=secrets)} {effect.one}"
            words = ["necessary"] * without.confirmed + ["sufficient alone"] * alone.confirmed
            needed = f": {', and '.join(words)}" if words else ""
            if alone.status == REFUTED:
                needed += "; not alone, but with changes that could not be named"
        if others:
            independent = " or ".join(nouns(other, secrets=secrets) for other in others)
            return f"{said}{needed}; independently of that, so does {independent}"
        if without.status == REFUTED:
            return f"{said}{needed}, but so does something else: without it {effect.remains}"
        return f"{said}{needed}"

    def _effect(self, proof: tuple[ProofStep, ...] = ()) -> Effect:
        """What the guilty change does, as its own point and the one before it show."""
        threshold, fix = self.question.bad_when, self.question.fix
        if threshold is None:
            return REPAIRS if fix else BREAKS
        verdicts = {step.claim: step.trial.verdict for step in proof if step.trial}
        before, after = (
            threshold.measure(verdicts[claim]) if claim in verdicts else None
            for claim in (Claim.PARENT_GOOD, Claim.CULPRIT_BAD)
        )
        return on_number(threshold, before=before, after=after, fix=fix)

    def _finding(self, answer: AnswerKind, reason: str, **more: Any) -> Finding:
        return replace(
            Finding(answer=answer, reason=reason, timeline=self.question.timeline, target=self.course.judge),
            steps=tuple(self.course.steps),
            unbuildable=self.course.unbuildable,
            secrets=self.question.secrets,
            fix=self.question.fix,
            **more,
        )


def _joined(parts: list[_Guilt]) -> _Guilt:
    """What breaks only when each of these does its part."""
    whole = parts[-1]
    unsure = next((part for part in parts if not part.sure or part.answer.kind in ("none", "budget")), None)
    if unsure is not None:
        return unsure
    changes = frozenset[int]().union(*(part.changes for part in parts))
    others = tuple(other for part in parts for other in part.others)
    return replace(whole, changes=changes, others=others, needed=frozenset())
