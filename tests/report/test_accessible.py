"""What everybody needs to read the page: contrast, an order of headings, names for what cannot be seen."""

import itertools
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib import resources
from typing import Any

import pytest

from patchbisect.records import Store
from patchbisect.report import html, page
from tests.report import builder

STYLE = resources.files("patchbisect.report").joinpath("page.css").read_text(encoding="utf-8")
LEAST_CONTRAST = 4.5
"""Of text against its ground (WCAG 2, level AA)."""

ON_PAPER = ("ink", "soft", "link", "good", "bad", "skip")
GROUNDS = [
    ("good", "good-paper"),
    ("bad", "bad-paper"),
    ("skip", "skip-paper"),
    ("ink", "bad-paper"),
    ("ink", "skip-paper"),
]
WHITE, DARK = "#ffffff", "#111417"
IN_BARS = [("weights", WHITE), *((bar, DARK) for bar in ("weights2", "kv", "kv2", "graphs", "warm"))]


def colours(theme: str) -> dict[str, str]:
    """The custom properties of a theme; what dark and print leave out is as in light."""
    blocks = {"light": STYLE.partition("@media")[0]}
    blocks["dark"] = blocks["light"] + re.split(r"@media \(prefers-color-scheme: dark\)", STYLE)[1].partition("}")[0]
    blocks["print"] = blocks["light"] + STYLE.partition("@media print")[2].partition("}")[0]
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", blocks[theme]))


def luminance(colour: str) -> float:
    channels = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(a: str, b: str) -> float:
    bright, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark", "print"])
def test_text_stands_out_from_what_it_stands_on(theme: str) -> None:
    known = colours(theme)
    pairs = [*((word, ground) for word in ON_PAPER for ground in ("paper", "panel")), *GROUNDS]
    faint = {
        pair: round(found, 2) for pair in pairs if (found := contrast(known[pair[0]], known[pair[1]])) < LEAST_CONTRAST
    }
    assert faint == {}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_words_in_bars_stand_out(theme: str) -> None:
    known = colours(theme)
    faint = {bar: round(found, 2) for bar, ink in IN_BARS if (found := contrast(known[bar], ink)) < LEAST_CONTRAST}
    assert faint == {}


class Outline(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def headings(self) -> Iterator[int]:
        return (int(tag[1]) for tag, _ in self.tags if re.fullmatch("h[1-6]", tag))


@pytest.fixture
def outline(store: Store) -> Outline:
    finding: dict[str, Any] = builder.bisection(store)
    return Outline(html.rendered(page.of_finding(finding, store)))


def test_headings_begin_with_one_and_skip_no_level(outline: Outline) -> None:
    levels = list(outline.headings())
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


def test_there_are_landmarks_and_a_way_past_them(outline: Outline) -> None:
    tags = [tag for tag, _ in outline.tags]
    assert [tags.count(tag) for tag in ("header", "main", "nav", "footer")] == [1, 1, 1, 1]
    assert ("a", {"class": "skip", "href": "#main"}) in outline.tags


def test_every_picture_and_every_region_that_scrolls_has_a_name(outline: Outline) -> None:
    ids = {attributes.get("id") for _, attributes in outline.tags}
    for tag, attributes in outline.tags:
        if tag == "svg" and attributes.get("aria-hidden") != "true":
            assert attributes["role"] == "img"
            assert set(str(attributes["aria-labelledby"]).split()) <= ids
        if attributes.get("tabindex") == "0":
            assert "aria-label" in attributes
        if tag == "section":
            assert attributes["aria-labelledby"] in ids
