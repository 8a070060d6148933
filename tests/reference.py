"""docs/settings.md, written from the code: python -m tests.reference"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel

from patchbisect.config import BoxConfig, EmbeddedSettings, Profile, Settings, Upstream
from patchbisect.model import Stage
from patchbisect.startup import SILENCE

PAGE = Path(__file__).parents[1] / "docs" / "settings.md"

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


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
