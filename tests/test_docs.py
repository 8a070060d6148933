"""The pages agree with the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from patchbisect.model import Outcome
from tests import reference

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_the_reference_of_settings_is_written_from_the_code() -> None:
    assert reference.PAGE.read_text(encoding="utf-8") == reference.page(), "run: python -m tests.reference"


def test_the_page_of_causes_is_written_from_the_code_and_complete() -> None:
    written = reference.CAUSES.read_text(encoding="utf-8")
    assert written == reference.causes(), "run: python -m tests.reference"
    assert set(reference.OUTCOMES) == set(Outcome)
    for cause, _, _ in reference.known_causes():
        assert f"| `{cause}` |" in written
    assert "|  |" not in written, "a cause without a meaning or without advice"


def test_every_setting_is_explained() -> None:
    for name, model in reference.SECTIONS:
        assert all(field.description for field in model.model_fields.values()), name


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_within_the_project_lead_somewhere(page: Path) -> None:
    for target, heading in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", page.read_text(encoding="utf-8")):
        there = page.parent / target if target else page
        assert there.exists(), f"{page.name} links to {target}"
        assert not heading or heading in _headings(there), f"{page.name} links to {target}#{heading}"


def _headings(page: Path) -> set[str]:
    """The headings of a page as GitHub names them in links."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_task_and_option_that_a_page_names_is_there(page: Path) -> None:
    from patchbisect.tasks import namespace

    known = set(namespace.task_names) | set(namespace.collections)
    for line in re.findall(
        r"^ {4,}(?:invoke|\./patchbisect|patchbisect) (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE
    ):
        words = line.split("#")[0].split()
        if words[0].startswith("-"):
            continue
        assert words[0] in known, f"{page.name}: invoke {line}"
        options = {f"--{name}" for argument in namespace[words[0]].get_arguments() for name in argument.names}
        options |= {option.replace("_", "-") for option in options}
        unknown = [
            word.split("=")[0] for word in words[1:] if word.startswith("--") and word.split("=")[0] not in options
        ]
        assert not unknown, f"{page.name}: invoke {line}"
