"""The page as one HTML file that needs nothing else: no script, no network, style and pictures inside."""

from __future__ import annotations

import base64
import functools
import hashlib
from importlib import resources

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from patchbisect import __version__
from patchbisect.report.page import Page
from patchbisect.report.tables import printable


def rendered(page: Page) -> str:
    """The file's text. All that comes from logs and patches is escaped, and the policy lets no script run."""
    style = _style()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    # Only this very style sheet may apply: text that slips through as markup can neither run, load nor restyle.
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return _template().render(page=page, style=Markup(style), policy=policy, version=__version__)


@functools.cache
def _style() -> str:
    return resources.files(__package__).joinpath("page.css").read_text(encoding="utf-8")


@functools.cache
def _template() -> Template:
    source = resources.files(__package__).joinpath("page.html.j2").read_text(encoding="utf-8")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, finalize=_visible, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(source)


def _visible(value: object) -> object:
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value
