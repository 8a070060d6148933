"""The numbers of one life, by the names that DESIGN gives them."""

from __future__ import annotations

import re
from typing import Any

from patchbisect.model import Role
from patchbisect.startup.life import Life
from patchbisect.startup.ranks import Mark, Progress
from patchbisect.startup.server_args import ServerArgs
from patchbisect.startup.vocabulary import MAMBA_GB, Kind

_CELL_FROM_GB = 1.0
"""A pool below this many GiB is printed too coarsely to work out bytes per token."""


def facts_of(life: Life, args: ServerArgs, progress: Progress) -> dict[str, Any]:
    """Facts that the log states; what it does not state is absent. ``*_gb`` are GiB."""
    facts: dict[str, Any] = {}
    _settings(facts, life, args, progress)
    _memory(facts, progress)
    pools = pools_of(progress, role=Role.TARGET)
    _pool_facts(facts, pools, progress)
    _draft_facts(facts, progress)
    if "kv_tokens" in facts and facts.get("dp", 1) > 1:
        facts["kv_tokens_all_dp"] = _all_dp(facts, progress)
    if life.port is not None:
        facts["port"] = life.port
    if life.timings:
        facts["timings_s"] = dict(life.timings)
    if life.probes:
        facts["probes"] = _probes(life)
    return facts


def _settings(facts: dict[str, Any], life: Life, args: ServerArgs, progress: Progress) -> None:
    fraction = args.number("mem_fraction_static")
    if fraction is None and life.fraction:
        fraction = float(life.fraction)
    _put(facts, "mem_fraction", fraction)
    for name, flag in (
        ("tp", "tp_size"),
        ("dp", "dp_size"),
        ("pp", "pp_size"),
        ("ep", "ep_size"),
        ("nnodes", "nnodes"),
    ):
        value = args.integer(flag)
        if value is not None and (value > 1 or name == "tp"):
            facts[name] = value
    if not life.args_line:
        for name, word in (("tp", "TP"), ("dp", "DP"), ("pp", "PP"), ("ep", "EP")):
            _put(facts, name, _size_from_labels(progress, word))


def _size_from_labels(progress: Progress, word: str) -> int | None:
    """How many ranks of a kind there are, if the labels leave no gap (rank 0 may be out of sight)."""
    numbers = {int(n) for label in progress.tracks for n in re.findall(rf"(?<![A-Z_]){word}(\d+)", label)}
    if not numbers or set(range(1, max(numbers) + 1)) - numbers:
        return None
    return max(numbers) + 1 if max(numbers) else None


def _memory(facts: dict[str, Any], progress: Progress) -> None:
    told = [mark for _, mark in progress.marks() if mark.avail is not None]
    if told:
        furthest = max(progress.weight(mark) for mark in told)
        facts["avail_gb"] = min(_avail(mark) for mark in told if progress.weight(mark) == furthest)
    begins = [_avail(m) for _, m in progress.marks(role=Role.TARGET, kind=Kind.LOAD_BEGIN) if m.avail is not None]
    if begins:
        facts["total_gb"] = min(begins)
    loads = [m.used for _, m in progress.marks(role=Role.TARGET, kind=Kind.LOAD_END) if m.used is not None]
    if loads:
        facts["weights_gb"] = max(loads)
    draft = [m.used for _, m in progress.marks(role=Role.DRAFT, kind=Kind.LOAD_END) if m.used is not None]
    if draft:
        facts["draft_weights_gb"] = max(draft)
    graphs: dict[str, float] = {}
    for label, mark in progress.marks(kind=Kind.CAPTURE_END):
        if mark.used is not None:
            graphs[label] = graphs.get(label, 0.0) + mark.used
    if graphs:
        facts["graphs_gb"] = round(max(graphs.values()), 2)
    for _, mark in progress.marks(kind=Kind.HOST_POOL):
        if "host" in mark.detail:
            facts["host_pool_gb"] = round(float(mark.detail["host"]) * 1e9 / 2**30, 2)


def _avail(mark: Mark) -> float:
    assert mark.avail is not None
    return mark.avail


def pool_gb(mark: Mark) -> float | None:
    """The size of one pool line in GiB."""
    detail = mark.detail
    if "kv" in detail:
        return float(detail["kv"])
    if "k" in detail and "v" in detail:
        return float(detail["k"]) + float(detail["v"])
    return None


def mamba_gb(mark: Mark) -> float | None:
    if "mamba" not in mark.detail:
        return None
    return round(sum(float(size) for size in MAMBA_GB.findall(mark.detail["mamba"])), 2)


def pools_of(progress: Progress, *, role: Role) -> list[Mark]:
    """The pool lines of the one rank that printed most of them: one rank's pools, not a sum over ranks."""
    by_rank: dict[str, list[Mark]] = {}
    for label, mark in progress.marks(role=role, kind=Kind.POOL):
        by_rank.setdefault(label, []).append(mark)
    return max(by_rank.values(), key=len, default=[])


def _pool_facts(facts: dict[str, Any], pools: list[Mark], progress: Progress) -> None:
    real = [mark for mark in pools if not mark.text("bound")]
    sized = [mark for mark in real if "tokens" in mark.detail]
    totals = [int(m.detail["tokens"]) for _, m in progress.marks(kind=Kind.TOTALS)]
    full = [int(m.detail["full"]) for m in pools if "full" in m.detail]
    swa = [int(m.detail["swa"]) for m in pools if "swa" in m.detail]
    named = [int(m.detail["tokens"]) for m in sized if m.detail.get("name", "").startswith("Full")]
    plain = [int(m.detail["tokens"]) for m in sized if not m.detail.get("name", "").startswith("SWA")]
    for tokens in (full, named, totals, plain):
        if tokens:
            facts["kv_tokens"] = max(tokens) if tokens is plain else min(tokens)
            break
    if not swa:
        swa = [int(m.detail["tokens"]) for m in sized if m.detail.get("name", "").startswith("SWA")]
    if swa:
        facts["swa_tokens"] = swa[-1]
    sizes = [size for size in map(pool_gb, real) if size is not None]
    if sizes:
        facts["kv_gb"] = round(sum(sizes), 2)
    states = [size for size in map(mamba_gb, pools) if size is not None]
    if states:
        facts["mamba_gb"] = round(sum(states), 2)
    cell = _cell_size(facts, sized, progress)
    if cell is not None:
        facts["cell_size"] = cell


def _cell_size(facts: dict[str, Any], sized: list[Mark], progress: Progress) -> int | None:
    """Bytes per token of one rank: stated by DSV4, else one pool's size over its tokens."""
    stated = [m.detail["cell"] for _, m in progress.marks(kind=Kind.SIZING) if "cell" in m.detail]
    if stated:
        return round(float(stated[0]))
    if len(sized) != 1 or facts.get("kv_gb", 0.0) < _CELL_FROM_GB or not facts.get("kv_tokens"):
        return None
    return round(float(facts["kv_gb"]) * 2**30 / int(sized[0].detail["tokens"]))


def _draft_facts(facts: dict[str, Any], progress: Progress) -> None:
    pools = pools_of(progress, role=Role.DRAFT)
    sizes = [size for size in map(pool_gb, pools) if size is not None]
    if sizes:
        facts["draft_kv_gb"] = round(sum(sizes), 2)


def _all_dp(facts: dict[str, Any], progress: Progress) -> int:
    """The sum over DP ranks; one that printed nothing is taken to have what the others have."""
    per_dp: dict[str, int] = {}
    for label, mark in progress.marks(role=Role.TARGET):
        word = next((part for part in label.split() if part.startswith("DP")), None)
        if word is not None and mark.kind is Kind.TOTALS:
            per_dp[word] = int(mark.detail["tokens"])
    tokens, dp = int(facts["kv_tokens"]), int(facts["dp"])
    return sum(per_dp.values()) + tokens * max(0, dp - len(per_dp))


def _probes(life: Life) -> dict[str, dict[str, dict[str, Any]]]:
    out: dict[str, dict[str, dict[str, Any]]] = {}
    for (name, rank), probe in life.probes.items():
        out.setdefault(name, {})[rank] = {key: _number(value) for key, value in probe.values.items()}
    return out


def _number(text: str) -> int | float | str:
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    return float(text) + 0.0 if re.fullmatch(r"-?\d*\.\d+(?:e[+-]?\d+)?", text) else text


def _put(facts: dict[str, Any], name: str, value: Any) -> None:
    if value is not None:
        facts[name] = value
