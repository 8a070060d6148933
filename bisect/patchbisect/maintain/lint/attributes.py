"""Attributes of ``self`` that are read before anything has set them, as far as one class tells.

The constructor is followed in the order of the source, into every method of the class that it calls. What no store
has been seen for, on any path, when a read is first reached, cannot be there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from patchbisect.maintain.lint.bound import dotted
from patchbisect.maintain.lint.scopes import Function, parameters


@dataclass(slots=True)
class _Follower:
    own: ast.ClassDef
    wanted: int
    """``id`` of the read that is looked for."""
    attribute: str
    stored: bool = False
    found: bool = False
    inside: list[str] = field(default_factory=list)

    def method(self, function: Function) -> None:
        if function.name in self.inside or not parameters(function):
            return
        self.inside.append(function.name)
        for statement in function.body:
            self.visit(statement, parameters(function)[0].arg)
        self.inside.pop()

    def visit(self, node: ast.AST, myself: str) -> None:
        if self.found or self.stored:
            return
        if id(node) == self.wanted:
            self.found = True
            return
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            return
        for part in _in_order(node):
            self.visit(part, myself)
            if self.found:
                return
        if isinstance(node, ast.Attribute) and _is(node.value, myself):
            self.stored = self.stored or (isinstance(node.ctx, ast.Store) and node.attr == self.attribute)
            if isinstance(node.ctx, ast.Load) and (method := self.named(node.attr)):
                # A call of a method, or a property.
                self.method(method)
        elif isinstance(node, ast.Call) and dotted(node.func) in ("setattr", f"{myself}.__dict__.update"):
            self.stored = True

    def named(self, name: str) -> Function | None:
        for statement in self.own.body:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef) and statement.name == name:
                return statement
        return None


def read_too_early(own: ast.ClassDef, node: ast.Attribute) -> bool:
    """Whether the constructor gets to this read before any store of the attribute."""
    follower = _Follower(own=own, wanted=id(node), attribute=node.attr)
    start = follower.named("__init__")
    if start is not None:
        follower.method(start)
    return follower.found and not follower.stored


def setters(own: ast.ClassDef, attribute: str, *, new: frozenset[int]) -> list[tuple[str, int]]:
    """Each place in a class that sets an attribute or defines it: (name of the method or "", line)."""
    found: list[tuple[str, int]] = []
    for statement in own.body:
        method = statement.name if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef) else ""
        if method == attribute:
            found.append(("", statement.lineno))
        for node in ast.walk(statement):
            stores = isinstance(getattr(node, "ctx", None), ast.Store) and id(node) not in new
            if isinstance(node, ast.Attribute) and node.attr == attribute and stores:
                found.append((method, node.lineno))
            elif not method and isinstance(node, ast.Name) and node.id == attribute and stores:
                found.append(("", node.lineno))
    return found


def asked_for(tree: ast.Module, *, new: frozenset[int]) -> dict[str, int]:
    """Attributes that SGLang's own code reads with ``getattr(x, "name", default)`` or ``hasattr``, with the line."""
    names: dict[str, int] = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or id(node) in new or len(node.args) < 2:
            continue
        name = node.args[1]
        asks = (dotted(node.func) == "getattr" and len(node.args) == 3) or dotted(node.func) == "hasattr"
        if asks and isinstance(name, ast.Constant) and isinstance(name.value, str):
            names.setdefault(name.value, node.lineno)
    return names


def _is(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _in_order(node: ast.AST) -> Iterator[ast.AST]:
    """Children in the order in which they are evaluated."""
    if isinstance(node, ast.Assign):
        yield node.value
        yield from node.targets
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        if node.value is not None:
            yield node.value
        yield node.target
    else:
        yield from ast.iter_child_nodes(node)
