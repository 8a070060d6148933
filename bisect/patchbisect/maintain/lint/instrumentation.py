"""Whether a change of one file only looks: the rules for ``Kind: instrumentation``, by syntax tree."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from patchbisect.maintain.lint.attributes import asked_for, read_too_early, setters
from patchbisect.maintain.lint.bound import Flow, State, constant_truth, dotted, flow_of
from patchbisect.maintain.lint.calls import canonical
from patchbisect.maintain.lint.edits import Added, Edits, compare
from patchbisect.maintain.lint.evidence import Evidence, around
from patchbisect.maintain.lint.expressions import Inspector
from patchbisect.maintain.lint.guards import Guards
from patchbisect.maintain.lint.scopes import BUILTINS, Function, Scope, imported, parameters, scopes_of
from patchbisect.maintain.lint.sources import tree_of

_LEAVE = (
    "Leave SGLang's statements as they are and add one of your own; a patch that changes code is a fix or experiment."
)


@dataclass(frozen=True, slots=True, order=True)
class Complaint:
    """One rule broken at one line (from 1) of the file as patched; with ``gone``, of the file before."""

    line: int
    rule: str
    why: str
    remedy: str = ""
    gone: bool = False
    warning: bool = False


def judge(before: str, after: str, *, unknown: Callable[[str], bool] = lambda name: False) -> list[Complaint]:
    """What an instrumentation patch does to a file that it should not. Both texts must parse (else SyntaxError).

    ``unknown`` tells whether no file of SGLang holds a word; it is asked about attributes that this file does not.
    """
    old, new = tree_of(before), tree_of(after)
    edits = compare(old, new)
    judge_ = _Judge(tree=new, before=before, edits=edits, unknown=unknown)
    judge_.run()
    return sorted(judge_.complaints)


class _Judge:
    def __init__(self, *, tree: ast.Module, before: str, edits: Edits, unknown: Callable[[str], bool]) -> None:
        self.tree = tree
        self.unknown = unknown
        self.before = before
        self.edits = edits
        self.moved = frozenset(id(node) for statement in edits.moved for node in ast.walk(statement))
        self.new = frozenset(id(node) for added in edits.added for node in ast.walk(added.node)) - self.moved
        self.scopes = scopes_of(tree)
        self.own = frozenset(self._own_names())
        self.complaints: set[Complaint] = set()
        self.flows: dict[int, Flow] = {}
        self.asked = asked_for(tree, new=self.new)
        self.guarded: set[int] = set()
        """Ids of added nodes that a handler or a test around them, added too, makes safe to read."""

    def run(self) -> None:
        for statement in self.edits.removed:
            why = f"takes away: {_first_line(statement)}"
            self.complaints.add(
                Complaint(line=statement.lineno, rule="changes-code", why=why, remedy=_LEAVE, gone=True)
            )
        for statement in self.edits.changed:
            self.complain("changes-code", statement.lineno, f"changes this to: {_first_line(statement)}", _LEAVE)
        for statement in self.edits.moved:
            why = f"moves into another block: {_first_line(statement)}"
            self.complain("indent", statement.lineno, why, "Give the line its old indent back.")
        for node, names in self.edits.extended:
            if (node.module or "").partition(".")[0] not in sys.stdlib_module_names or node.level:
                why = (
                    f"imports {', '.join(names)} from {node.module or '.'} too: it may be missing there, or import this"
                )
                self.complain("import", node.lineno, why, _READ_THERE)
        for added in self.edits.added:
            self._look_at(added)
        self._check_bindings()

    def complain(self, rule: str, line: int, why: str, remedy: str = "", *, warning: bool = False) -> None:
        self.complaints.add(Complaint(line=line, rule=rule, why=why, remedy=remedy, warning=warning))

    # One added statement

    def _look_at(self, added: Added) -> None:
        evidence = around(added, is_added=self.new)
        scope = self.scopes[id(added.owners[-1] if added.owners else self.tree)]
        flow = self._flow(scope)
        if id(added.node) in flow.at and flow.at[id(added.node)] is None:
            self.complain(
                "never-runs", added.node.lineno, "no path gets here: it prints nothing", "Move it.", warning=True
            )
        visitor = _Statements(judge=self, evidence=evidence, added=added)
        visitor.statement(added.node, scope=scope, guards=Guards(), loops=0, own=False)
        self._check_reads(added, evidence)

    def _check_reads(self, added: Added, evidence: Evidence) -> None:
        inside = {id(node) for node in ast.walk(added.node)}
        for scope in self.scopes.values():
            flow = None
            for name, nodes in scope.read.items():
                for node in nodes:
                    if id(node) not in inside:
                        continue
                    flow = flow or self._flow(scope)
                    if id(node) in self.guarded or _as_load(name) in evidence.evaluated:
                        continue
                    if id(node) in flow.uncertain:
                        self.complain("unbound", node.lineno, self._why_unbound(scope, name), _AFTER_BOUND)
        self._check_attributes(added, evidence, inside)

    def _why_unbound(self, scope: Scope, name: str) -> str:
        home = scope.home(name)
        if home is None:
            return f"nothing binds {name} here"
        lines = sorted({getattr(node, "lineno", 0) for node in home.bound[name]})
        places = ", ".join(map(str, lines[:3])) + (", ..." if lines[3:] else "")
        if isinstance(home.owner, ast.Module):
            return f"{name} is bound at line {places} of the module, but not on every path (only for type checkers?)"
        return f"{name} is bound at line {places}, but not on every path that gets here"

    def _check_attributes(self, added: Added, evidence: Evidence, inside: set[int]) -> None:
        for node in ast.walk(added.node):
            if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Load) or id(node) in self.guarded:
                continue
            if ast.dump(node) in evidence.evaluated:
                continue
            if why := self._of_self(added, node) or self._asked_for(node):
                self.complain("attribute", node.lineno, why, _AFTER_BOUND)

    def _of_self(self, added: Added, node: ast.Attribute) -> str:
        """Why ``self.x`` may not be there, ``""`` where nothing speaks against it."""
        if len(added.owners) < 2 or not isinstance(added.owners[-2], ast.ClassDef):
            return ""
        method, own = added.owners[-1], added.owners[-2]
        if not isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef) or not parameters(method):
            return ""
        first = parameters(method)[0]
        if not (isinstance(node.value, ast.Name) and node.value.id == first.arg):
            return ""
        assert isinstance(own, ast.ClassDef)
        found = setters(own, node.attr, new=self.new)
        shown = f"{first.arg}.{node.attr}"
        if not found:
            alone = not own.bases and first.annotation is None and "__getattr__" not in self.before
            known = re.search(rf"\b{re.escape(node.attr)}\b", self.before) or not (alone or self.unknown(node.attr))
            return "" if known else f"nothing sets {shown}"
        line = min(line for _, line in found)
        in_init = method.name == "__init__" and all(name == "__init__" for name, _ in found)
        if in_init and id(node) in self._flow(self.scopes[id(method)]).uncertain:
            return f"{shown} is set at line {line}, not on every path that gets here"
        if all(name for name, _ in found) and read_too_early(own, node):
            return f"{shown} is set at line {line}, but the constructor gets here before"
        return ""

    def _asked_for(self, node: ast.Attribute) -> str:
        """An attribute that SGLang never reads without asking whether it is there."""
        asked = self.asked
        if node.attr not in asked or re.search(rf"\.{re.escape(node.attr)}\b", self.before):
            return ""
        return f"{ast.unparse(node)} may be missing: line {asked[node.attr]} asks for it"

    # Names

    def _own_names(self) -> Iterator[str]:
        """Names that the patch alone binds, in whatever scope it does."""
        bound: dict[str, bool] = {}
        for scope in self.scopes.values():
            for name, nodes in scope.bound.items():
                for node in nodes:
                    bound[name] = bound.get(name, True) and id(node) in self.new and not isinstance(node, ast.arg)
        for name, own in bound.items():
            if own and name not in BUILTINS and not self._is_import(name):
                yield name

    def _is_import(self, name: str) -> bool:
        return any(
            isinstance(node, ast.Import | ast.ImportFrom) and name in imported(node)
            for added in self.edits.added
            for node in ast.walk(added.node)
        )

    def _check_bindings(self) -> None:
        for scope in self.scopes.values():
            if id(scope.owner) in self.new:
                continue
            for name, nodes in scope.bound.items():
                added = [node for node in nodes if id(node) in self.new]
                if added and not self._repeats_import(scope, name, added):
                    self._check_binding(scope, name, added, kept=[node for node in nodes if id(node) not in self.new])

    def _check_binding(self, scope: Scope, name: str, added: list[ast.AST], *, kept: list[ast.AST]) -> None:
        line = getattr(added[0], "lineno", 0)
        if isinstance(scope.owner, ast.ClassDef):
            fresh = not re.search(rf"\b{re.escape(name)}\b", self.before)
            if fresh and all(isinstance(node, ast.FunctionDef) for node in added):
                return
            self.complain("binds", line, f"{name} becomes an attribute of class {scope.owner.name}", _FRESH)
            return
        if name in scope.declared and name not in self.own:
            self.complain("binds", line, f"{name} is declared {scope.declared[name]}: others read it", _FRESH)
            return
        readers = sorted(node.lineno for node in scope.readers(name) if id(node) not in self.new)
        if kept:
            if readers:
                self.complain("binds", line, f"binds {name}, which line {readers[-1]} reads", _FRESH)
            return
        outer = scope.parent.home(name) if scope.parent else None
        if readers and scope.parent:
            before = readers[0] < line
            then = "and finds it unbound from now on" if before else "and gets this one from now on"
            why = f"makes {name} local to the whole function: line {readers[0]} reads it, {then}"
            self.complain("makes-local", line, why, "Use the name that is there, or choose a fresh one.")
        elif outer is not None and name != "_":
            where = "a global" if isinstance(outer.owner, ast.Module) else "a name of the function around"
            self.complain("makes-local", line, f"{name} is {where}, and becomes local here", _FRESH)
        elif name in BUILTINS:
            self.complain("shadows", line, f"{name} hides the builtin", _FRESH)

    def _repeats_import(self, scope: Scope, name: str, added: list[ast.AST]) -> bool:
        """The very import that the scope has already: it binds the same object again."""
        kept = {ast.dump(node) for node in scope.bound[name] if id(node) not in self.new}
        return all(isinstance(node, ast.Import | ast.ImportFrom) and ast.dump(node) in kept for node in added)

    # Flow

    def _flow(self, scope: Scope) -> Flow:
        """The flow that a scope's reads are judged in: that of the function or module around."""
        while isinstance(scope.owner, ast.ClassDef | ast.Lambda):
            assert scope.parent is not None
            scope = scope.parent
        owner = scope.owner
        assert not isinstance(owner, ast.ClassDef | ast.Lambda)
        if id(owner) not in self.flows:
            self.flows[id(owner)] = flow_of(owner, initially=self._from_outside(scope))
        return self.flows[id(owner)]

    def _from_outside(self, scope: Scope) -> frozenset[str]:
        """Names that a function finds bound when it is called: builtins, globals, names of the functions around."""
        if isinstance(scope.owner, ast.Module):
            return frozenset(BUILTINS) | self._star_names()
        assert scope.parent is not None
        outside = self._flow(scope.parent)
        owner = scope.owner
        assert isinstance(owner, ast.FunctionDef | ast.AsyncFunctionDef)
        parent = scope.parent
        while isinstance(parent.owner, ast.ClassDef):
            assert parent.parent is not None
            parent = parent.parent
        # Module code is done when a function is called; a function around is only as far as the definition.
        state: State = outside.end if isinstance(parent.owner, ast.Module) else outside.at.get(id(owner))
        known = frozenset(BUILTINS) | (state or frozenset()) | self._star_names()
        if not isinstance(parent.owner, ast.Module):
            known |= self._flow(self.scopes[id(self.tree)]).end or frozenset()
        return frozenset(name for name in known if not scope.holds(name))

    def _star_names(self) -> frozenset[str]:
        """With ``from x import *`` any name that nobody else binds may come from there."""
        top = self.scopes[id(self.tree)]
        if "*" not in top.bound:
            return frozenset()
        return frozenset(name for scope in self.scopes.values() for name in scope.read if scope.home(name) is None)


_AFTER_BOUND = "Move the statement to where the value is certainly there, or print it inside that branch."
_READ_THERE = "Read the value where the module is imported already."
_FRESH = "Choose a fresh name that nobody else uses."


class _Statements:
    """Goes through one added statement and what stands in it."""

    def __init__(self, *, judge: _Judge, evidence: Evidence, added: Added) -> None:
        self.judge = judge
        self.evidence = evidence
        self.added = added

    def statement(self, node: ast.stmt, *, scope: Scope, guards: Guards, loops: int, own: bool) -> None:
        """``loops``: how many added loops are around; ``own``: inside a function that the patch brings."""
        if id(node) in self.judge.moved:
            return
        inspector = Inspector(
            scope=scope,
            evidence=self.evidence,
            report=self._report,
            new=self.judge.new,
            own=self.judge.own,
            guarded=self.judge.guarded,
        )

        def block(statements: list[ast.stmt], guards: Guards = guards, loops: int = loops) -> None:
            for statement in statements:
                self.statement(statement, scope=scope, guards=guards, loops=loops, own=own)

        self._control_flow(node, loops=loops, own=own)
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._definition(node, inspector, guards)
            case ast.ClassDef():
                for outside in (*node.decorator_list, *node.bases):
                    inspector.expression(outside, guards)
                inner = self.judge.scopes[id(node)]
                for statement in node.body:
                    self.statement(statement, scope=inner, guards=guards, loops=0, own=True)
            case ast.If():
                inspector.test(node.test, guards)
                if constant_truth(node.test) is not False:
                    block(node.body, guards.when(node.test, holds=True))
                block(node.orelse, guards.when(node.test, holds=False))
            case ast.For():
                inspector.expression(node.iter, guards)
                inspector.consumed(node.iter)
                self._target(node.target, inspector, guards)
                block(node.body, guards, loops + 1)
                block(node.orelse)
            case ast.While():
                inspector.test(node.test, guards)
                block(node.body, guards, loops + 1)
            case ast.With():
                for item in node.items:
                    inspector.expression(item.context_expr, guards)
                suppressed = {name for item in node.items for name in suppressed_by(scope, item.context_expr)}
                block(node.body, replace(guards, caught=guards.caught | suppressed))
            case ast.Try():
                self._try(node, block, guards)
            case ast.Match():
                inspector.expression(node.subject, guards)
                for case in node.cases:
                    block(case.body)
            case _:
                self._simple(node, inspector, guards)

    def _simple(self, node: ast.stmt, inspector: Inspector, guards: Guards) -> None:
        """A statement that holds no others."""
        match node:
            case ast.Import() | ast.ImportFrom():
                self._import(node)
            case ast.Assign(targets=targets, value=value):
                inspector.expression(value, guards)
                for target in targets:
                    self._target(target, inspector, guards)
            case ast.AnnAssign(target=target, value=value) | ast.AugAssign(target=target, value=value):
                inspector.expression(value, guards)
                self._target(target, inspector, guards)
            case _:
                for part in ast.iter_child_nodes(node):
                    inspector.expression(part, guards)

    def _report(self, rule: str, node: ast.AST, why: str, remedy: str, *, warning: bool = False) -> None:
        line = getattr(node, "lineno", self.added.node.lineno)
        self.judge.complain(rule, line, why, remedy, warning=warning)

    def _control_flow(self, node: ast.stmt, *, loops: int, own: bool) -> None:
        words = {
            ast.Return: "return leaves the function",
            ast.Raise: "raise ends what was going on",
            ast.Assert: "assert can raise",
            ast.Break: "break leaves SGLang's loop",
            ast.Continue: "continue skips the rest of SGLang's loop",
            ast.Delete: "del takes away what other code may read",
            ast.While: "a while loop may not end",
            ast.AsyncFor: "async for hands control to other code",
            ast.AsyncWith: "async with hands control to other code",
        }
        why = words.get(type(node), "")
        if isinstance(node, ast.Break | ast.Continue) and loops:
            why = ""
        if isinstance(node, ast.Return) and own:
            why = ""
        if isinstance(node, ast.Global | ast.Nonlocal) and not set(node.names) <= self.judge.own:
            why = f"{'global' if isinstance(node, ast.Global) else 'nonlocal'} reaches names that others read"
        if why:
            self.judge.complain("control-flow", node.lineno, why, "A probe only looks: take it out.")

    def _definition(self, node: Function, inspector: Inspector, guards: Guards) -> None:
        for outside in (*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)):
            inspector.expression(outside, guards)
        inner = self.judge.scopes[id(node)]
        for statement in node.body:
            self.statement(statement, scope=inner, guards=guards, loops=0, own=True)

    def _try(self, node: ast.Try, block: Callable[..., None], guards: Guards) -> None:
        caught = {dotted(part) for handler in node.handlers for part in _types(handler)}
        if any(handler.type is None for handler in node.handlers):
            caught.add("BaseException")
        inside = replace(guards, caught=guards.caught | caught)
        block(node.body, inside)
        for handler in node.handlers:
            block(handler.body)
        block(node.orelse)
        block(node.finalbody)

    def _target(self, target: ast.expr, inspector: Inspector, guards: Guards) -> None:
        """What an added statement stores into, where that is no plain name."""
        if isinstance(target, ast.Tuple | ast.List):
            for element in target.elts:
                self._target(element, inspector, guards)
            return
        if isinstance(target, ast.Name | ast.Starred):
            return
        root = dotted(target.value if isinstance(target, ast.Attribute | ast.Subscript) else target).partition(".")[0]
        if root in self.judge.own:
            return
        if isinstance(target, ast.Attribute):
            if not re.search(rf"\b{re.escape(target.attr)}\b", self.judge.before):
                return
            why = f"sets {ast.unparse(target)}, an attribute that other code reads"
        else:
            why = f"changes an entry of {ast.unparse(getattr(target, 'value', target))}"
        self.judge.complain("binds", target.lineno, why, _FRESH)

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        """What is not of the standard library must be imported by this file already: module and name."""
        kept = {
            name
            for other in ast.walk(self.judge.tree)
            if isinstance(other, ast.Import | ast.ImportFrom) and id(other) not in self.judge.new
            for name in _names_imported(other)
        }
        for name in _names_imported(node):
            if name.partition(".")[0] not in sys.stdlib_module_names and name not in kept:
                why = f"imports {name}, which this file does not: it may be missing, or import this file"
                self.judge.complain("import", node.lineno, why, _READ_THERE)


def suppressed_by(scope: Scope, context: ast.expr) -> list[str]:
    """What ``contextlib.suppress(…)`` takes, as the handlers of a ``try`` would."""
    if isinstance(context, ast.Call) and canonical(scope, context.func) == "contextlib.suppress":
        return [dotted(argument) for argument in context.args]
    return []


def _names_imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    """``a.b`` for ``import a.b``, ``a.b`` for ``from a import b``; a relative one begins with its dots."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [f"{'.' * node.level}{node.module or ''}.{alias.name}" for alias in node.names]


def _types(handler: ast.ExceptHandler) -> list[ast.expr]:
    if handler.type is None:
        return []
    return list(handler.type.elts) if isinstance(handler.type, ast.Tuple) else [handler.type]


def _first_line(node: ast.stmt) -> str:
    line = ast.unparse(node).split("\n")[0]
    return line if len(line) <= 70 else line[:67] + "..."


def _as_load(name: str) -> str:
    return ast.dump(ast.Name(id=name, ctx=ast.Load()))
