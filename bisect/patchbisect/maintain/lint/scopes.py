"""Which name means what: the scopes of a module, what each binds and what each reads."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

BUILTINS = frozenset(dir(builtins)) | {
    "__file__",
    "__name__",
    "__doc__",
    "__spec__",
    "__package__",
    "__builtins__",
    "__path__",
    "__class__",
}

Owner = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda
Function = ast.FunctionDef | ast.AsyncFunctionDef
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


def words(text: str) -> frozenset[str]:
    """A set of words, as the tables of names are written."""
    return frozenset(text.split())


@dataclass(slots=True, eq=False)
class Scope:
    """One namespace. ``bound`` and ``read`` map a name to the nodes that do it, in the order of the source.

    What a comprehension binds is its own and does not appear; what it reads from outside is read here.
    """

    owner: Owner
    parent: Scope | None
    bound: dict[str, list[ast.AST]] = field(default_factory=dict)
    read: dict[str, list[ast.Name]] = field(default_factory=dict)
    declared: dict[str, str] = field(default_factory=dict)
    """Names of ``global`` and ``nonlocal`` statements, with which of the two."""
    children: list[Scope] = field(default_factory=list)
    known: dict[tuple[str, int], Any] = field(default_factory=dict)
    """Of the module's scope: what was worked out of a part of the tree, by what it is and ``id`` of the part."""

    def holds(self, name: str) -> bool:
        return name in self.bound and name not in self.declared

    def home(self, name: str) -> Scope | None:
        """The scope whose name this is, None for a builtin or a name that nobody binds."""
        if self.declared.get(name) == "global":
            return self.top if self.top.holds(name) else None
        if self.holds(name):
            return self
        scope = self.parent
        while scope is not None:
            # A class body's names are not seen by the functions in it.
            if not isinstance(scope.owner, ast.ClassDef) and scope.holds(name):
                return scope
            scope = scope.parent
        return None

    @property
    def top(self) -> Scope:
        return self if self.parent is None else self.parent.top

    def readers(self, name: str) -> Iterator[ast.Name]:
        """Every read of this scope's ``name``, here and in the scopes inside that do not bind it themselves."""
        yield from self.read.get(name, [])
        for child in self.children:
            if child.holds(name):
                continue
            yield from child.readers(name)


def scopes_of(tree: ast.Module) -> dict[int, Scope]:
    """The scope of the module and of each function, class and lambda, by ``id`` of its node."""
    found: dict[int, Scope] = {}
    _Collector(found).open(tree, parent=None)
    return found


def parameters(owner: Function | ast.Lambda) -> list[ast.arg]:
    arguments = owner.args
    extra = [argument for argument in (arguments.vararg, arguments.kwarg) if argument]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *extra]


def targets(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """The names that a target, a pattern or an import binds."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            yield inner.id, inner
        elif isinstance(inner, ast.MatchAs | ast.MatchStar) and inner.name:
            yield inner.name, inner
        elif isinstance(inner, ast.MatchMapping) and inner.rest:
            yield inner.rest, inner


def imported(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    for alias in node.names:
        yield alias.asname or alias.name.partition(".")[0]


class _Collector(ast.NodeVisitor):
    def __init__(self, found: dict[int, Scope]) -> None:
        self.found = found
        self.scope: Scope
        self.hidden: list[set[str]] = []
        """Names of the comprehensions around the current node."""

    def open(self, owner: Owner, *, parent: Scope | None) -> None:
        outer = (self.scope, self.hidden) if parent else None
        scope = Scope(owner=owner, parent=parent)
        self.found[id(owner)] = scope
        if parent:
            parent.children.append(scope)
        # A lambda in a comprehension sees the comprehension's names: they stay hidden, they are nobody else's.
        self.scope, self.hidden = scope, list(self.hidden) if isinstance(owner, ast.Lambda) else []
        if isinstance(owner, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            for argument in parameters(owner):
                self.bind(argument.arg, argument)
        if isinstance(owner, ast.Lambda):
            self.visit(owner.body)
        else:
            for statement in owner.body:
                self.visit(statement)
        if outer:
            self.scope, self.hidden = outer

    def bind(self, name: str, node: ast.AST) -> None:
        self.scope.bound.setdefault(name, []).append(node)

    def visit_Name(self, node: ast.Name) -> None:
        if any(node.id in names for names in self.hidden):
            return
        if isinstance(node.ctx, ast.Load):
            self.scope.read.setdefault(node.id, []).append(node)
        else:
            self.bind(node.id, node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self.scope.read.setdefault(node.target.id, []).append(node.target)
        self.visit(node.target)
        self.visit(node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        # The annotation is left out: for a local it is never evaluated, and elsewhere it is no reader of values.
        self.visit(node.target)
        if node.value:
            self.visit(node.value)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        # Binds in the function around, not in the comprehension.
        self.visit(node.value)
        self.bind(node.target.id, node.target)

    def visit_Import(self, node: ast.Import) -> None:
        for name in imported(node):
            self.bind(name, node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for name in imported(node):
            self.bind(name, node)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self.bind(node.name, node)
        self.generic_visit(node)

    def visit_MatchAs(self, node: ast.MatchAs) -> None:
        if node.name:
            self.bind(node.name, node)
        self.generic_visit(node)

    def visit_MatchStar(self, node: ast.MatchStar) -> None:
        if node.name:
            self.bind(node.name, node)

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        if node.rest:
            self.bind(node.rest, node)
        self.generic_visit(node)

    def visit_Global(self, node: ast.Global) -> None:
        self.scope.declared.update(dict.fromkeys(node.names, "global"))

    def visit_Nonlocal(self, node: ast.Nonlocal) -> None:
        self.scope.declared.update(dict.fromkeys(node.names, "nonlocal"))

    def _definition(self, node: Function) -> None:
        self.bind(node.name, node)
        for outside in (*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(outside)
        self.open(node, parent=self.scope)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._definition(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._definition(node)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        for outside in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(outside)
        self.open(node, parent=self.scope)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.bind(node.name, node)
        for outside in (*node.decorator_list, *node.bases, *node.keywords):
            self.visit(outside)
        self.open(node, parent=self.scope)

    def _comprehension(self, node: Comprehension) -> None:
        first, *others = node.generators
        self.visit(first.iter)
        names = {name for generator in node.generators for name, _ in targets(generator.target)}
        self.hidden.append(names)
        for condition in first.ifs:
            self.visit(condition)
        for generator in others:
            self.visit(generator.iter)
            for condition in generator.ifs:
                self.visit(condition)
        if isinstance(node, ast.DictComp):
            self.visit(node.key)
            self.visit(node.value)
        else:
            self.visit(node.elt)
        self.hidden.pop()

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension
