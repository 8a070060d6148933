"""Definite assignment: which reads of a function are not certainly bound."""

from __future__ import annotations

import ast
import textwrap

import pytest

from patchbisect.maintain.lint.bound import flow_of

CERTAIN = {
    "parameter": "def f(x): use(x)",
    "both branches": "def f(a):\n if a: x = 1\n else: x = 2\n use(x)",
    "the other branch leaves": "def f(a):\n if a: x = 1\n else: raise E\n use(x)",
    "return": "def f(a):\n if not a: return\n else: x = 1\n use(x)",
    "sys.exit": "def f(a):\n if a: x = 1\n else: sys.exit(1)\n use(x)",
    "while true": "def f():\n while True:\n  x = 1\n  break\n use(x)",
    "for else": "def f(a):\n for i in a:\n  x = 1\n  break\n else:\n  x = 2\n use(x)",
    "try and every handler": "def f():\n try: x = 1\n except E: x = 2\n use(x)",
    "try else": "def f():\n try: g()\n except E: return\n else: x = 1\n use(x)",
    "finally": "def f():\n try: g()\n finally: x = 1\n use(x)",
    "handler leaves": "def f():\n try: x = 1\n except E: raise\n use(x)",
    "with": "def f():\n with a as x: y = 1\n use(x, y)",
    "match all": "def f(a):\n match a:\n  case 1: x = 1\n  case _: x = 2\n use(x)",
    "pattern": "def f(a):\n match a:\n  case [x, *y]: use(x, y)",
    "walrus and": "def f(a):\n if (x := a) and x: use(x)",
    "walrus or": "def f(a):\n if not (x := a) or g(): return\n use(x)",
    "comprehension": "def f(a): use([y for y in a if y])",
    "lambda": "def f(): use(lambda y: y)",
    "read before": "def f(a):\n if a: x = 1\n y = x\n use(x)",
    "unpacking": "def f(a):\n (x, [y, *z]) = a\n use(x, y, z)",
    "import": "def f():\n import a.b\n use(a)",
    "except as": "def f():\n try: g()\n except E as e: use(e)",
    "nested def": "def f():\n def g(): pass\n use(g)",
    "type checking": "def f():\n if not TYPE_CHECKING: x = 1\n use(x)",
    "unreachable": "def f():\n return\n use(x)",
}
UNCERTAIN = {
    "one branch": "def f(a):\n if a: x = 1\n use(x)",
    "elif": "def f(a):\n if a: pass\n elif b: x = 1\n else: x = 2\n use(x)",
    "loop": "def f(a):\n for i in a: x = 1\n use(x)",
    "loop variable": "def f(a):\n for x in a: pass\n use(x)",
    "while": "def f(a):\n while a: x = 1\n use(x)",
    "before break": "def f(a):\n while True:\n  if a: break\n  x = 1\n use(x)",
    "try alone": "def f():\n try: x = 1\n except E: pass\n use(x)",
    "in the handler": "def f():\n try:\n  x = 1\n except E: use(x)",
    "in finally": "def f():\n try: x = 1\n finally: use(x)",
    "suppress": "def f():\n with suppress(E): x = 1\n use(x)",
    "no default case": "def f(a):\n match a:\n  case 1: x = 1\n use(x)",
    "guarded default": "def f(a):\n match a:\n  case 1: x = 1\n  case _ if b: x = 2\n use(x)",
    "del": "def f(x):\n del x\n use(x)",
    "except as after": "def f():\n try: g()\n except E as x: pass\n use(x)",
    "later": "def f():\n use(x)\n x = 1",
    "or": "def f(a):\n if a or (x := 1): use(x)",
    "conditional expression": "def f(a):\n (x := 1) if a else 2\n use(x)",
    "read in a loop that may not run": "def f(a):\n for _ in a: x\n use(x)",
    "annotation alone": "def f():\n x: int\n use(x)",
    "type checking": "def f():\n if TYPE_CHECKING: import x\n use(x)",
    "deleted in the loop": "def f(a, x):\n for _ in a:\n  use(x)\n  del x",
    "comprehension's name": "def f(a):\n [x for x in a]\n use(x)",
}


def uncertain_names(source: str) -> set[str]:
    tree = ast.parse(textwrap.dedent(source))
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    flow = flow_of(function, initially=["use", "g", "E", "b", "sys", "suppress", "TYPE_CHECKING"])
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) in flow.uncertain}


@pytest.mark.parametrize("name", CERTAIN)
def test_certain(name: str) -> None:
    assert uncertain_names(CERTAIN[name]) - {"a"} - ({"x"} if name == "read before" else set()) == set()


@pytest.mark.parametrize("name", UNCERTAIN)
def test_uncertain(name: str) -> None:
    assert "x" in uncertain_names(UNCERTAIN[name])


def test_a_read_makes_certain_what_follows() -> None:
    tree = ast.parse("def f(a):\n if a: x = 1\n y = x\n use(x)\n")
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    flow = flow_of(function, initially=["use"])
    lines = {node.lineno for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) in flow.uncertain}
    assert lines == {3}


def test_attributes_of_self_are_tracked() -> None:
    tree = ast.parse("def f(self, a):\n if a: self.x = 1\n self.x\n self.x\n")
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    flow = flow_of(function)
    lines = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Attribute) and id(node) in flow.uncertain]
    assert lines == [3]
