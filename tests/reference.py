"""docs/settings.md and docs/causes.md, written from the code: python -m tests.reference"""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import BaseModel

from patchbisect.config import BoxConfig, EmbeddedSettings, Profile, Settings, Upstream
from patchbisect.model import Outcome, Stage, Verdict
from patchbisect.startup import SILENCE
from patchbisect.startup.advice import advise

DOCS = Path(__file__).parents[1] / "docs"
PAGE, CAUSES, VERDICTS = DOCS / "settings.md", DOCS / "causes.md", DOCS / "verdicts.md"

HEAD = """# Settings

`invoke.yaml`, everything under the one key `patchbisect:`. An unknown key is an error that names the nearest one.
Environment values are strings: quote them, YAML turns `on`, `012`, `12:30` and `0.50` into other things.
`PATCHBISECT_HOME` moves the state directory (default: `.patchbisect/` beside `invoke.yaml`).
This page is written from the code: `python -m tests.reference`.
"""

SECTIONS: tuple[tuple[str, type[BaseModel]], ...] = (
    ("patchbisect", Settings),
    ("patchbisect.upstream", Upstream),
    ("patchbisect.embedded", EmbeddedSettings),
    ("patchbisect.boxes.NAME", BoxConfig),
    ("patchbisect.profiles.NAME", Profile),
)


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *(part for name, model in SECTIONS for part in _section(name, model)), _silence()])


def _section(name: str, model: type[BaseModel]) -> list[str]:
    rows = [f"## `{name}`", "", (model.__doc__ or "").strip(), "", "| key | default | what it is |", "|---|---|---|"]
    for key, field in model.model_fields.items():
        default = field.get_default(call_default_factory=True)
        shown = "" if isinstance(default, (BaseModel, dict)) or default in (None, (), "") else f"`{default}`"
        if isinstance(default, bool):
            shown = f"`{str(default).lower()}`"
        text = " ".join((field.description or "").split()).replace("``", "`").replace("|", "\\|")
        rows.append(f"| `{field.alias or key}` | {shown} | {text} |")
    return [*rows, ""]


def _silence() -> str:
    rows = ["## Budgets of silence", "", "| stage | seconds |", "|---|---|"]
    rows += [f"| `{stage}` | {SILENCE[stage]:.0f} |" for stage in Stage if stage in SILENCE]
    return "\n".join([*rows, ""])


CAUSES_HEAD = """# What to do about it

Each outcome, and each cause of it, with what to try. A verdict says the same in its line `advice`, with the numbers of
that start put in. [How a verdict is made](verdicts.md) tells where outcome and cause come from.
This page is written from the code: `python -m tests.reference`.
"""

OUTCOMES = {
    Outcome.READY: (
        "The server answered. Later failures of the same log are listed, and do not change it.",
        "Nothing. For a bisection it is a good start, whatever stage the failure in question belongs to.",
    ),
    Outcome.KV_ALLOCATED: (
        "Every rank has its KV pool: what a launch with `--until kv-allocated` asked for, or a server on its way.",
        "Nothing, where you asked for it. Otherwise launch it with `--until ready`.",
    ),
    Outcome.OOM: (
        "Memory ran out: of a GPU, or of the machine (`host-ram`). The stage says when.",
        "`invoke explain --of RUN` shows where the memory of each rank went, and which `--mem-fraction-static` would "
        "do. Before the pool a larger fraction helps, after it a smaller one.",
    ),
    Outcome.CRASH: (
        "The server ended, or an exception ended it.",
        "Read the deciding line (`invoke show RUN`), then the lines before it (`invoke report --of RUN --html FILE`). "
        "`invoke bisect` names the change where an earlier start got further.",
    ),
    Outcome.HANG: (
        "The server lives and says nothing for longer than its stage allows, or a time-out ended it.",
        "The record keeps last lines, stacks and missing ranks: `invoke show RUN`. A stage that may be silent "
        "longer on your machine gets its own budget (`silence` in the settings).",
    ),
    Outcome.VOID: (
        "The launch says nothing about the code: link lost, box not clean, disk full, a patch that does not apply. "
        "It never counts as good or bad.",
        "A transient void is tried again by itself. For a permanent one do what its `why` names: `invoke doctor` looks "
        "at the box, `invoke lint` at the patches.",
    ),
}
_ROW = re.compile(r"^\| `([\w-]+)` \| ([\w, -]+) \| (.+?) \|$", re.MULTILINE)
_STAGES = {
    "kv-profile": Stage.KV_PROFILE, "weight-load": Stage.WEIGHT_LOAD, "comm-buffer": Stage.DIST_INIT,
    "graph-capture": Stage.GRAPH_CAPTURE, "runtime": Stage.SERVING, "warmup": Stage.WARMUP,
}  # fmt: skip


def causes() -> str:
    """The page of outcomes and causes."""
    return "\n".join([CAUSES_HEAD, *(part for outcome in Outcome for part in _outcome(outcome))])


def known_causes() -> list[tuple[str, Outcome, str]]:
    """(cause, outcome, meaning), as the table of verdicts has them."""
    rows = _ROW.findall(VERDICTS.read_text(encoding="utf-8"))
    known = set(Outcome)
    return [
        (cause, Outcome(name), meaning) for cause, names, meaning in rows for name in names.split(", ") if name in known
    ]


def _outcome(outcome: Outcome) -> list[str]:
    meaning, remedy = OUTCOMES[outcome]
    part = [f"## `{outcome}`", "", meaning, "", f"**What to do.** {remedy}", ""]
    rows = [(cause, told) for cause, each, told in known_causes() if each is outcome]
    if rows:
        part += ["| cause | meaning | what to do |", "|---|---|---|"]
        part += [
            f"| `{cause}` | {told or cause.replace('-', ' ')} | {_advice(outcome, cause)} |" for cause, told in rows
        ]
        part.append("")
    return part


def _advice(outcome: Outcome, cause: str) -> str:
    stage = _STAGES.get(cause, Stage.KV_ALLOC)
    text = advise(Verdict(outcome=outcome, stage=stage, cause=cause))
    return text.replace(f" in {stage} ", " in that stage ").replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    CAUSES.write_text(causes(), encoding="utf-8")
