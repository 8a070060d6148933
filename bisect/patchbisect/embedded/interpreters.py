"""Which Python the environment is made with."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from patchbisect.embedded.commands import Run, clean_environment
from patchbisect.errors import UsageError

TRIED = ("3.11", "3.12", "3.13")
"""Python versions on which every pin has a wheel and a real server was started, best first: 3.11 with a CPU build of
torch and again and again, 3.12 and 3.13 once, with the other pins and a CUDA build of torch that had to use the CPU.
"""

_PROBE = """
import json, os, sys
try:
    import ensurepip, venv
    can = bool(ensurepip.version())  # an empty folder can be imported too
except (ImportError, AttributeError):
    can = False
print(json.dumps({
    "version": "%d.%d" % sys.version_info[:2],
    "full": "%d.%d.%d" % sys.version_info[:3],
    "real": os.path.realpath(sys.executable),
    "venv": can,
}))
"""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """An interpreter that answered: ``version`` is ``"3.11"``, ``full`` ``"3.11.7"``, ``real`` its file."""

    path: Path
    version: str
    full: str
    real: str
    venv: bool
    """Whether it can make virtual environments (Debian ships that apart, in python3-venv)."""


def probe(path: Path, *, run: Run) -> Interpreter | None:
    """Ask the interpreter itself: a pyenv shim can be on PATH and belong to nothing."""
    try:
        done = run([str(path), "-I", "-c", _PROBE], env=clean_environment(), on_line=lambda line: None, keep_open=())
        answer = json.loads(done.output.splitlines()[-1]) if done.exit_code == 0 else None
    except (OSError, ValueError, IndexError):
        return None
    return Interpreter(path=path, **answer) if answer else None


def installed(search_path: str, home: Path) -> Iterator[Path]:
    """Files that may be an interpreter of a tried version: ours first, then PATH, then pyenv's and uv's own."""
    yield Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    for version in TRIED:
        for folder in filter(None, search_path.split(os.pathsep)):
            yield Path(folder) / f"python{version}"
        yield from sorted(home.glob(f".pyenv/versions/{version}.*/bin/python{version}"), reverse=True)
        yield from sorted(home.glob(f".local/share/uv/python/*-{version}.*/bin/python{version}"), reverse=True)


def usable(wanted: str | None, *, present: Path | None, run: Run) -> Iterator[Interpreter]:
    """Interpreters to make the environment with, best first; ``wanted`` is the setting ``embedded.python``.

    ``present`` is what an environment there was made with: it comes first, so that none is thrown away for a better
    one that may not do. Raises UsageError when there is none (before yielding any).
    """
    if wanted:
        yield _only(wanted, run=run)
        return
    seen: dict[str, Interpreter] = {}
    for path in (*filter(None, [present]), *installed(os.environ.get("PATH", ""), Path.home())):
        if not path.is_file():
            continue
        found = probe(path, run=run)
        if found is None or found.real in seen or found.version not in TRIED:
            continue
        seen[found.real] = found
        if found.venv:
            yield found
    if not any(found.venv for found in seen.values()):
        raise _none(list(seen.values()))


def _only(wanted: str, *, run: Run) -> Interpreter:
    found = probe(Path(wanted).expanduser(), run=run)
    if found is None:
        raise UsageError(
            f"embedded.python: {wanted} is not a Python that runs",
            remedy=f"give the path of a Python {' or '.join(TRIED)}",
        )
    if not found.venv:
        raise _none([found])
    return found


def _none(without_venv: list[Interpreter]) -> UsageError:
    if without_venv:
        first = without_venv[0]
        return UsageError(
            f"{first.path} (Python {first.full}) cannot make a virtual environment: it has no venv or no ensurepip",
            remedy=f"on Debian and Ubuntu: apt install python{first.version}-venv",
        )
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    return UsageError(
        f"the embedded box needs Python {' or '.join(TRIED)}, and none is installed (this is Python {ours}, "
        "for which its packages were not tried)",
        remedy=f"install python{TRIED[0]} with venv, or name an interpreter in the setting embedded.python",
    )
