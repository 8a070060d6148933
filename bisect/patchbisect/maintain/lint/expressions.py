"""Whether evaluating an added expression can raise, wait for the GPU, or change what other code sees."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from patchbisect.maintain.lint.bound import dotted
from patchbisect.maintain.lint.calls import Calls, canonical
from patchbisect.maintain.lint.evidence import Evidence, format_spec
from patchbisect.maintain.lint.formats import Placeholder, of_format_call, of_fstring, of_mapping, of_percent, satisfies
from patchbisect.maintain.lint.guards import Guards, as_read
from patchbisect.maintain.lint.kinds import Kind, Kinds
from patchbisect.maintain.lint.scopes import COMPREHENSIONS, Scope, words

Report = Callable[..., None]
"""Takes rule, node, why, remedy, and the keyword ``warning`` for what does no more than spoil a line of the log."""

_EXHAUSTS = words("list tuple sorted sum any all min max dict set frozenset enumerate zip next reversed")
_ITERATORS = ("Iterable", "Iterator", "Generator")
_MAKES_ITERATOR = words("zip map filter iter enumerate reversed")
_SAY_PLAINLY = "Print the value itself ({x}, %s): that takes anything."


@dataclass(slots=True)
class Inspector:
    """Looks at the expressions of one added statement, in one scope.

    ``new`` holds ids of nodes that the patch brings; ``own`` the names that it alone binds.
    """

    scope: Scope
    evidence: Evidence
    report: Report
    new: frozenset[int]
    own: frozenset[str]
    guarded: set[int]
    """Where ids of reads are put that are safe whatever is bound."""
    kinds: Kinds = field(init=False)

    def __post_init__(self) -> None:
        self.kinds = Kinds(self.scope)

    def expression(self, node: ast.AST | None, guards: Guards) -> None:
        if node is None or _asks_locals(node):
            return
        match node:
            case ast.Name(id=name):
                if guards.catches("NameError", "UnboundLocalError") or _in_locals(name) in guards.exists:
                    self.guarded.add(id(node))
            case ast.BoolOp(values=values):
                self._chain(node, values, guards)
                return
            case ast.IfExp(test=test, body=body, orelse=orelse):
                self.test(test, guards)
                self.expression(body, guards.when(test, holds=True))
                self.expression(orelse, guards.when(test, holds=False))
                return
            case ast.Call():
                self._call(node, guards)
            case ast.FormattedValue():
                self._placeholder(of_fstring(node, format_spec(node)), node, guards)
            case ast.BinOp():
                self._operation(node, guards)
            case ast.Compare():
                self._comparison(node, guards)
            case ast.Subscript():
                self._subscript(node, guards)
            case ast.Attribute():
                self._attribute(node, guards)
            case ast.Await() | ast.Yield() | ast.YieldFrom():
                word = "await" if isinstance(node, ast.Await) else "yield"
                self.report("control-flow", node, f"{word} hands control to other code", "Take it out.")
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                for generator in node.generators:
                    self.consumed(generator.iter)
        for part in ast.iter_child_nodes(node):
            self.expression(part, self._within(node, guards))

    def test(self, node: ast.expr, guards: Guards) -> None:
        """An expression whose truth decides."""
        self.expression(node, guards)
        if self._is_tensor(node) or (isinstance(node, ast.Compare) and self._is_tensor(node.left)):
            self.report("gpu-sync", node, f"the truth of a tensor ({ast.unparse(node)}) is copied from the GPU", "")

    def consumed(self, node: ast.expr) -> None:
        """Something that is iterated over."""
        if not isinstance(node, ast.Name) or not self._is_iterator(node):
            return
        home = self.scope.home(node.id)
        readers = [reader for reader in home.readers(node.id) if id(reader) not in self.new] if home else []
        if readers:
            why = f"{node.id} is an iterator: line {readers[-1].lineno} finds it used up"
            self.report("consumes", node, why, "Do not iterate over it; print its type alone.")

    def _chain(self, node: ast.BoolOp, values: Iterable[ast.expr], guards: Guards) -> None:
        for value in values:
            self.test(value, guards)
            guards = guards.when(value, holds=isinstance(node.op, ast.And))

    def _within(self, node: ast.AST, guards: Guards) -> Guards:
        if isinstance(node, COMPREHENSIONS):
            for generator in node.generators:
                for condition in generator.ifs:
                    guards = guards.when(condition, holds=True)
        return guards

    # Calls

    def _call(self, node: ast.Call, guards: Guards) -> None:
        calls = Calls(self.scope, own=self.own, true_calls=guards.true_calls)
        name = canonical(self.scope, node.func)
        refusal = calls.refusal(node)
        if refusal and not (refusal.rule == "may-raise" and self._cannot_raise(node, guards)):
            self.report(refusal.rule, node, refusal.why, refusal.remedy)
        if name == "sys.stdout.write":
            self.report(
                "flush", node, "writes to stdout and does not flush", "Use the file's logger, or print(flush=True)."
            )
        if name == "print":
            self._print(node, guards)
        elif calls.is_log(node):
            self._log(node, guards)
        elif name in ("str", "repr", "format", "int", "float", "bool", "round"):
            self._conversion(node, name, guards)
        elif name == "len" and node.args:
            self._of_none(node, node.args[0], guards, what="has no length")
        elif name in ("max", "min") and len(node.args) == 1 and all(word.arg != "default" for word in node.keywords):
            self._of_empty(node, node.args[0], guards)
        elif _joins_text(node):
            self._parts(node, guards)
        elif name == "divmod" and len(node.args) == 2:
            self._divisor(node, node.args[1], guards)
        if name in _EXHAUSTS:
            for argument in node.args:
                self.consumed(argument)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "format":
            template = node.func.value
            if isinstance(template, ast.Constant) and isinstance(template.value, str):
                self._placeholders(of_format_call(template.value, node), node, guards)

    def _print(self, node: ast.Call, guards: Guards) -> None:
        words = {word.arg: word.value for word in node.keywords}
        flush, file = words.get("flush"), words.get("file")
        to_stderr = file is not None and canonical(self.scope, file) == "sys.stderr"
        if file is not None and not to_stderr and canonical(self.scope, file) != "sys.stdout":
            self.report("call", node, "prints into something else than the log", "Use the file's logger.")
        if not to_stderr and not (isinstance(flush, ast.Constant) and flush.value is True):
            self.report(
                "flush",
                node,
                "print does not flush: into a file the line comes late, or never when the server is killed",
                "Say flush=True, or use the file's logger.",
            )
        for argument in node.args:
            self._shown(argument)

    def _log(self, node: ast.Call, guards: Guards) -> None:
        assert isinstance(node.func, ast.Attribute)
        arguments = node.args[1:] if node.func.attr == "log" else node.args
        if not arguments or any(isinstance(argument, ast.Starred) for argument in arguments):
            return
        template, *values = arguments
        for argument in arguments:
            self._shown(argument)
        if isinstance(template, ast.Constant) and isinstance(template.value, str) and values:
            if len(values) == 1 and isinstance(values[0], ast.Dict):
                found = of_mapping(template.value, values[0])
            else:
                found = of_percent(template.value, values)
            self._placeholders(found, node, guards, into_log=True)

    def _conversion(self, node: ast.Call, name: str, guards: Guards) -> None:
        if not node.args:
            return
        value = node.args[0]
        if self._is_tensor(value):
            self.report("gpu-sync", node, f"{name}() of a tensor copies it from the GPU", "Print its shape and dtype.")
        elif name in ("int", "float", "round"):
            self._of_none(node, value, guards, what=f"is nothing {name}() takes")
            if self.kinds.of(value) is Kind.TEXT and not _is_number(value) and not guards.catches("ValueError"):
                self._may_raise(
                    node, f"{ast.unparse(value)} is text, and may be no number", "Print it as it is.", guards
                )

    def _of_empty(self, node: ast.Call, value: ast.expr, guards: Guards) -> None:
        """``max`` and ``min`` of one argument raise where it is empty."""
        length = ast.Call(func=ast.Name(id="len", ctx=ast.Load()), args=[value], keywords=[])
        held = {ast.dump(value), ast.dump(length)} & guards.non_zero
        filled = isinstance(value, ast.List | ast.Tuple | ast.Set) and value.elts
        if not held and not filled and not guards.catches("ValueError"):
            self._may_raise(node, f"{ast.unparse(value)} can be empty", "Give it default=None.", guards)

    def _parts(self, node: ast.Call, guards: Guards) -> None:
        """What ``"…".join(…)`` joins must be text."""
        given = node.args[0]
        parts: list[ast.expr] = []
        if isinstance(given, ast.List | ast.Tuple):
            parts = given.elts
        elif isinstance(given, ast.ListComp | ast.SetComp | ast.GeneratorExp):
            parts = [given.elt]
        for part in parts:
            if self.kinds.of(part) not in (Kind.TEXT, Kind.UNKNOWN) and not guards.catches("TypeError"):
                self._may_raise(node, f"{ast.unparse(part)} is no text to be joined", "Say str(...) around it.", guards)

    def _may_raise(self, node: ast.AST, why: str, remedy: str, guards: Guards) -> None:
        if not self._cannot_raise(node, guards):
            self.report("may-raise", node, why, remedy)

    # Formatting

    def _placeholders(
        self, found: list[Placeholder] | str, node: ast.AST, guards: Guards, *, into_log: bool = False
    ) -> None:
        if isinstance(found, str):
            self.report("format", node, found, "Count the placeholders.")
            return
        for placeholder in found:
            self._placeholder(placeholder, node, guards, into_log=into_log)

    def _placeholder(self, placeholder: Placeholder, node: ast.AST, guards: Guards, *, into_log: bool = False) -> None:
        value, demand = placeholder.value, placeholder.demand
        if demand == "":
            self._shown(value)
            return
        kind = self._kind_here(value)
        if satisfies(kind, demand) or guards.safe:
            return
        dump = ast.dump(value)
        proven = dump in guards.numbers or dump in self.evidence.numbers or self._computed_anyway(value)
        guarded = kind is Kind.MAYBE_NONE and dump in guards.not_none
        if demand != "whole" and kind not in (Kind.TENSOR, Kind.TEXT, Kind.OTHER) and (proven or guarded):
            return
        what = {
            Kind.TENSOR: "is a tensor",
            Kind.MAYBE_NONE: "can be None",
            Kind.TEXT: "is text",
            Kind.OTHER: "is no number",
            Kind.FLOAT: "is not a whole number",
            Kind.COMPUTED: "may be no whole number",
        }.get(kind, "can be None or a tensor for all this file tells")
        then = "the log gets a traceback instead" if into_log else "formatting raises"
        why = f"{placeholder.spec!r} of {ast.unparse(value)}, which {what}: {then}"
        self.report("format", node, why, _SAY_PLAINLY, warning=into_log and kind is Kind.UNKNOWN)

    def _shown(self, value: ast.expr) -> None:
        if self._is_tensor(value):
            self.report(
                "gpu-sync", value, f"showing the tensor {ast.unparse(value)} copies it from the GPU", "Show its shape."
            )

    # Operators

    def _operation(self, node: ast.BinOp, guards: Guards) -> None:
        if isinstance(node.op, ast.Mod) and self.kinds.of(node.left) is Kind.TEXT:
            self._percent(node, guards)
            return
        if isinstance(node.op, ast.Div | ast.FloorDiv | ast.Mod):
            self._divisor(node, node.right, guards)
        if isinstance(node.op, ast.Add):
            self._joined(node, guards)
        if not isinstance(node.op, ast.BitOr):
            for side in (node.left, node.right):
                self._of_none(node, side, guards, what="cannot be calculated with")

    def _joined(self, node: ast.BinOp, guards: Guards) -> None:
        """Text can only be added to text."""
        kinds = {self.kinds.of(node.left), self.kinds.of(node.right)}
        if Kind.TEXT in kinds and kinds != {Kind.TEXT} and not self._cannot_raise(node, guards):
            other = node.right if self.kinds.of(node.left) is Kind.TEXT else node.left
            why = f"{ast.unparse(other)} may be no text, and cannot be joined with text"
            self.report("may-raise", node, why, "Write an f-string.")

    def _percent(self, node: ast.BinOp, guards: Guards) -> None:
        if not isinstance(node.left, ast.Constant):
            return
        if isinstance(node.right, ast.Dict):
            self._placeholders(of_mapping(str(node.left.value), node.right), node, guards)
            return
        values = list(node.right.elts) if isinstance(node.right, ast.Tuple) else [node.right]
        if not isinstance(node.right, ast.Tuple) and self.kinds.of(node.right) is Kind.OTHER:
            why = f"{ast.unparse(node.right)} may be a tuple, whose parts % takes one by one"
            self.report("format", node, why, "Write an f-string, or (value,).")
            return
        self._placeholders(of_percent(str(node.left.value), values), node, guards)

    def _attribute(self, node: ast.Attribute, guards: Guards) -> None:
        if guards.catches("AttributeError") or ast.dump(node) in guards.exists:
            self.guarded.add(id(node))
            return
        self._of_none(node, node.value, guards, what=f"has no .{node.attr}")
        example: object = {Kind.INT: 0, Kind.FLOAT: 0.0, Kind.TEXT: ""}.get(self.kinds.of(node.value))
        if example is not None and not hasattr(example, node.attr) and not self._cannot_raise(node, guards):
            what = type(example).__name__
            self.report("may-raise", node, f"{ast.unparse(node.value)} is {what}, which has no .{node.attr}", "")

    def _divisor(self, node: ast.AST, divisor: ast.expr, guards: Guards) -> None:
        caught = guards.catches("ZeroDivisionError", "ArithmeticError")
        if caught or self._non_zero(divisor, guards) or ast.dump(node) in self.evidence.evaluated:
            return
        if self.kinds.of(divisor) is Kind.TEXT:
            return
        self.report(
            "division",
            node,
            f"{ast.unparse(divisor)} can be 0",
            f"Print the two numbers, or write `... if {ast.unparse(divisor)} else None`.",
        )

    def _non_zero(self, node: ast.expr, guards: Guards) -> bool:
        if ast.dump(node) in guards.non_zero or ast.dump(node) in self.evidence.divisors:
            return True
        match node:
            case ast.Constant(value=value):
                return isinstance(value, int | float | str) and bool(value)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self._non_zero(operand, guards)
            case ast.BinOp(op=ast.LShift(), left=left):
                return self._non_zero(left, guards)
            case ast.BinOp(op=ast.Mult() | ast.Pow(), left=left, right=right):
                return self._non_zero(left, guards) and (isinstance(node.op, ast.Pow) or self._non_zero(right, guards))
            case ast.BoolOp(op=ast.Or(), values=values):
                return self._non_zero(values[-1], guards)
            case ast.Call(func=ast.Name(id="max"), args=arguments):
                return any(isinstance(one, ast.Constant) and _positive(one.value) for one in arguments)
            case ast.Name(id=name):
                return self._is_constant(name, guards)
        return False

    def _is_constant(self, name: str, guards: Guards) -> bool:
        """A name of the module that is bound once, to a number that is not 0."""
        home = self.scope.home(name)
        if home is None or not isinstance(home.owner, ast.Module) or len(home.bound[name]) != 1:
            return False
        return any(
            isinstance(statement, ast.Assign)
            and home.bound[name][0] in statement.targets
            and self._non_zero(statement.value, guards)
            for statement in home.owner.body
        )

    def _comparison(self, node: ast.Compare, guards: Guards) -> None:
        if isinstance(node.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE):
            for side in (node.left, node.comparators[0]):
                self._of_none(node, side, guards, what="cannot be ordered")

    def _subscript(self, node: ast.Subscript, guards: Guards) -> None:
        if isinstance(node.slice, ast.Slice) or not isinstance(node.ctx, ast.Load):
            return
        value = node.value
        if isinstance(value, ast.Attribute) and value.attr in ("shape", "__dict__"):
            return
        if (
            isinstance(value, ast.Call)
            and isinstance(value.func, ast.Attribute)
            and value.func.attr in ("size", "stride")
        ):
            return
        if guards.safe or ast.dump(node) in guards.exists or self._cannot_raise(node, guards):
            return
        if _ends_are_there(value) and _constant_index(node.slice) in (0, -1):
            return
        self.report(
            "may-raise",
            node,
            f"{ast.unparse(node)} raises where there is no such entry",
            "Use .get(), print the whole, or ask for the entry first.",
        )

    def _of_none(self, node: ast.AST, value: ast.expr, guards: Guards, *, what: str) -> None:
        """Report an operation on something that can be None, where nothing around shows that it is not."""
        if guards.safe or self._kind_here(value) is not Kind.MAYBE_NONE:
            return
        dump = as_read(value)
        inside = f"Attribute(value={dump},"
        shown = (
            dump in guards.not_none
            or dump in self.evidence.numbers
            or any(inside in other for other in self.evidence.evaluated)
            or self._cannot_raise(node, guards)
            or self._used_freely(value)
        )
        if not shown:
            why = f"{ast.unparse(value)} can be None, which {what}"
            self.report("may-raise", node, why, f"Write `... if {ast.unparse(value)} is not None else None`.")

    def _kind_here(self, value: ast.expr) -> Kind:
        kind = self.kinds.of(value)
        return Kind.MAYBE_NONE if kind is Kind.UNKNOWN and as_read(value) in self.evidence.nullable else kind

    def _used_freely(self, value: ast.expr) -> bool:
        """``self.x`` that SGLang's own code of this function takes attributes of without asking."""
        if not isinstance(value, ast.Attribute):
            return False
        dump = ast.dump(value)
        return any(
            isinstance(other, ast.Attribute) and id(other) not in self.new and ast.dump(other.value) == dump
            for other in ast.walk(self.scope.owner)
        )

    # Evidence

    def _cannot_raise(self, node: ast.AST, guards: Guards) -> bool:
        """SGLang's own code evaluates the same right before or after, or a handler takes what is raised."""
        return guards.safe or ast.dump(node) in self.evidence.evaluated

    def _computed_anyway(self, value: ast.expr) -> bool:
        return isinstance(value, ast.BinOp) and ast.dump(value) in self.evidence.evaluated

    def _is_tensor(self, node: ast.expr) -> bool:
        return self.kinds.of(node) is Kind.TENSOR

    def _is_iterator(self, node: ast.Name) -> bool:
        home = self.scope.home(node.id)
        if home and any(_takes_next(call, node.id) for call in ast.walk(home.owner) if id(call) not in self.new):
            return True
        for binding in home.bound.get(node.id, []) if home else []:
            if isinstance(binding, ast.arg):
                annotation = ast.unparse(binding.annotation) if binding.annotation else ""
                if any(word in annotation for word in _ITERATORS):
                    return True
            value = _assigned(home.owner, binding) if home else None
            if isinstance(value, ast.GeneratorExp):
                return True
            if isinstance(value, ast.Call):
                name = dotted(value.func)
                if name in _MAKES_ITERATOR or name.endswith(("_iterator", "_generator", "named_parameters")):
                    return True
        return False


def _assigned(owner: ast.AST, target: ast.AST) -> ast.expr | None:
    for node in ast.walk(owner):
        if isinstance(node, ast.Assign) and target in node.targets:
            return node.value
    return None


def _takes_next(node: ast.AST, name: str) -> bool:
    """``next(name)``: only an iterator stands that."""
    if not (isinstance(node, ast.Call) and dotted(node.func) == "next" and node.args):
        return False
    return dotted(node.args[0]) == name


def _asks_locals(node: ast.AST) -> bool:
    """``"x" in locals()`` only looks at names."""
    return (
        isinstance(node, ast.Compare)
        and isinstance(node.ops[0], ast.In)
        and (ast.unparse(node.comparators[0]) in ("locals()", "globals()") and isinstance(node.left, ast.Constant))
    )


def _in_locals(name: str) -> str:
    return ast.dump(ast.parse(f"locals()[{name!r}]", mode="eval").body)


def _joins_text(node: ast.Call) -> bool:
    function = node.func
    is_join = isinstance(function, ast.Attribute) and function.attr == "join" and len(node.args) == 1
    return is_join and isinstance(function, ast.Attribute) and isinstance(function.value, ast.Constant)


def _is_number(node: ast.expr) -> bool:
    """A literal text that ``int`` and ``float`` both take."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.strip("+- ").isdecimal()


def _ends_are_there(value: ast.expr) -> bool:
    """``x or [None]``: it has a first and a last entry."""
    last = value.values[-1] if isinstance(value, ast.BoolOp) and isinstance(value.op, ast.Or) else value
    return isinstance(last, ast.List | ast.Tuple) and any(not isinstance(part, ast.Starred) for part in last.elts)


def _constant_index(node: ast.expr) -> object:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None


def _positive(value: object) -> bool:
    return isinstance(value, int | float) and value > 0
