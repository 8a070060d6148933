"""What lint calls dangerous breaks a real start, and what it lets pass does not."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence

import pytest

from patchbisect.maintain.lint import lint_change
from patchbisect.maintain.reviewing import reader
from patchbisect.model import Base, Outcome, Patch, Point, Stage
from patchbisect.patchqueue import compose
from patchbisect.points import PointResolver
from patchbisect.trial import Rig, prepare, run_trial
from tests.maintain.conftest import PIN
from tests.maintain.lint_cases import BAD, GOOD, MODULE, PARALLEL, POOLED, PROFILED, Case

pytestmark = pytest.mark.real

IN_CI = {"a name of one branch": "UnboundLocalError", "format of None": "TypeError"}
IN_FULL = {
    "import that unbinds": "UnboundLocalError",
    "a type checker's name": "NameError",
    "whole number of a float": "ValueError",
    "division": "ZeroDivisionError",
    "rank before there is one": "ValueError",
    "an attribute not set yet": "AttributeError",
    "an attribute that SGLang asks for": "AttributeError",
    "a missing key": "KeyError",
    "text joined with a number": "TypeError",
    "None's attribute": "AttributeError",
    "in a function inside": "NameError",
    "in a class's body": "NameError",
    "a comprehension's leak": "NameError",
    "as a default": "UnboundLocalError",
    "an else that a break skips": "UnboundLocalError",
    "walrus in a comprehension": "UnboundLocalError",
    "deleted in finally": "UnboundLocalError",
    "imported after": "UnboundLocalError",
    "a number of any text": "ValueError",
    "the largest of perhaps none": "ValueError",
    "numbers joined": "TypeError",
    "a key that % lacks": "KeyError",
}
CASES = {case.name: case for case in BAD}


def patched(rig: Rig, cases: Sequence[Case]) -> Patch:
    """One patch of all the cases' code."""
    read = reader(rig.mirror, PIN)
    texts: dict[str, str] = {}
    for case in cases:
        path = case.at[0]
        texts[path] = case.apply(texts.get(path) or read(path) or "")
    diffs = []
    for path, after in texts.items():
        before = read(path)
        assert before is not None
        lines = before.splitlines(keepends=True), after.splitlines(keepends=True)
        diffs += difflib.unified_diff(*lines, fromfile=f"a/{path}", tofile=f"b/{path}")
    return compose(
        number=1,
        slug="probe",
        author="Ada <ada@example.org>",
        date="Sun, 29 Nov 2026 10:00:00 +0000",
        subject="Probe",
        body="To see.",
        trailers=[("Kind", "instrumentation"), ("Forwarded", "not-needed")],
        diff="".join(diffs),
    )


def point_of(rig: Rig, patch: Patch) -> Point:
    clean = PointResolver.of(rig.project, mirror=rig.mirror).resolve("clean", profile="tiny").point
    return Point(
        name="clean with a probe",
        base=Base(pin=clean.base.pin),
        patches=(patch,),
        profile=clean.profile,
        flags=clean.flags,
        env=clean.env,
    )


@pytest.mark.parametrize(
    ("name", "exception"),
    [
        *(pytest.param(name, exception, id=name) for name, exception in IN_CI.items()),
        *(pytest.param(name, exception, id=name, marks=pytest.mark.full) for name, exception in IN_FULL.items()),
    ],
)
def test_what_lint_calls_dangerous_breaks_the_start(
    rig: Rig, count_launch: Callable[[str], None], name: str, exception: str
) -> None:
    patch = patched(rig, [CASES[name]])
    found = lint_change(patch, read=reader(rig.mirror, PIN), diagnose=lambda texts: {})
    assert {one.rule for one in found if one.counts} == CASES[name].rules
    count_launch(f"lint: {name}")
    verdict = run_trial(rig, prepare(rig, point_of(rig, patch)), until=Stage.SERVING).verdict
    assert verdict.outcome is Outcome.CRASH
    assert verdict.deciding is not None
    assert exception in verdict.deciding.text


@pytest.mark.full
def test_what_lint_lets_pass_starts(rig: Rig, count_launch: Callable[[str], None]) -> None:
    """All harmless patches at once that a machine without a GPU gets to."""
    harmless = [case for case in GOOD if case.at in (PROFILED, POOLED, MODULE) or case.at[0] == PARALLEL]
    assert len(harmless) >= 20
    patch = patched(rig, harmless)
    count_launch("lint: all harmless patches")
    assert run_trial(rig, prepare(rig, point_of(rig, patch)), until=Stage.SERVING).verdict.outcome is Outcome.READY
