"""Finding a bisection's journal, and what stands in it."""

from __future__ import annotations

from pathlib import Path

from patchbisect.config import DEMO, Project, remedy_for
from patchbisect.errors import UsageError
from patchbisect.journal import Entry, Journal, identifiers, named, newest, newest_first
from patchbisect.wire import Json


def journal_of_any(project: Project, name: str) -> Journal:
    """The bisection of that name, to read: ``last`` is the one begun last, ``demo`` the demo's. Raises UsageError."""
    own, shown = project.bisections, project.demo.bisections
    if name in ("last", DEMO):
        directory = own if name == "last" else shown
        if journal := newest(directory):
            return journal
        if name == DEMO:
            raise UsageError("the demo has not been run yet", remedy="invoke demo runs it, in about three minutes")
        remedy = f"the demo's is called '{DEMO}'" if newest(shown) else "invoke bisect makes one"
        raise UsageError("there is no bisection yet", remedy=remedy)
    if journal := named(own, name) or named(shown, name):
        return journal
    raise UsageError(f"no bisection '{name}'", remedy=remedy_for(name, identifiers(own)))


def every_journal(project: Project) -> list[Journal]:
    """Every bisection that can be read, one's own before the demo's, each newest first."""
    return [*newest_first(project.bisections), *newest_first(project.demo.bisections)]


def finding_of(journal: Journal) -> Json:
    """The document of ``bisect --json`` that ended it. Raises UsageError while the bisection is open."""
    entries = list(journal.entries())
    last = next((n for n in reversed(range(len(entries))) if entries[n].event == "answer"), None)
    if last is None:
        go_on = f"invoke bisect --resume --of {journal.identifier}, or invoke watch"
        answered = next((each.identifier for each in newest_first(journal.path.parent.parent) if _answers(each)), "")
        earlier = f"; the last answer is that of --of {answered}" if answered else ""
        raise UsageError(f"bisection {journal.identifier} has no answer yet", remedy=go_on + earlier)
    amended = [text for entry in entries[last + 1 :] if (text := _amendment(entry))]
    return {"id": journal.identifier, "at": entries[last].at, **entries[last].data["finding"], "amended": amended}


def _amendment(entry: Entry) -> str:
    """What a person said after the answer, that may make it another one."""
    if entry.event == "budget":
        return "another budget was given"
    if entry.event == "undo":
        return f"{entry.data['record']} was taken back"
    if entry.event == "mark":
        return f"{entry.data['point']} was marked {entry.data['observation']}"
    return f"{entry.data['point']} is no longer marked" if entry.event == "unmark" else ""


def _answers(journal: Journal) -> list[Entry]:
    return [entry for entry in journal.entries() if entry.event == "answer"]


def runs_of(entries: list[Entry]) -> list[str]:
    """The ids of the records that a bisection rests on, in their order."""
    return [entry.data["record"] for entry in entries if entry.data.get("record")]


def held_runs(directory: Path) -> set[str]:
    """Every record that some bisection rests on."""
    journals = (Journal(path) for path in directory.glob("*/journal.jsonl"))
    return {run for journal in journals for run in runs_of(list(journal.entries()))}
