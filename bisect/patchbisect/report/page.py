"""What a report shows, as data: from a finding or a record to the parts of a page. No markup here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypedDict

from patchbisect.errors import UsageError
from patchbisect.records import Store
from patchbisect.redact import MASK
from patchbisect.report import dossier, drawing, picturing
from patchbisect.report.drawing import Drawing
from patchbisect.report.masking import without_secrets
from patchbisect.report.reading import lines_between
from patchbisect.report.sources import Source, recorded
from patchbisect.report.tables import printable
from patchbisect.report.text import (
    asides,
    beside,
    every_launch,
    guilty,
    is_mark,
    machine_words,
    observed,
    outcome,
    package_words,
    packages,
    pairs,
    shortened,
    surely,
    together,
    with_number,
)
from patchbisect.report.words import ANSWERS, BREAK, Words, counted, next_step, until_word, words_of
from patchbisect.wire import Json

# What keeps a page under a megabyte whatever the log holds: lines around the deciding one, characters of a line,
# lines of a diff, trials, points.
CONTEXT_LINES = 14
LINE_CHARACTERS = 1200
DIFF_LINES = 400
MOST_TRIALS = 300
MOST_POINTS = 600
_SHORT = 300
_STACK_CHARACTERS = 20_000


@dataclass(frozen=True, slots=True)
class ProofRow:
    claim: str
    status: str
    word: str
    """``confirmed``, ``refuted`` or ``open``."""
    run: str
    shown: bool
    """Whether the run is among the launches of this page, so that a link to it works."""


@dataclass(frozen=True, slots=True)
class TrialRow:
    number: int
    purpose: str
    why: str
    """The search's reason for this launch."""
    point: str
    observation: str
    verdict: str
    seconds: str
    run: str
    anchor: str
    """``run-ID``; empty where an earlier row has it."""


@dataclass(frozen=True, slots=True)
class PointRow:
    """One point of the timeline: the change that makes it, and what its launches said."""

    position: int
    title: str
    state: str
    launches: int
    culprit: bool


@dataclass(frozen=True, slots=True)
class LogLine:
    number: int
    text: str
    deciding: bool


@dataclass(frozen=True, slots=True)
class Excerpt:
    run: str
    lines: tuple[LogLine, ...]


@dataclass(frozen=True, slots=True)
class DiffLine:
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Command:
    who: str
    task: str
    by_hand: str


@dataclass(frozen=True, slots=True)
class Page:
    """Everything on a report, in its order."""

    kind: str
    title: str
    words: Words
    answer: str
    """One word of the answer: ``found`` … or a run's outcome."""
    headline: str
    tone: str
    """``bad`` (something is broken, and here it is), ``good``, or ``open`` (not decided)."""
    facts: tuple[tuple[str, str], ...]
    """(name, value) right under the headline."""
    deciding: str
    made: str
    proof: tuple[ProofRow, ...] = ()
    commands: tuple[Command, ...] = ()
    points: tuple[PointRow, ...] = ()
    trials: tuple[TrialRow, ...] = ()
    left_out: str = ""
    narrowing: Drawing | None = None
    memory: Drawing | None = None
    stages: Drawing | None = None
    gpu: Drawing | None = None
    excerpt: Excerpt | None = None
    stood: tuple[tuple[str, str], ...] = ()
    """Of a server that hung: where it stood when it was ended."""
    stacks: tuple[tuple[str, str], ...] = ()
    diff_title: str = ""
    diff: tuple[DiffLine, ...] = ()
    environment: tuple[tuple[str, str], ...] = field(default=())


# --- a bisection ---------------------------------------------------------------------------------------------------


def of_finding(finding: Json, store: Store) -> Page:
    """The page of a bisection. A record that is no longer there is left out, not an error."""
    culprit = finding["culprit"]
    bad, good = _culprit_and_parent(finding)
    failing = _source(store, bad["run"]) if bad else None
    passing = _source(store, good["run"]) if good else None
    words = words_of(finding)
    names = (words.culprit, words.parent) if culprit else ("bad end", "good end")
    sides = (passing, failing) if finding.get("fix") else (failing, passing)
    pair = [(name, source) for name, source in zip(names, sides, strict=True) if source]
    trials = every_launch(finding)
    left_out = f"{len(trials) - MOST_TRIALS} later launches are not shown" if len(trials) > MOST_TRIALS else ""
    return Page(
        kind="bisection",
        title=f"Bisection {finding.get('id', '')}".strip(),
        words=words,
        answer=_answer(finding, words),
        headline=shortened(_headline(finding), _SHORT),
        tone=words.tone if _is_named(finding) else "open",
        facts=tuple(_answer_facts(finding)),
        deciding=shortened(bad["verdict"]["deciding"]["text"], _SHORT)
        if bad and bad["verdict"].get("deciding")
        else "",
        made=finding.get("at", ""),
        proof=tuple(_proof_rows(finding["proof"], words, shown={trial["run"] for trial in trials[:MOST_TRIALS]})),
        commands=tuple(_commands(finding.get("reproduce", {}), words)),
        points=tuple(_points(finding)) if finding["timeline"] else (),
        trials=tuple(_trial_rows(trials[:MOST_TRIALS], bad_when=finding.get("bad_when"))),
        left_out=left_out,
        narrowing=drawing.narrowing(
            finding["trials"],
            changes=len(finding["timeline"]),
            culprit=culprit["position"] if culprit else None,
            fix=bool(finding.get("fix")),
            certain=finding["assumed_deterministic"] or finding["confidence"] >= 1.0,
        ),
        memory=picturing.memory(pair),
        stages=picturing.stages(pair),
        gpu=picturing.gpus(pair),
        excerpt=_excerpt(failing) if failing else None,
        **_stood(store, failing),
        diff_title=shortened(culprit["title"], _SHORT) if culprit else "",
        diff=tuple(_culprit_diff(finding, store, failing, passing)),
        environment=tuple(_environment(failing or passing)),
    )


def _is_named(finding: Json) -> bool:
    return bool(finding["answer"] == "found" or finding.get("together")) and not finding.get("amended")


def _answer(finding: Json, words: Words) -> str:
    if finding.get("amended"):
        return "Answered before something was taken back"
    if guilty(finding) and finding.get("others"):
        return words.found_several
    if finding.get("together"):
        return words.found_set
    return words.found if finding["answer"] == "found" else ANSWERS.get(finding["answer"], str(finding["answer"]))


def _headline(finding: Json) -> str:
    return guilty(finding) or str(finding["reason"])


def _culprit_and_parent(finding: Json) -> tuple[Json | None, Json | None]:
    """A failing and a passing launch next to each other: of culprit and parent, else of the two ends."""
    culprit = finding["culprit"]
    after = culprit["position"] if culprit else len(finding["timeline"])
    before = after - 1 if culprit else 0
    bad_at, good_at = (before, after) if finding.get("fix") else (after, before)

    def first(position: int, observation: str) -> Json | None:
        hits = (t for t in finding["trials"] if t["position"] == position and t["observation"] == observation)
        return next(hits, None)

    # A point that runs the same content as an earlier one was launched there.
    good = next((hit for at in range(good_at, -1, -1) if (hit := first(at, "good"))), None)
    bad = first(bad_at, "bad") or next((t for t in finding["trials"] if t["observation"] == "bad"), None)
    return bad, good


def _answer_facts(finding: Json) -> Iterator[tuple[str, str]]:
    if finding["culprit"] or finding.get("together"):
        bad, _ = _culprit_and_parent(finding)
        if bad:
            yield words_of(finding).fails, shortened(with_number(bad["verdict"], finding.get("bad_when")), _SHORT)
        yield "Because", finding["reason"]
        yield "Sure", surely(finding)
    else:
        yield "Launches", str(finding["launches"])
        for candidate in finding["candidates"][:12]:
            yield "Candidate", shortened(candidate["title"], _SHORT)
    for other in finding.get("others", ())[:12]:
        yield "Also", shortened(together(other), _SHORT)
    for name, value in beside(finding):
        yield name.capitalize(), shortened(value, 2 * _SHORT)
    if step := next_step(finding):
        yield "Next", step
    between = words_of(finding).between.format(good=finding["good"], bad=finding["bad"])
    yield "Between", f"{between}, {counted(len(finding['timeline']), 'change')}"


def _proof_rows(proof: Json, words: Words, *, shown: set[str]) -> Iterator[ProofRow]:
    for claim, step in proof.items():
        status = step["status"]
        word = status if status in ("confirmed", "refuted") else "open"
        run = step["run"] or ""
        yield ProofRow(claim=words.claim(claim), status=status, word=word, run=run, shown=run in shown)


def _commands(reproduce: Json, words: Words) -> Iterator[Command]:
    for who, how in reproduce.items():
        yield Command(who=words.who(who), task=how["task"], by_hand=how.get("by_hand", ""))


def _points(finding: Json) -> Iterator[PointRow]:
    said: dict[int, list[str]] = {}
    for trial in finding["trials"]:
        if trial["position"] is not None and trial["observation"]:
            said.setdefault(trial["position"], []).append(trial["observation"])
    for point in finding.get("unbuildable", ()):
        said.setdefault(point["position"], []).append("skip")
    titles = [f"{finding['good']}: {words_of(finding).first}", *(change["title"] for change in finding["timeline"])]
    guilty = _guilty(finding)
    for position, title in enumerate(titles[:MOST_POINTS]):
        words = said.get(position, [])
        state = words[0] if len(set(words)) == 1 else "mixed" if words else "untested"
        yield PointRow(position, shortened(title, _SHORT), state, len(words), position in guilty)


def _guilty(finding: Json) -> set[int]:
    """Where on the timeline the culprits stand, those too that break it only together or without the first."""
    first = [finding["culprit"]] if finding["culprit"] else finding["candidates"] if finding.get("together") else []
    names = {change["title"] for one in (first, *finding.get("others", ())) for change in one}
    return {change["position"] for change in finding["timeline"] if change["title"] in names}


def _trial_rows(trials: Sequence[Mapping[str, Any]], *, bad_when: str | None) -> Iterator[TrialRow]:
    seen: set[str] = set()
    for number, trial in enumerate(trials, start=1):
        seconds, run = trial.get("seconds"), trial["run"]
        anchor = "" if run in seen or not run else f"run-{run}"
        seen.add(run)
        yield TrialRow(
            number=number,
            purpose=", ".join((trial["purpose"], *asides(trial))),
            why=shortened(trial.get("why") or "", _SHORT),
            point=trial["point"],
            observation=observed(trial),
            verdict="-" if is_mark(trial) else shortened(with_number(trial["verdict"], bad_when), _SHORT),
            seconds=f"{seconds:.1f}" if seconds is not None else "",
            run=run,
            anchor=anchor,
        )


def _culprit_diff(finding: Json, store: Store, failing: Source | None, passing: Source | None) -> Iterator[DiffLine]:
    """The culprit's own diff: of its patch where it is one, else what was before and after."""
    culprit = finding["culprit"]
    if not culprit:
        return
    if culprit["kind"] != "queue":
        yield DiffLine("hunk", culprit["title"])
        return
    with_it, without_it = (passing, failing) if finding.get("fix") else (failing, passing)
    holder = without_it if culprit["title"].startswith("remove") else with_it
    text = _patch_text(store, holder, culprit) if holder else None
    if text is None:
        return
    lines = text.decode(errors="replace").splitlines()
    # Of a mail only what a reader wants: the line with the id of a commit is nobody's.
    lines = lines[1:] if lines and lines[0].startswith("From ") else lines
    for line in lines[:DIFF_LINES]:
        yield DiffLine(_diff_kind(line), line[:LINE_CHARACTERS])
    if len(lines) > DIFF_LINES:
        yield DiffLine("hunk", f"… {len(lines) - DIFF_LINES} more lines")


def _patch_text(store: Store, holder: Source, culprit: Json) -> bytes | None:
    named = {name.removesuffix(".patch"): text for name, text in store.patch_texts(holder.name).items()}
    wanted = [
        name for name in named if culprit["id"] in (name, name.partition("-")[2]) or f" {name}:" in culprit["title"]
    ]
    return named[wanted[0]] if wanted else None


def _diff_kind(line: str) -> str:
    if line.startswith(("+++", "---", "diff ", "index ")):
        return "meta"
    if line.startswith("@@"):
        return "hunk"
    return {"+": "add", "-": "del"}.get(line[:1], "same")


# --- a run ---------------------------------------------------------------------------------------------------------


_TOLD = {
    "ready": "The server started",
    "kv-allocated": "The server has its KV pool",
    "oom": "Out of memory",
    "crash": "The server crashed",
    "hang": "The server hung",
    "void": "Says nothing about the code",
}


def of_run(source: Source, store: Store) -> Page:
    """The page of one recorded run."""
    record = source.record
    assert record is not None
    verdict = record["verdict"]
    pair = [("", source)]
    commands = [Command("this run", f"invoke launch --point run:{record['id']}", record["by_hand"])]
    return Page(
        kind="run",
        title=f"Run {record['id']}",
        words=BREAK,
        answer=_TOLD[verdict["outcome"]],
        headline=outcome(verdict),
        tone={"ready": "good", "kv-allocated": "good", "void": "open"}.get(verdict["outcome"], "bad"),
        facts=tuple(_verdict_facts(record, source)),
        deciding=shortened(verdict["deciding"]["text"], _SHORT) if verdict.get("deciding") else "",
        made=record["created"],
        commands=tuple(commands) if record["origin"] == "trial" else (),
        memory=picturing.memory(pair),
        stages=picturing.stages(pair),
        gpu=picturing.gpus(pair),
        excerpt=_excerpt(source),
        **_stood(store, source),
        environment=tuple(_environment(source)),
    )


def _verdict_facts(record: Json, source: Source) -> Iterator[tuple[str, str]]:
    point, verdict = record["point"], record["verdict"]
    yield "Point", f"{point['name']} on {record['box']}"
    if verdict.get("why"):
        yield "Why", shortened(verdict["why"], _SHORT)
    if verdict.get("advice"):
        yield "Advice", verdict["advice"]
    ledger = source.reading.ledger
    if ledger.window and verdict["outcome"] == "oom":
        yield "Fraction", "; ".join(ledger.window.lines())
    if ledger.sizing and ledger.sizing.contradiction:
        yield "Contradiction", ledger.sizing.contradiction
    if verdict.get("patch"):
        yield "Patch", f"{verdict['patch']} touches the file that failed"
    facts = verdict.get("facts", {})
    known = [
        f"{name} {facts[name]}" for name in ("kv_tokens", "kv_gb", "avail_gb", "mem_fraction", "tp") if name in facts
    ]
    if known:
        yield "Facts", ", ".join(known)
    for probe, ranks in facts.get("probes", {}).items():
        for rank, values in list(ranks.items())[: picturing.MOST_ROWS]:
            yield f"Probe {probe}", shortened(f"{rank} {pairs(values)}".strip(), _SHORT)


# --- parts that both have ------------------------------------------------------------------------------------------


class _Stood(TypedDict):
    stood: tuple[tuple[str, str], ...]
    stacks: tuple[tuple[str, str], ...]


def _stood(store: Store, source: Source | None) -> _Stood:
    found = store.dossier(source.name) if source and source.record else {}
    stacks = ((whose, shortened_lines(stack, _STACK_CHARACTERS)) for whose, stack in dossier.stacks(found))
    return {"stood": tuple(dossier.rows(found)), "stacks": tuple(islice(stacks, picturing.MOST_ROWS))}


def shortened_lines(text: str, limit: int) -> str:
    """``text`` cut after ``limit`` characters, without secrets."""
    return without_secrets(text[:limit]) + ("\n…" if len(text) > limit else "")


def _source(store: Store, run: str) -> Source | None:
    try:
        return recorded(store, run)
    except UsageError:
        return None


_TREE = re.compile(r"/[^\s\"']*/trees/[0-9a-f]{40}/(?:python/)?")
"""Where a trial's code lies on the box: the same in every line, and longer than what tells the lines apart."""


def _excerpt(source: Source) -> Excerpt | None:
    """The deciding line with what stands around it."""
    deciding = source.reading.verdict.deciding
    if deciding is None:
        return None
    first = max(deciding.line - CONTEXT_LINES, 1)
    shown = lines_between(source.log, first, deciding.line + CONTEXT_LINES // 2)
    return Excerpt(
        run=source.name,
        lines=tuple(
            LogLine(number, _TREE.sub("…/", _shown_line(text)), number == deciding.line)
            for number, text in enumerate(shown, start=first)
        ),
    )


def _shown_line(text: str) -> str:
    """A line of a log. A trial's log holds no secret that we gave it; the server may know others."""
    # Cut wide before and to size after, so that no half of a secret stands at the end.
    near = printable(text[: 4 * LINE_CHARACTERS].rstrip("\r"))
    return without_secrets(near)[:LINE_CHARACTERS]


def _environment(source: Source | None) -> Iterator[tuple[str, str]]:
    if source is None or source.record is None:
        return
    record = source.record
    point, code = record["point"], record["code"]
    rows: Mapping[str, Any] = {
        "Base": f"{point['base_rev'] or point['tag'] or point['pin'][:12]} {code.get('source', '')}".strip(),
        "Commit": code.get("commit", ""),
        "Tree proven on the box": record["provenance"].get("tree", ""),
        "Patches": ", ".join(patch["name"] for patch in point["patches"]) or "none",
        "Box": record["box"],
        "Profile": f"{point['profile']}, until {until_word(point['until'])}" if point["profile"] else "",
        "Flags": "  ".join(
            f"--{name} {'' if value is True else value}".rstrip() for name, value in point["flags"].items()
        ),
        "Environment": " ".join(
            [*(f"{n}={v}" for n, v in point["env"].items()), *(f"{n}={MASK}" for n in point["secret_env"])]
        ),
        "Packages": package_words(packages(record)),
        "Machine": machine_words(record["machine"]),
    }
    for name, value in rows.items():
        if value:
            yield name, shortened(str(value), 2000)
