"""Shell completion of values: points, runs, bisections, boxes, profiles. Invoke itself completes tasks and flags."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from invoke import Collection
from invoke.parser import Argument

from patchbisect.errors import PatchbisectError

if TYPE_CHECKING:
    from patchbisect.config import Project

# A shell shows them all at once; the older ones are found by typing their beginning.
_MOST_RUNS = 200


def values(line: str, collection: Collection) -> list[str]:
    """What the last word of ``line`` may be where it is the value of a flag or a positional argument; else nothing.

    ``line`` has no program name, and no empty last word (the shell's script drops it), so that a flag or a task at
    the end means that its value comes next.
    """
    words = _words(line)
    names = {*collection.task_names, *collection.collections}
    task = next((word for word in words if word in names), None)
    if task is None:
        return []
    argument = _argument(words[words.index(task) + 1 :], collection[task].get_arguments())
    provider = _PROVIDERS.get(str(argument.name)) if argument else None
    if provider is None:
        return []
    from patchbisect.config import load_project

    try:
        return provider(load_project())
    except (PatchbisectError, OSError):
        # Nobody wants an error in the middle of a half-typed line.
        return []


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:
        return line.split()


def _argument(words: Sequence[str], arguments: Sequence[Argument]) -> Argument | None:
    """The argument that the last of ``words`` is a value of, or the first positional one that is still missing."""
    flags = {("--" if len(flag) > 1 else "-") + flag: each for each in arguments for flag in each.names}
    for word in reversed(words[-2:]):
        if word in flags and flags[word].takes_value:
            return flags[word]
    if words and words[-1].startswith("-"):
        return None
    given = [word for before, word in zip(("", *words), words, strict=False) if _is_positional(before, word, flags)]
    positional = [argument for argument in arguments if argument.positional]
    return positional[max(len(given) - 1, 0)] if len(given) <= len(positional) and positional else None


def _is_positional(before: str, word: str, flags: dict[str, Argument]) -> bool:
    return not word.startswith("-") and not (before in flags and flags[before].takes_value)


def _runs(project: Project) -> list[str]:
    from patchbisect.config import DEMO
    from patchbisect.records import Store

    store = Store.of(project)
    tags = [tag for document in store.documents() for tag in document["tags"]]
    demo = [DEMO] if store.of_demo.ids() and store.demo else []
    return ["last", *demo, *tags, *reversed(store.ids()[-_MOST_RUNS:])]


def _bisections(project: Project) -> list[str]:
    from patchbisect.journal import identifiers

    return [*reversed(identifiers(project.bisections)), *_runs(project)]


def _points(project: Project) -> list[str]:
    numbers = [path.name[:4] for path in sorted(project.patches.glob("[0-9][0-9][0-9][0-9]-*.patch"))]
    refs = subprocess.run(
        ["git", "for-each-ref", "--format=%(refname:short)", "refs/heads", "refs/tags"],
        cwd=project.root,
        capture_output=True,
        text=True,
        check=False,
    )
    return ["clean", "HEAD", "worktree", *numbers, *refs.stdout.split()]


def _boxes(project: Project) -> list[str]:
    return list(project.settings.boxes)


def _profiles(project: Project) -> list[str]:
    return list(project.settings.profiles)


def _outcomes(project: Project) -> list[str]:
    from patchbisect.model import Outcome

    return [outcome.value for outcome in Outcome]


_PROVIDERS: dict[str, Callable[[Project], list[str]]] = {
    **dict.fromkeys(("run", "a", "b", "target"), _runs),
    **dict.fromkeys(("point", "good", "bad", "to"), _points),
    "of": _bisections,
    "box": _boxes,
    "profile": _profiles,
    "outcome": _outcomes,
}
