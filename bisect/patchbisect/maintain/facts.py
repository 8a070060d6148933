"""What is known of each patch: what it touches, what it builds on, who proved it last, how old it is."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from html import escape
from typing import Any

from patchbisect.maintain.lint.effects import Effect, Read, Texts
from patchbisect.maintain.lint.sources import tree_of
from patchbisect.model import Patch
from patchbisect.patchqueue import diff_of, requires, sha256_of

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Proof:
    """The newest run that got as far as it was to get with the patch as it is now."""

    run: str
    box: str
    outcome: str
    created: str
    kv_gb: float | None = None
    kv_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class PatchFacts:
    """``functions``: ``Class.method`` by path. ``builds_on``: earlier patches whose lines it touches or names."""

    patch: Patch
    functions: Mapping[str, tuple[str, ...]]
    builds_on: tuple[str, ...]
    proof: Proof | None
    age_days: int


def facts_of(
    patches: Sequence[Patch], *, read: Read, records: Iterable[Json] = (), now: datetime | None = None
) -> list[PatchFacts]:
    """The facts of a queue whose patches are all exact on what ``read`` gives. ``records``: documents of runs."""
    texts = Texts(read)
    effects = {
        patch.name: tuple(texts.apply(file) for file in diff_of(patch).files) for patch in patches if patch.enabled
    }
    proofs = _proofs(patches, records)
    owners: dict[str, list[str]] = {}
    moment = now or datetime.now(UTC)
    facts: list[PatchFacts] = []
    for patch in patches:
        named = [other.name for other in patches if other.slug in requires(patch)]
        touched = _owned_lines(patch.name, effects.get(patch.name, ()), owners)
        facts.append(
            PatchFacts(
                patch=patch,
                functions={effect.path: functions_touched(effect) for effect in effects.get(patch.name, ())},
                builds_on=tuple(sorted({*named, *touched})),
                proof=proofs.get(patch.name),
                age_days=max(0, (moment - _aware(parsedate_to_datetime(patch.date))).days),
            )
        )
    return facts


def functions_touched(effect: Effect) -> tuple[str, ...]:
    """The innermost functions and classes whose lines a patch changes, as they are named afterwards."""
    if not effect.path.endswith(".py") or effect.after is None:
        return ()
    try:
        tree = tree_of(effect.after)
    except SyntaxError:
        return ()
    spans = list(_definitions(tree, ""))
    found: dict[str, None] = {}
    for hunk in effect.diff.hunks:
        at = hunk.first_new_line
        for line in hunk.body:
            if line[0] in "+-":
                around = [(last - first, name) for first, last, name in spans if first <= at <= last]
                found.setdefault(min(around)[1] if around else "(module)")
            at += line[0] in " +"
    return tuple(found)


def _definitions(node: ast.AST, prefix: str) -> Iterable[tuple[int, int, str]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{prefix}{child.name}"
            yield child.lineno, child.end_lineno or child.lineno, name
            yield from _definitions(child, f"{name}.")
        else:
            yield from _definitions(child, prefix)


def _owned_lines(name: str, effects: Sequence[Effect], owners: dict[str, list[str]]) -> set[str]:
    """Earlier patches whose own lines stand in this patch's hunks. ``owners``: by path, the patch of each line."""
    found: set[str] = set()
    for effect in effects:
        path = effect.diff.old_path or effect.path
        mine = owners.get(path) or [""] * ((effect.before or "").count("\n") + 1)
        fresh: list[str] = []
        at = 0
        for hunk in effect.diff.hunks if not effect.misfits else ():
            start = hunk.first_old_line - 1
            fresh += mine[at:start]
            at = start
            for line in hunk.body:
                if line[0] in " -":
                    owner = mine[at] if at < len(mine) else ""
                    found |= {owner} if owner else set()
                    fresh += [owner] if line[0] == " " else []
                    at += 1
                else:
                    fresh.append(name)
        owners[effect.path] = [*fresh, *mine[at:]]
    return found - {name}


def _proofs(patches: Sequence[Patch], records: Iterable[Json]) -> dict[str, Proof]:
    """For each patch the newest run that started with this very text of it."""
    sums = {patch.name: sha256_of(patch) for patch in patches}
    proofs: dict[str, Proof] = {}
    for document in sorted(records, key=lambda document: str(document["created"])):
        outcome = document["verdict"]["outcome"]
        if outcome not in ("ready", "kv-allocated"):
            continue
        facts = document["verdict"].get("facts", {})
        for entry in document["point"].get("patches", ()):
            if sums.get(entry["name"]) == entry["sha256"]:
                proofs[entry["name"]] = Proof(
                    run=document["id"],
                    box=document["box"],
                    outcome=outcome,
                    created=document["created"],
                    kv_gb=facts.get("kv_gb"),
                    kv_tokens=facts.get("kv_tokens"),
                )
    return proofs


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def graph_svg(facts: Sequence[PatchFacts]) -> str:
    """What builds on what as a picture: the queue from top to bottom, an arc for each dependency."""
    row, left = 34, 20 + 26 * max((len(fact.builds_on) for fact in facts), default=0)
    rows = {fact.patch.name: number for number, fact in enumerate(facts)}
    width = left + 40 + 8 * max((len(fact.patch.name) for fact in facts), default=0)
    height = row * len(facts) + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="monospace" font-size="13" role="img">',
        "<title>Which patch builds on which</title>",
    ]
    for fact in facts:
        y = row * rows[fact.patch.name] + row // 2
        for depth, name in enumerate(fact.builds_on, start=1):
            above = row * rows[name] + row // 2
            bend = left - 18 * depth
            parts.append(
                f'<path d="M {left} {y} C {bend} {y}, {bend} {above}, {left} {above}" fill="none" stroke="#888">'
                f"<title>{escape(fact.patch.name)} builds on {escape(name)}</title></path>"
            )
        fill = "currentColor" if fact.patch.enabled else "#999"
        parts.append(f'<circle cx="{left}" cy="{y}" r="4" fill="{fill}"/>')
        parts.append(f'<text x="{left + 12}" y="{y + 4}" fill="{fill}">{escape(fact.patch.name)}</text>')
    return "\n".join([*parts, "</svg>", ""])
