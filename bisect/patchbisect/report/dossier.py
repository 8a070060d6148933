"""What was found out about a server that hung, before it was ended: who was missing, who said what last, who waited."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from patchbisect.report.tables import printable

Dossier = Mapping[str, Any]
_LINE_CHARACTERS = 300


def rows(dossier: Dossier) -> Iterator[tuple[str, str]]:
    """(name, value) lines: ranks that are gone, the last line of each rank, each process."""
    if missing := dossier.get("ranks_missing"):
        yield "missing", f"ranks {', '.join(map(str, missing))}: seen in the log, and no process of theirs lives"
    if alive := dossier.get("ranks_alive"):
        yield "alive", f"ranks {', '.join(map(str, alive))}"
    last = dossier.get("last_lines") or {}
    for rank, line in sorted(last.items(), key=_by_number) if isinstance(last, Mapping) else ():
        yield f"TP{rank} said" if rank else "last line", printable(str(line))[:_LINE_CHARACTERS]
    for process in dossier.get("processes") or ():
        yield f"pid {process.get('pid')}", _process(process)


def _by_number(item: tuple[str, Any]) -> tuple[int, str]:
    return (int(item[0]) if str(item[0]).isdigit() else -1, str(item[0]))


def _process(process: Mapping[str, Any]) -> str:
    waits, cpu_s, threads = process.get("waits_in"), process.get("cpu_s"), process.get("threads")
    parts = [
        printable(str(process.get("title", ""))),
        f"state {process.get('state')}",
        f"waits in {waits}" if waits and waits != "0" else "",
        f"{cpu_s:.1f} s of CPU" if isinstance(cpu_s, int | float) else "",
        f"{threads} threads" if threads else "",
    ]
    return ", ".join(part for part in parts if part)


def stacks(dossier: Dossier) -> Iterator[tuple[str, str]]:
    """(whose, where its threads are), or the reason why there are none."""
    titles = {str(each.get("pid")): str(each.get("title", "")) for each in dossier.get("processes") or ()}
    found = dossier.get("stacks") or {}
    for pid, text in found.items() if isinstance(found, Mapping) else ():
        yield (
            printable(f"pid {pid} {titles.get(str(pid), '')}".strip() if pid else "stacks"),
            printable(str(text)).strip(),
        )
