"""Random functions with a probe in them: where lint is silent, the probe never meets an unbound name."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from types import CodeType

import pytest

from patchbisect.maintain.lint.instrumentation import judge

pytestmark = pytest.mark.ci

NAMES = ("x", "y")
RUNS = 30
"""Of each function, every one with other conditions, loops and exceptions."""
MOST_STEPS = 200

SIMPLE = (
    *("{n} = c()", "{n} = c()", "use({n})", "m()", "m()", "del {n}", "import os as {n}", "{n}: int", "{n} += 1"),
    *("use(({n} := c()))", "if c() and ({n} := 1): pass", "[({n} := i) for i in many()]", "{n}, _ = 1, 2"),
    *("use([{n} for {n} in many()])", "use({n} if c() else 0)", "use(c() and {n})", "use(lambda: {n})", "return"),
    *("raise ValueError", "def {n}(): pass", "class {n}: pass", "assert c() or {n}", "use(c() or ({n} := 1))"),
)
IN_LOOP = ("break", "continue")
BLOCKS = (
    ("if c():",),
    ("if c():", "else:"),
    ("for {n} in many():",),
    ("for _ in many():", "else:"),
    ("while c():",),
    ("while c():", "else:"),
    ("try:", "except ValueError:"),
    ("try:", "except ValueError as {n}:"),
    ("try:", "except ValueError as {n}:", "else:"),
    ("try:", "finally:"),
    ("try:", "except ValueError:", "finally:"),
    ("with context() as {n}:",),
    ("with suppress(ValueError):",),
)


class Writer:
    """Writes one function body."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice

    def block(self, depth: int, *, indent: int, loop: bool) -> list[str]:
        return [
            line for _ in range(self.dice.randint(1, 3)) for line in self.statement(depth, indent=indent, loop=loop)
        ]

    def statement(self, depth: int, *, indent: int, loop: bool) -> Iterator[str]:
        name = self.dice.choice(NAMES)
        if depth and self.dice.random() < 0.5:
            for head in self.dice.choice(BLOCKS):
                yield " " * indent + head.format(n=name)
                inner = loop or head.startswith(("for", "while"))
                yield from self.block(depth - 1, indent=indent + 1, loop=inner and head != "finally:")
        else:
            yield " " * indent + self.dice.choice(SIMPLE + (IN_LOOP if loop else ())).format(n=name)


class TooLong(Exception):
    pass


def unbound_at(code: CodeType, tape: int) -> int:
    """Run the function once; the line that met an unbound name, 0 where none did."""
    dice = random.Random(tape)
    steps = 0

    def choose(*options: object) -> object:
        nonlocal steps
        steps += 1
        if steps > MOST_STEPS:
            raise TooLong
        return dice.choice(options)

    def fail() -> None:
        if choose(True, False):
            raise ValueError

    known: dict[str, object] = {
        "c": lambda: choose(True, False),
        "m": fail,
        "many": lambda: choose((), (1,), (1, 2)),
        "context": contextlib.nullcontext,
        "suppress": contextlib.suppress,
        "use": lambda *values: None,
        "print": lambda *values, flush: None,
    }
    exec(code, known)
    function = known["f"]
    assert isinstance(function, Callable)  # type: ignore[arg-type]
    try:
        function()
    except NameError as error:
        frames = [error.__traceback__]
        while frames[-1] and frames[-1].tb_next:
            frames.append(frames[-1].tb_next)
        return frames[-1].tb_lineno if frames[-1] else 0
    except Exception:  # noqa: BLE001
        return 0
    return 0


def probed(seed: int) -> tuple[str, str, int] | None:
    """A function, the same with a probe, and the probe's line; None where that is no Python."""
    dice = random.Random(seed)
    lines = ["def f():", *(f" {name} = 1" for name in NAMES if dice.random() < 0.8)]
    lines += Writer(dice).block(2, indent=1, loop=False)
    heads = ("else", "except", "finally")
    places = [at for at, line in enumerate(lines) if at and not line.strip().startswith(heads)]
    outer = [at for at in places if lines[at][1] != " "]
    at = dice.choice(outer if dice.random() < 0.6 else places)
    indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
    probe = f"{indent}print({dice.choice(NAMES)}, flush=True)"
    before, after = "\n".join([*lines, " pass", ""]), "\n".join([*lines[:at], probe, *lines[at:], " pass", ""])
    try:
        compile(after, "after", "exec")
        compile(before, "before", "exec")
    except SyntaxError:
        return None
    return before, after, at + 1


@pytest.mark.parametrize("start", range(0, 2000, 500))
def test_silence_is_never_false(start: int) -> None:
    silent = 0
    for seed in range(start, start + 500):
        made = probed(seed)
        if made is None or any(complaint.rule == "unbound" for complaint in judge(*made[:2])):
            continue
        silent += 1
        before, after, line = made
        codes = [compile(text, "f", "exec") for text in (before, after)]
        for tape in range(RUNS):
            # What raises without the probe too is no fault of the probe's.
            if unbound_at(codes[1], tape) == line:
                assert unbound_at(codes[0], tape), f"seed {seed}, tape {tape}:\n{after}"
    assert silent > 50
