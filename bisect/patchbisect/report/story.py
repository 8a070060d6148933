"""A bisection's journal, told as what happened: what was asked, each launch and why, what it said and what was left."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import RenderableType
from rich.text import Text

from patchbisect.journal import Entry
from patchbisect.report.tables import add, table
from patchbisect.report.text import coloured, guilty, surely, what_is_guilty, with_number
from patchbisect.report.words import counted, words_of
from patchbisect.wire import Json

_MOST_CHANGES = 8
"""Titles of changes that the question lists."""

Known = Callable[[str], Json | None]
"""The record of a run by its id, as JSON; None where it is gone."""


@dataclass(frozen=True, slots=True)
class Told:
    """One thing that happened: when (UTC, ISO 8601), what kind of thing, and what of it."""

    at: str
    what: str
    text: str
    colour: str = ""
    """The word whose colour it takes; empty: none."""


def left_after(trials: Sequence[Json], *, changes: int, fix: bool = False) -> list[tuple[int, int]]:
    """After each trial, between which two points the change must be, if every launch is taken at its word."""
    low, high = 0, changes
    spans = []
    for trial in trials:
        position, observation = trial["position"], trial["observation"]
        if position is not None and observation == ("bad" if fix else "good"):
            low = max(low, position)
        elif position is not None and observation in ("good", "bad"):
            high = min(high, position)
        spans.append((low, max(high, low)))
    return spans


def told(entries: Iterable[Entry], *, known: Known) -> Iterator[Told]:
    """Every entry in its order. What a trial left of the changes is known once there is an answer."""
    entries = list(entries)
    findings = [entry.data["finding"] for entry in entries if entry.event == "answer"]
    reasons = {entry.data["record"]: entry.data for entry in entries if entry.event == "told"}
    reasons |= _reasons(findings[-1]) if findings else {}
    running: dict[str, str] = {}
    asked: Json = {}
    saved = _saved(entries)
    for number, entry in enumerate(entries):
        data = entry.data
        if number in saved:
            continue
        if entry.event == "begin":
            asked = data["asked"]
        elif entry.event == "intent":
            if data["content_id"] in running:
                yield Told(entry.at, "resumed", f"{running[data['content_id']]} was interrupted and is launched again")
            running[data["content_id"]] = data["record"]
        elif entry.event in ("trial", "void"):
            running.pop(data["content_id"], None)
        elif entry.event == "answer":
            running.clear()  # what was interrupted before was not needed for it
        yield from _entry(entry, asked=asked, reasons=reasons, known=known)
    for run in running.values():
        yield Told("", "open", f"{run} has not ended: it runs, or its bisection was interrupted (--resume)")


def _saved(entries: Sequence[Entry]) -> set[int]:
    """The launches, by their place in the journal, that were not made after all: what they would say was known."""
    intents: dict[str, int] = {}
    saved = set()
    for number, entry in enumerate(entries):
        if entry.event == "intent":
            intents[entry.data["content_id"]] = number
        elif entry.event in ("trial", "void"):
            intended = intents.pop(entry.data["content_id"], None)
            if intended is not None and entry.data.get("reused"):
                saved.add(intended)
    return saved


def _entry(entry: Entry, *, asked: Json, reasons: dict[str, Json], known: Known) -> Iterator[Told]:
    data, at = entry.data, entry.at
    if entry.event == "question":
        yield Told(at, "asked", _question(asked, data["changes"]))
    elif entry.event == "intent":
        yield Told(at, "launch", f"{data['purpose']}: {data['point']}  ({data['record']})")
        if why := reasons.get(data["record"], {}).get("why"):
            yield Told("", "why", why)
    elif entry.event in ("trial", "void"):
        step = reasons.get(data["record"], {})
        yield _ended(entry, step, known(data["record"]), bad_when=asked.get("bad_when"))
    elif entry.event == "undo":
        yield Told(at, "taken back", f"{data['record']} no longer counts", "void")
    elif entry.event == "mark":
        observation = data["observation"]
        yield Told(at, "marked", f"{data['point']} is {observation}, a person says", observation)
    elif entry.event == "unmark":
        yield Told(at, "unmarked", f"{data['point']} is launched again when it is needed")
    elif entry.event == "budget":
        yield Told(at, "budget", _budget(data))
    elif entry.event == "answer":
        yield from _answered(at, data["finding"])


def _question(asked: Json, changes: Sequence[Json]) -> str:
    good, bad = asked.get("good", "?"), asked.get("bad", "?")
    breaks, repairs = f"what broke {bad}, where {good} starts", f"what repaired {bad} on the way to {good}"
    sought = repairs if asked.get("fix") else breaks
    options = {"sets": "set", "good_sets": "good-set", "bad_sets": "bad-set"}
    given = [f"--{option} {value}" for name, option in options.items() for value in asked.get(name, ())]
    given += [f'--bad-when "{asked["bad_when"]}"'] if asked.get("bad_when") else []
    settings = f" ({' '.join(given)})" if given else ""
    titles = [change["title"] for change in changes[:_MOST_CHANGES]]
    more = [f"and {len(changes) - _MOST_CHANGES} more"] if len(changes) > _MOST_CHANGES else []
    return (
        f"{sought}{settings}? {counted(len(changes), 'change')} between them: {'; '.join([*titles, *more]) or 'none'}"
    )


def _budget(given: Json) -> str:
    limits = {"launches": given["budget_launches"], "minutes": given["budget_minutes"]}
    said = [f"{limit:g} {unit}" for unit, limit in limits.items() if limit]
    return f"{', '.join(said)} in all from here on" if said else "no limit from here on"


def _ended(entry: Entry, step: Json, record: Json | None, *, bad_when: str | None) -> Told:
    data = entry.data
    said = with_number(record["verdict"], bad_when) if record else "its record is gone"
    seconds = record["timings"].get("total") if record else None
    took = f" after {seconds:.1f} s" if seconds is not None else ""
    if data.get("reused"):
        return Told(
            entry.at, "known", f"{data['purpose']}: {data['point']} is {said}, from {data['record']}", _of(step)
        )
    if entry.event == "void":
        why = record["verdict"].get("why", "") if record else ""
        return Told(entry.at, "void", f"{data['record']} says nothing of the code: {why or said}", "void")
    observation = step.get("observation")
    means = f"{observation.upper()}: " if observation else ""
    left = f"; {step['left']}" if step.get("left") else ""
    return Told(entry.at, "ended", f"{means}{said}{took}{left}", _of(step))


def _of(step: Json) -> str:
    return str(step.get("observation") or "")


def _answered(at: str, finding: Json) -> Iterator[Told]:
    if named := guilty(finding):
        yield Told(at, what_is_guilty(finding), named, words_of(finding).tone)
        yield Told(at, "because", f"{finding['reason']}; {surely(finding)}")
    else:
        yield Told(at, "answer", f"{finding['answer']}: {finding['reason']}", "void")


def _reasons(finding: Json) -> dict[str, Json]:
    """By run: the step of the finding, with how many changes were left after it."""
    trials, changes = finding["trials"], len(finding["timeline"])
    spans = left_after(trials, changes=changes, fix=bool(finding.get("fix")))
    reasons: dict[str, Json] = {}
    before = changes
    for trial, (low, high) in zip(trials, spans, strict=True):
        left = high - low
        # In doubt a launch excludes nothing by itself.
        shown = f"{left} of {changes} changes left" if finding["assumed_deterministic"] and left < before else ""
        before = min(before, left)
        reasons.setdefault(trial["run"], {**trial, "left": shown})
    return reasons


def page(story: Iterable[Told]) -> RenderableType:
    """The story by the clock (UTC), each day named before its times."""
    shown = table("at=", "what=", "")
    shown.show_header = False
    day = ""
    for each in story:
        if each.at[:10] not in ("", day):
            day = each.at[:10]
            add(shown, Text(day, style="bold"), "", Text("UTC", style="dim"))
        add(shown, each.at[11:19], each.what, coloured(each.colour, each.text))
    return shown
