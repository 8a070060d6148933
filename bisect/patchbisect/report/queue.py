"""The queue as a table, and notes on its patches as lines that fold between words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from patchbisect.report.tables import Column, Fitted, printable, prose

Json = Mapping[str, Any]


def queue_table(patches: Iterable[Json]) -> RenderableType:
    """One line a patch (as ``queue --json`` gives them), in order."""
    rows = list(patches)

    def cells(of: Callable[[Json], str]) -> tuple[Text, ...]:
        return tuple(Text(printable(of(row))) for row in rows)

    return Fitted(
        (
            Column("patch", cells(lambda row: row["name"] + ("" if row["enabled"] else " (disabled)"))),
            Column("kind", cells(lambda row: row["kind"] or ""), sacrifice=1),
            Column("forwarded", cells(lambda row: row["forwarded"] or ""), least=10, sacrifice=2),
            Column("subject", cells(lambda row: row["subject"]), least=24),
            Column("files", cells(lambda row: ", ".join(row["files"])), least=40, sacrifice=3),
        )
    )


def note(text: str, *, indent: int = 0) -> RenderableType:
    """A line that folds between words, ``indent`` blanks from the left."""
    return Padding(prose(text), (0, 0, 0, indent))
