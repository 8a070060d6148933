"""What every task shares: errors as one clear line, JSON on stdout, everything else on stderr."""

from __future__ import annotations

import errno
import functools
import json as jsonlib
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import invoke

from patchbisect.errors import NO_FILES, PatchbisectError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

INTERRUPTED = "interrupted: this command left no server behind"
"""Of this command alone: another shell's may run on."""

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)

# Columns for a pipe: what is read by a program, or by grep, must be neither folded nor cut.
_PIPE_COLUMNS = 1000


def task(**options: Any) -> Callable[[Callable[..., None]], invoke.Task[Any]]:
    """Invoke's ``task`` without automatic short flags, that turns our errors into a message and an exit code."""

    def decorate(body: Callable[..., None]) -> invoke.Task[Any]:
        @functools.wraps(body)
        def guarded(*args: Any, **kwargs: Any) -> None:
            try:
                body(*args, **kwargs)
            except PatchbisectError as error:
                raise invoke.Exit(explain(error), code=error.exit_code) from None
            except KeyboardInterrupt:
                raise invoke.Exit(INTERRUPTED, code=130) from None
            except BrokenPipeError:
                # The reader of our output went away (``| head``): keep Python from complaining at exit, and end as
                # a program does that SIGPIPE ends, for a script must not take it for an answer.
                for stream in (sys.stdout, sys.stderr):
                    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
                raise invoke.Exit(code=128 + signal.SIGPIPE) from None
            except OSError as error:
                short = short_of(error)
                if short is None:
                    raise
                raise invoke.Exit(explain(short), code=short.exit_code) from None

        made: invoke.Task[Any] = invoke.task(auto_shortflags=False, **options)(guarded)
        return made

    return decorate


def short_of(error: OSError) -> UsageError | None:
    """What this machine has too little of, and what to do about it; None where that is not what was wrong."""
    again = "then try again; a bisection goes on with invoke bisect --resume"
    if error.errno in _NO_ROOM:
        where = error.filename or "the disk of this project's state"
        return UsageError(f"{where}: {error.strerror}", remedy=f"make room there, {again}")
    if error.errno in NO_FILES:
        return UsageError(f"this machine: {error.strerror}", remedy=f"allow more with ulimit -n 1024, {again}")
    return None


def explain(error: PatchbisectError) -> str:
    """The message, and the next step on a line of its own."""
    return f"error: {error.message}" + (f"\n  {error.remedy}" if error.remedy else "")


def negative() -> invoke.Exit:
    """The task ran and the answer is negative."""
    return invoke.Exit(code=1)


def emit(document: Any) -> None:
    """Exactly one JSON document on stdout."""
    sys.stdout.write(jsonlib.dumps(document, indent=2, default=str) + "\n")
    sys.stdout.flush()


def say(text: str) -> None:
    """Progress and warnings."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


@contextmanager
def writing(path: str) -> Iterator[Path]:
    """Whatever cannot be written to a file that the user named is a usage error."""
    try:
        yield Path(path)
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be written: {error.strerror or error}", remedy="name a file in a directory of yours"
        ) from error


def console() -> Console:
    """Standard output for people: fits the terminal, plain in a pipe, without colour under NO_COLOR."""
    from rich.console import Console

    # Tables fold in their columns; a bare line is left to the terminal, so that a command can be copied whole.
    if sys.stdout.isatty():
        # Rich takes a dumb terminal for one of 80 columns, whatever its size.
        size = shutil.get_terminal_size()
        return Console(width=size.columns, height=size.lines, highlight=False, soft_wrap=True)
    return Console(width=_PIPE_COLUMNS, highlight=False, soft_wrap=True, file=cast("IO[str]", _Trimmed(sys.stdout)))


class _Trimmed:
    """A pipe that gets no blanks at the ends of lines: tables pad theirs to the width."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def write(self, text: str) -> int:
        return self._file.write(_PADDING.sub("", text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


_PADDING = re.compile(r" +$", re.MULTILINE)
