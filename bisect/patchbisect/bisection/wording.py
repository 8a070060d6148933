"""A change in words, as the subject of a sentence or a line of a list; values of secrets are masked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from patchbisect.bisection.judging import Threshold, plain
from patchbisect.model import Axis, Change
from patchbisect.redact import MASK, is_secret
from patchbisect.timeline import label


def title(change: Change, *, secrets: Iterable[str] = ()) -> str:
    """One line: ``add 0006-log-rest-memory: Log what is left``, ``unset NCCL_P2P_LEVEL (was SYS)``."""
    return _masked(change, secrets=tuple(secrets)).title


_OF_PATCH = {
    "remove": "the removal of patch",
    "replace": "the new form of patch",
    "move": "the new place of patch",
}


def noun(change: Change, *, secrets: Iterable[str] = ()) -> str:
    """What is to blame, fit to stand before "breaks it"."""
    if change.note:
        head, _, subject = change.note.partition(": ")
        return f"{head} ({subject})"
    if change.parts:
        return " with ".join(noun(part, secrets=secrets) for part in change.parts)
    if change.axis is Axis.QUEUE:
        patch = change.after or change.before
        return f"{_OF_PATCH.get(change.verb, 'patch')} {patch.name} ({patch.subject})"
    if change.axis is Axis.BASE:
        return f"{label(change)} ({change.after.subject})" if change.after.subject else label(change)
    shown = _masked(change, secrets=tuple(secrets))
    kind = label(change)
    if change.verb == "add":
        return f"{kind}={shown.after}"
    if change.verb == "remove":
        return f"the missing {kind} (was {shown.before})"
    return f"{kind} ({shown.before} -> {shown.after})"


def nouns(changes: Iterable[Change], *, secrets: Iterable[str] = ()) -> str:
    """Several of them, joined by "and"."""
    names = [noun(change, secrets=secrets) for change in changes]
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


@dataclass(frozen=True, slots=True)
class Effect:
    """What a change does to a start, in words that follow its name."""

    one: str = "breaks it"
    several: str = "break it only together"
    undone: str = "the bad end starts"
    """With what follows "without them"."""
    remains: str = "the bad end still fails"
    what: str = "the failure"


BREAKS = Effect()
REPAIRS = Effect(
    one="repairs it",
    several="repair it only together",
    undone="the good end fails",
    remains="the good end still starts",
)


def on_number(threshold: Threshold, *, before: float | None, after: float | None, fix: bool = False) -> Effect:
    """What a change does to a number; ``before`` and ``after`` are its values without and with the change."""
    verb = "raise" if threshold.bad_above is not fix else "lower"
    moved = "" if before is None or after is None else f" from {plain(before)} to {plain(after)}"
    end, other = ("good", "bad") if fix else ("bad", "good")
    asked = f"{moved} (asked: {threshold.relation} {plain(threshold.value)})"
    return Effect(
        one=f"{verb}s {threshold.fact}{asked}",
        several=f"{verb} {threshold.fact} only together{asked}",
        undone=f"the {end} end is {other} by its number",
        remains=f"the {end} end is still {end} by its number",
        what=str(threshold),
    )


def _masked(change: Change, *, secrets: tuple[str, ...]) -> Change:
    if change.parts or change.axis not in (Axis.FLAGS, Axis.ENV) or not is_secret(change.subject, more=secrets):
        return change
    before, after = (None if value is None else MASK for value in (change.before, change.after))
    return replace(change, before=before, after=after)
