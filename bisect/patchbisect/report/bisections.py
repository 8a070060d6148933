"""Finding a bisection's journal, and what stands in it."""

from __future__ import annotations

from pathlib import Path

from patchbisect.errors import UsageError
from patchbisect.journal import Entry, Journal
from patchbisect.wire import Json


def identifiers(directory: Path) -> list[str]:
    """Every bisection's id, oldest first."""
    return sorted(path.parent.name for path in directory.glob("*/journal.jsonl"))


def journal_named(directory: Path, identifier: str) -> Journal | None:
    """The journal of that id, of its unambiguous beginning, or ``last``: the newest that has an answer, if any has.

    None where there is none. Raises UsageError for a beginning of several.
    """
    known = identifiers(directory)
    if identifier == "last":
        journals = [Journal(directory / name / "journal.jsonl") for name in reversed(known)]
        return next((journal for journal in journals if _answers(journal)), journals[0] if journals else None)
    hits = [name for name in known if name == identifier] or [name for name in known if name.startswith(identifier)]
    if len(hits) > 1:
        raise UsageError(
            f"'{identifier}' begins {len(hits)} bisections", remedy=f"say more of it: {', '.join(hits[:5])}"
        )
    return Journal(directory / hits[0] / "journal.jsonl") if hits else None


def finding_of(journal: Journal) -> Json:
    """The document of ``bisect --json`` that ended it. Raises UsageError while the bisection is open."""
    answers = _answers(journal)
    if not answers:
        raise UsageError(
            f"bisection {journal.identifier} has no answer yet",
            remedy=f"invoke bisect --resume --of {journal.identifier}, or invoke watch",
        )
    return {"id": journal.identifier, "at": answers[-1].at, **answers[-1].data["finding"]}


def _answers(journal: Journal) -> list[Entry]:
    return [entry for entry in journal.entries() if entry.event == "answer"]


def runs_of(entries: list[Entry]) -> list[str]:
    """The ids of the records that a bisection rests on, in their order."""
    return [entry.data["record"] for entry in entries if entry.data.get("record")]


def held_runs(directory: Path) -> set[str]:
    """Every record that some bisection rests on."""
    journals = (Journal(path) for path in directory.glob("*/journal.jsonl"))
    return {run for journal in journals for run in runs_of(list(journal.entries()))}
