"""Pulls the messages out of released SGLang packages: ``python -m tests.startup.messages WHEEL... [--write]``.

A message is the text of a logger call (info and above) in ``sglang/srt``, with ``{}`` for what is filled in. Each must
either be recognised (a milestone, a failure, a fact) or stand, whole, in ``meaningless.txt``: the list of messages
that mean nothing for a start. ``--write`` rewrites the list from the wheels given; read what it adds.
"""

from __future__ import annotations

import argparse
import ast
import re
import warnings
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from patchbisect.startup import Classifier
from patchbisect.startup.causes import Grade
from patchbisect.startup.vocabulary import NOISE_HEADS, NOISE_LENGTH, milestone

LIST = Path(__file__).parent / "meaningless.txt"
LEVELS = {"info", "warning", "warn", "error", "critical", "exception", "info_once", "warning_once"}
RANK0 = {"log_info_on_rank0", "rank0_log", "print_info_once", "print_warning_once"}
SAMPLE_FLOAT, SAMPLE = "12.25", "7"


@dataclass(frozen=True, order=True)
class Message:
    """``template`` has ``{}`` for what is filled in; ``sample`` is it with plausible values."""

    template: str
    sample: str
    level: str
    file: str


def of_wheel(path: Path) -> Iterator[Message]:
    """Every logged message of one released package."""
    with zipfile.ZipFile(path) as wheel:
        for name in sorted(wheel.namelist()):
            if name.startswith("sglang/srt/") and name.endswith(".py"):
                yield from of_source(wheel.read(name).decode("utf-8-sig", "replace"), name)


def of_source(source: str, file: str) -> Iterator[Message]:
    """Every logged message of one file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # escape sequences that newer Pythons dislike
        tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            level, argument = _logged(node)
            if argument is not None:
                template, sample = _render(argument)
                if any(character.isalpha() for character in template):
                    yield Message(template.strip(), sample.strip(), level, file)


def _logged(call: ast.Call) -> tuple[str, ast.expr | None]:
    function = call.func
    if isinstance(function, ast.Attribute) and function.attr in LEVELS and call.args:
        owner = ast.unparse(function.value)
        if "log" in owner.lower():
            return function.attr, call.args[0]
    if isinstance(function, ast.Name) and function.id in RANK0 and call.args:
        return "info", call.args[-1]
    return "", None


def _render(node: ast.expr) -> tuple[str, str]:
    """(template, sample) of the expression that makes a message."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return _percent(node.value)
    if isinstance(node, ast.JoinedStr):
        parts = [_filled(part) if isinstance(part, ast.FormattedValue) else _render(part) for part in node.values]
        return "".join(template for template, _ in parts), "".join(sample for _, sample in parts)
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Mod)):
        left, right = _render(node.left), _render(node.right)
        return left if isinstance(node.op, ast.Mod) else (left[0] + right[0], left[1] + right[1])
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        return _render(node.func.value)
    return "{}", SAMPLE


def _filled(part: ast.FormattedValue) -> tuple[str, str]:
    spec = ast.unparse(part.format_spec) if part.format_spec is not None else ""
    if ast.unparse(part.value) == "self.soft":
        return "{}", "False"
    return "{}", SAMPLE_FLOAT if "f" in spec.removeprefix("f") else SAMPLE


def _percent(text: str) -> tuple[str, str]:
    """``%s`` and ``%.2f`` of lazy logging, and ``{}`` of str.format."""
    template = re.sub(r"%(?:\(\w+\))?[-+ 0#]*\d*(?:\.\d+)?[sdrifxg]|\{[^{}]*\}", "{}", text)
    sample = re.sub(r"%(?:\(\w+\))?[-+ 0#]*\d*\.\d+f|\{[^{}]*f\}", SAMPLE_FLOAT, text)
    sample = re.sub(r"%(?:\(\w+\))?[-+ 0#]*\d*(?:\.\d+)?[sdrifxg]|\{[^{}]*\}", SAMPLE, sample)
    return template, sample


def recognised(message: str) -> bool:
    """Whether a start's log with this message says more than without it."""
    if milestone(message) is not None or message[:NOISE_LENGTH] in NOISE_HEADS or message.startswith("server_args="):
        return True
    reader = Classifier()
    before = _state(reader)
    reader.feed(f"[2026-01-01 00:00:00 TP0] {message}\n")
    return _state(reader) != before


def _state(reader: Classifier) -> object:
    life = reader.life
    activity = life.activity
    return (
        [len(life.signs[grade]) for grade in Grade],
        len(life.blocks),
        life.http_line,
        life.fired_line,
        life.shutdown_line,
        life.fraction,
        life.waited_for,
        life.exit_code,
        life.timings,
        (activity.deepgemm_line, activity.compile_line, activity.rendezvous_line, activity.retry_line),
    )


def listed() -> set[str]:
    """The messages that mean nothing for a start."""
    return {line.replace("\\n", "\n") for line in LIST.read_text().splitlines()}


def unknown(messages: Iterable[Message]) -> list[Message]:
    """Messages that are neither recognised nor listed."""
    known = listed()
    return [one for one in messages if one.template not in known and not recognised(one.sample)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheels", nargs="+", type=Path)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    found = [message for wheel in asked.wheels for message in of_wheel(wheel)]
    distinct = {message.template: message for message in found}
    meaningless = sorted(one.template for one in distinct.values() if not recognised(one.sample))
    print(f"{len(found)} messages, {len(distinct)} distinct, {len(meaningless)} mean nothing for a start")
    if asked.write:
        LIST.write_text("".join(template.replace("\n", "\\n") + "\n" for template in meaningless))
    else:
        for message in unknown(distinct.values()):
            print(f"{message.file}: {message.level}: {message.template!r}")


if __name__ == "__main__":
    main()
