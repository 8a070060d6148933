"""The console script ``patchbisect``: Invoke with our exit codes.

0 the task did what it is for · 1 it ran and the answer is negative · 2 usage or configuration · 3 the box or the
link failed · 130 interrupted. ``patchbisect trial`` follows ``git bisect run`` instead (see its help).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable

from invoke import Exit, ParseError, Program

from patchbisect import __version__
from patchbisect.config import remedy_for
from patchbisect.tasks import namespace

USAGE = 2
USAGE_UNDER_GIT_BISECT = 129
INTERRUPTED = 130


class Face(Program):
    """Invoke's program, but for how it ends."""

    def parse_core(self, argv: list[str] | None) -> None:
        with _Usage(self):
            super().parse_core(argv)

    def parse_collection(self) -> None:
        with _Usage(self):
            super().parse_collection()

    def parse_tasks(self) -> None:
        with _Usage(self):
            super().parse_tasks()

    def parse_cleanup(self) -> None:
        if self.args.complete.value:
            from patchbisect.tasks.completing import values

            line = self.core.remainder.partition(" ")[2]
            if found := values(line, namespace):
                sys.stdout.write("\n".join(found) + "\n")
                raise Exit
        super().parse_cleanup()

    def execute(self) -> None:
        try:
            super().execute()
        except KeyboardInterrupt:
            raise Exit("interrupted: no server was left behind", code=INTERRUPTED) from None

    def usage_code(self) -> int:
        words = [word for word in self.argv[1:] if not word.startswith("-")]
        return USAGE_UNDER_GIT_BISECT if words[:1] == ["trial"] else USAGE

    def advice(self, message: str) -> str:
        """The nearest task or flag to a misspelt one."""
        if found := re.search(r"No idea what '(?P<word>[^']+)' is", message):
            word = found["word"]
            return remedy_for(word, self._flags() if word.startswith("-") else self._tasks())
        return "patchbisect --help TASK"

    def _tasks(self) -> Iterable[str]:
        return list(namespace.task_names)

    def _flags(self) -> Iterable[str]:
        words = [word for word in self.argv[1:] if not word.startswith("-")]
        for count in (2, 1):
            name = ".".join(words[:count])
            if name in namespace.task_names or name in namespace.collections:
                return [f"--{flag}" for argument in namespace[name].get_arguments() for flag in argument.names]
        return [flag for flag in self.initial_context.flags if flag.startswith("--")]


class _Usage:
    """Turns Invoke's parse errors, which exit 1, into usage errors with a remedy."""

    def __init__(self, face: Face) -> None:
        self.face = face

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ValueError) and not isinstance(error, ParseError):
            # Invoke turns a value into a number with int() or float(), and lets their complaint through.
            raise Exit(f"error: {error}\n  give a number there", code=self.face.usage_code()) from None
        if isinstance(error, ParseError):
            message = str(error)
            raise Exit(f"error: {message}\n  {self.face.advice(message)}", code=self.face.usage_code()) from None


def main() -> None:
    program = Face(name="patchbisect", binary="patchbisect", version=__version__, namespace=namespace)
    program.run()
    sys.exit(0)
