"""Lint on SGLang's real files: what it says of small patches, the shipped queue, and SGLang's own changes."""

from __future__ import annotations

import ast
import difflib
import hashlib
import random
import subprocess

import pytest

from patchbisect.maintain.lint import diagnose, lint, lint_change
from patchbisect.maintain.lint.instrumentation import judge
from patchbisect.model import Base, Patch
from patchbisect.patchqueue import Severity, compose
from patchbisect.upstream import Mirror
from tests.maintain.conftest import PIN, ROOT, Read, reader
from tests.maintain.lint_cases import BAD, CASES, GOOD, Case

pytestmark = pytest.mark.ci


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_small_patches_of_real_files(case: Case, pinned: Read) -> None:
    before = pinned(case.at[0])
    assert before is not None
    assert {complaint.rule for complaint in judge(before, case.apply(before))} == case.rules


def test_the_table_is_as_large_as_promised() -> None:
    assert len(CASES) >= 60
    assert len({case.name for case in CASES}) == len(CASES)
    assert all(case.rules for case in BAD)
    assert not any(case.rules for case in GOOD)
    assert sum(case.runnable for case in CASES) >= 10


@pytest.mark.parametrize("queue", ["patches", "tests/queues/observer-effect", "tests/queues/guilty-pair"])
def test_only_the_guilty_patches_of_a_queue_are_named(queue: str, pinned: Read) -> None:
    files = {path.name: path.read_bytes() for path in (ROOT / queue).glob("*.patch")}
    found = lint(files, read=pinned, diagnose=diagnose)
    guilty = {"tests/queues/observer-effect": {"0006"}}.get(queue, set())
    assert {one.patch[:4] for one in found if one.counts} == guilty, [str(one) for one in found]


def test_sglangs_own_changes_raise_no_alarm(pinned: Read, releases: Mirror) -> None:
    newer = reader(releases, Base(pin=PIN.pin, rev="release:0.5.10"))
    patches = real_changes(releases, pinned, newer, count=20)
    assert len(patches) == 20
    found = [one for patch in patches for one in lint_change(patch, read=pinned, diagnose=diagnose)]
    assert [str(one) for one in found if one.severity is Severity.ERROR] == []


def test_sglangs_own_log_lines_are_mostly_fine(releases: Mirror, pinned: Read) -> None:
    """Log statements of SGLang, each put back as if a patch brought it. Some do what a probe must not."""
    listing = ["git", "--git-dir", str(releases.path), "ls-tree", "-r", "--name-only", releases.base(PIN).commit]
    names = subprocess.run(listing, check=True, capture_output=True, text=True).stdout.split()
    folders = ("managers", "model_executor", "mem_cache", "distributed")
    statements = [
        (text, statement)
        for name in names
        if name.endswith(".py") and name.split("/")[3:4] and name.split("/")[3] in folders
        for text in [pinned(name) or ""]
        for statement in log_statements(ast.parse(text))
    ]
    chosen = random.Random(7).sample(statements, 100)
    flagged = [ast.unparse(statement) for text, statement in chosen if judge(without(text, statement), text)]
    assert len(flagged) <= 12, flagged


def log_statements(tree: ast.Module) -> list[ast.stmt]:
    """``logger.…(…)`` as statements of their own, in blocks that hold something else too."""
    blocks = [
        block
        for node in ast.walk(tree)
        for block in (getattr(node, name, None) for name in ("body", "orelse"))
        if isinstance(block, list) and len(block) > 1
    ]
    return [
        statement
        for block in blocks
        for statement in block
        if isinstance(statement, ast.Expr) and ast.unparse(statement).startswith("logger.")
    ]


def without(text: str, statement: ast.stmt) -> str:
    lines = text.split("\n")
    return "\n".join([*lines[: statement.lineno - 1], *lines[statement.end_lineno :]])


def real_changes(mirror: Mirror, old: Read, new: Read, *, count: int) -> list[Patch]:
    """Changes of one file each between 0.5.9 and 0.5.10, of at most 40 lines, picked by the hash of the file's name."""
    commits = [mirror.base(base).commit for base in (PIN, Base(pin=PIN.pin, rev="release:0.5.10"))]
    listing = ["git", "--git-dir", str(mirror.path), "diff", "--name-only", "--diff-filter=M", *commits]
    names = subprocess.run(listing, check=True, capture_output=True, text=True).stdout.split()
    chosen: list[Patch] = []
    for name in sorted(names, key=lambda name: hashlib.sha256(name.encode()).hexdigest()):
        before, after = old(name), new(name)
        if not name.endswith(".py") or "/srt/" not in name or before is None or after is None:
            continue
        diff = list(
            difflib.unified_diff(
                before.splitlines(keepends=True),
                after.splitlines(keepends=True),
                fromfile=f"a/{name}",
                tofile=f"b/{name}",
            )
        )
        if sum(line[0] in "+-" for line in diff) > 42 or not (before + after).endswith("\n"):
            continue
        chosen.append(
            compose(
                number=len(chosen) + 1,
                slug=f"change-{len(chosen) + 1}",
                author="SGLang <dev@sglang.example>",
                date="Sun, 29 Nov 2026 10:00:00 +0000",
                subject=f"Change {name}",
                body="As in release 0.5.10.",
                trailers=[("Kind", "backport"), ("Forwarded", "not-needed")],
                diff="".join(diff),
            )
        )
        if len(chosen) == count:
            break
    return chosen
