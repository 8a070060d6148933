"""What kind of value an expression has, as far as one file tells: enough to know whether formatting can raise."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import Any

from patchbisect.maintain.lint.bound import dotted
from patchbisect.maintain.lint.scopes import Scope, parameters, words

_DEEPEST = 5
"""How many names a chain of assignments is followed. Arbitrary: deeper chains are unknown."""


class Kind(Enum):
    """``COMPUTED`` is the result of arithmetic whose operands are unknown: a number or a tensor, never None."""

    INT = "int"
    FLOAT = "float"
    TEXT = "text"
    OTHER = "other"
    """Known to be neither None nor a tensor nor a number."""
    COMPUTED = "computed"
    TENSOR = "tensor"
    MAYBE_NONE = "maybe None"
    UNKNOWN = "unknown"


NUMBERS = frozenset({Kind.INT, Kind.FLOAT})

_CALLS: dict[str, Kind] = {
    **dict.fromkeys(("len", "int", "hash", "id", "ord", "os.getpid", "os.cpu_count", "threading.get_ident"), Kind.INT),
    **dict.fromkeys(("torch.cuda.memory_allocated", "torch.cuda.memory_reserved"), Kind.INT),
    **dict.fromkeys(("torch.cuda.max_memory_allocated", "torch.cuda.max_memory_reserved"), Kind.INT),
    **dict.fromkeys(("torch.distributed.get_rank", "torch.distributed.get_world_size"), Kind.INT),
    **dict.fromkeys(("dist.get_rank", "dist.get_world_size", "torch.cuda.device_count"), Kind.INT),
    **dict.fromkeys(("time.time_ns", "time.perf_counter_ns", "time.monotonic_ns"), Kind.INT),
    **dict.fromkeys(("float", "time.time", "time.perf_counter", "time.monotonic"), Kind.FLOAT),
    "get_available_gpu_memory": Kind.FLOAT,
    **dict.fromkeys(("str", "repr", "format", "hex", "bin"), Kind.TEXT),
    **dict.fromkeys(("type", "list", "tuple", "dict", "set", "sorted", "bool", "isinstance", "hasattr"), Kind.OTHER),
    **dict.fromkeys(("os.environ.get", "os.getenv"), Kind.MAYBE_NONE),
}
_METHODS: dict[str, Kind] = {
    **dict.fromkeys(("numel", "element_size", "nelement", "dim", "data_ptr", "count", "index"), Kind.INT),
    **dict.fromkeys(("format", "join", "strip", "lower", "upper", "replace", "hexdigest", "isoformat"), Kind.TEXT),
    **dict.fromkeys(("size", "keys", "values", "items", "split"), Kind.OTHER),
    "item": Kind.COMPUTED,
    "tolist": Kind.OTHER,
    "total_seconds": Kind.FLOAT,
    "elapsed_time": Kind.FLOAT,
}
_ATTRIBUTES: dict[str, Kind] = {
    **dict.fromkeys(("shape", "dtype", "device", "__class__"), Kind.OTHER),
    **dict.fromkeys(("itemsize", "nbytes", "ndim"), Kind.INT),
    **dict.fromkeys(("__name__", "__qualname__", "__module__"), Kind.TEXT),
}
_TORCH_MAKERS = words(
    "tensor zeros ones empty full arange rand randn randint cat stack zeros_like ones_like empty_like full_like "
    "from_numpy as_tensor where matmul topk argmax softmax cumsum linspace eye"
)


class Kinds:
    """The kinds of expressions read in one scope."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def of(self, node: ast.expr, *, depth: int = 0) -> Kind:
        if depth > _DEEPEST:
            return Kind.UNKNOWN
        match node:
            case ast.Constant(value=value):
                return _of_constant(value)
            case ast.JoinedStr():
                return Kind.TEXT
            case ast.List() | ast.Tuple() | ast.Dict() | ast.Set() | ast.ListComp() | ast.DictComp() | ast.SetComp():
                return Kind.OTHER
            case ast.Compare(ops=[ast.Is() | ast.IsNot() | ast.In() | ast.NotIn()]) | ast.UnaryOp(op=ast.Not()):
                return Kind.INT
            case ast.UnaryOp(operand=operand):
                return _computed(self.of(operand, depth=depth + 1))
            case ast.BinOp():
                return self._of_operation(node, depth=depth)
            case ast.IfExp(body=body, orelse=orelse):
                return meet([self.of(body, depth=depth + 1), self.of(orelse, depth=depth + 1)])
            case ast.BoolOp(op=ast.Or(), values=[*firsts, last]):
                kinds = [_not_none(self.of(value, depth=depth + 1)) for value in firsts]
                return meet([*kinds, self.of(last, depth=depth + 1)])
            case ast.NamedExpr(value=value):
                return self.of(value, depth=depth + 1)
            case ast.Call():
                return self._of_call(node, depth=depth)
            case (
                ast.Subscript(value=ast.Attribute(attr="shape"))
                | ast.Subscript(value=ast.Call(func=ast.Attribute(attr="size")))
            ):
                return Kind.INT
            case ast.Name(id=name):
                return self._of_name(name, depth=depth)
            case ast.Attribute():
                return self._of_attribute(node, depth=depth)
        return Kind.UNKNOWN

    def _once(self, what: str, part: ast.AST, work: Callable[[Any], Any]) -> Any:
        """The result of ``work(part)``, worked out once for each tree."""
        known = self.scope.top.known
        if (what, id(part)) not in known:
            known[what, id(part)] = work(part)
        return known[what, id(part)]

    def _of_operation(self, node: ast.BinOp, *, depth: int) -> Kind:
        left, right = self.of(node.left, depth=depth + 1), self.of(node.right, depth=depth + 1)
        if isinstance(node.op, ast.Mod) and left is Kind.TEXT:
            return Kind.TEXT
        if left is right is Kind.TEXT:
            return Kind.TEXT
        if Kind.TENSOR in (left, right):
            return Kind.TENSOR
        if left in NUMBERS and right in NUMBERS:
            exact = left is right is Kind.INT and not isinstance(node.op, ast.Div)
            return Kind.INT if exact else Kind.FLOAT
        if isinstance(node.op, ast.LShift | ast.RShift):
            return Kind.INT
        return Kind.COMPUTED

    def _of_call(self, node: ast.Call, *, depth: int) -> Kind:
        name = dotted(node.func)
        if name in _CALLS:
            has_default = name in ("os.environ.get", "os.getenv") and len(node.args) > 1
            return Kind.TEXT if has_default else _CALLS[name]
        if name == "round":
            return Kind.INT if len(node.args) == 1 else Kind.FLOAT
        if name in ("min", "max", "sum", "abs") and node.args:
            return _computed(meet([self.of(argument, depth=depth + 1) for argument in node.args]))
        if name == "getattr" and len(node.args) == 3:
            return Kind.MAYBE_NONE if _is_none(node.args[2]) else Kind.UNKNOWN
        if name.startswith("torch.") and name.rpartition(".")[2] in _TORCH_MAKERS:
            return Kind.TENSOR
        if isinstance(node.func, ast.Attribute):
            if node.func.attr in _METHODS:
                return _METHODS[node.func.attr]
            if self.of(node.func.value, depth=depth + 1) is Kind.TENSOR:
                return Kind.TENSOR
            if node.func.attr == "get" and len(node.args) == 1:
                return Kind.MAYBE_NONE
            if own := self._class_of(node.func.value):
                return self._of_method(own, node.func.attr)
        return self._of_returned(name)

    def _of_returned(self, name: str) -> Kind:
        """By the annotation of a function of this file."""
        home = self.scope.home(name) if name and "." not in name else None
        for node in home.bound.get(name, []) if home else []:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns:
                return _of_annotation(node.returns)
        return Kind.UNKNOWN

    @staticmethod
    def _of_method(own: ast.ClassDef, name: str) -> Kind:
        """By the annotation of a method of the same class."""
        for statement in own.body:
            if isinstance(statement, ast.FunctionDef) and statement.name == name and statement.returns:
                return _of_annotation(statement.returns)
        return Kind.UNKNOWN

    def _of_name(self, name: str, *, depth: int) -> Kind:
        home = self.scope.home(name)
        if home is None:
            return Kind.UNKNOWN
        kinds = Kinds(home)
        return meet([kinds._of_binding(name, node, depth=depth) for node in home.bound[name]])

    def _of_binding(self, name: str, node: ast.AST, *, depth: int) -> Kind:
        owner = self.scope.owner
        if isinstance(node, ast.arg):
            assert not isinstance(owner, ast.Module | ast.ClassDef)
            default = _default_of(owner, node)
            return meet([_of_annotation(node.annotation), *([Kind.MAYBE_NONE] if _is_none(default) else [])])
        if isinstance(node, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef | ast.ExceptHandler):
            return Kind.UNKNOWN if isinstance(node, ast.ImportFrom) else Kind.OTHER
        values: dict[int, ast.expr] = self._once("values", owner, _values_bound)
        value = values.get(id(node))
        if value is None:
            return Kind.UNKNOWN
        if isinstance(value, ast.AST) and any(inner is node for inner in ast.walk(value)):
            return Kind.UNKNOWN
        return self.of(value, depth=depth + 1)

    def _of_attribute(self, node: ast.Attribute, *, depth: int) -> Kind:
        if node.attr in _ATTRIBUTES:
            return _ATTRIBUTES[node.attr]
        if self.of(node.value, depth=depth + 1) is Kind.TENSOR:
            return Kind.TENSOR if node.attr in ("T", "grad", "data", "mT") else Kind.OTHER
        own = self._class_of(node.value)
        if own is None:
            return Kind.UNKNOWN
        attributes: dict[str, list[tuple[ast.AST, ast.expr | str]]] = self._once("attributes", own, _attributes_set)
        found = attributes.get(node.attr, [])
        if not found:
            return Kind.UNKNOWN
        return meet([self._of_set(scope_owner, value, depth=depth) for scope_owner, value in found])

    def _of_set(self, method: ast.AST, value: ast.expr | str, *, depth: int) -> Kind:
        if isinstance(value, str):
            return _of_annotation(ast.parse(value, mode="eval").body)
        scope = next((child for child in _all(self.scope.top) if child.owner is method), None)
        return Kinds(scope).of(value, depth=depth + 1) if scope else Kind.UNKNOWN

    def _class_of(self, node: ast.expr) -> ast.ClassDef | None:
        """The class whose instance ``self`` is."""
        scope: Scope | None = self.scope
        while scope is not None and not isinstance(scope.owner, ast.FunctionDef | ast.AsyncFunctionDef):
            scope = scope.parent
        if scope is None or scope.parent is None or not isinstance(scope.parent.owner, ast.ClassDef):
            return None
        assert not isinstance(scope.owner, ast.Module | ast.ClassDef)
        arguments = parameters(scope.owner)
        is_self = arguments and isinstance(node, ast.Name) and node.id == arguments[0].arg
        return scope.parent.owner if is_self else None


def meet(kinds: Iterable[Kind]) -> Kind:
    """The kind of a value that has one of several kinds; the one that is most in the way of formatting wins."""
    present = set(kinds)
    if len(present) == 1:
        return present.pop()
    for worst in (Kind.TENSOR, Kind.MAYBE_NONE, Kind.UNKNOWN):
        if worst in present:
            return worst
    if present and present <= NUMBERS:
        return Kind.FLOAT
    if present and present <= NUMBERS | {Kind.COMPUTED}:
        return Kind.COMPUTED
    return Kind.UNKNOWN if not present or Kind.OTHER in present or Kind.TEXT in present else Kind.COMPUTED


def _of_constant(value: object) -> Kind:
    if value is None:
        return Kind.MAYBE_NONE
    if isinstance(value, bool | int):
        return Kind.INT
    return Kind.FLOAT if isinstance(value, float) else Kind.TEXT if isinstance(value, str) else Kind.OTHER


def _computed(kind: Kind) -> Kind:
    return kind if kind in (*NUMBERS, Kind.TENSOR) else Kind.COMPUTED


def _not_none(kind: Kind) -> Kind:
    return Kind.COMPUTED if kind in (Kind.MAYBE_NONE, Kind.UNKNOWN) else kind


def _is_none(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _of_annotation(node: ast.expr | None) -> Kind:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        try:
            node = ast.parse(node.value, mode="eval").body
        except SyntaxError:
            return Kind.UNKNOWN
    if node is None:
        return Kind.UNKNOWN
    text = ast.unparse(node)
    if _is_none(node) or text.startswith(("Optional[", "typing.Optional[")) or "None" in text.split(" | "):
        return Kind.TENSOR if "Tensor" in text else Kind.MAYBE_NONE
    named = {"int": Kind.INT, "bool": Kind.INT, "float": Kind.FLOAT, "str": Kind.TEXT}
    if text in named:
        return named[text]
    if text in ("torch.Tensor", "Tensor"):
        return Kind.TENSOR
    return Kind.UNKNOWN


def _default_of(owner: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, argument: ast.arg) -> ast.expr | None:
    positional = [*owner.args.posonlyargs, *owner.args.args]
    defaults = dict(zip([id(arg) for arg in reversed(positional)], reversed(owner.args.defaults), strict=False))
    for name, value in zip(owner.args.kwonlyargs, owner.args.kw_defaults, strict=True):
        if value is not None:
            defaults[id(name)] = value
    return defaults.get(id(argument))


def _values_bound(owner: ast.AST) -> dict[int, ast.expr]:
    """For each target of a plain assignment, a walrus or ``for ... in range()``: the expression that it is given."""
    values: dict[int, ast.expr] = {}
    for node in ast.walk(owner):
        match node:
            case ast.Assign(targets=targets, value=value):
                values.update((id(target), value) for target in targets)
            case ast.AnnAssign(target=one, value=value) if value is not None:
                values[id(one)] = value
            case ast.NamedExpr(target=one, value=value):
                values[id(one)] = value
            case ast.AugAssign(target=one, value=value):
                values[id(one)] = ast.BinOp(left=value, op=node.op, right=value)
            case ast.For(target=one, iter=ast.Call(func=ast.Name(id="range"))):
                values[id(one)] = ast.Constant(0)
            case ast.For(target=ast.Tuple(elts=[one, *_]), iter=ast.Call(func=ast.Name(id="enumerate"))):
                values[id(one)] = ast.Constant(0)
    return values


def _attributes_set(own: ast.ClassDef) -> dict[str, list[tuple[ast.AST, ast.expr | str]]]:
    """Every value that a class gives to ``self.x``, by ``x``, with the method that does; an annotation as text."""
    found: dict[str, list[tuple[ast.AST, ast.expr | str]]] = {}
    for statement in own.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            found.setdefault(statement.target.id, []).append((own, ast.unparse(statement.annotation)))
        elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(statement):
                targets = node.targets if isinstance(node, ast.Assign) else []
                for target in targets:
                    if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
                        assert isinstance(node, ast.Assign)
                        found.setdefault(target.attr, []).append((statement, node.value))
                if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Attribute):
                    found.setdefault(node.target.attr, []).append((statement, ast.unparse(node.annotation)))
    return found


def _all(scope: Scope) -> Iterator[Scope]:
    yield scope
    for child in scope.children:
        yield from _all(child)
