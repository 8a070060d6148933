"""The words of a finding: of one that looked for what broke a start, and of one that looked for what repaired it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Words:
    """How a page and a terminal speak of the change that was found."""

    culprit: str
    parent: str
    found: str
    found_set: str
    found_several: str
    """Where there are further ones that do it without the first."""
    together: str
    """What several of them are called."""
    fails: str
    """What the verdict of the failing side is called."""
    diff: str
    first: str
    between: str
    """With ``{good}`` and ``{bad}``, the first and the last point of the timeline."""
    claims: Mapping[str, str]
    """What each part of the proof must show: whether it did is said beside it."""
    tone: str

    def claim(self, name: str) -> str:
        return self.claims.get(name, name)

    def who(self, name: str) -> str:
        """The finding calls its two sides culprit and parent, whichever way it looked."""
        return {"culprit": self.culprit, "parent": self.parent}.get(name, name)


BREAK = Words(
    culprit="culprit",
    parent="parent",
    found="Culprit found",
    found_set="Culprits found: they break it only together",
    found_several="Culprits found: they break it independently of each other",
    together="culprits",
    fails="Fails with",
    diff="The culprit's change",
    first="the good end",
    between="{good} (good) and {bad} (bad)",
    claims={
        "culprit_bad": "with the culprit (its own point): must fail",
        "parent_good": "just before it (its parent): must pass",
        "without_culprit_good": "the bad end without it: must pass",
        "alone_bad": "the good end with it alone: must fail",
    },
    tone="bad",
)

FIX = Words(
    culprit="fix",
    parent="before it",
    found="Fix found",
    found_set="Fix found: these repair it only together",
    found_several="Fixes found: they repair it independently of each other",
    together="fixes",
    fails="Failed with",
    diff="The change that repairs it",
    first="the older end",
    between="{good} (older, fails) and {bad} (newer, starts)",
    claims={
        "culprit_bad": "with the fix (its own point): must pass",
        "parent_good": "just before it: must fail",
        "without_culprit_good": "the newer end without it: must fail",
        "alone_bad": "the older end with it alone: must pass",
    },
    tone="good",
)


ANSWERS = {
    "set": "One of several changes",
    "none": "No change is guilty",
    "inconclusive": "Not decided",
    "endpoint-failed": "The range cannot be searched",
}


_SPENT = "the budget is spent"
"""How a finding says so, in its reason or of a part of its proof."""


def next_step(finding: Mapping[str, Any]) -> str:
    """What to do where nothing, or not one thing, was named; empty where a culprit is."""
    if amended := finding.get("amended"):
        return f"{'; '.join(amended)} after this answer: invoke bisect --resume --of {finding['id']} answers anew"
    answer = finding["answer"]
    if answer == "set" and not finding.get("together"):
        return (
            "say of a point between them what you know (invoke bisect.mark K good), or mend what keeps it from starting"
        )
    if answer == "none" and finding["trials"]:
        return "compare a start that failed with one that did not (invoke diff-runs), and look at the machine"
    if answer == "none":
        return "name ends that differ; what differs outside of code and settings is found by invoke diff-runs RUN RUN"
    if _ran_out(finding):
        named = f" --of {finding['id']}" if finding.get("id") else ""
        return f"go on with more: invoke bisect --resume{named} --budget-launches N (or --budget-minutes), N in all"
    if answer == "inconclusive":
        return "look at the machine, or ask again with --rates unknown where launches contradict each other"
    if answer != "endpoint-failed":
        return ""
    verdict = finding["trials"][-1]["verdict"] if finding["trials"] else {}
    if verdict.get("outcome") == "void":
        return str(verdict.get("advice", "")) or "mend what the end says, and ask again"
    if finding.get("bad_when"):
        return "ask about a number that each start says (invoke show RUN), with a threshold far from both ends"
    if finding["trials"] and finding["trials"][-1]["purpose"].startswith("good end"):
        return "name an older end that starts, or let --follow-baseline search what changed since this one last did"
    ends = "--bad is the older end, which fails" if finding.get("fix") else "--bad is the end that fails"
    return (
        f"see whether the ends are swapped ({ends}), name the start that failed as it was then "
        "(--bad run:ID, or its flags with --bad-set), or raise --repeats where it fails now and then"
    )


def _ran_out(finding: Mapping[str, Any]) -> bool:
    inside = finding.get("inside")
    said = [finding.get("reason", ""), *(step["status"] for step in finding.get("proof", {}).values())]
    return any(_SPENT in text for text in said) or bool(inside and _ran_out(inside))


def words_of(finding: Mapping[str, Any]) -> Words:
    words = FIX if finding.get("fix") else BREAK
    return _of_number(words, finding["bad_when"]) if finding.get("bad_when") else words


_OPPOSITE = {"<": ">=", ">=": "<", ">": "<=", "<=": ">"}


def _of_number(words: Words, bad_when: str) -> Words:
    """The words where ``kv_tokens < 900000`` is what is bad: nothing breaks, fails or passes."""
    fact, relation, value = bad_when.split()
    bad, good = f"must have {bad_when}", f"must have {fact} {_OPPOSITE[relation]} {value}"
    return replace(
        words,
        found_set=f"{words.found_set.partition(':')[0]}: only together they do it",
        found_several=f"{words.found_several.partition(':')[0]}: independently of each other",
        fails="Bad with" if words.tone == "bad" else "Was bad with",
        between=words.between.replace("fails", "bad").replace("starts", "good"),
        claims={
            name: claim.replace("must fail", bad).replace("must pass", good) for name, claim in words.claims.items()
        },
    )


def until_word(stage: str) -> str:
    """How far a start must get, in the word of ``--until``: records hold the stage."""
    return {"serving": "ready", "kv-alloc": "kv-allocated"}.get(stage, stage)


def counted(number: int, noun: str) -> str:
    """``1 change``, ``2 changes``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
