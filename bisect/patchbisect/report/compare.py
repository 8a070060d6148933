"""Two starts side by side: what differs in cause, then in effect, then what that means. Noise is left out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from patchbisect.model import Outcome, Stage, Verdict
from patchbisect.redact import MASK, is_secret
from patchbisect.report.reading import RankReading, Reading
from patchbisect.report.sources import Source
from patchbisect.report.text import gpu_words, outcome, packages
from patchbisect.wire import Json, verdict_to_json

_NOISE = frozenset(
    {
        "port", "host", "nccl_port", "dist_init_addr", "random_seed", "fastapi_root_path", "base_gpu_id", "pid_file",
        "grpc_port", "metrics_port", "tokenizer_metrics_port", "log_file", "crash_dump_folder", "file_storage_path",
    }
)  # fmt: skip
"""Arguments that change from launch to launch and decide nothing."""

_SAME_GB = 0.25
"""Free memory of the same start on the same machine moves by less (GiB), also where it is a busy host's RAM: 0.19
between real starts on one."""
_NO_POOL_GB = 0.05
"""Less than this is no pool of any use (GiB); the log's two decimals make it uncertain by a fifth of it."""
_SAME_SECONDS = 2.0
"""Time stamps in the log have whole seconds, so a stage is known to within two."""
_SAME_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that differs; None is "not there" or "not known"."""

    kind: str
    subject: str
    a: Any
    b: Any

    def document(self) -> Json:
        return {"kind": self.kind, "subject": self.subject, "a": self.a, "b": self.b}


def compare(a: Source, b: Source) -> Json:
    """The document of ``diff-runs --json``."""
    cause, effect = list(_causes(a, b)), list(_effects(a.reading, b.reading))
    return {
        "a": _side(a),
        "b": _side(b),
        "cause": [difference.document() for difference in cause],
        "effect": [difference.document() for difference in effect],
        "explanation": _explanation(a, b, cause, effect),
        "conclusion": _conclusion(a, b, cause, effect),
    }


def _side(source: Source) -> Json:
    record = source.record
    verdict = verdict_to_json(source.reading.verdict)
    return {
        "name": source.name,
        "point": record["point"]["name"] if record else None,
        "created": record["created"] if record else None,
        "verdict": {key: verdict[key] for key in ("outcome", "stage", "cause", "deciding", "why", "facts")},
        "memory": {rank.label: [[part.name, part.gb] for part in rank.memory] for rank in source.reading.ranks},
    }


# --- cause ---------------------------------------------------------------------------------------------------------


def _causes(a: Source, b: Source) -> Iterator[Difference]:
    if _launched(a) and _launched(b):
        assert a.record is not None
        assert b.record is not None
        yield from _code(a.record, b.record)
        yield from _settings(a.record["point"], b.record["point"])
        yield from _packages(a.record, b.record)
        yield from _machine(a.record["machine"], b.record["machine"])
        yield from _mapping("box", {"box": a.record["box"]}, {"box": b.record["box"]})
    asked = _asked_differences(a, b)
    yield from _arguments(a.reading.arguments, b.reading.arguments, told=asked)
    yield from _memory_before(a.reading, b.reading)


def _launched(source: Source) -> bool:
    """Whether code and settings are known: not so for a log alone, nor for a record made from one."""
    return source.record is not None and source.record["origin"] != "adopted"


def _code(a: Json, b: Json) -> Iterator[Difference]:
    if _tree(a) == _tree(b) and _tree(a):
        return
    if a["code"].get("base_commit") != b["code"].get("base_commit"):
        yield Difference("code", "base", _base(a), _base(b))
    mine, theirs = _patches(a), _patches(b)
    for name in sorted(mine.keys() | theirs.keys()):
        a_sha, b_sha = mine.get(name), theirs.get(name)
        if a_sha and b_sha and a_sha != b_sha:
            yield Difference("patch", name, f"sha256 {a_sha[:12]}", f"sha256 {b_sha[:12]}")
        elif a_sha != b_sha:
            yield Difference("patch", name, "applied" if a_sha else None, "applied" if b_sha else None)
    if not (mine or theirs) and _tree(a) != _tree(b):
        yield Difference("code", "tree", _tree(a) or None, _tree(b) or None)


def _tree(record: Json) -> str:
    return str(record["code"].get("tree") or record["provenance"].get("tree") or "")


def _base(record: Json) -> str:
    point = record["point"]
    return str(point["base_rev"] or point["tag"] or record["code"].get("base_commit", "unknown"))


def _patches(record: Json) -> dict[str, str]:
    return {patch["name"]: patch["sha256"] for patch in record["point"]["patches"]}


def _settings(a: Json, b: Json) -> Iterator[Difference]:
    yield from _mapping("profile", {"profile": a["profile"]}, {"profile": b["profile"]})
    yield from _mapping("flag", a["flags"], b["flags"])
    yield from _mapping("env", a["env"], b["env"])
    for name in sorted(set(a["secret_env"]) ^ set(b["secret_env"])):
        yield Difference("env", name, _if_secret(a, name), _if_secret(b, name))


def _if_secret(point: Json, name: str) -> str | None:
    return MASK if name in point["secret_env"] else None


def _packages(a: Json, b: Json) -> Iterator[Difference]:
    # A trial whose server died early may not have told its packages; a list that is missing is no difference.
    if packages(a) and packages(b):
        yield from _mapping("package", packages(a), packages(b))


_MACHINE = (
    ("driver", "driver"),
    ("hardware", "gpus"),
    ("hardware", "cpu"),
    ("hardware", "cores"),
    ("hardware", "ram_gb"),
    ("hardware", "system"),
    ("hardware", "kernel"),
)


def _machine(a: Json, b: Json) -> Iterator[Difference]:
    for kind, name in _MACHINE:
        mine, theirs = (gpu_words(side.get(name)) if name == "gpus" else side.get(name) for side in (a, b))
        if mine != theirs and mine not in (None, "") and theirs not in (None, ""):
            yield Difference(kind, name, mine, theirs)


def _asked_differences(a: Source, b: Source) -> frozenset[str]:
    """Arguments whose difference the flags have told already."""
    if not (_launched(a) and _launched(b) and a.record and b.record):
        return frozenset()
    flags = _mapping("flag", a.record["point"]["flags"], b.record["point"]["flags"])
    return frozenset(difference.subject.replace("-", "_") for difference in flags)


def _arguments(a: Mapping[str, str], b: Mapping[str, str], *, told: frozenset[str]) -> Iterator[Difference]:
    # A line that is cut short lacks arguments that the server had all the same.
    for name in sorted(a.keys() & b.keys() - _NOISE - told):
        if a[name] != b[name]:
            hidden = is_secret(name)
            yield Difference("argument", name, MASK if hidden else a[name], MASK if hidden else b[name])


def _memory_before(a: Reading, b: Reading) -> Iterator[Difference]:
    for label, mine, theirs in _pairs(a, b):
        if _apart(mine.began_with_gb, theirs.began_with_gb):
            yield Difference("memory-before", label or "rank", mine.began_with_gb, theirs.began_with_gb)


def _apart(a_gb: float | None, b_gb: float | None) -> bool:
    """Whether both are known, and differ by more than the same start does."""
    return a_gb is not None and b_gb is not None and abs(a_gb - b_gb) >= _SAME_GB


def _pairs(a: Reading, b: Reading) -> Iterator[tuple[str, RankReading, RankReading]]:
    theirs = {rank.label: rank for rank in b.ranks}
    for rank in a.ranks:
        if rank.label in theirs:
            yield rank.label, rank, theirs[rank.label]


def _mapping(kind: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[Difference]:
    for name in sorted(a.keys() | b.keys()):
        if a.get(name) != b.get(name):
            yield Difference(kind, name, a.get(name), b.get(name))


# --- effect --------------------------------------------------------------------------------------------------------


def _effects(a: Reading, b: Reading) -> Iterator[Difference]:
    for label, mine, theirs in _pairs(a, b):
        yield from _seconds(label, mine, theirs)
    for label, mine, theirs in _pairs(a, b):
        yield from _gigabytes(label, mine, theirs)
    mine_facts, their_facts = a.verdict.facts, b.verdict.facts
    for name in ("kv_tokens", "kv_gb", "cell_size"):
        if mine_facts.get(name) != their_facts.get(name):
            yield Difference("kv", name, mine_facts.get(name), their_facts.get(name))
    yield from _probes(mine_facts.get("probes", {}), their_facts.get("probes", {}))
    if str(a.verdict.signature) != str(b.verdict.signature):
        yield Difference("verdict", "signature", str(a.verdict.signature), str(b.verdict.signature))


def _seconds(label: str, a: RankReading, b: RankReading) -> Iterator[Difference]:
    mine, theirs = _lengths(a), _lengths(b)
    for stage in dict.fromkeys((*mine, *theirs)):
        left, right = mine.get(stage), theirs.get(stage)
        if left is None or right is None:
            yield Difference("stage", _subject(label, stage), left, right)
        elif abs(left - right) > max(_SAME_SECONDS, _SAME_SHARE * max(left, right)):
            yield Difference("time", _subject(label, stage), left, right)


def _lengths(rank: RankReading) -> dict[str, float]:
    lengths: dict[str, float] = {}
    for span in rank.spans:
        lengths[span.name] = round(lengths.get(span.name, 0.0) + span.end - span.begin, 3)
    return lengths


def _gigabytes(label: str, a: RankReading, b: RankReading) -> Iterator[Difference]:
    mine, theirs = ({**rank.took_gb, **{part.name: part.gb for part in rank.memory}} for rank in (a, b))
    for name in dict.fromkeys((*mine, *theirs)):
        left, right = mine.get(name), theirs.get(name)
        if abs((left or 0.0) - (right or 0.0)) >= _SAME_GB:
            yield Difference("memory", _subject(label, name), left, right)


def _subject(label: str, what: str) -> str:
    return f"{label} {what}".strip()


def _probes(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[Difference]:
    """A probe that fired in one start only is one difference; one that fired in both is compared value by value."""
    for probe in sorted(a.keys() | b.keys()):
        if probe not in a or probe not in b:
            yield Difference("probe", probe, "fired" if probe in a else None, "fired" if probe in b else None)
            continue
        yield from _mapping("probe", _flat(probe, a[probe]), _flat(probe, b[probe]))


def _flat(probe: str, ranks: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {f"{probe} {_subject(rank, key)}": value for rank, values in ranks.items() for key, value in values.items()}


# --- what it means -------------------------------------------------------------------------------------------------

_SETTINGS = {
    "flag": "flags differ", "argument": "arguments differ", "env": "the environment differs",
    "package": "packages differ", "driver": "the driver differs", "hardware": "the hardware differs",
    "profile": "the profile differs", "box": "the box differs",
}  # fmt: skip
_FRACTION = frozenset({"mem-fraction-static", "mem_fraction_static"})


def _conclusion(a: Source, b: Source, cause: list[Difference], effect: list[Difference]) -> str:
    """One line: the code's effect, the memory, then what differs beside them."""
    if not cause and not effect:
        return "nothing differs, in cause or in effect"
    clauses = [_code_clause(a, b, cause), _memory_clause(a.reading, b.reading), *_setting_clauses(cause)]
    return ", ".join(clause for clause in clauses if clause)


def _explanation(left: Source, right: Source, cause: list[Difference], effect: list[Difference]) -> str:
    """One line that leads to the conclusion: the formula where it explains the endings, else the endings."""
    a, b = left.reading, right.reading
    if not cause and not effect:
        return ""
    if sizing := _sizing(a, b):
        return sizing
    if str(a.verdict.signature) == str(b.verdict.signature):
        numbers = "".join(f", {each.subject} {each.a} -> {each.b}" for each in effect if each.kind == "kv")
        return f"both end the same way: {_named(a)}{numbers}"
    if not cause and _launched(left) and _launched(right):
        return "no recorded cause differs: the failure comes and goes by itself, or the machine changed"
    return f"{_named(a)} became {_named(b)}"


def _named(reading: Reading) -> str:
    return outcome(verdict_to_json(reading.verdict))


def _is_sizing(verdict: Verdict) -> bool:
    """The pool was refused by the sizing formula: the settings' doing."""
    return verdict.outcome is Outcome.OOM and verdict.cause == Stage.KV_PROFILE


def _code_clause(a: Source, b: Source, cause: list[Difference]) -> str:
    """Whether the code made a difference that shows."""
    changed = [difference for difference in cause if difference.kind in ("code", "patch")]
    known = _launched(a) and _launched(b)
    if (known and not changed) or _settings_explain(a.reading, b.reading):
        return "same code effect"
    if not changed:
        return "the code is not known"
    return f"the code differs ({_listed([difference.subject for difference in changed])})"


_MOST_NAMED = 3


def _listed(names: list[str]) -> str:
    """The first of them, and how many more there are."""
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


def _settings_explain(a: Reading, b: Reading) -> bool:
    """Whether memory and settings, put into the sizing formula, leave nothing for the code to have done.

    That is so where both end the same way with the same memory and the pools are alike or the formula's, or where the
    only failure is the sizing's and the formula says for both what happened.
    """
    if _memory_differs(a, b):
        return False
    alike = str(a.verdict.signature) == str(b.verdict.signature)
    if not alike:
        return all(_as_the_formula_says(reading) for reading in (a, b))
    return _same_pools(a.verdict.facts, b.verdict.facts) or all(_fills_the_budget(reading) for reading in (a, b))


def _same_pools(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Of a tiny model thousands of tokens take 0.00 GiB: tokens tell more."""
    return a.get("kv_tokens") == b.get("kv_tokens") and not _apart(a.get("kv_gb"), b.get("kv_gb"))


def _fills_the_budget(reading: Reading) -> bool:
    """The pool is what the formula leaves for it, so that nothing else has limited it."""
    sizing, pool_gb = reading.ledger.sizing, reading.verdict.facts.get("kv_gb")
    return sizing is not None and None not in (sizing.budget_gb, pool_gb) and not _apart(sizing.budget_gb, pool_gb)


def _as_the_formula_says(reading: Reading) -> bool:
    """The start was refused a pool and the formula leaves none, or it got one and the formula leaves one."""
    if reading.ledger.sizing is None or reading.ledger.sizing.budget_gb is None:
        return False
    if _is_sizing(reading.verdict):
        return reading.ledger.sizing.budget_gb <= _NO_POOL_GB
    started = reading.verdict.outcome in (Outcome.READY, Outcome.KV_ALLOCATED)
    return started and reading.ledger.sizing.budget_gb > 0


def _memory_clause(a: Reading, b: Reading) -> str:
    if not any(True for _ in _pairs(a, b)):
        return ""
    if differs := _memory_differs(a, b):
        return f"memory differs ({differs})"
    pairs = [(mine, theirs) for _, mine, theirs in _pairs(a, b)]
    if any(rank.began_with_gb is None for pair in pairs for rank in pair):
        return "memory not known of both"
    weighed = all("weights" in rank.took_gb for pair in pairs for rank in pair)
    return "same memory" if weighed else "same memory before the weights"


def _memory_differs(a: Reading, b: Reading) -> str:
    """What was free before the pool and what the weights took; the pool itself is the fraction's doing."""
    for label, mine, theirs in _pairs(a, b):
        if _apart(mine.began_with_gb, theirs.began_with_gb):
            return f"{label or 'rank'} began with {mine.began_with_gb:.2f} and {theirs.began_with_gb:.2f} GiB"
        for name in ("NCCL", "weights"):
            left, right = mine.took_gb.get(name), theirs.took_gb.get(name)
            if _apart(left, right):
                return f"{_subject(label, name)} took {left:.2f} and {right:.2f} GiB"
    return ""


def _setting_clauses(cause: list[Difference]) -> Iterable[str]:
    fraction = next((difference for difference in cause if difference.subject in _FRACTION), None)
    if fraction:
        yield "the fraction differs"
    for kind, word in _SETTINGS.items():
        names = [d.subject for d in cause if d.kind == kind and d.subject not in _FRACTION]
        if names:
            yield word if names == [kind] else f"{word}: {_listed(names)}"


def _sizing(a: Reading, b: Reading) -> str:
    """The sizing formula with both fractions put in, where the fraction is what differs."""
    mine, theirs = a.ledger.sizing, b.ledger.sizing
    if not (_is_sizing(a.verdict) or _is_sizing(b.verdict)):
        return ""
    if mine is None or theirs is None or mine.fraction == theirs.fraction:
        return ""
    if mine.budget_gb is None or theirs.budget_gb is None:
        return ""
    return (
        f"fraction {mine.fraction:g} leaves {mine.budget_gb:+.2f} GiB for the KV pool, "
        f"{theirs.fraction:g} leaves {theirs.budget_gb:+.2f} GiB"
    )
