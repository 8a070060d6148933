"""What the tests and handlers around an added expression make sure of."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace

from patchbisect.maintain.lint.bound import dotted


@dataclass(frozen=True, slots=True)
class Guards:
    """What the tests around an expression, inside the added code, make sure of. Dumps of expressions."""

    not_none: frozenset[str] = frozenset()
    non_zero: frozenset[str] = frozenset()
    numbers: frozenset[str] = frozenset()
    exists: frozenset[str] = frozenset()
    true_calls: frozenset[str] = frozenset()
    caught: frozenset[str] = frozenset()
    """What the handlers of an added ``try`` around it take."""

    def catches(self, *names: str) -> bool:
        return bool(self.caught & {"Exception", "BaseException", *names})

    @property
    def safe(self) -> bool:
        return self.catches("TypeError", "ValueError", "AttributeError", "LookupError", "KeyError", "IndexError")

    def when(self, test: ast.expr, *, holds: bool) -> Guards:
        """The guards where ``test`` came out so."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return self.when(test.operand, holds=not holds)
        if isinstance(test, ast.BoolOp):
            everything = isinstance(test.op, ast.And) if holds else isinstance(test.op, ast.Or)
            guards = self
            for part in test.values if everything else []:
                guards = guards.when(part, holds=holds)
            return guards
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            return self._when_compared(test, holds=holds)
        if not holds:
            return self
        if isinstance(test, ast.Call):
            return self._when_called(test)
        if isinstance(test, ast.NamedExpr):
            return self._truthy(test.target)
        return self._truthy(test)

    def _truthy(self, node: ast.expr) -> Guards:
        dump = as_read(node)
        return replace(self, not_none=self.not_none | {dump}, non_zero=self.non_zero | {dump})

    def _when_compared(self, test: ast.Compare, *, holds: bool) -> Guards:
        left, operator, right = as_read(test.left), test.ops[0], test.comparators[0]
        none = isinstance(right, ast.Constant) and right.value is None
        zero = isinstance(right, ast.Constant) and right.value == 0 and not none
        if none and isinstance(operator, ast.IsNot if holds else ast.Is):
            return replace(self, not_none=self.not_none | {left})
        if zero and isinstance(operator, (ast.NotEq, ast.Gt, ast.Lt) if holds else (ast.Eq,)):
            return replace(self, non_zero=self.non_zero | {left}, not_none=self.not_none | {left})
        positive = isinstance(right, ast.Constant) and isinstance(right.value, int | float) and right.value > 0
        if positive and holds and isinstance(operator, ast.Gt | ast.GtE | ast.Eq):
            return replace(self, non_zero=self.non_zero | {left}, not_none=self.not_none | {left})
        if holds and isinstance(operator, ast.In):
            entry = ast.Subscript(value=right, slice=test.left, ctx=ast.Load())
            return replace(self, exists=self.exists | {ast.dump(entry)})
        return self

    def _when_called(self, test: ast.Call) -> Guards:
        name = dotted(test.func)
        guards = replace(self, true_calls=self.true_calls | {name, name.rpartition(".")[2]})
        if name == "isinstance" and len(test.args) == 2:
            dump = as_read(test.args[0])
            numeric = {dotted(part) for part in ast.walk(test.args[1]) if isinstance(part, ast.expr)} & {"int", "float"}
            return replace(
                guards,
                not_none=self.not_none | {dump},
                numbers=self.numbers | ({dump} if numeric else set()),
            )
        if name == "hasattr" and len(test.args) == 2 and isinstance(test.args[1], ast.Constant):
            attribute = ast.Attribute(value=test.args[0], attr=str(test.args[1].value), ctx=ast.Load())
            return replace(guards, exists=self.exists | {ast.dump(attribute)})
        return guards


def as_read(node: ast.expr) -> str:
    """The dump of an expression as if it were read."""
    return ast.dump(node).replace("ctx=Store()", "ctx=Load()")
