"""What a reviewer of a change to the queue needs: two states of it compared, patch by patch, in words and diffs."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from patchbisect.maintain.facts import PatchFacts, Proof
from patchbisect.maintain.lint.findings import Finding, finding_to_json
from patchbisect.model import Patch, Pin
from patchbisect.patchqueue import Queue
from patchbisect.patchqueue.diff import split_lines

_LONGEST_DIFF = 400
"""Lines of one diff that are shown. Arbitrary: a comment must stay readable."""
_LONGEST_COMMENT = 60_000
"""Characters. GitHub refuses a comment of more than 65536."""

_MOST_ROWS = 60
"""Patches in one table. Arbitrary: with cells as long as they may be, a comment still holds it."""
_LONGEST_CELL = 160
_LONGEST_LINE = 400


class What(StrEnum):
    """What became of a patch between two states of the queue."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"
    REWORDED = "reworded"
    """Message or trailers alone: the code is the same."""
    MOVED = "moved"
    REFITTED = "refitted"
    """Other context or line numbers; it adds and removes the same lines."""


@dataclass(frozen=True, slots=True)
class PatchChange:
    """One patch in two states; None where it was, or is, not there. ``interdiff``: its effect then and now."""

    what: What
    before: Patch | None
    after: Patch | None
    interdiff: str = ""
    moved_from: str = ""

    @property
    def name(self) -> str:
        patch = self.after or self.before
        assert patch is not None
        return patch.name


@dataclass(frozen=True, slots=True)
class State:
    """A queue on its pin, with the texts of the files as each patch leaves them: by patch name, by path."""

    pin: Pin
    queue: Queue
    results: Mapping[str, Mapping[str, str]]
    """Only of the files that the patch itself changes."""


@dataclass(frozen=True, slots=True)
class Review:
    """All of it; ``proofs`` by patch name, ``base_proof`` the newest proven start without the change."""

    base: str
    pin_before: Pin
    pin_after: Pin
    changes: tuple[PatchChange, ...]
    findings: tuple[Finding, ...]
    facts: tuple[PatchFacts, ...]
    proof: Proof | None
    base_proof: Proof | None

    @property
    def pin_moved(self) -> bool:
        return self.pin_before.commit != self.pin_after.commit

    @property
    def to_be_told(self) -> tuple[Finding, ...]:
        """What lint says of the patches that changed, and what is wrong anywhere."""
        touched = {change.name for change in self.changes}
        return tuple(found for found in self.findings if found.counts or found.patch in touched)

    def risks(self, change: PatchChange) -> list[str]:
        return risks_of(change, {fact.patch.name: fact for fact in self.facts})


def compare_states(before: State, after: State) -> list[PatchChange]:
    """What became of each patch; patches are the same by slug, whatever their number."""
    old = {patch.slug: patch for patch in before.queue.patches}
    new = {patch.slug: patch for patch in after.queue.patches}
    common = [slug for slug in old if slug in new]
    reordered = _reordered(common, [slug for slug in new if slug in old])
    changes = [
        PatchChange(What.ADDED, None, patch)
        if slug not in old
        else _changed(old[slug], patch, before, after, reordered)
        for slug, patch in new.items()
    ]
    gone = [PatchChange(What.REMOVED, patch, None) for slug, patch in old.items() if slug not in new]
    return [*(change for change in changes if change is not None), *gone]


def _reordered(old: Sequence[str], new: Sequence[str]) -> set[str]:
    """The fewest patches that have to move for one order to become the other."""
    kept: set[str] = set()
    for block in difflib.SequenceMatcher(a=old, b=new, autojunk=False).get_matching_blocks():
        kept |= set(old[block.a : block.a + block.size])
    return set(old) - kept


def _changed(old: Patch, new: Patch, before: State, after: State, reordered: set[str]) -> PatchChange | None:
    moved_from = old.name if old.slug in reordered else ""
    then, now = before.results.get(old.name, {}), after.results.get(new.name, {})
    if _edited_lines(old) != _edited_lines(new) or old.enabled != new.enabled:
        interdiff = _interdiff(then, now)
        return PatchChange(What.CHANGED, old, new, interdiff=interdiff, moved_from=moved_from)
    if (old.subject, old.body, old.trailers, old.author) != (new.subject, new.body, new.trailers, new.author):
        return PatchChange(What.REWORDED, old, new, moved_from=moved_from)
    if moved_from:
        return PatchChange(What.MOVED, old, new, moved_from=moved_from)
    return PatchChange(What.REFITTED, old, new) if old.diff != new.diff else None


def _edited_lines(patch: Patch) -> list[str]:
    return [line for line in patch.diff.split("\n") if line[:1] in "+-" and not line.startswith(("+++ ", "--- "))]


def _interdiff(then: Mapping[str, str], now: Mapping[str, str]) -> str:
    """The files as the patch leaves them: before the change under review, and with it."""
    parts: list[str] = []
    for path in sorted({*then, *now}):
        parts += difflib.unified_diff(
            split_lines(then.get(path, "")),
            split_lines(now.get(path, "")),
            fromfile=f"before/{path}",
            tofile=f"after/{path}",
        )
    lines = "".join(line if line.endswith("\n") else line + "\n" for line in parts).split("\n")
    if len(lines) > _LONGEST_DIFF:
        lines = [*lines[:_LONGEST_DIFF], f"... {len(lines) - _LONGEST_DIFF} more lines"]
    return "\n".join(lines).rstrip("\n")


def risks_of(change: PatchChange, facts: Mapping[str, PatchFacts]) -> list[str]:
    """What to look at twice, in words."""
    patch = change.after
    if patch is None:
        return ["what it fixed or showed is gone"]
    risks: list[str] = []
    kind = patch.trailer("Kind")
    if kind != "instrumentation":
        risks.append(f"{kind}: changes behaviour")
    risks += [f"waives {value}" for key, value in patch.trailers if key.lower() == "waive"]
    if any("/distributed/" in path for path in patch.files):
        risks.append("touches collectives: test with the real number of ranks")
    if any(path.endswith(("model_runner_kv_cache_mixin.py", "memory_pool.py")) for path in patch.files):
        risks.append("touches the sizing of the KV cache: compare kv_tokens")
    if any("/sgl-kernel/" in f"/{path}" or path.endswith((".cu", ".cuh", ".cpp")) for path in patch.files):
        risks.append("needs a build")
    if (fact := facts.get(patch.name)) and fact.proof is None and patch.enabled:
        risks.append("no recorded start with this text of it")
    return risks


def review_to_json(review: Review) -> dict[str, Any]:
    """The document of ``review --json``."""
    return {
        "base": review.base,
        "pin_moved": review.pin_moved,
        "changes": [
            {
                "patch": change.name,
                "what": str(change.what),
                "moved_from": change.moved_from,
                "interdiff": change.interdiff,
                "risks": review.risks(change),
            }
            for change in review.changes
        ],
        "findings": [finding_to_json(one) for one in review.findings],
        "proof": review.proof.run if review.proof else None,
    }


def markdown(review: Review) -> str:
    """The review as a comment for a pull request."""
    facts = {fact.patch.name: fact for fact in review.facts}
    lines = [f"### Patch queue against `{_code(review.base)}`", ""]
    if not review.changes and not review.pin_moved:
        return "\n".join([*lines, "Queue and pin are the same.", ""])
    if review.pin_moved:
        before, after = review.pin_before, review.pin_after
        lines += [f"**The pin moves**: {_pin(before)} -> {_pin(after)}", ""]
    lines += ["| patch | what | kind | risks |", "| --- | --- | --- | --- |"]
    for change in review.changes[:_MOST_ROWS]:
        patch = change.after or change.before
        assert patch is not None
        what = f"{change.what}{f' (was {change.moved_from})' if change.moved_from else ''}"
        risks = "; ".join(risks_of(change, facts)) or "-"
        lines.append(f"| `{change.name}` {_cell(patch.subject)} | {what} | {patch.trailer('Kind')} | {_cell(risks)} |")
    if len(review.changes) > _MOST_ROWS:
        lines += ["", f"... and {len(review.changes) - _MOST_ROWS} more. `patchbisect review` shows them."]
    lines += ["", *_proof_lines(review), "", *_finding_lines(review.findings)]
    text = "\n".join(lines)
    left_out: list[str] = []
    for change in review.changes[:_MOST_ROWS]:
        detail = "\n".join(_detail(change, facts))
        if len(text) + len(detail) > _LONGEST_COMMENT:
            left_out.append(f"`{change.name}`")
        elif detail:
            text += "\n" + detail
    if left_out:
        text += f"\n\nToo long to show here: {', '.join(left_out)}. `patchbisect review` shows them."
    return _utf8(text) + "\n"


def refused_markdown(base: str, why: str) -> str:
    """What stands in the place of a review of a queue that cannot be read."""
    lines = why.split("\n")
    shown = "\n".join(line[:_LONGEST_LINE] for line in lines[:_MOST_ROWS])
    left = f"\n\n... and {len(lines) - _MOST_ROWS} more." if len(lines) > _MOST_ROWS else ""
    return _utf8(f"### Patch queue against `{_code(base)}`\n\nIt cannot be read:\n\n{_fence(shown, 'text')}{left}\n")


def _utf8(text: str) -> str:
    """Bytes of a patch that are not UTF-8 are shown as the replacement character."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _pin(pin: Pin) -> str:
    return f"{pin.tag or 'no tag'} (`{pin.commit[:12]}`)"


def _proof_lines(review: Review) -> list[str]:
    if review.proof is None:
        return ["**Startup**: not proven yet with this queue. `invoke launch --point HEAD` proves it."]
    proof = review.proof
    line = f"**Startup**: {proof.outcome} on `{_code(proof.box)}` in run `{proof.run}`"
    if proof.kv_gb is not None:
        line += f", KV cache {proof.kv_gb:.2f} GiB"
        base = review.base_proof
        if base is not None and base.kv_gb is not None:
            line += f" ({proof.kv_gb - base.kv_gb:+.2f} against run `{base.run}` of the base)"
    return [line + "."]


def _finding_lines(findings: Sequence[Finding]) -> list[str]:
    counted = [found for found in findings if found.counts]
    waived = sum(1 for found in findings if found.waived)
    more = f" ({waived} waived)" if waived else ""
    if not counted:
        return [f"**Lint**: nothing{more}."]
    shown = [f"- `{_code(found.patch)}:{found.line}` **{found.rule}**: {_cell(found.why)}" for found in counted[:30]]
    left = [f"- ... and {len(counted) - 30} more"] if len(counted) > 30 else []
    return [f"**Lint**: {len(counted)} findings{more}.", "", *shown, *left]


def _detail(change: PatchChange, facts: Mapping[str, PatchFacts]) -> list[str]:
    if change.what in (What.MOVED, What.REFITTED, What.REMOVED):
        return []
    patch = change.after
    assert patch is not None
    lines = ["", f"<details><summary><code>{change.name}</code>: {change.what}</summary>", ""]
    if patch.body:
        lines += [_fence(patch.body, "text"), ""]
    fact = facts.get(patch.name)
    for path, functions in (fact.functions if fact else {}).items():
        lines.append(f"- `{_code(path)}`: {', '.join(f'`{name}`' for name in functions) or '-'}")
    if fact and fact.builds_on:
        lines.append(f"- builds on {', '.join(f'`{name}`' for name in fact.builds_on)}")
    if change.what is What.ADDED:
        lines += ["", _fence(_shortened(patch.diff), "diff")]
    elif change.interdiff:
        lines += [
            "",
            "The files as it leaves them, before and after this change:",
            "",
            _fence(change.interdiff, "diff"),
        ]
    return [*lines, "", "</details>"]


def _shortened(diff: str) -> str:
    lines = diff.rstrip("\n").split("\n")
    more = [f"... {len(lines) - _LONGEST_DIFF} more lines"] if len(lines) > _LONGEST_DIFF else []
    return "\n".join([*lines[:_LONGEST_DIFF], *more])


def _fence(text: str, language: str) -> str:
    """A code block that the text itself cannot end."""
    ticks = "```"
    while ticks in text:
        ticks += "`"
    return f"{ticks}{language}\n{text}\n{ticks}"


def _cell(text: str) -> str:
    """Text from a patch inside a table: no new column, no markup of its own, nobody mentioned."""
    text = text if len(text) <= _LONGEST_CELL else f"{text[:_LONGEST_CELL]}..."
    for char in "\\`*_[]<>|~":
        text = text.replace(char, f"\\{char}")
    for char in "@#":
        text = text.replace(char, f"{char}\u200b")
    return text.replace("\n", " ")


def _code(text: str) -> str:
    return text.replace("`", "'").replace("\n", " ").replace("|", "/")
