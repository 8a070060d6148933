"""A launch command: from a profile's flags, with secrets masked, and as one shell line to repeat it by hand."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence

from patchbisect.model import Scalar
from patchbisect.redact import MASK, is_secret, masked_url

MODULE = ("-m", "sglang.launch_server")


def arguments(flags: Mapping[str, Scalar | tuple[str, ...]], *, variables: Mapping[str, str]) -> tuple[str, ...]:
    """Flags as arguments: True is bare, False is left out, a tuple gives several values.

    ``{name}`` in a value is replaced where ``variables`` knows the name, and left alone otherwise.
    """
    return tuple(_filled(text, variables) for text in _arguments(flags))


def _arguments(flags: Mapping[str, Scalar | tuple[str, ...]]) -> Iterator[str]:
    for name, value in flags.items():
        if value is False:
            continue
        yield f"--{name}"
        if isinstance(value, tuple):
            yield from value
        elif value is not True:
            yield str(value)


def _filled(text: str, variables: Mapping[str, str]) -> str:
    for name, value in variables.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def masked(argv: Sequence[str], *, more: Iterable[str] = ()) -> tuple[str, ...]:
    """``argv`` with the values of secret flags replaced by ``***``."""
    names = tuple(more)
    shown: list[str] = []
    hide_next = False
    for word in argv:
        name, equals, _ = word.partition("=")
        secret_flag = word.startswith("--") and is_secret(name.removeprefix("--"), more=names)
        if hide_next and not word.startswith("--"):
            shown.append(MASK)
        elif secret_flag and equals:
            shown.append(f"{name}={MASK}")
        else:
            shown.append(masked_url(word))
        hide_next = secret_flag and not equals
    return tuple(shown)


def secret_values(argv: Sequence[str], *, more: Iterable[str] = ()) -> tuple[str, ...]:
    """The values that :func:`masked` hides."""
    hidden = masked(argv, more=more)
    pairs = zip(argv, hidden, strict=True)
    return tuple(
        word.partition("=")[2] if "=" in word and word.startswith("--") else word for word, m in pairs if word != m
    )


def by_hand(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    secret_env: Iterable[str],
    pythonpath: Sequence[str],
    more_secrets: Iterable[str] = (),
) -> str:
    """One shell line that repeats a launch on the box. A secret is taken from the caller's own environment by name."""
    settings = [f"{name}={shlex.quote(value)}" for name, value in sorted(env.items()) if name != "PYTHONPATH"]
    named = [f'{name}="${name}"' for name in sorted(secret_env)]
    path = f"PYTHONPATH={':'.join(map(path_word, pythonpath))}"
    program, *words = masked(argv, more=more_secrets)
    return " ".join([*settings, *named, path, path_word(program), *map(shlex.quote, words)])


def path_word(path: str) -> str:
    """``path`` as a word of ``sh``, which puts the home for a ``~`` at its beginning, and for nothing else."""
    home = re.match(r"~[\w.-]*/", path)
    return home[0] + shlex.quote(path[home.end() :]) if home else shlex.quote(path)
