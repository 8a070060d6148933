"""Which names are certainly bound where: definite assignment by syntax tree.

A state is the set of names that are bound on every path to a place; None is a place that no path reaches.
A read that is certainly executed makes its name certain from there on: had it been unbound, the code would have
raised. Attributes of the first parameter (``self.x``) are tracked like names, as ``"self.x"``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from patchbisect.maintain.lint.scopes import COMPREHENSIONS, Comprehension, Function, imported, parameters, targets

State = frozenset[str] | None

_NEVER_RETURN = frozenset({"sys.exit", "os._exit", "os.abort", "exit", "quit"})
_MAY_SWALLOW = ("suppress", "raises")


@dataclass(slots=True)
class Flow:
    """What is known after a function or module was walked.

    ``uncertain`` holds ``id`` of each Name or ``self.x`` node that is read without being certainly bound.
    ``at`` is the state before each statement, ``end`` the one on falling out of the bottom.
    """

    uncertain: set[int] = field(default_factory=set)
    at: dict[int, State] = field(default_factory=dict)
    end: State = None


def flow_of(owner: ast.Module | Function, *, initially: Iterable[str] = ()) -> Flow:
    """Walk one function (or the top of a module). ``initially``: what is bound at its start beside its parameters."""
    names = set(initially)
    first = ""
    if not isinstance(owner, ast.Module):
        arguments = parameters(owner)
        names |= {argument.arg for argument in arguments}
        first = arguments[0].arg if arguments else ""
    walker = _Walker(first_parameter=first)
    walker.flow.end = walker.block(owner.body, frozenset(names))
    return walker.flow


def join(*states: State) -> State:
    """What is certain after paths meet."""
    reached = [state for state in states if state is not None]
    return frozenset.intersection(*reached) if reached else None


def dotted(node: ast.expr) -> str:
    """``a.b.c`` for such a chain of names, else ``""``."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (base := dotted(node.value)):
        return f"{base}.{node.attr}"
    return ""


def constant_truth(test: ast.expr) -> bool | None:
    """Whether a test is always true or always false, as far as the syntax tells. TYPE_CHECKING is false when run."""
    if isinstance(test, ast.Constant):
        return bool(test.value)
    if dotted(test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING", "__debug__"):
        return dotted(test) == "__debug__"
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = constant_truth(test.operand)
        return None if inner is None else not inner
    return None


@dataclass(slots=True)
class _Loop:
    breaks: list[State] = field(default_factory=list)


class _Walker:
    def __init__(self, *, first_parameter: str) -> None:
        self.flow = Flow()
        self.self_name = first_parameter
        self.loops: list[_Loop] = []
        self.hidden: list[frozenset[str]] = []

    # Statements

    def block(self, statements: Sequence[ast.stmt], state: State) -> State:
        for statement in statements:
            state = self.statement(statement, state)
        return state

    def statement(self, node: ast.stmt, state: State) -> State:
        self.flow.at[id(node)] = state
        if state is None:
            # Nothing gets here; what it reads is not judged.
            return None
        method = getattr(self, f"on_{type(node).__name__}", None)
        if method is not None:
            result: State = method(node, state)
            return result
        return self.values(ast.iter_child_nodes(node), state)

    def on_Expr(self, node: ast.Expr, state: State) -> State:
        state = self.value(node.value, state)
        call = node.value
        if isinstance(call, ast.Call) and dotted(call.func) in _NEVER_RETURN:
            return None
        return state

    def on_Assign(self, node: ast.Assign, state: State) -> State:
        state = self.value(node.value, state)
        for target in node.targets:
            state = self.store(target, state)
        return state

    def on_AnnAssign(self, node: ast.AnnAssign, state: State) -> State:
        if node.value is None:
            return state
        return self.store(node.target, self.value(node.value, state))

    def on_AugAssign(self, node: ast.AugAssign, state: State) -> State:
        state = self.read_target(node.target, state)
        return self.store(node.target, self.value(node.value, state))

    def on_Import(self, node: ast.Import | ast.ImportFrom, state: State) -> State:
        return _with(state, imported(node))

    on_ImportFrom = on_Import

    def on_Delete(self, node: ast.Delete, state: State) -> State:
        for target in node.targets:
            key = self.key(target)
            state = _without(state, [key]) if key else self.value(target, state)
        return state

    def on_Global(self, node: ast.stmt, state: State) -> State:
        return state

    on_Nonlocal = on_Pass = on_Global

    def on_Return(self, node: ast.Return, state: State) -> State:
        self.value(node.value, state)
        return None

    def on_Raise(self, node: ast.Raise, state: State) -> State:
        self.value(node.cause, self.value(node.exc, state))
        return None

    def on_Break(self, node: ast.Break, state: State) -> State:
        if self.loops:
            self.loops[-1].breaks.append(state)
        return None

    def on_Continue(self, node: ast.Continue, state: State) -> State:
        return None

    def on_Assert(self, node: ast.Assert, state: State) -> State:
        passed, failed = self.condition(node.test, state)
        self.value(node.msg, failed)
        return passed

    def on_If(self, node: ast.If, state: State) -> State:
        yes, no = self.condition(node.test, state)
        return join(self.block(node.body, yes), self.block(node.orelse, no))

    def on_While(self, node: ast.While, state: State) -> State:
        head = _without(state, _deleted(node.body))
        yes, no = self.condition(node.test, head)
        breaks = self.loop_body(node.body, yes)
        return join(self.block(node.orelse, no), *breaks)

    def on_For(self, node: ast.For | ast.AsyncFor, state: State) -> State:
        head = _without(self.value(node.iter, state), _deleted(node.body))
        breaks = self.loop_body(node.body, self.store(node.target, head))
        return join(self.block(node.orelse, head), *breaks)

    on_AsyncFor = on_For

    def loop_body(self, body: Sequence[ast.stmt], state: State) -> list[State]:
        self.loops.append(_Loop())
        self.block(body, state)
        return self.loops.pop().breaks

    def on_With(self, node: ast.With | ast.AsyncWith, state: State) -> State:
        before = state
        for item in node.items:
            state = self.value(item.context_expr, state)
            if item.optional_vars:
                state = self.store(item.optional_vars, state)
        after = self.block(node.body, state)
        swallows = any(word in ast.dump(item.context_expr) for item in node.items for word in _MAY_SWALLOW)
        return join(after, _without(before, _deleted(node.body))) if swallows else after

    on_AsyncWith = on_With

    def on_Try(self, node: ast.Try, state: State) -> State:
        raised = _without(state, _deleted(node.body))
        exits = [self.block(node.orelse, self.block(node.body, state))]
        for handler in node.handlers:
            caught = self.value(handler.type, raised)
            inside = self.block(handler.body, _with(caught, [handler.name] if handler.name else []))
            exits.append(_without(inside, [handler.name] if handler.name else []))
        if not node.finalbody:
            return join(*exits)
        start = _without(raised, [name for handler in node.handlers for name in _deleted(handler.body)])
        done = self.block(node.finalbody, start)
        after = join(*exits)
        if done is None or after is None:
            return None
        return (after - _deleted(node.finalbody)) | (done - (start or frozenset()))

    on_TryStar = on_Try

    def on_Match(self, node: ast.Match, state: State) -> State:
        state = self.value(node.subject, state)
        exits: list[State] = []
        for case in node.cases:
            matched = _with(state, [name for name, _ in targets(case.pattern)])
            yes = self.condition(case.guard, matched)[0] if case.guard else matched
            exits.append(self.block(case.body, yes))
            if case.guard is None and _matches_all(case.pattern):
                return join(*exits)
        return join(*exits, state)

    def on_FunctionDef(self, node: Function, state: State) -> State:
        state = self.values([*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)], state)
        return _with(state, [node.name])

    on_AsyncFunctionDef = on_FunctionDef

    def on_ClassDef(self, node: ast.ClassDef, state: State) -> State:
        state = self.values([*node.decorator_list, *node.bases, *(word.value for word in node.keywords)], state)
        self.block(node.body, state)
        return _with(state, [node.name])

    # Expressions

    def values(self, nodes: Iterable[ast.AST | None], state: State) -> State:
        for node in nodes:
            state = self.value(node, state)
        return state

    def value(self, node: ast.AST | None, state: State) -> State:
        """Evaluate an expression; the state after it."""
        if node is None or state is None:
            return state
        if isinstance(node, ast.Name):
            return self.read(node, state) if isinstance(node.ctx, ast.Load) else state
        if isinstance(node, ast.Attribute) and self.key(node):
            return self.read(node, self.value(node.value, state))
        if isinstance(node, ast.NamedExpr):
            return self.store(node.target, self.value(node.value, state))
        if isinstance(node, ast.BoolOp):
            return join(*self.condition(node, state))
        if isinstance(node, ast.IfExp):
            yes, no = self.condition(node.test, state)
            return join(self.value(node.body, yes), self.value(node.orelse, no))
        if isinstance(node, ast.Lambda):
            state = self.values([*node.args.defaults, *filter(None, node.args.kw_defaults)], state)
            self.hide({argument.arg for argument in parameters(node)}, [node.body], state)
            return state
        if isinstance(node, COMPREHENSIONS):
            return self.comprehension(node, state)
        return self.values(ast.iter_child_nodes(node), state)

    def condition(self, test: ast.expr, state: State) -> tuple[State, State]:
        """The states where a test was true, and where it was false."""
        truth = constant_truth(test)
        if truth is not None:
            state = self.value(test, state) if not isinstance(test, ast.Constant) else state
            return (state, None) if truth else (None, state)
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            yes, no = self.condition(test.operand, state)
            return no, yes
        if not isinstance(test, ast.BoolOp):
            state = self.value(test, state)
            return state, state
        ends_on_true = isinstance(test.op, ast.Or)
        going, left = state, []
        for operand in test.values:
            yes, no = self.condition(operand, going)
            going = no if ends_on_true else yes
            left.append(yes if ends_on_true else no)
        return (join(*left), going) if ends_on_true else (going, join(*left))

    def comprehension(self, node: Comprehension, state: State) -> State:
        first, *others = node.generators
        state = self.value(first.iter, state)
        names = {name for generator in node.generators for name, _ in targets(generator.target)}
        parts: list[ast.AST] = [*first.ifs]
        for generator in others:
            parts += [generator.iter, *generator.ifs]
        parts += [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        self.hide(names, parts, state)
        return state

    def hide(self, names: set[str], parts: Iterable[ast.AST], state: State) -> None:
        """Evaluate where ``names`` are the inner scope's own. Nothing read there is certain to be read at all."""
        self.hidden.append(frozenset(names))
        self.values(parts, state)
        self.hidden.pop()

    # Names

    def key(self, node: ast.AST) -> str:
        """What a name or ``self.x`` is tracked as, ``""`` for anything else."""
        if isinstance(node, ast.Name):
            return node.id
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == self.self_name:
            return f"{node.value.id}.{node.attr}"
        return ""

    def read(self, node: ast.expr, state: State) -> State:
        key = self.key(node)
        if state is None or any(key.partition(".")[0] in names for names in self.hidden):
            return state
        if key not in state:
            self.flow.uncertain.add(id(node))
        return state | {key}

    def read_target(self, node: ast.expr, state: State) -> State:
        return self.read(node, state) if self.key(node) else self.value(node, state)

    def store(self, node: ast.expr, state: State) -> State:
        if state is None:
            return None
        if key := self.key(node):
            return state | {key}
        if isinstance(node, ast.Tuple | ast.List):
            for element in node.elts:
                state = self.store(element, state)
            return state
        if isinstance(node, ast.Starred):
            return self.store(node.value, state)
        return self.values(ast.iter_child_nodes(node), state)


def _with(state: State, names: Iterable[str]) -> State:
    return None if state is None else state | set(names)


def _without(state: State, names: Iterable[str]) -> State:
    return None if state is None else state - set(names)


def _deleted(statements: Sequence[ast.stmt]) -> set[str]:
    """Names that some path through the statements unbinds."""
    gone: set[str] = set()
    for statement in statements:
        for node in ast.walk(statement):
            if isinstance(node, ast.Delete):
                gone |= {dotted(target) for target in node.targets}
            elif isinstance(node, ast.ExceptHandler) and node.name:
                gone.add(node.name)
    return gone


def _matches_all(pattern: ast.pattern) -> bool:
    if isinstance(pattern, ast.MatchOr):
        return any(_matches_all(part) for part in pattern.patterns)
    return isinstance(pattern, ast.MatchAs) and (pattern.pattern is None or _matches_all(pattern.pattern))
