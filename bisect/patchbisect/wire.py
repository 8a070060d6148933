"""The words of the model as JSON and back: the one place that knows the field names of the machine-readable output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from patchbisect.model import (
    DecidingLine,
    Milestone,
    Outcome,
    Persistence,
    Role,
    Signals,
    Signature,
    Stage,
    Verdict,
)

Json = dict[str, Any]


def verdict_to_json(verdict: Verdict) -> Json:
    """The document of ``classify --json``; unknown facts are absent."""
    deciding = verdict.deciding
    document: Json = {
        "outcome": verdict.outcome.value,
        "stage": verdict.stage.value if verdict.stage else None,
        "cause": verdict.cause,
        "role": verdict.role.value if verdict.role else None,
        "signature": str(verdict.signature) if verdict.signature else None,
        "reached_ready": verdict.reached_ready,
        "deciding": {"line": deciding.line, "text": deciding.text, "rank": deciding.rank} if deciding else None,
        "facts": dict(verdict.facts),
        "passed": sorted(str(milestone) for milestone in verdict.passed),
        "why": verdict.why,
        "advice": verdict.advice,
    }
    if verdict.patch:
        document["patch"] = verdict.patch
    if verdict.lives:
        document["lives"] = list(verdict.lives)
    if verdict.persistence:
        document["persistence"] = verdict.persistence.value
    return document


def verdict_from_json(document: Mapping[str, Any]) -> Verdict:
    """The reverse of :func:`verdict_to_json`. Raises KeyError or ValueError on a document that is none."""
    deciding = document.get("deciding")
    return Verdict(
        outcome=Outcome(document["outcome"]),
        stage=Stage(document["stage"]) if document.get("stage") else None,
        role=Role(document["role"]) if document.get("role") else None,
        cause=document.get("cause"),
        signature=Signature.parse(document["signature"]) if document.get("signature") else None,
        reached_ready=bool(document.get("reached_ready")),
        deciding=DecidingLine(**deciding) if deciding else None,
        facts=document.get("facts", {}),
        passed=frozenset(_milestone(text) for text in document.get("passed", ())),
        patch=document.get("patch", ""),
        why=document.get("why", ""),
        advice=document.get("advice", ""),
        lives=tuple(document.get("lives", ())),
        final=True,
        persistence=Persistence(document["persistence"]) if document.get("persistence") else None,
    )


def _milestone(text: str) -> Milestone:
    role, _, stage = text.partition(":")
    return Milestone(Role(role), Stage(stage))


def signals_from_json(document: Mapping[str, Any]) -> Signals:
    """What ``classify --signals FILE`` reads. Raises ValueError naming an unknown key."""
    known = set(Signals.__dataclass_fields__)
    unknown = sorted(set(document) - known)
    if unknown:
        raise ValueError(f"unknown signal '{unknown[0]}'; known: {', '.join(sorted(known))}")
    values = dict(document)
    if values.get("alive_ranks") is not None:
        values["alive_ranks"] = tuple(values["alive_ranks"])
    if isinstance(values.get("rank_exit"), int):
        values["rank_exit"] = {"": values["rank_exit"]}
    return Signals(**values)
