"""search, startup and patchqueue touch no file, socket, clock or process: they cannot even import what does."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "bisect" / "patchbisect"
PURE = sorted(path for name in ("search", "startup", "patchqueue") for path in (PACKAGE / name).rglob("*.py"))
IMPURE = {"asyncio", "fcntl", "glob", "io", "os", "random", "select", "shutil", "signal", "socket", "subprocess", "sys"}
IMPURE |= {"tempfile", "threading", "time", "urllib", "http", "requests", "git", "paramiko", "multiprocessing"}


def imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """(module, name) of every import; the name is empty for a whole module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name.split(".")[0], "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (((node.module or "").split(".")[0], alias.name) for alias in node.names)


def calls(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            function = node.func
            if isinstance(function, ast.Name):
                yield function.id
            elif isinstance(function, ast.Attribute):
                yield function.attr


@pytest.mark.parametrize("path", PURE, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_pure_module_reaches_nothing_outside(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = set(imported(tree))
    assert not {module for module, _ in names} & IMPURE
    assert not {name for module, name in names if module == "pathlib"} - {"PurePosixPath", "PurePath"}
    assert not {"open", "now", "today", "utcnow", "read_text", "write_text"} & set(calls(tree))
