"""What ruff and ty say of a file: names that are undefined or possibly unbound, format strings, wrong arguments.

Rules of style are left out: SGLang has its own.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from patchbisect.errors import UsageError
from patchbisect.maintain.lint.sources import tree_of

_RUFF_RULES = "F402,F50,F52,F6,F7,F82,PLE"
_TY_RULES = (
    "possibly-unresolved-reference",
    "missing-argument",
    "unknown-argument",
    "too-many-positional-arguments",
    "parameter-already-assigned",
    "division-by-zero",
    "index-out-of-bounds",
)
_PYTHON = "3.10"
"""The oldest that SGLang supports (0.5.9, pyproject.toml)."""
_TY_LINE = re.compile(r"(?P<file>.+?):(?P<line>\d+):\d+: \w+\[(?P<code>[\w-]+)\] (?P<message>.*)")


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One complaint of an analyser; ``line`` counts from 1."""

    line: int
    code: str
    message: str


Diagnose = Callable[[Collection[str]], Mapping[str, tuple[Diagnostic, ...]]]
"""The diagnostics of each text."""


def diagnose(texts: Collection[str]) -> dict[str, tuple[Diagnostic, ...]]:
    """What ruff and ty say of Python sources, each run once. Raises UsageError where one is not installed."""
    if not texts:
        return {}
    with tempfile.TemporaryDirectory(prefix="patchbisect-lint-") as folder:
        names = {f"m{hashlib.sha256(text.encode('utf-8', 'surrogateescape')).hexdigest()[:20]}": text for text in texts}
        for name, text in names.items():
            (Path(folder) / f"{name}.py").write_bytes(text.encode("utf-8", "surrogateescape"))
        with ThreadPoolExecutor(2) as pool:
            found = [*pool.map(lambda analyser: analyser(folder), (_ruff, _ty))]
    return {
        text: tuple(diagnostic for says in found for diagnostic in says.get(name, ())) for name, text in names.items()
    }


def new_diagnostics(before: str, after: str, *, said: Mapping[str, tuple[Diagnostic, ...]]) -> tuple[Diagnostic, ...]:
    """What is said of ``after`` and was not said of ``before`` in the same function, whatever the line is by now."""
    if not said.get(after):
        return ()
    known = {_identity(diagnostic, _functions(before)) for diagnostic in said.get(before, ())}
    functions = _functions(after)
    return tuple(diagnostic for diagnostic in said[after] if _identity(diagnostic, functions) not in known)


def _identity(diagnostic: Diagnostic, functions: list[tuple[int, int, str]]) -> tuple[str, str, str]:
    around = [name for first, last, name in functions if first <= diagnostic.line <= last]
    return diagnostic.code, re.sub(r"\d+", "N", diagnostic.message), ".".join(around)


@functools.lru_cache(maxsize=256)
def _functions(text: str) -> list[tuple[int, int, str]]:
    """First line, last line and name of each function and class, outer ones first."""
    definitions = [
        node
        for node in ast.walk(tree_of(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    ]
    return [(node.lineno, node.end_lineno or node.lineno, node.name) for node in definitions]


def _ruff(folder: str) -> dict[str, list[Diagnostic]]:
    options = ["check", "--isolated", "--no-cache", "--exit-zero", "--output-format=json"]
    output = _run("ruff", *options, f"--target-version=py{_PYTHON.replace('.', '')}", f"--select={_RUFF_RULES}", folder)
    found: dict[str, list[Diagnostic]] = {}
    for item in json.loads(output):
        diagnostic = Diagnostic(line=item["location"]["row"], code=item["code"] or "syntax", message=item["message"])
        found.setdefault(Path(item["filename"]).stem, []).append(diagnostic)
    return found


def _ty(folder: str) -> dict[str, list[Diagnostic]]:
    rules = [option for rule in _TY_RULES for option in ("--error", rule)]
    options = ["check", "--exit-zero", "--output-format=concise", f"--python-version={_PYTHON}", "--color=never"]
    output = _run("ty", *options, "--ignore", "all", *rules, f"--project={folder}", folder)
    found: dict[str, list[Diagnostic]] = {}
    for line in output.splitlines():
        match = _TY_LINE.fullmatch(line.strip())
        if match and match["code"] in _TY_RULES:
            diagnostic = Diagnostic(line=int(match["line"]), code=match["code"], message=match["message"])
            found.setdefault(Path(match["file"]).stem, []).append(diagnostic)
    return found


def _run(module: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return done.stdout
    if "No module named" in done.stderr:
        raise UsageError(
            f"lint needs {module}, which is not installed",
            remedy=f"{sys.executable} -m pip install 'patchbisect[lint]'",
        )
    lines = done.stderr.strip().splitlines() or [f"it exited with {done.returncode}"]
    raise UsageError(f"{module} failed: {lines[-1]}", remedy=f"Check `{sys.executable} -m {module} --version`.")
