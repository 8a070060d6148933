"""Tables and fields that fit the terminal: what one copies or compares is never cut, the rest gives way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

_SPACE = 2
"""Blanks between two columns."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its heading and its cells. ``least`` and ``sacrifice`` say how it gives way."""

    heading: str
    cells: tuple[Text, ...]
    right: bool = False
    least: int = 0
    """Columns that it may shrink to, its cells cut with an ellipsis; 0: never cut."""
    sacrifice: int = 0
    """Left out where there is no room, the highest first; 0: always there."""

    @property
    def width(self) -> int:
        return max(len(self.heading), *(cell.cell_len for cell in self.cells), 0)

    @property
    def narrowest(self) -> int:
        return min(self.width, self.least) if self.least else self.width


@dataclass(frozen=True, slots=True)
class Fitted:
    """A table of one line a row: columns shrink, then go, until it fits. What was left out is said below."""

    columns: tuple[Column, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        # A column without a word in it is no loss at any width.
        shown = [column for column in self.columns if not column.sacrifice or any(cell.plain for cell in column.cells)]
        left_out: list[str] = []
        while _wide(shown, narrow=True) > options.max_width:
            expendable = max(shown, key=lambda column: column.sacrifice)
            if not expendable.sacrifice:
                break
            shown.remove(expendable)
            left_out.append(expendable.heading)
        yield _drawn(_shrunk(shown, options.max_width))
        if left_out:
            yield Text(f"no room for: {', '.join(left_out)}", style="dim")


@dataclass(frozen=True, slots=True)
class Folding:
    """A table where it fits on its lines, and another form of it where it does not."""

    columns: tuple[Column, ...]
    narrow: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield _drawn(self.columns) if _wide(self.columns) <= options.max_width else self.narrow


def _wide(columns: Sequence[Column], *, narrow: bool = False) -> int:
    widths = [column.narrowest if narrow else column.width for column in columns]
    return sum(widths) + _SPACE * max(len(widths) - 1, 0)


def _shrunk(columns: Sequence[Column], width: int) -> list[Column]:
    """What does not fit is taken from the columns that may shrink, from each as much as it can give."""
    missing = _wide(columns) - width
    given = []
    for column in columns:
        less = max(min(missing, column.width - column.narrowest), 0)
        missing -= less
        given.append(replace(column, cells=tuple(_cut(cell, column.width - less) for cell in column.cells)))
    return given


def _cut(text: Text, width: int) -> Text:
    if text.cell_len <= width:
        return text
    shorter = text.copy()
    shorter.truncate(width, overflow="ellipsis")
    return shorter


def _drawn(columns: Sequence[Column]) -> Table:
    headed = any(column.heading for column in columns)
    table = Table(box=None, pad_edge=False, header_style="bold", show_header=headed)
    for column in columns:
        # Folded where even that has no room: a cut id is of no use.
        table.add_column(column.heading, justify="right" if column.right else "left", overflow="fold")
    for row in zip(*(column.cells for column in columns), strict=True):
        table.add_row(*row)
    return table


def table(*headings: str) -> Table:
    """A table without lines; ``>`` behind a heading sets its column to the right, ``=`` keeps it from being folded."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        right, whole = heading.endswith(">"), heading.endswith("=")
        made.add_column(
            heading.rstrip(">="), justify="right" if right else "left", overflow="fold", no_wrap=right or whole
        )
    return made


def add(made: Table, *cells: str | Text) -> None:
    """Add a row. In a plain string Rich would read ``[…]`` as markup, and logs and titles are full of it."""
    made.add_row(*(cell if isinstance(cell, Text) else Text(printable(cell)) for cell in cells))


def fields(rows: Iterable[tuple[str, str | Text]]) -> Table:
    """Names and values; an empty value is left out, a long one is folded beside its name."""
    made = Table.grid(padding=(0, 2, 0, 0))
    made.add_column(style="bold", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in rows:
        if value:
            add(made, name, value)
    return made


def prose(text: str, *, style: str = "") -> Table:
    """Sentences, folded between words at any width."""
    made = Table.grid()
    made.add_column(overflow="fold")
    made.add_row(Text(printable(text), style=style))
    return made


def printable(text: str) -> str:
    """``text`` without control characters: a log may hold any, and some of them give orders to a terminal."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() or character in "\t\n" else "·" for character in text)
