"""A safe probe, written for the user: where it goes, what it prints, in the file's own style."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from patchbisect.errors import UsageError
from patchbisect.maintain.lint.sources import tree_of

_DOES: dict[type[ast.AST], str] = {
    ast.NamedExpr: "binds a name",
    ast.Yield: "hands control to other code",
    ast.YieldFrom: "hands control to other code",
    ast.Await: "hands control to other code",
    ast.Starred: "is not one value",
}
"""What is more than an expression to look at, in words."""


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
    if statement is None or _is_decorator(tree, number):
        raise UsageError(f"{path}:{number} is in no statement", remedy="Name a line of code.")
    if lines[statement.lineno - 1].encode("utf-8", "surrogateescape")[: statement.col_offset].strip():
        raise UsageError(
            f"{path}:{number} holds several statements", remedy="Name the line before it, or edit the file by hand."
        )
    if isinstance(statement, ast.Return | ast.Raise | ast.Break | ast.Continue):
        word = type(statement).__name__.lower()
        raise UsageError(f"{path}:{number} is a {word}: nothing behind it runs", remedy="Name a line before it.")
    indent, at = _place(statement, lines, number)
    probe = _lines(tree, name=name, expressions=[_expression(text) for text in expressions], indent=indent)
    end = "\r" if lines[number - 1].endswith("\r") else ""
    return Probe(text="\n".join([*lines[:at], *(line + end for line in probe), *lines[at:]]), line=at + 1)


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


def _is_decorator(tree: ast.Module, number: int) -> bool:
    decorators = [decorator for node in ast.walk(tree) for decorator in getattr(node, "decorator_list", ())]
    return any(decorator.lineno <= number <= decorator.end_lineno for decorator in decorators)


def _place(statement: ast.stmt, lines: Sequence[str], number: int) -> tuple[str, int]:
    """Indent and index of the lines to be put in: behind a simple statement, first in a block that the line opens."""
    before = 0
    for block in _blocks(statement):
        first = block[0]
        start = min([first.lineno, *(decorator.lineno for decorator in getattr(first, "decorator_list", ()))])
        if before < number < start:
            documents = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
            at = (first.end_lineno or first.lineno) if documents else start - 1
            return " " * first.col_offset, at
        before = block[-1].end_lineno or start
    return " " * statement.col_offset, statement.end_lineno or number


def _blocks(statement: ast.stmt) -> list[list[ast.stmt]]:
    """The blocks of a compound statement in the order of the file: those of its clauses too."""
    clauses = [*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())]
    blocks = [getattr(owner, field, []) for owner in (statement, *clauses) for field in ("body", "orelse", "finalbody")]
    return sorted((block for block in blocks if block), key=lambda block: int(block[0].lineno))


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
    whole = isinstance(node, ast.Tuple) and node.end_col_offset == len(f"({text},)".encode())
    if not isinstance(node, ast.Tuple) or not whole:
        raise UsageError(f"{text!r} is not a list of expressions", remedy="As in: --expr ranks,self.rank")
    for part in node.elts:
        if does := next((_DOES[type(inner)] for inner in ast.walk(part) if type(inner) in _DOES), ""):
            raise UsageError(f"{ast.unparse(part)!r} {does}", remedy="A probe only looks: name a value.")
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
