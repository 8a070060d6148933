"""One bisection under way: what was launched, what that said, and what is still allowed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace

from patchbisect.bisection.bench import Bench, in_journal, tell_journal
from patchbisect.bisection.finding import Question, Step, Unbuildable, opposite
from patchbisect.bisection.ground import Spot
from patchbisect.bisection.judging import Judge, Target, is_transient
from patchbisect.bisection.machines import Machine, changed
from patchbisect.errors import BoxError
from patchbisect.model import Outcome, Persistence, Verdict
from patchbisect.search import Budget, Observation, Rates
from patchbisect.trial import Trial

# Seconds of rest before each further try of a launch that our side or the machine failed (transient void): memory
# that is still being freed, a link that is down.
VOID_PAUSES_S = (5.0, 30.0, 120.0)

# An end that is launched again to see whether it still says what it said, and how often it may fail to.
SENTINEL, SENTINEL_TRIES = "sentinel", 3

# What a launch is thought to take (seconds) before any was made. Arbitrary: a big model's.
_USUAL_S = 300.0

Marks = Mapping[str, Observation]
"""What a person said of a content id; it stands in for a launch."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One observation: of a launch, of a mark, or that a point cannot be built."""

    spot: Spot
    observation: Observation
    trial: Trial | None = None


def paid_s(seen: Seen) -> float:
    """Seconds of a box that it cost."""
    return seen.trial.timings.get("total", 0.0) if seen.trial and not seen.trial.reused else 0.0


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a search is: ``candidates`` of ``changes`` are left, ``expected`` launches in all (proof left out)."""

    changes: int
    candidates: int
    confidence: float | None
    launches: int
    expected: float


class Drifted(Exception):
    """The machine is no longer what it was: ``box``, which is not used any more, unless it is ``alone``.

    ``lost`` are the records that say nothing any more.
    """

    def __init__(self, reason: str, lost: tuple[str, ...], *, box: str, alone: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.lost = lost
        self.box = box
        self.alone = alone


class Course:
    """What was tried so far, and the verbs that try more."""

    def __init__(
        self,
        *,
        question: Question,
        bench: Bench,
        marks: Marks,
        notify: Callable[[str], None],
        progress: Callable[[Progress], None] | None,
    ) -> None:
        self.question = question
        self.bench = bench
        self.marks = marks
        self.notify = notify
        self.progress = progress
        self.steps: list[Step] = []
        self.rates: Rates = question.rates
        self.judge: Judge | None = None
        self.weights: tuple[float, ...] = ()
        """How much each change is suspected; empty: all alike."""
        self.sentinels: tuple[tuple[Spot, Observation], ...] = ()
        """Both ends with what they are known to say."""
        self._tried: list[tuple[Spot, Trial | None]] = []
        self._hinted = False
        self._withdrawn: set[str] = set()
        """Records that say nothing any more."""
        self._sound: dict[str, int] = {}
        """By box: so many launches were made before the last sentinels there that were as they should be."""
        self._machines: dict[str, Machine] = {}
        """By box, as it was at its last launch that was no sentinel."""

    def look(self, spot: Spot, *, purpose: str) -> Seen:
        """What the spot says: launched, unless it cannot be built or a person has marked it.

        Raises BoxError when the box will not serve.
        """
        return self.note(spot, self.try_out(spot, purpose=purpose), purpose=purpose)

    def looked_up(self, spot: Spot, *, purpose: str) -> Iterator[Seen]:
        """What the journal has of the spot for that purpose and nobody has asked for, unless a person has marked it."""
        while spot.content and spot.content not in self.marks and in_journal(self.bench, spot.content, purpose=purpose):
            yield self.look(spot, purpose=purpose)

    def look_side_by_side(self, wanted: Sequence[tuple[Spot, str]]) -> None:
        """``look`` at all of these, each for its purpose, at the same time, where there are boxes and budget for it.

        ``recall`` tells them then; where there is but one box nothing is done. Raises BoxError.
        """
        new = [(spot, purpose) for spot, purpose in wanted if not spot.unbuildable and self.recall(spot) is None]
        left = self.budget().launches
        if self.bench.width < len(new) or len(new) < 2 or is_spent(self.budget()) or (left and left < len(new)):
            return
        with trial_threads(self.bench, most=len(new)) as pool:
            futures = [pool.submit(self.try_out, spot, purpose=purpose) for spot, purpose in new]
            for (spot, purpose), future in zip(new, futures, strict=True):
                self.note(spot, future.result(), purpose=purpose)

    def try_out(self, spot: Spot, *, purpose: str, box: str = "") -> Trial | None:
        """The launch of ``look`` by itself, for another thread; None where there is nothing to launch.

        Raises BoxError when the box will not serve, or every try was void.
        """
        if spot.unbuildable:
            self.notify(f"{spot.point.name} cannot be built: {spot.unbuildable}")
            return None
        if spot.content in self.marks:
            return _marked(spot, self.marks[spot.content])
        voids: Counter[str] = Counter()
        while True:
            late = self.judge is None or self.judge.late
            trial = self.bench.launch(spot.point, purpose=purpose, settle=late, box=box)
            if not is_transient(trial.verdict):
                return trial
            pauses = VOID_PAUSES_S[voids[trial.box] :]
            voids[trial.box] += 1
            if not pauses:
                raise BoxError(
                    f"{voids[trial.box]} launches in a row were void, the last because {trial.verdict.why}",
                    remedy=trial.verdict.advice,
                )
            self.notify(f"void: {trial.verdict.why}; once more in {pauses[0]:g} s")
            self.bench.rest(pauses[0])

    def note(self, spot: Spot, trial: Trial | None, *, purpose: str, why: str = "", watch: bool = True) -> Seen:
        """Write down what ``try_out`` gave; ``watch`` whether its machine is still the same."""
        self._tried.append((spot, trial))
        if trial is not None:
            observation = self.observed(spot, trial)
            self.steps.append(
                Step(purpose=purpose, position=spot.position, observation=observation, trial=trial, why=why)
            )
            self._write_down(spot, trial, why=why)
            self._hint(trial)
            # A machine that changes under its sentinels is noticed at its next launch: none of them starts others.
            if watch and not trial.reused and purpose != SENTINEL:
                self._watch_machine(trial)
        return self._seen(spot, trial)

    def _write_down(self, spot: Spot, trial: Trial, *, why: str) -> None:
        """What the search is told of a launch goes to the journal as soon as it is known, for whoever looks on."""
        truth = self.truth(spot, trial)
        if trial.record and truth and trial.record not in self._withdrawn:
            tell_journal(self.bench, trial.record, truth, why=why)

    def _hint(self, trial: Trial) -> None:
        """Say once that a failure is told apart from the target by its place in the code alone."""
        if isinstance(self.judge, Target) and self.judge.nearly(trial.verdict) and not self._hinted:
            self._hinted = True
            self.notify(
                f"{trial.point.name} fails as the bad end does, but in another place ({trial.verdict.signature}), and "
                "tells nothing: --bad-is outcome takes both for one"
            )

    def _watch_machine(self, trial: Trial) -> None:
        """A machine that changed is trusted again only when both ends still say what they said."""
        before = self._machines.get(trial.box, {})
        self._machines[trial.box] = trial.machine
        different = ", ".join(changed(before, trial.machine))
        if different and self.sentinels:
            self.notify(f"the machine changed ({different}): launching both ends again")
            for spot, wanted in self.sentinels:
                self.sentinel(spot, wanted, why=f"the machine changed ({different})", box=trial.box)
            self._sound[trial.box] = len(self.steps)

    def sentinel(self, spot: Spot, wanted: Observation, *, why: str, box: str = "") -> bool:
        """Launch an end again, three times at most; whether it was at once what it should be.

        On ``box``, where it is one box that is in doubt. Raises Drifted where the end never is what it should be:
        then nothing counts that was launched there since the last sound sentinels. The same where ``box`` fails, and
        there are others: what it said before can no longer be checked.
        """
        found = f"{spot.point.name} no longer ends as it did"
        try:
            for attempt in range(SENTINEL_TRIES):
                trial = self.try_out(spot, purpose=SENTINEL, box=box)
                assert trial is not None, "the ends can be built"
                if self.note(spot, trial, purpose=SENTINEL).observation is wanted:
                    return attempt == 0
        except BoxError as error:
            if not box or self.bench.width == 1:
                raise
            found = f"box {box} cannot show whether {spot.point.name} still ends as it did: {error.message}"
        lost = tuple(
            step.trial.record
            for index, step in enumerate(self.steps)
            if step.trial.record and box in ("", step.trial.box) and index >= self._sound.get(step.trial.box, 0)
        )
        alone = not self.bench.forgo(box)
        raise Drifted(f"{why}, and {found}: {len(lost)} launches do not count", lost, box=box, alone=alone)

    def withdraw(self, records: Collection[str]) -> None:
        """What these records said does not count any more; what they cost does."""
        self._withdrawn.update(records)
        self.steps = [
            replace(step, observation=None) if step.trial.record in self._withdrawn else step for step in self.steps
        ]

    def believe(self, trial: Trial, *, sure: float) -> None:
        """Note how sure the search was after it was told of ``trial``."""
        self.steps = [replace(step, sure=sure) if step.trial is trial else step for step in self.steps]

    def costs(self, spots: Sequence[Spot]) -> list[float] | None:
        """Seconds that a launch of each spot takes; None where they are all alike, having nothing to be built first."""
        before = [0.0 if spot.unbuildable else self.bench.preparation_s(spot.content) for spot in spots]
        if not any(before):
            return None
        took = [launch_s(step.trial.timings) for step in _paid(self.steps)]
        usual = sum(took) / len(took) if any(took) else _USUAL_S
        return [usual + seconds for seconds in before]

    def truth(self, spot: Spot, trial: Trial) -> Observation | None:
        """Good or bad, once it is known what is bad."""
        if spot.content in self.marks:
            return self.marks[spot.content]
        return self.judge.judge(trial.verdict) if self.judge else None

    def observed(self, spot: Spot, trial: Trial) -> Observation | None:
        """What the search is told: BAD is "as at the far end", which is the good one where a repair is sought."""
        if trial.record in self._withdrawn:
            return None
        truth = self.truth(spot, trial)
        return opposite(truth) if truth and self.question.fix else truth

    def judge_by(self, judge: Judge) -> None:
        """From now on ``judge`` says what is bad, also of what was launched before."""
        self.judge = judge
        trials = [(spot, trial) for spot, trial in self._tried if trial is not None]
        self.steps = [
            replace(step, observation=self.observed(spot, trial))
            for step, (spot, trial) in zip(self.steps, trials, strict=True)
        ]
        for step, (spot, trial) in zip(self.steps, trials, strict=True):
            self._write_down(spot, trial, why=step.why)

    def evidence(self) -> list[Seen]:
        """Every observation so far that still counts, in its order."""
        tried = ((spot, trial) for spot, trial in self._tried if trial is None or trial.record not in self._withdrawn)
        return [self._seen(spot, trial) for spot, trial in tried]

    def recall(self, spot: Spot, wanted: Observation | None = None) -> Seen | None:
        """The first observation of what the spot runs; with ``wanted`` the first that says so."""
        if spot.unbuildable:
            return None
        hits = (seen for seen in self.evidence() if seen.spot.content == spot.content)
        return next((seen for seen in hits if wanted in (None, seen.observation)), None)

    def tally(self, spot: Spot) -> Counter[Observation]:
        """How often what the spot runs was seen to be what."""
        return Counter(
            seen.observation for seen in self.evidence() if spot.content and seen.spot.content == spot.content
        )

    @property
    def unbuildable(self) -> tuple[Unbuildable, ...]:
        """The points that were asked for and cannot be built, each once, in the order of the timeline."""
        spots = {spot.on: spot for spot, _ in self._tried if spot.unbuildable}
        ordered = sorted(spots.values(), key=lambda spot: (spot.position is None, spot.position or 0))
        return tuple(Unbuildable(spot.position, spot.point.name, spot.unbuildable) for spot in ordered)

    def budget(self) -> Budget:
        """What is left of it."""
        return remaining(self.question.budget, self.steps)

    @property
    def launches(self) -> int:
        """Servers started for this bisection; verdicts that were known before cost nothing."""
        return len(_paid(self.steps))

    @property
    def spent(self) -> bool:
        """Whether nothing more may be launched."""
        return is_spent(self.budget())

    def _seen(self, spot: Spot, trial: Trial | None) -> Seen:
        observation = self.observed(spot, trial) if trial else Observation.SKIP
        return Seen(spot=spot, observation=observation or Observation.SKIP, trial=trial)


@contextmanager
def trial_threads(bench: Bench, *, most: int) -> Iterator[ThreadPoolExecutor]:
    """Threads for launches side by side.

    Leaving waits for the launches that are out. What ends the bisection ends them first: they must not go on to
    their own end. A machine that drifted ends none, since what the others say still counts.
    """
    with ThreadPoolExecutor(max_workers=most, thread_name_prefix="trial") as pool:
        try:
            yield pool
        except Drifted:
            raise
        except BaseException:
            bench.cancel()
            raise


def remaining(allowed: Budget, steps: Sequence[Step]) -> Budget:
    """What these steps leave of it; verdicts that were known before cost nothing."""
    spent = sum(step.trial.timings.get("total", 0.0) for step in _paid(steps))
    return Budget(
        launches=None if allowed.launches is None else max(allowed.launches - len(_paid(steps)), 0),
        seconds=None if allowed.seconds is None else max(allowed.seconds - spent, 0.0),
    )


def launch_s(timings: Mapping[str, float]) -> float:
    """Seconds of a launch, without the environment that was built for it and the wait for the box."""
    return timings.get("total", 0.0) - timings.get("environment", 0.0) - timings.get("waited", 0.0)


def is_spent(left: Budget) -> bool:
    return left.launches == 0 or left.seconds == 0.0


def _paid(steps: Sequence[Step]) -> list[Step]:
    return [step for step in steps if not step.trial.reused]


def _marked(spot: Spot, observation: Observation) -> Trial:
    """A mark in the shape of a trial, without a record."""
    verdict = Verdict(
        outcome=Outcome.VOID,
        persistence=Persistence.PERMANENT,
        why=f"not launched: a person marked it {observation.value}",
        final=True,
    )
    return Trial(record="", point=spot.point, content_id=spot.content, verdict=verdict, reused=True)
