"""What is noticed while modules are imported ahead of launches: what they read, and what they leave behind."""

from __future__ import annotations

import contextlib
import os
import pathlib
import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any

from .handing import Json

PER_LAUNCH = ("PYTHONPATH", "TMPDIR", "PATCHBISECT_LAUNCH")
"""Variables that differ between launches that may share a warm process."""

READ_BY_C = ("LD_", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "MALLOC_", "PYTHON", "PYTORCH_")
"""Variables that are read while a library is loaded, where no Python sees it."""


class Reads:
    """The names of environment variables that were asked for one by one; a copy of all of them asks for none."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self._copied: set[str] = set()

    @contextlib.contextmanager
    def noticed(self) -> Iterator[None]:
        kind = type(os.environ)
        get, walk = kind.__getitem__, kind.__iter__

        def noticing_get(environ: Any, name: str) -> str:
            if name in self._copied:
                self._copied.discard(name)
            else:
                self.names.add(name)
            return get(environ, name)

        def noticing_walk(environ: Any) -> Iterator[str]:
            self._copied = set(walk(environ))
            return walk(environ)

        kind.__getitem__, kind.__iter__ = noticing_get, noticing_walk  # type: ignore[method-assign]
        try:
            yield
        finally:
            self._copied = set()
            kind.__getitem__, kind.__iter__ = get, walk  # type: ignore[method-assign]

    def touched_by(self, before: Json, after: Json) -> list[str]:
        """Variables in which two environments differ, and whose value was used already."""
        names = (before.keys() | after.keys()).difference(PER_LAUNCH)
        differ = {name for name in names if before.get(name) != after.get(name)}
        return sorted(name for name in differ if name in self.names or name.startswith(READ_BY_C))


class Observer:
    """First on ``sys.meta_path``: writes down what is looked for, and finds nothing itself."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        with contextlib.suppress(OSError):
            os.write(self._handle, name.encode("utf-8", "replace") + b"\n")


def open_files() -> dict[int, str]:
    found = {}
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found[int(number)] = os.readlink(f"/proc/self/fd/{number}")
    return found


def shared_memory() -> list[str]:
    """Memory that a fork would share for writing: a lock in there, held by a launch that is killed, stays held."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        lines = [line.split(None, 5) for line in file]
    return [(line[5:] or ["anonymous memory"])[0].strip() for line in lines if line[1].startswith("rw-s")]


def native_threads() -> int:
    return len(os.listdir("/proc/self/task"))


def holds_cuda() -> bool:
    """Asked of torch in a way that makes no context."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return bool(cuda is not None and cuda.is_initialized())


def keepers(names: Iterable[str], place: str) -> list[tuple[str, str]]:
    """Modules that have kept a path below ``place`` (dill keeps the directory for temporary files), and its name."""
    return [(name, key) for name in names for key, value in values_of(name) if is_below(value, place)]


def values_of(name: str) -> list[tuple[str, object]]:
    module = sys.modules.get(name)
    return list(vars(module).items()) if isinstance(module, types.ModuleType) else []


def is_below(value: object, place: str) -> bool:
    return issubclass(type(value), (str, pathlib.PurePath)) and str(value).startswith(place)
