"""The way back into a bisection: its journal, what was asked when it began, and the budget it has been given since."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

from patchbisect.bisection.bench import standing
from patchbisect.bisection.session import Asked, without_secrets
from patchbisect.config import DEMO, Project, remedy_for
from patchbisect.errors import UsageError
from patchbisect.journal import Journal, identifiers, named, newest
from patchbisect.records import Store

BUDGETS = ("budget_launches", "budget_minutes")
"""What a bisection may be given more of on its way; 0 is "no limit". The event ``budget`` says both."""

_AT_HAND = ("scheduler", "suspects", *BUDGETS)
"""Of what was asked: what does not have to be as it was, or is no word of the command line."""

_OPTIONS = {"sets": "set", "good_sets": "good-set", "bad_sets": "bad-set", "paths": "path"}


def resumed(identifier: str, *, project: Project) -> tuple[Journal, Asked]:
    """The journal of that id, of its unambiguous beginning or ``last``, and what is asked by now. Raises UsageError."""
    directory = project.bisections
    journal = newest(directory) if identifier == "last" else named(directory, identifier)
    if journal is None and (identifier == DEMO or named(project.demo.bisections, identifier)):
        raise UsageError(
            "the demo's bisection is looked at only: nothing is said of it, and it is not gone on with",
            remedy="bisect.log, bisect.why and bisect.replay take --of demo; invoke demo makes it anew",
        )
    if journal is None:
        raise UsageError(f"no bisection '{identifier}'", remedy=remedy_for(identifier, identifiers(directory)))
    first = next(journal.entries(), None)
    if first is None or first.event != "begin":
        raise UsageError(f"{journal.path}: does not begin with a question", remedy="start a new bisection")
    asked_in = Path(first.data["root"])
    if asked_in != project.root:
        raise UsageError(f"bisection {journal.identifier} belongs to {asked_in}", remedy=f"cd {asked_in}")
    return journal, _with_budget(Asked.of(first.data["asked"]), journal)


def _with_budget(asked: Asked, journal: Journal) -> Asked:
    """The budget that was given last. It is as if it had been there from the beginning: a bisection launches the same
    until its budget is spent, and nothing after that, so what a smaller one allowed is the beginning of it."""
    given = [entry.data for entry in journal.entries() if entry.event == "budget"]
    return replace(asked, **{name: given[-1][name] for name in BUDGETS}) if given else asked


def heard(asked: Asked, now: Asked, *, journal: Journal, project: Project) -> Asked:
    """What was asked, with what may be said anew as ``now``, the words of the command that resumes it, has it.

    Raises UsageError for other words than it was begun with, and for a budget that is spent already.
    """
    usual, said = asdict(Asked(good="clean", bad="HEAD")), without_secrets(now, project=project)
    for name, before in without_secrets(asked, project=project).items():
        if name not in _AT_HAND and said[name] not in (before, usual[name]):
            option = _OPTIONS.get(name, name.replace("_", "-"))
            raise UsageError(
                f"--{option} cannot change on the way: bisection {journal.identifier} was begun {_shown(before)}",
                remedy="leave it out, or start a new bisection",
            )
    # Clusters come and go: what was found out on one counts on another, box by box.
    budget = {name: getattr(now, name) or getattr(asked, name) for name in BUDGETS}
    answer = replace(asked, scheduler=now.scheduler or asked.scheduler, **budget)
    if answer != replace(asked, scheduler=answer.scheduler):
        _affordable(answer, journal=journal, store=Store.of(project))
    return answer


def _shown(value: object) -> str:
    if not value:
        return "without it"
    return f"with {', '.join(map(str, value)) if isinstance(value, tuple) else value}"


def paid(journal: Journal) -> list[str]:
    """The records of its launches that count, but for verdicts that were known before."""
    return [entry.data["record"] for entry in standing(journal) if not entry.data["reused"]]


def _affordable(asked: Asked, *, journal: Journal, store: Store) -> None:
    """Raises UsageError for a budget that is smaller than what was spent."""
    made = paid(journal)
    minutes = sum(store.load(record).timings.get("total", 0.0) for record in made) / 60
    if 0 < asked.budget_launches < len(made):
        raise UsageError(
            f"--budget-launches {asked.budget_launches}: {len(made)} are made already, and they count",
            remedy=f"say how many there may be in all: more than {len(made)}",
        )
    if 0 < asked.budget_minutes < minutes:
        raise UsageError(
            f"--budget-minutes {asked.budget_minutes:g}: {minutes:.2f} are spent already, and they count",
            remedy=f"say how many there may be in all: more than {minutes:.2f}",
        )


def note_budget(asked: Asked, *, before: Asked, journal: Journal) -> None:
    """Write the budget down where it is another one than before."""
    budget, old = ({name: getattr(one, name) for name in BUDGETS} for one in (asked, before))
    if budget != old:
        journal.append("budget", **budget)
