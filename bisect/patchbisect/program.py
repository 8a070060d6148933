"""The console script ``patchbisect``: Invoke with our exit codes.

0 the task did what it is for · 1 it ran and the answer is negative · 2 usage or configuration · 3 the box or the
link failed · 130 interrupted · 141 who read the output left, as ``head`` does. ``patchbisect trial`` follows
``git bisect run`` instead (see its help).
"""

from __future__ import annotations

import os
import re
import resource
import signal
import sys
from collections.abc import Iterable
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path

USAGE = 2
USAGE_UNDER_GIT_BISECT = 129
INTERRUPTED = 130
READER_GONE = 141
FEWEST_FILES, ENOUGH_FILES = 32, 256
"""Files that this process may have open: a launch over SSH needs 14 of them at once."""

try:
    from invoke import Collection, Exit, ParseError, Program
    from invoke.parser.context import to_flag

    from patchbisect import __version__
    from patchbisect.config import remedy_for
    from patchbisect.tasks import face, namespace
except KeyboardInterrupt:
    # They take a few tenths of a second, and nothing is under way yet.
    sys.exit(INTERRUPTED)


_NO_NUMBER = re.compile(r"'(?P<value>[^']*)'$")


class Face(Program):
    """Invoke's program, but for how it ends."""

    def run(self, argv: list[str] | None = None, exit: bool = True) -> None:
        try:
            try:
                super().run(argv, exit)
            finally:
                sys.stdout.flush()
        except BrokenPipeError:
            # Python flushes once more on its way out, and would complain.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(READER_GONE)
        except SystemExit as end:
            # Invoke makes 1 of it, wherever it comes.
            if isinstance(end.__context__, KeyboardInterrupt):
                sys.exit(INTERRUPTED)
            raise

    def normalize_argv(self, argv: list[str] | None) -> None:
        """A task that asks for something would take ``--help`` behind it for the answer."""
        super().normalize_argv(argv)
        task, *words = [*self.argv[1:], ""]
        if task in self._served.task_names and not {"--help", "-h"}.isdisjoint(words):
            self.argv = [self.argv[0], "--help", task]

    def parse_core(self, argv: list[str] | None) -> None:
        with _Usage(self):
            super().parse_core(argv)
        # Invoke forbids Python to keep byte-code: each run of a checkout would compile all that its task imports.
        sys.dont_write_bytecode = bool(sys.flags.dont_write_bytecode)

    def parse_collection(self) -> None:
        with _Usage(self):
            super().parse_collection()

    def parse_tasks(self) -> None:
        with _Usage(self):
            super().parse_tasks()
            self._check_lists()

    def _check_lists(self) -> None:
        """Raises ParseError for a repeatable option without a value, which Invoke takes for one that was not given."""
        for context in self.tasks:
            for word, after in pairwise([*self.core.unparsed, ""]):
                argument = context.flags.get(word)
                if argument and argument.kind is list and (not after or after in context.flags):
                    raise ParseError(f"Flag {argument!r} needed value and was not given one!", context)

    def parse_cleanup(self) -> None:
        if self.args.complete.value:
            from patchbisect.tasks.completing import values

            line = self.core.remainder.partition(" ")[2]
            if found := values(line, self._served):
                sys.stdout.write("\n".join(found) + "\n")
                raise Exit
        super().parse_cleanup()

    def print_task_help(self, name: str) -> None:
        """Options as the task has them, with those first that one needs first; Invoke sorts them by name."""
        context = self.parser.contexts[name]
        vars(context)["help_tuples"] = lambda: [context.help_for(to_flag(one)) for one in context.args]
        super().print_task_help(name)

    def execute(self) -> None:
        # What `timeout` or a batch system ends may leave no server on GPUs that others wait for, as little as Ctrl-C.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        may_open = have_files(ENOUGH_FILES)
        if may_open < FEWEST_FILES:
            message = f"error: only {may_open} files may be open at once here, and {FEWEST_FILES} are needed"
            raise Exit(f"{message}\n  raise the hard limit (`ulimit -Hn`, limits.conf)", code=self.usage_code())
        try:
            super().execute()
        except KeyboardInterrupt:
            raise Exit(face.INTERRUPTED, code=INTERRUPTED) from None

    def usage_code(self) -> int:
        words = [word for word in self.argv[1:] if not word.startswith("-")]
        return USAGE_UNDER_GIT_BISECT if words[:1] == ["trial"] else USAGE

    def no_number(self, complaint: str) -> str:
        """Which option was given what cannot be made a number; ``complaint`` is that of ``int`` or ``float``."""
        found = _NO_NUMBER.search(complaint)
        given = found["value"] if found else ""
        pairs = ([*word.split("=", 1), after][:2] for word, after in pairwise([*self.argv[1:], ""]))
        option = next((f"{option}: " for option, value in pairs if option.startswith("-") and value == given), "")
        kind = "whole number" if "int()" in complaint else "number"
        return f"error: {option}'{given}' is not a {kind}\n  give one there, like {option.strip(': ') or '--last'} 20"

    def mistake(self, error: ParseError) -> str:
        """What is wrong with the command line, and what to do."""
        context, message = error.context, str(error)
        task = self._called((context.name if context else "") or "TASK")
        found = re.match(r"'[^']+' did not receive required positional arguments: (?P<missing>.+)", message)
        missing = re.findall(r"'([^']+)'", found["missing"]) if found else []
        if flag := re.match(r"Flag <Argument: (?P<name>[^ >]+).*> needed value", message):
            missing = [flag["name"]]
        if not context or not missing:
            return f"error: {message}\n  {self.advice(message, task=task)}"
        names = [f"--{name.replace('_', '-')}" if flag else name.upper() for name in missing]
        says = [f"{name}: {context.args[key].help}" for name, key in zip(names, missing, strict=True)]
        wants = f"{names[0]} needs a value" if flag else f"{task} needs {' and '.join(names)}"
        return "\n  ".join([f"error: {wants}", *says, f"{self.name.lower()} --help {task} says more"])

    @staticmethod
    def _called(task: str) -> str:
        """The name that a task goes by: Invoke says twice what is called like its collection, ``bisect.bisect``."""
        head, _, own = task.partition(".")
        return head if own == head else task

    def advice(self, message: str, *, task: str) -> str:
        """The nearest task or flag to a misspelt one."""
        if found := re.search(r"No idea what '(?P<word>[^']+)' is", message):
            word = found["word"]
            if not word.startswith("-") and (said := self._behind_an_option(word)):
                return said
            return remedy_for(word, self._flags() if word.startswith("-") else self._tasks())
        return f"{self.name.lower()} --help {task}"

    def _behind_an_option(self, word: str) -> str:
        """How a task is given ``word`` that takes no bare one; "" where the word is meant for a task."""
        task, *rest = [each for each in self.argv[1:] if not each.startswith("-")] or [""]
        if task not in self._served.task_names or word not in rest or get_close_matches(word, self._tasks()):
            return ""
        options = [
            f"--{argument.name.replace('_', '-')}"
            for argument in self._served[task].get_arguments()
            if argument.takes_value and not argument.positional
        ]
        takes = f"{task} takes it behind an option: {', '.join(options)}" if options else f"{task} takes no such word"
        return f"{takes}; {self.name.lower()} --help {task} says more"

    def _tasks(self) -> Iterable[str]:
        return [self._called(name) for name in self._served.task_names]

    @property
    def _served(self) -> Collection:
        if self.namespace is None:
            raise TypeError("a Face is made with the tasks that it serves")
        return self.namespace

    def _flags(self) -> Iterable[str]:
        words = [word for word in self.argv[1:] if not word.startswith("-")]
        for count in (2, 1):
            name = ".".join(words[:count])
            if name in self._served.task_names or name in self._served.collections:
                return [f"--{flag}" for argument in self._served[name].get_arguments() for flag in argument.names]
        return [flag for flag in self.initial_context.flags if flag.startswith("--")]


def have_files(wanted: int) -> int:
    """Raise the soft limit on open files to ``wanted`` where it is lower. Returns how many there may be now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if soft == unlimited or soft >= wanted:
        return wanted
    granted = wanted if hard == unlimited else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (granted, hard))
    return granted


class _Usage:
    """Turns Invoke's parse errors, which exit 1, into usage errors with a remedy."""

    def __init__(self, face: Face) -> None:
        self.face = face

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ValueError) and not isinstance(error, ParseError):
            # Invoke turns a value into a number with int() or float(), and lets their complaint through.
            raise Exit(self.face.no_number(str(error)), code=self.face.usage_code()) from None
        if isinstance(error, ParseError):
            raise Exit(self.face.mistake(error), code=self.face.usage_code()) from None


_ELSEWHERE = ("-c", "--collection", "-r", "--search-root")


def instead_of_invoke(tasks: Collection) -> None:
    """Where plain ``invoke`` runs: these tasks with our exit codes, suggestions and completion, and the end of it.

    Plain ``invoke`` exits 1 for any mistake, which ``git bisect run`` takes for bad, and suggests nothing.
    """
    called = Path(sys.argv[0])
    # Where another collection or another place is asked for, only Invoke itself knows what to do.
    elsewhere = any(word.partition("=")[0] in _ELSEWHERE for word in sys.argv[1:])
    if not elsewhere and (called.name in ("invoke", "inv") or called.parts[-2:] == ("invoke", "__main__.py")):
        Face(name="Invoke", binary="inv[oke]", binary_names=["invoke", "inv"], namespace=tasks).run()
        sys.exit(0)


def main() -> None:
    program = Face(name="patchbisect", binary="patchbisect", version=__version__, namespace=namespace)
    program.run()
    sys.exit(0)
