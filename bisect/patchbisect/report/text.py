"""Records, verdicts and findings as text for a terminal. Takes the same JSON documents that ``--json`` prints."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from patchbisect.report import dossier
from patchbisect.report.tables import Column, Fitted, Folding, add, fields, printable, prose, table
from patchbisect.report.words import ANSWERS, Words, next_step, until_word, words_of

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

_TELLING = re.compile(
    r"(torch|triton|transformers|sgl|sglang|flashinfer|nvidia-nccl|nvidia-cublas|cuda|vllm|xgrammar|deep|numpy)",
    re.IGNORECASE,
)

_FOUND_COLOUR = {"bad": "red", "good": "green"}

_MOST_UNBUILDABLE = 6
"""Stretches of points that cannot be built, each with its reason. Arbitrary: a screen has room for the answer too."""
_FACTS = ("kv_tokens", "kv_gb", "avail_gb", "total_gb", "weights_gb", "mem_fraction", "cell_size", "tp")


def outcome(verdict: Json) -> str:
    """``oom at kv-profile`` or ``crash (unbound-name) at kv-profile``."""
    if verdict["outcome"] in ("ready", "kv-allocated"):
        return str(verdict["outcome"])
    cause, stage = verdict.get("cause"), verdict.get("stage")
    named = f" ({cause})" if cause and cause != stage else ""
    return f"{verdict['outcome']}{named}" + (f" at {stage}" if stage else "")


def with_number(verdict: Json, bad_when: str | None) -> str:
    """The outcome, and the number that was asked about in ``kv_tokens < 900000``."""
    fact = (bad_when or "").partition(" ")[0]
    number = verdict.get("facts", {}).get(fact)
    return outcome(verdict) if number is None else f"{outcome(verdict)}, {fact} {number}"


def coloured(word: str, text: str | None = None) -> Text:
    return Text(printable(text or word), style=_COLOURS.get(word, ""))


def verdict_lines(verdict: Json, more: Sequence[tuple[str, str]] = ()) -> RenderableType:
    """What a trial says, on a few lines: outcome, why, the deciding line, the facts, what to do; and ``more`` rows."""
    facts = verdict.get("facts", {})
    known = [f"{name}={facts[name]}" for name in _FACTS if name in facts]
    patch = verdict.get("patch", "")
    if patch:
        patch += " touch the file that failed" if "," in patch else " wrote the line that failed"
    rows: list[tuple[str, str | Text]] = [
        ("verdict", coloured(verdict["outcome"], outcome(verdict))),
        ("why", verdict.get("why", "")),
        ("patch", patch),
        _line_row(verdict.get("deciding")),
        ("facts", "  ".join(known)),
    ]
    for name, ranks in facts.get("probes", {}).items():
        rows += [("probe", f"{name} {rank} {pairs(values)}".replace("  ", " ")) for rank, values in ranks.items()]
    rows += [("earlier", life) for life in verdict.get("lives", ())]
    rows.append(("advice", verdict.get("advice", "")))
    return fields([*rows, *more])


def _line_row(deciding: Json | None) -> tuple[str, str]:
    if not deciding or not deciding["text"]:
        return "", ""
    rank = f"{deciding['rank']}: " if deciding.get("rank") else ""
    return f"line {deciding['line']}", rank + shortened(deciding["text"], 400)


def pairs(values: Mapping[str, Any]) -> str:
    """``name=value …``; a float keeps six digits."""
    return " ".join(
        f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}" for name, value in values.items()
    )


_COMMIT = 12
"""Digits of a commit's id, as ``launch`` tells it: the same name may be another queue tomorrow."""


def runs_table(rows: Iterable[Json]) -> RenderableType:
    """One line a run (as ``runs --json`` gives them), newest last."""
    rows = list(rows)

    def cells(of: Callable[[Json], str]) -> tuple[Text, ...]:
        return tuple(Text(printable(of(row))) for row in rows)

    return Fitted(
        (
            Column("run", cells(lambda row: row["id"])),
            Column("point", cells(lambda row: row["point"]), least=14),
            Column("commit", cells(lambda row: str(row["commit"] or "")[:_COMMIT]), least=8, sacrifice=1),
            Column("profile", cells(lambda row: row["profile"]), sacrifice=3),
            Column("box", cells(lambda row: row["box"]), sacrifice=5),
            Column("verdict", tuple(coloured(row["outcome"], _short(row)) for row in rows)),
            Column("tokens", cells(lambda row: str(row["kv_tokens"] or "")), right=True, sacrifice=4),
            Column("s", cells(lambda row: _seconds(row["seconds"])), right=True, sacrifice=2),
            Column("kB", cells(lambda row: str(round(row["bytes"] / 1000))), right=True, sacrifice=6),
            Column("named", cells(lambda row: " ".join(row["tags"])), least=8, sacrifice=2),
        )
    )


def _seconds(seconds: float | None) -> str:
    return f"{seconds:.1f}" if seconds is not None else ""


def _short(row: Json) -> str:
    """``oom/kv-profile``, ``crash/unbound-name``: for a column."""
    return "/".join(part for part in (row["outcome"], row["cause"]) if part)


def record_page(record: Json, found: Json | None = None) -> RenderableType:
    """One record, whole enough to judge it by; ``found`` is the dossier of a hang."""
    point, code, provenance = record["point"], record["code"], record["provenance"]
    made = "" if record["origin"] == "trial" else f"  ({record['origin']})"
    made += "  (started from a warm process, not as shipped)" if record.get("warm") else ""
    head = fields(
        [
            ("run", record["id"] + made),
            ("named", " ".join(record["tags"])),
            ("created", record["created"] + (f" by patchbisect {record['made_by']}" if record["made_by"] else "")),
            ("box", record["box"]),
            ("point", _point(point)),
            ("base", _base(point, code)),
            ("patches", ", ".join(patch["name"] for patch in point["patches"]) or "none"),
            ("flags", _flags(point["flags"])),
            ("env", pairs({**point["env"], **dict.fromkeys(point["secret_env"], "***")})),
            ("commit", code.get("commit", "")),
            ("tree", _tree(code, provenance)),
            ("import", str(provenance.get("sglang", ""))),
            ("packages", package_words(packages(record))),
            ("machine", machine_words(record["machine"])),
            ("seconds", pairs(record["timings"])),
        ]
    )
    return Group(head, Text(), verdict_lines(record["verdict"]), *_stood(found or {}), *_by_hand(record["by_hand"]))


_STACK_LINES = 12


def _stood(found: Json) -> list[RenderableType]:
    """Where a server that hung stood when it was ended; the stacks in full are in the JSON and on the page."""
    rows = [*dossier.rows(found), *((whose, _top(stack)) for whose, stack in dossier.stacks(found))]
    return [Text(), Text("where it stood", style="bold"), fields(rows)] if rows else []


def _top(stack: str) -> str:
    lines = stack.splitlines()
    more = [f"… {len(lines) - _STACK_LINES} more lines: show --json"] if len(lines) > _STACK_LINES else []
    return "\n".join([*lines[:_STACK_LINES], *more])


def _tree(code: Json, provenance: Json) -> str:
    wanted, found = code.get("tree", ""), provenance.get("tree", "")
    if not wanted or not found:
        return f"{wanted}  (not proven on the box)" if wanted else ""
    return f"{wanted}  (proven on the box)" if wanted == found else f"{wanted}, but the box had {found}"


def packages(record: Json) -> dict[str, str]:
    """Distribution → version, as the box said it and as the point asked for."""
    return {**record["provenance"].get("packages", {}), **record["point"]["packages"]}


def package_words(versions: Mapping[str, str]) -> str:
    """Those that can break a start by themselves, and how many there are beside them."""
    telling = {name: version for name, version in sorted(versions.items()) if _TELLING.match(name)}
    words = ", ".join(f"{name} {version}" for name, version in telling.items())
    rest = len(versions) - len(telling)
    return f"{words} and {rest} more".removeprefix(" and ") if rest else words


def machine_words(machine: Json) -> str:
    """What a reader wants to know of a machine: ``AMD EPYC, 2 cores, 23.5 GiB, Linux 6.18; 8 x …; driver 570``."""
    parts = [
        str(machine.get("cpu", "")),
        f"{machine['cores']} cores" if machine.get("cores") else "",
        f"{machine['ram_gb']:.1f} GiB" if machine.get("ram_gb") else "",
        str(machine.get("system", "")),
        f"kernel {machine['kernel']}" if machine.get("kernel") else "",
        gpu_words(machine.get("gpus")),
        f"driver {machine['driver']}" if machine.get("driver") else "",
    ]
    return ", ".join(part for part in parts if part)


def gpu_words(gpus: Any) -> str:
    """A list of GPUs as ``8 x NAME, 94.97 GiB``."""
    if not isinstance(gpus, list | tuple):
        return str(gpus or "")
    kinds = Counter(f"{gpu.get('name', 'GPU')}, {gpu.get('total_gb', 0.0):.2f} GiB" for gpu in gpus)
    return "; ".join(f"{count} x {kind}" for kind, count in kinds.items())


def _point(point: Json) -> str:
    until = f", until {until_word(point['until'])}" if point["until"] else ""
    return str(point["name"]) + (f"  (profile {point['profile']}{until})" if point["profile"] else "")


def _flags(flags: Json) -> str:
    return "  ".join(f"--{name}" if value is True else f"--{name} {_words(value)}" for name, value in flags.items())


def _words(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _by_hand(command: str) -> list[RenderableType]:
    """Never folded: a command with line breaks in it cannot be pasted."""
    return [Text(), Text("by hand, on the box", style="bold"), Text(printable(command))] if command else []


def _base(point: Json, code: Json) -> str:
    named = str(point["base_rev"] or point["tag"] or point["pin"])
    return f"{named}, from {code['source']}" if code.get("source") else named


def finding_page(finding: Json) -> RenderableType:
    """A bisection's answer: the answer, its proof, the deciding line, every trial, and how to see it again."""
    return Group(
        _answer(finding),
        Text(),
        trials_table(every_launch(finding), bad_when=finding.get("bad_when")),
        *_proof(finding["proof"], words_of(finding)),
        *_reproduce(finding),
    )


def _answer(finding: Json) -> RenderableType:
    found = finding["answer"] == "found"
    rows: list[tuple[str, str | Text]] = [
        _named(finding),
        ("because", finding["reason"]),
    ]
    if found or finding["answer"] == "set":
        rows.append(("sure", surely(finding)))
    if not finding["culprit"]:
        rows += [("candidate", each["title"]) for each in finding["candidates"][:12] if not finding.get("together")]
    rows += beside(finding)
    rows.append(("line", shortened(_deciding(finding), 300)))
    if finding.get("amended"):
        rows.insert(0, ("outdated", Text(printable(next_step(finding)), style="bold yellow")))
    else:
        rows.append(("next", next_step(finding)))
    return fields(rows)


def _named(finding: Json) -> tuple[str, Text]:
    words = words_of(finding)
    if not (named := guilty(finding)):
        return "answer", Text(f"{finding['answer']}: {ANSWERS[finding['answer']]}", style="bold yellow")
    return what_is_guilty(finding), Text(printable(named), style=f"bold {_FOUND_COLOUR[words.tone]}")


def guilty(finding: Json) -> str:
    """All that is to blame, as one line; empty where nothing is named."""
    first = [finding["culprit"]] if finding["culprit"] else finding["candidates"] if finding.get("together") else ()
    sets = [first, *finding.get("others", ())] if first else ()
    return "; independently of that, ".join(together(one) for one in sets)


def what_is_guilty(finding: Json) -> str:
    """What that is called: ``culprit``, or ``culprits`` where it is more than one change."""
    words = words_of(finding)
    return words.culprit if finding["culprit"] and not finding.get("others") else words.together


def together(changes: Sequence[Json]) -> str:
    """Changes that break it only together, as one line."""
    return ", with ".join(str(change["title"]) for change in changes)


def surely(finding: Json) -> str:
    """How sure, on what it rests."""
    assumed = ", assuming that the same point always ends the same way" if finding["assumed_deterministic"] else ""
    known = f" and {finding['reused']} known before" if finding.get("reused") else ""
    launches = "1 launch" if finding["launches"] == 1 else f"{finding['launches']} launches"
    return f"{finding['confidence']:.0%} after {launches}{known}{assumed}"


def beside(finding: Json) -> list[tuple[str, str]]:
    """What a finding tells beside its answer: the number that was asked about, the part of the patch that is guilty,
    what became of the baseline."""
    rows = []
    if bad_when := finding.get("bad_when"):
        rows.append(("bad when", bad_when))
    if inside := finding.get("inside"):
        part = guilty(inside) or together(inside["candidates"])
        rows.append(("inside", f"{part}: {inside['reason']}" if part else inside["reason"]))
    if baseline := finding.get("baseline"):
        changed = "; ".join(f"{each['field']}: {each['then']} -> {each['now']}" for each in baseline["differences"])
        rows.append(
            (
                "baseline",
                f"started in run {baseline['run']} of {baseline['created']}; since then: {changed or 'nothing'}",
            )
        )
    marked = {trial["point"]: trial["observation"] for trial in finding["trials"] if is_mark(trial)}
    rows += [("rests on", f"{point}: marked {said} by a person, not launched") for point, said in marked.items()]
    rows += [("not buildable", told) for told in _unbuildable(finding.get("unbuildable", ()))]
    return rows


def _unbuildable(points: Sequence[Json]) -> list[str]:
    """Neighbours on the timeline together, with what the first of them says."""
    runs: list[list[Json]] = []
    for point in points:
        last = runs[-1][-1]["position"] if runs else None
        if last is not None and point["position"] == last + 1:
            runs[-1].append(point)
        else:
            runs.append([point])
    told = []
    for run in runs[:_MOST_UNBUILDABLE]:
        first, last = run[0]["position"], run[-1]["position"]
        named = run[0]["point"] if first is None else f"point {first}" if first == last else f"points {first} to {last}"
        told.append(f"{named}: {run[0]['why']}")
    left = len(runs) - len(told)
    return [*told, f"and {left} more"] if left else told


def _failed(verdict: Json) -> bool:
    """Whether there is a line that says what went wrong: a start that is bad by a number has none."""
    return bool(verdict.get("deciding")) and verdict["outcome"] not in ("ready", "kv-allocated")


def _deciding(finding: Json) -> str:
    bad = [trial for trial in finding["trials"] if trial["observation"] == "bad" and _failed(trial["verdict"])]
    culprit = finding.get("culprit")
    own = [trial for trial in bad if culprit and trial["position"] == culprit["position"]]
    chosen = (own or bad)[:1]
    return str(chosen[0]["verdict"]["deciding"]["text"]) if chosen else ""


def every_launch(finding: Json) -> list[Json]:
    """The trials of a bisection, then what the one inside its culprit had launched beyond them."""
    launches: list[Json] = list(finding["trials"])
    listed = {trial["run"] for trial in launches}
    inside = finding.get("inside")
    for trial in every_launch(inside) if inside else ():
        if trial["run"] not in listed:
            launches.append({**trial, "purpose": f"inside, {trial['purpose']}"})
    return launches


def trials_table(trials: Sequence[Json], *, bad_when: str | None = None) -> RenderableType:
    """Every launch in its order: which point, why, what it said, what the search was told, on which box where there
    are several. Where that is too wide, on two lines each.
    """
    several = len({trial.get("box") for trial in trials} - {None, ""}) > 1
    rows = [
        {
            "#": Text(str(number)),
            "why": Text(", ".join((trial["purpose"], *asides(trial)))),
            "point": Text(printable(trial["point"])),
            "told": coloured(observed(trial), observed(trial).upper().replace("UNTOLD", "-")),
            "verdict": Text("-" if is_mark(trial) else printable(with_number(trial["verdict"], bad_when))),
            "s": Text(_seconds(trial.get("seconds"))),
            "run": Text(trial["run"]),
            **({"box": Text(trial.get("box", ""))} if several else {}),
        }
        for number, trial in enumerate(trials, start=1)
    ]
    narrow = table("#>", "told=", "verdict, point", "run, why=")
    for row, trial in zip(rows, trials, strict=True):
        took = f", {row['s']} s" if row["s"] else ""
        where = [f"on {trial['box']}"] if several and trial.get("box") else []
        beside = "\n".join((f"{trial['purpose']}{took}", *asides(trial), *where))
        add(
            narrow,
            row["#"],
            row["told"],
            Text.assemble(row["verdict"], "\n", (row["point"].plain, "dim")),
            Text.assemble(row["run"], "\n", (beside, "dim")),
        )
    names = list(rows[0]) if rows else []
    wide = (Column(name, tuple(row[name] for row in rows), right=name in ("#", "s")) for name in names)
    return Folding(tuple(wide), narrow)


def observed(trial: Json) -> str:
    """What the search was told: an observation, ``void``, or ``untold`` where it was not known yet what is bad."""
    return trial["observation"] or ("void" if trial["verdict"]["outcome"] == "void" else "untold")


def is_mark(trial: Json) -> bool:
    """Whether it is what a person said of the point, in place of a launch."""
    return not trial["run"]


def asides(trial: Json) -> list[str]:
    """``marked`` and ``known before``: no server was started; ``warm``: not started as shipped."""
    if is_mark(trial):
        return ["marked"]
    return [words for words, so in (("known before", trial.get("reused")), ("warm", trial.get("warm"))) if so]


def reason_page(reason: Json) -> RenderableType:
    """Why one trial was made, and what came of it."""
    verdict, told = reason["verdict"], reason["told"]
    return fields(
        [
            ("run", reason["run"] + ("  (taken back)" if reason["undone"] else "")),
            ("of", f"bisection {reason['bisection']}"),
            ("point", reason["point"]),
            ("purpose", reason["purpose"]),
            ("why", reason["why"]),
            ("verdict", coloured(verdict["outcome"], outcome(verdict)) if verdict else ""),
            _line_row(verdict.get("deciding")),
            ("told", coloured(told, told.upper()) if told else "- (not known yet what is bad)"),
        ]
    )


def _proof(proof: Json, words: Words) -> list[RenderableType]:
    if not proof:
        return []
    claims, said = [], []
    for claim, step in proof.items():
        status = step["status"]
        claims.append(Text(words.claim(claim)))
        by = step["run"] or ("by a mark" if status in ("confirmed", "refuted") else "")
        shown = f"{status:{len('confirmed')}}  {by}".rstrip()
        said.append(coloured(status.partition(":")[0], shown))
    narrow = fields([("", Text.assemble(claim, "\n  ", told)) for claim, told in zip(claims, said, strict=True)])
    return [
        Text(),
        Text("proof", style="bold"),
        Folding((Column("", tuple(claims)), Column("", tuple(said))), narrow),
    ]


def _reproduce(finding: Json) -> list[RenderableType]:
    lines: list[RenderableType] = []
    for who, how in finding.get("reproduce", {}).items():
        lines += [Text(), Text(f"{words_of(finding).who(who)} again", style="bold"), Text(how["task"])]
        if how.get("by_hand"):
            lines.append(Text(printable(how["by_hand"]), style="dim"))
    return lines


def shortened(text: str, limit: int) -> str:
    """``text`` cut at a word, to ``limit`` characters."""
    if len(text) <= limit:
        return text
    # Cut first: a line of a log may have megabytes, and runs of blanks are few.
    return textwrap.shorten(text[: 4 * limit], width=limit, placeholder=" …") or text[:limit]


def comparison_page(comparison: Json) -> RenderableType:
    """Two starts: what differs in cause, then in effect, then what it means."""
    a, b = comparison["a"], comparison["b"]
    head = table("", "a", "b")
    add(head, "run", a["name"], b["name"])
    add(head, "point", a["point"] or "", b["point"] or "")
    add(head, "verdict", *(coloured(side["verdict"]["outcome"], outcome(side["verdict"])) for side in (a, b)))
    parts: list[RenderableType] = [head]
    for kind in ("cause", "effect"):
        parts += [Text(), Text(f"what differs in {kind}", style="bold")]
        shown = [each for each in comparison[kind] if not _told_by_head(each, a["verdict"], b["verdict"])]
        parts.append(_differences(shown) if shown else Text("  nothing"))
    if comparison["explanation"]:
        parts += [Text(), prose(comparison["explanation"])]
    return Group(*parts, Text(), prose(comparison["conclusion"], style="bold"))


def _told_by_head(difference: Json, a: Json, b: Json) -> bool:
    """A signature is long; it is shown where the verdicts in words do not tell the two apart."""
    return bool(difference["subject"] == "signature" and outcome(a) != outcome(b))


_UNITS = {"time": " s", "stage": " s", "memory": " GiB", "memory-before": " GiB"}


_WIDEST_VALUE = 60
"""Characters of a value in the table of differences: a longer one has a line of its own below."""


def _differences(differences: Iterable[Json]) -> RenderableType:
    shown, below = table("kind", "what", "a", "b"), []
    for difference in differences:
        kind = difference["kind"].replace("-", " ")
        values = [_value(difference, side) for side in ("a", "b")]
        if max(map(len, values)) <= _WIDEST_VALUE:
            add(shown, kind, difference["subject"], *values)
            continue
        add(shown, kind, difference["subject"], "below", "below")
        below += [(f"{difference['subject']}, {side}", value) for side, value in zip("ab", values, strict=True)]
    return Group(shown, Text(), fields(below)) if below else shown


def _value(difference: Json, side: str) -> str:
    """One side of a difference; an argument that the server resolved to None is as absent as a flag that is not set."""
    kind, value = difference["kind"], difference[side]
    if value is None or (kind == "argument" and value == "None"):
        return "not reached" if kind == "stage" else "-"
    return f"{value:g}" if isinstance(value, float) and kind == "probe" else f"{_words(value)}{_UNITS.get(kind, '')}"
