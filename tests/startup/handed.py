"""The handed logs as test cases: real CPU starts (``cases/cpu``) and logs after public reports (``cases/logs``)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from patchbisect.model import Signals, Verdict

CASES = Path(__file__).parent / "cases"

# DESIGN lists these causes by name; elsewhere a cause is of our own choice (docs/verdicts.md).
NAMED_CAUSES = {"syntax-error", "unbound-name", "import-error", "bad-flag", "port-in-use", "nccl-error"}


@dataclass(frozen=True)
class Case:
    id: str
    text: str
    signals: Signals
    expect: dict[str, Any]
    version: str

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines(keepends=True)


def _signals(raw: dict[str, Any]) -> Signals:
    exits = raw.pop("rank_exit", None)
    return Signals(**raw, rank_exit={"": exits} if isinstance(exits, int) else exits)


def _load(*folders: Path) -> list[Case]:
    cases = []
    for folder in folders:
        for line in (folder / "cases.jsonl").read_text().splitlines():
            raw = json.loads(line)
            text = (folder / raw["log"]).read_bytes().decode()
            cases.append(Case(raw["id"], text, _signals(raw["signals"]), raw["expect"], raw["log_format_version"]))
    return cases


ALL = _load(CASES / "cpu", CASES)

OWN = _load(CASES / "own")
"""Real CPU starts of SGLang 0.5.9 that we broke ourselves, in ways that the handed ones were not."""


def differences(verdict: Verdict, expect: dict[str, Any]) -> list[str]:
    """What is wrong with ``verdict``; empty when it is right."""
    stages = expect["stage"] if isinstance(expect["stage"], list) else [expect["stage"]]
    wrong = []
    if verdict.outcome != expect["outcome"]:
        wrong.append(f"outcome {verdict.outcome}, not {expect['outcome']}")
    if verdict.stage not in stages:
        wrong.append(f"stage {verdict.stage}, not {stages}")
    named = expect["outcome"] in ("oom", "ready") or expect["cause"] in NAMED_CAUSES
    if named and verdict.cause != expect["cause"]:
        wrong.append(f"cause {verdict.cause}, not {expect['cause']}")
    if verdict.reached_ready != expect["reached_ready"]:
        wrong.append(f"reached_ready {verdict.reached_ready}")
    if verdict.role != expect.get("role", verdict.role):
        wrong.append(f"role {verdict.role}, not {expect['role']}")
    for name, value in expect.get("facts", {}).items():
        if verdict.facts.get(name) != value:
            wrong.append(f"{name} {verdict.facts.get(name)}, not {value}")
    return wrong
