"""Aligning two syntax trees."""

from __future__ import annotations

import ast
import random

import pytest

from patchbisect.maintain.lint.edits import Edits, compare

BEFORE = """\
import a

def f(x):
    if x:
        one()
        two()
    return x

def g():
    three()
"""


def edits(after: str, before: str = BEFORE) -> Edits:
    return compare(ast.parse(before), ast.parse(after))


def told(found: Edits) -> dict[str, list[str]]:
    return {
        "added": [ast.unparse(added.node) for added in found.added],
        "removed": [ast.unparse(node) for node in found.removed],
        "changed": [ast.unparse(node).split("\n")[0] for node in found.changed],
        "moved": [ast.unparse(node) for node in found.moved],
    }


NOTHING: dict[str, list[str]] = {"added": [], "removed": [], "changed": [], "moved": []}


def test_comments_and_layout_do_not_count() -> None:
    assert told(edits(BEFORE.replace("one()", "one(  )  # why"))) == NOTHING


def test_added_statements_know_where_they_are() -> None:
    found = edits(BEFORE.replace("        two()\n", "        two()\n        probe()\n"))
    assert told(found) == {**NOTHING, "added": ["probe()"]}
    [added] = found.added
    assert [owner.name for owner in added.owners] == ["f"]
    assert [type(parent).__name__ for parent, _, _ in added.parents] == ["If"]
    assert added.index == 2


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("        two()\n", "", {"removed": ["two()"]}),
        ("two()", "two(1)", {"removed": ["two()"], "added": ["two(1)"]}),
        ("if x:", "if not x:", {"removed": [], "changed": []}),
        ("    return x\n", "    if x:\n        return x\n", {"moved": ["return x"], "added": ["if x:\n    return x"]}),
        ("        two()\n    return", "    two()\n    return", {"moved": []}),
        ("def g():", "@d\ndef g():", {"changed": ["@d"]}),
        ("def g():", "def g(y=1):", {"changed": ["def g(y=1):"]}),
    ],
)
def test_other_edits(old: str, new: str, expected: dict[str, list[str]]) -> None:
    found = told(edits(BEFORE.replace(old, new)))
    assert found != NOTHING
    for name, statements in expected.items():
        if statements:
            assert found[name] == statements


def test_more_names_of_one_import() -> None:
    before = "from m import a, b\n"
    found = compare(ast.parse(before), ast.parse("from m import a, c, b\n"))
    assert [(node.module, names) for node, names in found.extended] == [("m", ("c",))]
    assert compare(ast.parse(before), ast.parse("from m import a\n")).changed


@pytest.mark.parametrize("seed", range(30))
def test_whatever_is_put_in_is_found_and_nothing_else(seed: int) -> None:
    """Statements put in at random places, equal neighbours included, are the only edits."""
    chance = random.Random(seed)
    before = [f"call({chance.randrange(4)})" for _ in range(12)]
    after = list(before)
    for _ in range(5):
        after.insert(chance.randrange(len(after) + 1), f"call({chance.randrange(4)})")
    found = told(edits("\n".join(after), "\n".join(before)))
    assert len(found["added"]) == 5
    assert {**found, "added": []} == NOTHING
