"""What a report is about: a bisection or a run, found by name."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from rich.console import RenderableType

from patchbisect.config import DEMO, Project, remedy_for
from patchbisect.errors import UsageError
from patchbisect.journal import identifiers, named, newest
from patchbisect.records import Store
from patchbisect.report import page, text
from patchbisect.report.bisections import finding_of
from patchbisect.report.page import Page
from patchbisect.report.sources import recorded
from patchbisect.wire import Json


@dataclass(frozen=True)
class Subject:
    """The document that a report is made from, as text and as a page."""

    document: Json
    store: Store
    is_bisection: bool
    note: str = ""
    """What the reader should know of how the name was understood."""

    @property
    def text(self) -> RenderableType:
        return text.finding_page(self.document) if self.is_bisection else text.record_page(self.document)

    @cached_property
    def page(self) -> Page:
        if self.is_bisection:
            return page.of_finding(self.document, self.store)
        return page.of_run(recorded(self.store, self.document["id"]), self.store)


def subject(project: Project, name: str) -> Subject:
    """The bisection of that name, else the run; ``last`` is the bisection begun last, where there is none the last run.

    The demo's are found by id and as ``demo``, and are ``last`` only where there is nothing of one's own.
    Raises UsageError for neither, and for a bisection without an answer.
    """
    store = Store.of(project)
    own, shown = project.bisections, project.demo.bisections
    only_demo = name == "last" and not identifiers(own) and not store.ids() and bool(identifiers(shown))
    if name == DEMO or only_demo:
        journal = newest(shown)
    else:
        journal = newest(own) if name == "last" else named(own, name) or named(shown, name)
    if journal:
        note = "this is the demo's bisection: there is none of your own yet" if only_demo else ""
        return Subject(document=finding_of(journal), store=store, is_bisection=True, note=note)
    try:
        return Subject(document=store.load(name).model_dump(mode="json"), store=store, is_bisection=False)
    except UsageError as error:
        if not error.message.startswith("no run"):
            raise
        known = [*store.ids()[-20:], *identifiers(own)[-20:]]
        raise UsageError(f"no bisection and no run '{name}'", remedy=remedy_for(name, known)) from None
