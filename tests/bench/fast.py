"""``bisect`` with and without ``--fast`` on the same twelve patches, in one run, on the real server.

    python -m tests.bench.fast [suspected] [searched]

Two questions: a failure whose traceback names the guilty patch, so that it is suspected first, and one that names none
(the patch breaks what code that nobody touched finds later), which takes a search. The first fast bisection of each has
nothing that earlier ones learned; the second one has.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from patchbisect.bisection import Asked, Finding, begin
from patchbisect.config import Project, load_project
from patchbisect.model import Base, Patch
from patchbisect.tasks.bisecting import run_through, understood
from patchbisect.upstream import Mirror
from tests.sglang.test_bisections import GUILTY, SIZING, Workshop, pin_of, repository

ROOT = Path(__file__).parents[2]
SILENT = (SIZING, "        return cell_size\n", "        self.mem_fraction_static = None\n        return cell_size\n")
"""Fails where the fraction is used, in a line of nobody's."""


def main() -> None:
    project = load_project(ROOT)
    mirror = Mirror.of(project)
    print(f"{'':34}{'launches':>9}{'warm':>6}{'seconds':>9}{'of normal':>11}   answer")
    for name, guilty in _wanted(sys.argv[1:]).items():
        with tempfile.TemporaryDirectory() as place:
            workshop = Workshop(Path(place) / "workshop", mirror.path, mirror.base(Base(pin=pin_of(project))).commit)
            patches = [workshop.patch(k, "guilty", guilty) if k == 9 else workshop.note(k) for k in range(1, 13)]
            _compare(name, project, Path(place), patches)


def _wanted(names: Sequence[str]) -> dict[str, tuple[str, str, str]]:
    known = {"suspected": GUILTY, "searched": SILENT}
    return {name: known[name] for name in names or known}


def _compare(name: str, project: Project, place: Path, patches: Sequence[Patch]) -> None:
    home = repository(project, place, patches)
    shutil.rmtree(project.state / "box" / "warm", ignore_errors=True)
    normal_s = 0.0
    for how, fast in (("normal", False), ("--fast, the first", True), ("--fast, the next", True)):
        finding, seconds = _timed(home, fast=fast)
        normal_s = normal_s or seconds
        warm = sum(step.trial.warm for step in finding.steps)
        answer = f"{finding.culprit.subject if finding.culprit else finding.reason}, {finding.answer}"
        row = f"{finding.launches:9d}{warm:6d}{seconds:9.1f}{seconds / normal_s:11.2f}   {answer}"
        print(f"{f'{name}, {how}':34}{row}", flush=True)
        for step in finding.steps:
            print(f"    {step.trial.timings.get('total', 0.0):6.1f} s  {step.purpose}: {step.trial.point.name}")


def _timed(home: Project, *, fast: bool) -> tuple[Finding, float]:
    asked = Asked(good="clean", bad="HEAD", fresh=True, fast=fast)
    question = understood(home, asked)
    begun = time.monotonic()
    finding = run_through(home, asked, question, journal=begin(asked, project=home), plain=True)
    return finding, time.monotonic() - begun


if __name__ == "__main__":
    main()
