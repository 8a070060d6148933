"""docs/proof.md, from a run of the tests: python -m tests.proof COMMAND COMMIT RESULTS.xml LAUNCHES.txt [and again]

``invoke test --full`` calls it. What is written here was measured by that run and by nothing else.
"""

from __future__ import annotations

import os
import platform
import sys
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "proof.md"

HEAD = """# Proof

The last run that was kept, of `{command}`, as its own result files tell it (`invoke test --full` is everything).

- when: {when}
- commit: {commit}
- machine: {cores} cores, {ram:.0f} GiB, {system}, Python {python}
- result: {passed} passed, {failed} failed, {skipped} skipped, in {minutes:.1f} minutes
"""


@dataclass
class Tally:
    """Of one folder of tests: how many there are, how they ended, and the seconds they took one after the other."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0


def page(runs: Sequence[tuple[Path, Path]], *, command: str, commit: str) -> str:
    """The page for the JUnit file and the list of real launches of one run, or of several that together ran all."""
    suites = [next(ET.parse(results).getroot().iter("testsuite")) for results, _ in runs]
    tallies: dict[str, Tally] = defaultdict(Tally)
    for case in (case for suite in suites for case in suite.iter("testcase")):
        tally = tallies[_folder(case.get("classname", ""))]
        tally.seconds += float(case.get("time", 0))
        if case.find("failure") is not None or case.find("error") is not None:
            tally.failed += 1
        elif case.find("skipped") is not None:
            tally.skipped += 1
        else:
            tally.passed += 1
    head = HEAD.format(
        when=" and ".join(suite.get("timestamp", "")[:16].replace("T", " ") for suite in suites),
        command=command,
        commit=commit,
        cores=os.cpu_count(),
        ram=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30,
        system=platform.system(),
        python=platform.python_version(),
        passed=sum(tally.passed for tally in tallies.values()),
        failed=sum(tally.failed for tally in tallies.values()),
        skipped=sum(tally.skipped for tally in tallies.values()),
        minutes=sum(float(suite.get("time", 0)) for suite in suites) / 60,
    )
    rows = ["| tests | passed | failed | skipped | seconds |", "|---|---|---|---|---|"]
    for name, tally in sorted(tallies.items()):
        rows.append(f"| {name} | {tally.passed} | {tally.failed} | {tally.skipped} | {tally.seconds:.0f} |")
    texts = (launches.read_text(encoding="utf-8") for _, launches in runs)
    listed = [line.removeprefix("tests/") for text in texts for line in text.splitlines()]
    lines = [f"## Real SGLang servers launched: {len(listed)}", "", *(f"- {line}" for line in listed)]
    return "\n".join([head, *rows, "", *lines, ""])


def _folder(classname: str) -> str:
    """``tests.box.test_run`` is told under ``box``, ``tests.test_points`` under ``test_points``."""
    return [*classname.split("."), ""][1] or classname


if __name__ == "__main__":
    command, commit = sys.argv[1:3]
    files = [Path(name) for name in sys.argv[3:]]
    pairs = list(zip(files[::2], files[1::2], strict=True))
    PAGE.write_text(page(pairs, command=command, commit=commit), encoding="utf-8")
