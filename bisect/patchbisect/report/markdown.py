"""The page as Markdown for an issue or a pull request (GitHub's dialect).

Whatever comes from logs and patches stands in code spans and fences that it cannot close: it can neither be markup,
nor mention a person, nor link.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from patchbisect.report.page import Page
from patchbisect.report.tables import printable

_SIGNS = {
    "confirmed": "✅",
    "refuted": "❌",
    "open": "➖",
    "good": "✅",
    "bad": "❌",
    "skip": "❔",
    "void": "➖",
    "untold": "➖",
}
# GitHub takes 65,536 characters of an issue: these keep the longest report below it.
_MOST_ROWS = 60
_MOST_DIFF_LINES = 150
_LINE_CHARACTERS = 160
_VALUE_CHARACTERS = 500


def rendered(page: Page) -> str:
    """The report, shortest part first; long parts are folded."""
    return "\n".join(_lines(page)) + "\n"


def _lines(page: Page) -> Iterator[str]:
    yield f"## {page.answer}: {code(page.headline)}"
    yield ""
    if page.deciding:
        yield from _fence(page.deciding.splitlines())
    for name, value in page.facts:
        yield f"- **{name}:** {code(value)}"
    if page.proof:
        yield from ("", "### Proof", "")
        for row in page.proof:
            run = f" ({code(row.run)})" if row.run else ""
            yield f"- {_SIGNS[row.word]} {row.claim}: {code(row.status)}{run}"
    if page.commands:
        yield from ("", "### Reproduce", "")
        for command in page.commands:
            yield from _fence([f"# {command.who} again", command.task], language="sh", limit=_VALUE_CHARACTERS)
            if command.by_hand:
                yield from _folded(f"{command.who} by hand, on the box", _whole(command.by_hand))
    if page.excerpt:
        shown = [f"{'>' if line.deciding else ' '}{line.number:6} {line.text}" for line in page.excerpt.lines]
        yield from _folded(f"Deciding lines of {page.excerpt.run}", _fence(shown))
    if page.stood:
        yield from _folded("Where it stood", (f"- **{name}:** {code(value)}" for name, value in page.stood))
    if page.diff:
        lines = [line.text for line in page.diff[:_MOST_DIFF_LINES]]
        if len(page.diff) > _MOST_DIFF_LINES:
            lines.append("… the rest is in the full report")
        yield from _folded(page.words.diff, _fence(lines, language="diff"))
    if page.trials:
        yield from _folded(f"Every launch ({len(page.trials)})", _trials(page))
    if page.environment:
        rows = (f"- **{name}:** {code(value[:_VALUE_CHARACTERS])}" for name, value in page.environment)
        yield from _folded("Environment", rows)


def _trials(page: Page) -> Iterator[str]:
    yield "| # | why | point | told | verdict | s | run |"
    yield "|--:|---|---|---|---|--:|---|"
    for trial in page.trials[:_MOST_ROWS]:
        cells = (trial.point, trial.verdict, trial.run)
        point, verdict, run = (code(cell).replace("|", "\\|") for cell in cells)
        told = f"{_SIGNS[trial.observation]} {trial.observation.replace('untold', 'not judged')}"
        yield f"| {trial.number} | {trial.purpose} | {point} | {told} | {verdict} | {trial.seconds} | {run} |"
    if len(page.trials) > _MOST_ROWS:
        yield f"\n{len(page.trials) - _MOST_ROWS} more are in the full report."


def code(text: str) -> str:
    """``text`` as a code span that it cannot leave."""
    flat = printable(" ".join(text.split()))
    if not flat:
        return ""
    ticks = "`" * (_longest_run(flat) + 1)
    pad = " " if flat.startswith("`") or flat.endswith("`") else ""
    return f"{ticks}{pad}{flat}{pad}{ticks}"


def _fence(lines: Sequence[str], *, language: str = "", limit: int = _LINE_CHARACTERS) -> Iterator[str]:
    ticks = "`" * max(3, max((_longest_run(line) for line in lines), default=0) + 1)
    yield ticks + language
    yield from (printable(line[:limit]) for line in lines)
    yield ticks
    yield ""


def _whole(command: str) -> Iterator[str]:
    """A command is of use only whole."""
    return _fence([command], language="sh", limit=len(command))


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)


def _folded(title: str, lines: Iterable[str]) -> Iterator[str]:
    yield from ("", f"<details><summary>{title}</summary>", "")
    yield from lines
    yield from ("", "</details>")
