"""What a report is about: a bisection or a run, found by name."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from rich.console import RenderableType

from patchbisect.config import remedy_for
from patchbisect.errors import UsageError
from patchbisect.records import Store
from patchbisect.report import page, text
from patchbisect.report.bisections import finding_of, identifiers, journal_named
from patchbisect.report.page import Page
from patchbisect.report.sources import recorded
from patchbisect.wire import Json


@dataclass(frozen=True)
class Subject:
    """The document that a report is made from, as text and as a page."""

    document: Json
    store: Store
    is_bisection: bool

    @property
    def text(self) -> RenderableType:
        return text.finding_page(self.document) if self.is_bisection else text.record_page(self.document)

    @cached_property
    def page(self) -> Page:
        if self.is_bisection:
            return page.of_finding(self.document, self.store)
        return page.of_run(recorded(self.store, self.document["id"]), self.store)


def subject(state: Path, name: str) -> Subject:
    """The bisection of that name, else the run; ``last`` is the last bisection, or the last run where there is none.

    Raises UsageError for neither, and for a bisection without an answer.
    """
    store = Store(state / "runs")
    if journal := journal_named(state / "bisections", name):
        return Subject(document=finding_of(journal), store=store, is_bisection=True)
    try:
        return Subject(document=store.load(name).model_dump(mode="json"), store=store, is_bisection=False)
    except UsageError as error:
        if not error.message.startswith("no run"):
            raise
        known = [*store.ids()[-20:], *identifiers(state / "bisections")[-20:]]
        raise UsageError(f"no bisection and no run '{name}'", remedy=remedy_for(name, known)) from None
