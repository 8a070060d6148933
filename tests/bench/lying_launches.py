"""What whole bisections answer when launches lie: each fails one time in five, or the culprit lets some pass.

Simulated: no server is started.

python -m tests.bench.lying_launches
"""

from __future__ import annotations

import statistics
import tempfile
from collections import Counter
from pathlib import Path

from patchbisect.bisection import AnswerKind, Finding
from patchbisect.search import Rates
from tests.bisection.world import FAILS, READY, World, broken_by, flaky, found, question, scripted

CHANGES, RANGES, LIES = 12, 40, 0.2


def main() -> None:
    for culprit in (True, False):
        for rates in (Rates.deterministic(), Rates.unknown()):
            told = [_told(rates, seed, culprit=culprit) for seed in range(RANGES)]
            launches = statistics.mean(launched for _, _, launched in told)
            answers = Counter(finding.answer.value for _, finding, _ in told)
            named = sum(_names(finding, guilty) for guilty, finding, _ in told)
            about = f"{named} named right" if culprit else "nothing guilty, the bad end failed by accident"
            print(f"{rates.kind:14} {about}; {launches:.1f} launches; {dict(answers)}", flush=True)
    for passes in (0.1, 1 / 3):
        told = [_told(Rates.deterministic(), seed, passes=passes) for seed in range(3 * RANGES)]
        launches = statistics.mean(launched for _, _, launched in told)
        answers = Counter(finding.answer.value for _, finding, _ in told)
        named = sum(_names(finding, guilty) for guilty, finding, _ in told)
        print(f"a culprit that lets {passes:.0%} pass: {named} named right; {launches:.1f} launches; {dict(answers)}")


def _told(rates: Rates, seed: int, *, culprit: bool = True, passes: float = 0.0) -> tuple[str, Finding, int]:
    """The guilty change, the answer, and the launches that it took."""
    guilty = f"p{seed % CHANGES + 1}"
    rule = broken_by(guilty) if culprit else scripted({"HEAD": [FAILS]}, lambda at: READY)
    lies = flaky(rule, chance=passes, seed=seed, ending=READY) if passes else flaky(rule, chance=LIES, seed=seed)
    with tempfile.TemporaryDirectory() as place:
        world = World.at(Path(place), lies)
        finding = found(world, question(CHANGES, rates=rates))
        return guilty, finding, len(world.launched)


def _names(finding: Finding, guilty: str) -> bool:
    """Whether it blames that change, and nothing else."""
    culprit = finding.culprit
    return (
        finding.answer is AnswerKind.FOUND and culprit is not None and culprit.subject == guilty and not finding.others
    )


if __name__ == "__main__":
    main()
