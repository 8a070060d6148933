"""Format strings: what each placeholder demands of its value."""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeGuard

from patchbisect.maintain.lint.kinds import NUMBERS, Kind

_PERCENT = re.compile(
    r"%(?:\((?P<key>[^)]*)\))?[#0\- +]*(?P<width>\*|\d+)?(?:\.(?P<precision>\*|\d+))?[hlL]?(?P<type>.)"
)
_WHOLE = tuple("bcdoxXn")
_NUMERIC = tuple("bcdoxXneEfFgG%,_")
PLAIN = ""


@dataclass(frozen=True, slots=True)
class Placeholder:
    """One value of a format string. ``demand`` is ``""`` (anything), ``text``, ``number`` or ``whole``."""

    value: ast.expr
    demand: str
    spec: str


def of_fstring(node: ast.FormattedValue, spec: str) -> Placeholder:
    if node.conversion != -1 or spec.startswith("%"):
        # !r and !s make it text first; %H:%M is a date's.
        return Placeholder(value=node.value, demand=PLAIN, spec=spec)
    return Placeholder(value=node.value, demand=_demand(spec), spec=spec)


def of_percent(template: str, values: list[ast.expr]) -> list[Placeholder] | str:
    """The placeholders of ``template % values``, or what is wrong with their number."""
    found = [match for match in _PERCENT.finditer(template) if match["type"] != "%"]
    if any(match["key"] is not None for match in found):
        return []
    wanted = sum(1 + (match["width"] == "*") + (match["precision"] == "*") for match in found)
    if any(isinstance(value, ast.Starred) for value in values):
        return []
    if wanted != len(values):
        return f"the format string wants {wanted} values and gets {len(values)}"
    if wanted != len(found):
        return []
    return [
        Placeholder(
            value=value,
            demand="whole" if match["type"] in "xXoc" else "number" if match["type"] in "dieEfFgGu" else PLAIN,
            spec=match[0],
        )
        for match, value in zip(found, values, strict=True)
    ]


def of_mapping(template: str, values: ast.Dict) -> list[Placeholder] | str:
    """The placeholders of ``template % {…}``, or which key is not there."""
    given = {key.value: value for key, value in zip(values.keys, values.values, strict=True) if _is_text(key)}
    keys = [match["key"] for match in _PERCENT.finditer(template) if match["key"] is not None]
    if len(given) < len(values.keys):
        return []
    missing = next((key for key in keys if key not in given), None)
    return [] if missing is None else f"the format string wants {missing}, which is not given"


def _is_text(node: ast.expr | None) -> TypeGuard[ast.Constant]:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def of_format_call(template: str, node: ast.Call) -> list[Placeholder] | str:
    """The placeholders of ``"…".format(…)``, or what is wrong."""
    try:
        fields = [
            (name, spec or "", conversion)
            for _, name, spec, conversion in string.Formatter().parse(template)
            if name is not None
        ]
    except ValueError as error:
        return f"the format string cannot be read: {error}"
    if any(isinstance(value, ast.Starred) for value in node.args) or any(word.arg is None for word in node.keywords):
        return []
    return list(_fields(fields, node)) if _enough(fields, node) else "the format string wants a value that is not given"


def _enough(fields: list[tuple[str, str, str | None]], node: ast.Call) -> bool:
    automatic = sum(1 for name, _, _ in fields if name == "")
    words = {word.arg for word in node.keywords}
    for name, _, _ in fields:
        root = re.split(r"[.\[]", name)[0]
        if root.isdigit() and int(root) >= len(node.args):
            return False
        if root and not root.isdigit() and root not in words:
            return False
    return automatic <= len(node.args)


def _fields(fields: list[tuple[str, str, str | None]], node: ast.Call) -> Iterator[Placeholder]:
    automatic = iter(node.args)
    words = {word.arg: word.value for word in node.keywords}
    for name, spec, conversion in fields:
        value = next(automatic) if name == "" else node.args[int(name)] if name.isdigit() else words.get(name)
        if value is not None:
            yield Placeholder(value=value, demand=PLAIN if conversion else _demand(spec), spec=spec)


def _demand(spec: str) -> str:
    if spec == "" or spec.startswith("%"):
        return PLAIN
    if spec.endswith(_WHOLE):
        return "whole"
    return "number" if spec.endswith(_NUMERIC) or ("." in spec.rstrip("s") and not spec.endswith("s")) else "text"


def satisfies(kind: Kind, demand: str) -> bool:
    """Whether every value of that kind can be formatted so."""
    if demand == PLAIN:
        return True
    if demand == "whole":
        return kind is Kind.INT
    if demand == "number":
        return kind in NUMBERS or kind is Kind.COMPUTED
    return kind in NUMBERS or kind in (Kind.TEXT, Kind.COMPUTED)
