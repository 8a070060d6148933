"""Running a command: the one door through which this package starts processes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Finished:
    """An exit code as ``subprocess`` gives it, and all output (stdout and stderr in one)."""

    exit_code: int
    output: str


class Run(Protocol):
    """Runs a command to its end. Tests pass their own."""

    def __call__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        on_line: Callable[[str], None],
        keep_open: Sequence[int],
    ) -> Finished: ...


def run(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    on_line: Callable[[str], None],
    keep_open: Sequence[int],
) -> Finished:
    """Run ``argv``, handing over each line as it comes. The child inherits the descriptors ``keep_open``.

    Raises OSError where the program cannot be started. Whatever ends this call ends the child too.
    """
    lines: list[str] = []
    with subprocess.Popen(
        argv,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
        pass_fds=tuple(keep_open),
    ) as child:
        assert child.stdout is not None
        try:
            for line in child.stdout:
                lines.append(line)
                on_line(line.rstrip("\n"))
            return Finished(exit_code=child.wait(), output="".join(lines))
        finally:
            if child.poll() is None:
                child.kill()


_MISLEADING = (
    "PYTHONPATH",
    "PYTHONHOME",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONPYCACHEPREFIX",
    "VIRTUAL_ENV",
    "PIP_TARGET",
    "PIP_PREFIX",
    "PIP_USER",
    "PIP_REQUIRE_VIRTUALENV",
    "PIP_REQUIREMENT",
    "__PYVENV_LAUNCHER__",
)


def clean_environment() -> dict[str, str]:
    """Ours, less what would send an interpreter or pip elsewhere or stop it from writing byte-code.

    pip's own configuration (indexes, caches, certificates, proxies) stays in force.
    """
    kept = {name: value for name, value in os.environ.items() if name not in _MISLEADING}
    return {**kept, "LC_ALL": "C.UTF-8", "PYTHONNOUSERSITE": "1"}
