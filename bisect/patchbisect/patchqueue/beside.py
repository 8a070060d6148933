"""Statements that a patch adds right beside statements that are changed or gone where it is applied.

A 3-way merge calls it a conflict when two sides change neighbouring lines. Two debug prints, one below the other, by
two patches: without the first the second still has one place only, between the lines that stood around both. Where
that is not certain there is no answer: a patch in a wrong place costs more than one that does not apply.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

Lines = Sequence[str]


@dataclass(frozen=True, slots=True)
class _Block:
    """Whole Python statements, one after the other in one suite. ``names`` as they are written: ``x``, ``self.x``."""

    indent: str
    binds: frozenset[str]
    names: frozenset[str]
    leaves: bool
    """Whether what follows in the suite is never reached."""


def placed_beside(*, there: Lines, before: Lines, wanted: Lines) -> tuple[str, ...] | None:
    """What stands in the place of ``before``, whole lines without their ends, when both changes are made.

    One change makes ``there`` of it, the other only adds to it and makes ``wanted``. None where the answer is not the
    only one: both add at the same place, what is added is no statement of the same suite, it names what is gone, or it
    would stand where nothing comes any more.
    """
    found = {
        result
        for at in (range(len(before) + 1) if not there else {0, len(before)})
        if (result := _inserted(at, there=there, before=before, wanted=wanted))
    }
    return found.pop() if len(found) == 1 else None


def _inserted(at: int, *, there: Lines, before: Lines, wanted: Lines) -> tuple[str, ...] | None:
    """The answer if the lines were added before line ``at`` of ``before``; empty or None where they were not."""
    size = len(wanted) - len(before)
    added = wanted[at : at + size]
    if not before or size <= 0 or [*wanted[:at], *wanted[at + size :]] != list(before):
        return None
    if {line for line in added if line.strip()} & set(there):
        return None
    new, now = _block(added), _block(there)
    parts = [part for lines in (before[:at], before[at:]) if lines for part in [_block(lines)]]
    if new is None or now is None or not all(part and part.indent == new.indent for part in parts):
        return None
    if there and (now.indent != new.indent or (at and now.leaves)):
        return None
    gone = frozenset().union(*(part.binds for part in parts if part)) - now.binds
    if gone & new.names:
        return None
    return (*there, *added) if at else (*added, *there)


def _block(lines: Lines) -> _Block | None:
    """None where the lines are not whole statements of one suite."""
    text = "\n".join(lines)
    try:
        tree = ast.parse(textwrap.dedent(text))
    except (SyntaxError, ValueError):
        return None
    first = next((line for line in lines if line.strip()), "")
    nodes = list(ast.walk(tree))
    shown = [node for node in nodes if isinstance(node, ast.Name | ast.Attribute | ast.Subscript)]
    stored = {ast.unparse(node) for node in shown if not isinstance(node.ctx, ast.Load)}
    return _Block(
        indent=first[: len(first) - len(first.lstrip())],
        binds=frozenset(stored | {name for node in nodes for name in _bound_by(node)}),
        names=frozenset(ast.unparse(node) for node in shown),
        leaves=bool(tree.body) and isinstance(tree.body[-1], ast.Return | ast.Raise | ast.Continue | ast.Break),
    )


def _bound_by(node: ast.AST) -> tuple[str, ...]:
    """The names that a node binds without an expression for them."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return (name,)
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            return (name,)
        case ast.alias(name=name, asname=alias):
            return (alias or name.partition(".")[0],)
        case _:
            return ()
