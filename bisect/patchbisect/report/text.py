"""Records, verdicts and findings as text for a terminal. Takes the same JSON documents that ``--json`` prints."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

Json = Mapping[str, Any]

_COLOURS = {
    "ready": "green",
    "kv-allocated": "green",
    "good": "green",
    "confirmed": "green",
    "bad": "red",
    "oom": "red",
    "crash": "red",
    "hang": "red",
    "refuted": "red",
    "skip": "yellow",
    "void": "yellow",
}

_CLAIMS = {
    "culprit_bad": "with the culprit (its own point): fails",
    "parent_good": "just before it (its parent): passes",
    "without_culprit_good": "the bad end without it: passes",
    "alone_bad": "the good end with it alone: fails",
}

_FACTS = ("kv_tokens", "kv_gb", "avail_gb", "total_gb", "weights_gb", "mem_fraction", "cell_size", "tp")


def outcome(verdict: Json) -> str:
    """``oom at kv-profile`` or ``crash (unbound-name) at kv-profile``."""
    if verdict["outcome"] in ("ready", "kv-allocated"):
        return str(verdict["outcome"])
    cause, stage = verdict.get("cause"), verdict.get("stage")
    named = f" ({cause})" if cause and cause != stage else ""
    return f"{verdict['outcome']}{named}" + (f" at {stage}" if stage else "")


def coloured(word: str, text: str | None = None) -> Text:
    return Text(text or word, style=_COLOURS.get(word, ""))


def verdict_lines(verdict: Json) -> RenderableType:
    """What a trial says, on a few lines: outcome, why, the deciding line, the facts, what to do."""
    lines: list[RenderableType] = [coloured(verdict["outcome"], f"verdict   {outcome(verdict)}")]
    if verdict.get("why"):
        lines.append(Text(f"why       {verdict['why']}"))
    if verdict.get("patch"):
        lines.append(Text(f"patch     {verdict['patch']} touches the file that failed"))
    if deciding := verdict.get("deciding"):
        rank = f" {deciding['rank']}" if deciding.get("rank") else ""
        lines.append(Text(f"line {deciding['line']:<4}{rank} {shortened(deciding['text'], 400)}"))
    facts = verdict.get("facts", {})
    known = [f"{name}={facts[name]}" for name in _FACTS if name in facts]
    if known:
        lines.append(Text(f"facts     {'  '.join(known)}"))
    for name, values in facts.get("probes", {}).items():
        lines.append(Text(f"probe     {name} {_pairs(values)}"))
    if verdict.get("advice"):
        lines.append(Text(f"advice    {verdict['advice']}"))
    return Group(*lines)


def _pairs(values: Any) -> str:
    return " ".join(f"{key}={value}" for key, value in values.items()) if isinstance(values, Mapping) else str(values)


def runs_table(rows: Iterable[Json]) -> Table:
    """One line a run (as ``runs --json`` gives them), newest last."""
    table = _table("run", "point", "profile", "box", "verdict", "kv tokens>", "s>", "kB>", "named")
    for row in rows:
        seconds = row["seconds"]
        _add(
            table,
            row["id"],
            row["point"],
            row["profile"],
            row["box"],
            coloured(row["outcome"], outcome(row)),
            str(row["kv_tokens"] or ""),
            f"{seconds:.1f}" if seconds is not None else "",
            str(round(row["bytes"] / 1000)),
            " ".join(row["tags"]),
        )
    return table


def _table(*headings: str) -> Table:
    """A table without lines; ``>`` behind a heading sets its column to the right."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        right = heading.endswith(">")
        table.add_column(heading.rstrip(">"), justify="right" if right else "left", overflow="fold")
    return table


def _add(table: Table, *cells: str | Text) -> None:
    """Add a row. Rich would read ``[…]`` in a plain string as markup, and logs and titles are full of it."""
    table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in cells))


def record_page(record: Json) -> RenderableType:
    """One record, whole enough to judge it by."""
    point, code, provenance = record["point"], record["code"], record["provenance"]
    head = _fields(
        [
            ("run", record["id"]),
            ("created", record["created"]),
            ("box", record["box"]),
            ("point", f"{point['name']}  (profile {point['profile']}, until {point['until']})"),
            ("base", _base(point, code)),
            ("patches", ", ".join(patch["name"] for patch in point["patches"]) or "none"),
            ("commit", code.get("commit", "")),
            ("tree", f"{code.get('tree', '')}  proven on the box: {provenance.get('tree', 'no')}"),
            ("import", str(provenance.get("import_path", ""))),
            ("packages", _pairs(provenance.get("versions", {}))),
            ("timings", _pairs(record["timings"])),
        ]
    )
    repeat = (
        [Text(), Text("by hand, on the box:"), Text(record["by_hand"], overflow="fold")] if record["by_hand"] else []
    )
    return Group(head, Text(), verdict_lines(record["verdict"]), *repeat)


def _base(point: Json, code: Json) -> str:
    named = point["base_rev"] or point["tag"] or point["pin"]
    return f"{named}, from {code.get('source', '?')}"


def _fields(pairs: Sequence[tuple[str, str]]) -> Table:
    table = Table.grid(padding=(0, 2))
    for name, value in pairs:
        if value:
            table.add_row(Text(name, style="bold"), Text(value, overflow="fold"))
    return table


def finding_page(finding: Json) -> RenderableType:
    """A bisection's answer: the answer, its proof, the deciding line, every trial, and how to see it again."""
    return Group(
        _answer(finding), Text(), trials_table(finding["trials"]), *_proof(finding["proof"]), *_reproduce(finding)
    )


def _answer(finding: Json) -> RenderableType:
    found = finding["answer"] == "found"
    lines: list[RenderableType] = []
    if found:
        lines.append(Text.assemble("culprit  ", (finding["culprit"]["title"], "bold red")))
    else:
        lines.append(Text.assemble("answer   ", (finding["answer"], "bold yellow")))
    lines.append(Text(f"because  {finding['reason']}"))
    if found or finding["answer"] == "set":
        assumed = ", assuming that the same point always ends the same way" if finding["assumed_deterministic"] else ""
        lines.append(Text(f"sure     {finding['confidence']:.0%} after {finding['launches']} launches{assumed}"))
    if not found:
        lines += [Text(f"         candidate: {candidate['title']}") for candidate in finding["candidates"][:12]]
    deciding = _deciding(finding)
    if deciding:
        lines.append(Text(f"line     {shortened(deciding, 300)}"))
    return Group(*lines)


def _deciding(finding: Json) -> str:
    bad = [trial for trial in finding["trials"] if trial["observation"] == "bad" and trial["verdict"].get("deciding")]
    culprit = finding.get("culprit")
    own = [trial for trial in bad if culprit and trial["position"] == culprit["position"]]
    chosen = (own or bad)[:1]
    return str(chosen[0]["verdict"]["deciding"]["text"]) if chosen else ""


def trials_table(trials: Sequence[Json]) -> Table:
    """Every launch in its order: which point, why, what it said, what the search was told."""
    table = _table("#>", "why", "point", "told", "verdict", "s>", "run")
    for number, trial in enumerate(trials, start=1):
        observation = trial["observation"] or "void"
        seconds = trial.get("seconds")
        _add(
            table,
            str(number),
            trial["purpose"],
            trial["point"],
            coloured(observation, observation.upper()),
            outcome(trial["verdict"]),
            f"{seconds:.1f}" if seconds is not None else "",
            trial["run"],
        )
    return table


def _proof(proof: Json) -> list[RenderableType]:
    if not proof:
        return []
    table = Table.grid(padding=(0, 2))
    for claim, step in proof.items():
        word = step["status"].partition(":")[0]
        _add(table, _CLAIMS.get(claim, claim), coloured(word, step["status"]), step["run"] or "")
    return [Text(), Text("proof", style="bold"), table]


def _reproduce(finding: Json) -> list[RenderableType]:
    lines: list[RenderableType] = []
    for who, how in finding.get("reproduce", {}).items():
        lines += [Text(), Text(f"{who} again", style="bold"), Text(how["task"])]
        if how.get("by_hand"):
            lines.append(Text(how["by_hand"], overflow="fold", style="dim"))
    return lines


def shortened(text: str, limit: int) -> str:
    return textwrap.shorten(text, width=limit, placeholder=" …") if len(text) > limit else text
