"""What the code around a statement proves: expressions that are evaluated there anyway.

What SGLang's own next or previous statements compute cannot raise anew when a probe computes it too; a name
that they subtract from is not None; what they divide by is not zero.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from patchbisect.maintain.lint.edits import Added, blocks_of
from patchbisect.maintain.lint.scopes import COMPREHENSIONS, imported, targets

_DIVERTS = (ast.Return, ast.Raise, ast.Break, ast.Continue)
_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Pow)
_ORDER = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_NUMERIC_ENDINGS = tuple("bcdoxXneEfFgG%")


@dataclass(slots=True)
class Evidence:
    """Dumps (``ast.dump``) of expressions that were, or right after will be, evaluated without fail."""

    evaluated: set[str] = field(default_factory=set)
    numbers: set[str] = field(default_factory=set)
    """Operands of arithmetic or of an order, and what a number format was applied to: not None, not text."""
    divisors: set[str] = field(default_factory=set)
    nullable: set[str] = field(default_factory=set)
    """What SGLang asks for None right after: it can be None here."""

    def add(self, expression: ast.expr) -> None:
        """Take in an expression that is certainly evaluated."""
        for part in certain_parts(expression):
            self.evaluated.add(ast.dump(part))
            if isinstance(part, ast.BinOp) and isinstance(part.op, _ARITHMETIC):
                self.numbers |= {ast.dump(part.left), ast.dump(part.right)}
                if isinstance(part.op, ast.Div | ast.FloorDiv):
                    self.divisors.add(ast.dump(part.right))
            elif isinstance(part, ast.Compare) and isinstance(part.ops[0], _ORDER):
                self.numbers |= {ast.dump(part.left), ast.dump(part.comparators[0])}
            elif isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.USub):
                self.numbers.add(ast.dump(part.operand))
            elif isinstance(part, ast.FormattedValue) and format_spec(part).endswith(_NUMERIC_ENDINGS):
                self.numbers.add(ast.dump(part.value))

    def forget(self, names: Iterable[str], *, calls: bool = False) -> None:
        """Drop what mentions one of the names; with ``calls`` everything that a call may have changed."""
        marks = [f"Name(id={name!r}," for name in names]
        for dumps in (self.evaluated, self.numbers, self.divisors):
            dumps -= {
                dump
                for dump in dumps
                if any(mark in dump for mark in marks) or (calls and ("Attribute(" in dump or "Subscript(" in dump))
            }


def format_spec(value: ast.FormattedValue) -> str:
    """The constant part of ``{x:spec}``."""
    if not isinstance(value.format_spec, ast.JoinedStr):
        return ""
    return "".join(str(part.value) for part in value.format_spec.values if isinstance(part, ast.Constant))


def certain_parts(expression: ast.AST) -> Iterator[ast.AST]:
    """The expression and each part of it that is evaluated whenever it is."""
    yield expression
    if isinstance(expression, ast.BoolOp):
        yield from certain_parts(expression.values[0])
    elif isinstance(expression, ast.IfExp):
        yield from certain_parts(expression.test)
    elif isinstance(expression, ast.Compare):
        yield from certain_parts(expression.left)
        yield from certain_parts(expression.comparators[0])
    elif isinstance(expression, COMPREHENSIONS):
        yield from certain_parts(expression.generators[0].iter)
    elif not isinstance(expression, ast.Lambda):
        for part in ast.iter_child_nodes(expression):
            if isinstance(part, ast.expr | ast.keyword):
                yield from certain_parts(part)


def around(added: Added, *, is_added: frozenset[int]) -> Evidence:
    """The evidence of SGLang's own statements around an added one; ``is_added`` holds ids of added statements."""
    evidence = Evidence()
    places = [*added.parents, (added.node, added.block, added.index)]
    for parent, (_, block, index) in zip([None, *(place[0] for place in added.parents)], places, strict=True):
        if parent is not None:
            _enter(evidence, parent)
        for statement in block[:index]:
            if id(statement) not in is_added:
                _pass(evidence, statement)
    later = _following(added.block[added.index + 1 :], is_added=is_added)
    for name in ("evaluated", "numbers", "divisors", "nullable"):
        getattr(evidence, name).update(getattr(later, name))
    return evidence


def _asked_for_none(expression: ast.expr) -> Iterator[str]:
    """Dumps of what an expression compares with None first of all."""
    for part in certain_parts(expression):
        if isinstance(part, ast.Compare) and isinstance(part.ops[0], ast.Is | ast.IsNot):
            right = part.comparators[0]
            if isinstance(right, ast.Constant) and right.value is None:
                yield ast.dump(part.left)


def stored(node: ast.AST) -> set[str]:
    """Names that a statement binds or deletes, in nested blocks too."""
    names: set[str] = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and not isinstance(inner.ctx, ast.Load):
            names.add(inner.id)
        elif isinstance(inner, ast.Attribute) and not isinstance(inner.ctx, ast.Load):
            names.add(f".{inner.attr}")
        elif isinstance(inner, ast.Import | ast.ImportFrom):
            names |= set(imported(inner))
        elif isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.ExceptHandler):
            names |= {inner.name} if inner.name else set()
        elif isinstance(inner, ast.pattern):
            names |= {name for name, _ in targets(inner)}
    return names


def _forget_stores(evidence: Evidence, node: ast.AST) -> None:
    names = stored(node)
    evidence.forget({name for name in names if not name.startswith(".")})
    attributes = [f"attr={name[1:]!r}," for name in names if name.startswith(".")]
    for dumps in (evidence.evaluated, evidence.numbers, evidence.divisors):
        dumps -= {dump for dump in dumps if any(mark in dump for mark in attributes)}


def _enter(evidence: Evidence, parent: ast.stmt) -> None:
    """Going into a block of a compound statement: its first line was evaluated; a loop may have run before."""
    if isinstance(parent, ast.For | ast.AsyncFor | ast.While):
        _forget_stores(evidence, parent)
    for expression in _heads(parent):
        evidence.add(expression)


def _pass(evidence: Evidence, statement: ast.stmt) -> None:
    """A statement that was executed before."""
    expressions = _heads(statement)
    for expression in expressions:
        evidence.add(expression)
    _forget_stores(evidence, statement)


def _heads(statement: ast.stmt) -> list[ast.expr]:
    """The expressions that a statement evaluates whenever it is reached."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return []
    if isinstance(statement, ast.If | ast.While):
        return [statement.test]
    if isinstance(statement, ast.For | ast.AsyncFor):
        return [statement.iter]
    if isinstance(statement, ast.With | ast.AsyncWith):
        return [item.context_expr for item in statement.items]
    if any(True for _ in blocks_of(statement)):
        return []
    if isinstance(statement, ast.AugAssign):
        # Not the target's old value alone: `x += 1` reads x.
        target = ast.parse(ast.unparse(statement.target), mode="eval").body
        return [statement.value, target]
    return [node for node in ast.iter_child_nodes(statement) if isinstance(node, ast.expr) and not _is_store(node)]


def _is_store(node: ast.expr) -> bool:
    return isinstance(getattr(node, "ctx", None), ast.Store | ast.Del)


def _following(statements: Sequence[ast.stmt], *, is_added: frozenset[int]) -> Evidence:
    """What SGLang's next statements evaluate, up to the first that may go elsewhere."""
    evidence = Evidence()
    changed: set[str] = set()
    altered = False
    for statement in statements:
        if id(statement) in is_added:
            continue
        seen = Evidence()
        for expression in _heads(statement):
            seen.add(expression)
        seen.forget(changed, calls=altered)
        if not altered:
            asked = {left for head in _heads(statement) for left in _asked_for_none(head)}
            evidence.nullable |= {left for left in asked if left in seen.evaluated}
        for name in ("evaluated", "numbers", "divisors"):
            getattr(evidence, name).update(getattr(seen, name))
        calls = any(isinstance(node, ast.Call) for node in ast.walk(statement))
        if calls or isinstance(statement, _DIVERTS) or any(True for _ in blocks_of(statement)):
            # Behind it nothing is certain: a call may raise.
            return evidence
        changed |= {name for name in stored(statement) if not name.startswith(".")}
        altered = altered or bool(stored(statement))
    return evidence
