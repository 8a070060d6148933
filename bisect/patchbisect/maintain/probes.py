"""A safe probe, written for the user: where it goes, what it prints, in the file's own style."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from patchbisect.errors import UsageError
from patchbisect.maintain.lint.sources import tree_of


@dataclass(frozen=True, slots=True)
class Probe:
    """The file's new text, and the line (from 1) that the probe begins at."""

    text: str
    line: int


def insert_probe(text: str, *, path: str, after: str, expressions: Sequence[str], name: str) -> Probe:
    """Print the expressions right after the statement in which the line ``after`` stands.

    ``after`` is compared without the white space around it and must stand once. Raises UsageError where it does not,
    for an expression that is none, and behind a statement that leaves (return, raise, break, continue).
    """
    tree = tree_of(text)
    lines = text.split("\n")
    number = _only_line(lines, after, path=path)
    statement = _statement_at(tree, number)
    if statement is None:
        raise UsageError(f"{path}:{number} is in no statement", remedy="Name a line of code.")
    if isinstance(statement, ast.Return | ast.Raise | ast.Break | ast.Continue):
        word = type(statement).__name__.lower()
        raise UsageError(f"{path}:{number} is a {word}: nothing behind it runs", remedy="Name a line before it.")
    indent, at = _place(statement, lines, number)
    probe = _lines(tree, name=name, expressions=[_expression(text) for text in expressions], indent=indent)
    return Probe(text="\n".join([*lines[:at], *probe, *lines[at:]]), line=at + 1)


def _only_line(lines: Sequence[str], after: str, *, path: str) -> int:
    wanted = after.strip()
    found = [number for number, line in enumerate(lines, start=1) if line.strip() == wanted]
    if len(found) == 1:
        return found[0]
    if found:
        shown = ", ".join(map(str, found[:5]))
        raise UsageError(
            f"{wanted!r} stands {len(found)} times in {path}: at lines {shown}", remedy="Name a line that stands once."
        )
    near = difflib.get_close_matches(wanted, [line.strip() for line in lines], n=1)
    raise UsageError(
        f"{path} has no line {wanted!r}", remedy=f"Did you mean {near[0]!r}?" if near else "Copy it from there."
    )


def _statement_at(tree: ast.Module, number: int) -> ast.stmt | None:
    """The innermost statement that the line belongs to."""
    best: ast.stmt | None = None
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and node.lineno <= number <= (node.end_lineno or node.lineno):
            best = node
    return best


def _place(statement: ast.stmt, lines: Sequence[str], number: int) -> tuple[str, int]:
    """Indent and index of the lines to be put in: behind a simple statement, first in a block that the line opens."""
    body = getattr(statement, "body", None)
    if isinstance(body, list) and body and number < body[0].lineno:
        first = body[0]
        documents = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
        at = (first.end_lineno or first.lineno) if documents else first.lineno - 1
        return " " * first.col_offset, at
    return " " * statement.col_offset, statement.end_lineno or number


def _expression(text: str) -> str:
    try:
        return ast.unparse(ast.parse(text.strip(), mode="eval").body)
    except SyntaxError as error:
        raise UsageError(
            f"{text!r} is not an expression: {error.msg}", remedy="Separate expressions with commas."
        ) from error


def split_expressions(text: str) -> list[str]:
    """``a, f(b, c)`` → ``["a", "f(b, c)"]``. Raises UsageError for what is no list of expressions."""
    try:
        node = ast.parse(f"({text},)", mode="eval").body
    except SyntaxError as error:
        raise UsageError(f"{text!r} is not a list of expressions: {error.msg}") from error
    assert isinstance(node, ast.Tuple)
    return [ast.unparse(part) for part in node.elts]


def _lines(tree: ast.Module, *, name: str, expressions: Sequence[str], indent: str) -> list[str]:
    """Lazy formatting with %s takes any value; a file without a logger gets a flushed print."""
    keys = _keys(expressions)
    if logger := _logger_of(tree):
        template = f"PROBE {name} " + " ".join(f"{key}=%s" for key in keys)
        call = [f"{indent}{logger}.info(", f'{indent}    "{template}",']
        return [*call, *(f"{indent}    {expression}," for expression in expressions), f"{indent})"]
    pairs = [f'{indent}    "{key}=%s" % ({expression},),' for key, expression in zip(keys, expressions, strict=True)]
    return [f"{indent}print(", f'{indent}    "PROBE {name}",', *pairs, f"{indent}    flush=True,", f"{indent})"]


def _keys(expressions: Sequence[str]) -> list[str]:
    """A word for each expression: ``self.a.b`` → ``b``; what is no chain of names gets a number."""
    keys: list[str] = []
    for number, expression in enumerate(expressions, start=1):
        words = re.findall(r"[A-Za-z_]\w*", expression)
        plain = re.fullmatch(r"[A-Za-z_][\w.]*", expression)
        key = words[-1].lower() if plain and words else f"value_{number}"
        keys.append(key if key not in keys else f"{key}_{number}")
    return keys


def _logger_of(tree: ast.Module) -> str:
    """The module's own logger, by the name that it has there."""
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call):
            function = ast.unparse(statement.value.func)
            if function.rpartition(".")[2] in ("getLogger", "init_logger") and isinstance(
                statement.targets[0], ast.Name
            ):
                return statement.targets[0].id
    return ""
