"""What a change does to a Python file, statement by statement: the syntax trees of before and after, aligned.

Line diffs slide: git may say that the end of one statement and the beginning of the next were added. Trees do not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

_LARGEST_TABLE = 4_000_000
"""Cells of the alignment table; more statements than that in one changed block are taken as removed and added."""


_Owners = tuple[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, ...]
_Parents = tuple[tuple[ast.stmt, Sequence[ast.stmt], int], ...]
_Place = tuple[_Owners, _Parents]


@dataclass(frozen=True, slots=True, eq=False)
class Added:
    """A statement that was added, in its block. ``owners`` are the functions and classes around it, outermost first."""

    node: ast.stmt
    block: Sequence[ast.stmt]
    index: int
    owners: _Owners
    parents: _Parents
    """The compound statements around it inside the innermost owner: each with its own block and index."""


@dataclass(slots=True)
class Edits:
    """All that differs. Removed statements are of the tree before, the others of the tree after."""

    added: list[Added] = field(default_factory=list)
    removed: list[ast.stmt] = field(default_factory=list)
    changed: list[ast.stmt] = field(default_factory=list)
    """Compound statements and definitions whose first line differs."""
    extended: list[tuple[ast.ImportFrom, tuple[str, ...]]] = field(default_factory=list)
    """``from x import …`` statements that import more names than before, with those names."""
    moved: list[ast.stmt] = field(default_factory=list)
    """Statements that stand in another block than before: an indent was changed."""


def blocks_of(node: ast.AST) -> Iterator[tuple[str, list[ast.stmt]]]:
    """The statement lists of a compound statement, by name; handlers and cases each have their own."""
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        if isinstance(block, list):
            yield name, block
    for name in ("handlers", "cases"):
        for number, part in enumerate(getattr(node, name, [])):
            yield f"{name}{number}", part.body


def compare(before: ast.Module, after: ast.Module) -> Edits:
    """Align two trees. Comments and layout do not count."""
    edits = Edits()
    _Aligner(edits).block(before.body, after.body, owners=(), parents=())
    _find_moved(edits)
    return edits


class _Aligner:
    def __init__(self, edits: Edits) -> None:
        self.edits = edits

    def block(
        self,
        before: Sequence[ast.stmt],
        after: Sequence[ast.stmt],
        *,
        owners: _Owners,
        parents: _Parents,
    ) -> None:
        old, new = [ast.dump(node) for node in before], [ast.dump(node) for node in after]
        if old == new:
            return
        pairs = _align(before, after, old=old, new=new)
        kept_before = {i for i, _ in pairs}
        kept_after = {j for _, j in pairs}
        self.edits.removed += [node for i, node in enumerate(before) if i not in kept_before]
        self.edits.added += [
            Added(node=node, block=after, index=j, owners=owners, parents=parents)
            for j, node in enumerate(after)
            if j not in kept_after
        ]
        for i, j in pairs:
            if old[i] == new[j]:
                continue
            node = after[j]
            if isinstance(node, ast.ImportFrom):
                self._import(before[i], node)
            elif _header(before[i]) != _header(node):
                self.edits.changed.append(node)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner: _Place = ((*owners, node), ())
            else:
                inner = (owners, (*parents, (node, after, j)))
            old_blocks = dict(blocks_of(before[i]))
            new_blocks = dict(blocks_of(node))
            for name in {**old_blocks, **new_blocks}:
                self.block(old_blocks.get(name, []), new_blocks.get(name, []), owners=inner[0], parents=inner[1])

    def _import(self, before: ast.stmt, after: ast.ImportFrom) -> None:
        assert isinstance(before, ast.ImportFrom)
        old = {(alias.name, alias.asname) for alias in before.names}
        new = {(alias.name, alias.asname) for alias in after.names}
        if not old <= new:
            self.edits.changed.append(after)
        elif old < new:
            self.edits.extended.append((after, tuple(sorted(asname or name for name, asname in new - old))))


def _align(
    before: Sequence[ast.stmt], after: Sequence[ast.stmt], *, old: Sequence[str], new: Sequence[str]
) -> list[tuple[int, int]]:
    """Pairs of statements that correspond, in order: equal ones above all, then those with the same first line."""
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    rows, columns = range(head, len(old) - tail), range(head, len(new) - tail)
    pairs = [(i, i) for i in range(head)]
    if len(rows) * len(columns) <= _LARGEST_TABLE:
        pairs += _best_pairs(rows, columns, weight=_Weights(before, after, old=old, new=new))
    return pairs + [(len(old) - k, len(new) - k) for k in range(tail, 0, -1)]


class _Weights:
    """How well two statements correspond: 0 not at all, 1 by name or body, 2 by first line, 3 equal."""

    def __init__(
        self, before: Sequence[ast.stmt], after: Sequence[ast.stmt], *, old: Sequence[str], new: Sequence[str]
    ) -> None:
        self.old, self.new = old, new
        self.old_kinds = [_kind(node) for node in before]
        self.new_kinds = [_kind(node) for node in after]
        self.old_bodies = [
            _first_of_body(node) if kind else "" for node, kind in zip(before, self.old_kinds, strict=True)
        ]
        self.new_bodies = [
            _first_of_body(node) if kind else "" for node, kind in zip(after, self.new_kinds, strict=True)
        ]
        self.old_headers = [_header(node) if kind else "" for node, kind in zip(before, self.old_kinds, strict=True)]
        self.new_headers = [_header(node) if kind else "" for node, kind in zip(after, self.new_kinds, strict=True)]

    def __call__(self, i: int, j: int) -> int:
        if self.old[i] == self.new[j]:
            return 3
        if not self.old_kinds[i] or self.old_kinds[i] != self.new_kinds[j]:
            return 0
        if self.old_headers[i] == self.new_headers[j]:
            return 2
        return 1 if ":" in self.old_kinds[i] or self.old_bodies[i] == self.new_bodies[j] else 0


def _best_pairs(rows: range, columns: range, *, weight: _Weights) -> list[tuple[int, int]]:
    best = [[0] * (len(columns) + 1) for _ in range(len(rows) + 1)]
    for r in range(len(rows) - 1, -1, -1):
        for c in range(len(columns) - 1, -1, -1):
            gain = weight(rows[r], columns[c])
            both = best[r + 1][c + 1] + gain if gain else 0
            best[r][c] = max(best[r + 1][c], best[r][c + 1], both)
    pairs: list[tuple[int, int]] = []
    r = c = 0
    while r < len(rows) and c < len(columns):
        gain = weight(rows[r], columns[c])
        if gain and best[r][c] == best[r + 1][c + 1] + gain:
            pairs.append((rows[r], columns[c]))
            r, c = r + 1, c + 1
        elif best[r][c] == best[r + 1][c]:
            r += 1
        else:
            c += 1
    return pairs


def _kind(node: ast.stmt) -> str:
    """What a compound statement is; with its name for a definition or import. Empty for another simple statement."""
    if isinstance(node, ast.ImportFrom):
        return f"ImportFrom:{node.level}{node.module}"
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return f"{type(node).__name__}:{node.name}"
    return type(node).__name__ if any(True for _ in blocks_of(node)) else ""


def _first_of_body(node: ast.stmt) -> str:
    body = getattr(node, "body", None)
    return ast.dump(body[0]) if body else ""


def _header(node: ast.stmt) -> str:
    """A compound statement without its blocks, as text."""
    parts = [type(node).__name__]
    for name, value in ast.iter_fields(node):
        if name in ("body", "orelse", "finalbody"):
            continue
        if name == "handlers":
            parts += [ast.dump(handler.type) if handler.type else "" for handler in value]
            parts += [str(handler.name) for handler in value]
        elif name == "cases":
            parts += [ast.dump(case.pattern) + (ast.dump(case.guard) if case.guard else "") for case in value]
        else:
            values = value if isinstance(value, list) else [value]
            parts += [ast.dump(item) if isinstance(item, ast.AST) else str(item) for item in values]
    return "|".join(parts)


def _find_moved(edits: Edits) -> None:
    """Take out of ``removed`` what an added statement holds again, one level deeper or in another block."""
    inside: dict[str, ast.stmt] = {}
    for added in edits.added:
        for node in ast.walk(added.node):
            if isinstance(node, ast.stmt) and not isinstance(node, ast.Pass):
                inside.setdefault(ast.dump(node), node)
    removed, edits.removed = edits.removed, []
    for node in removed:
        again = inside.get(ast.dump(node))
        if again is None:
            edits.removed.append(node)
        else:
            edits.moved.append(again)
    moved = {id(node) for node in edits.moved}
    edits.added = [added for added in edits.added if id(added.node) not in moved]
