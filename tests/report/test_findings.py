"""What real bisections say, of every kind, through every renderer: none may fail on a finding, or lose its answer."""

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from patchbisect.bisection import finding_to_json
from patchbisect.bisection.judging import Threshold
from patchbisect.report import html, markdown, page, text
from patchbisect.report.words import BREAK, FIX
from patchbisect.search import Rates
from patchbisect.timeline import timeline
from tests.bisection.world import (
    ELSEWHERE,
    READY,
    World,
    broken_by,
    flaky,
    found,
    point,
    question,
    queue,
    slugs,
)
from tests.report.test_html import ALLOWED, Parsed

Maker = Callable[[Path], tuple[World, dict[str, Any]]]


def one(path: Path) -> tuple[World, dict[str, Any]]:
    world = World.at(path, broken_by("p5"))
    return world, finding_to_json(found(world, question(8)))


def noisy(path: Path) -> tuple[World, dict[str, Any]]:
    world = World.at(path, flaky(broken_by("p5"), chance=0.2, seed=3))
    return world, finding_to_json(found(world, question(8, rates=Rates.unknown())))


def pair(path: Path) -> tuple[World, dict[str, Any]]:
    world = World.at(path, lambda at: broken_by("p3", "p6")(at))
    return world, finding_to_json(found(world, question(8)))


def two(path: Path) -> tuple[World, dict[str, Any]]:
    world = World.at(path, lambda at: broken_by("p2")(at) if "p2" in slugs(at) else broken_by("p6")(at))
    return world, finding_to_json(found(world, question(8)))


def band(path: Path) -> tuple[World, dict[str, Any]]:
    def rule(at: Any) -> Any:
        count = len(at.patches)
        return ELSEWHERE if 2 <= count <= 6 else broken_by("p5")(at)

    world = World.at(path, rule)
    return world, finding_to_json(found(world, question(8)))


def innocent(path: Path) -> tuple[World, dict[str, Any]]:
    world = World.at(path, broken_by())
    return world, finding_to_json(found(world, question(8)))


def refused(path: Path) -> tuple[World, dict[str, Any]]:
    world = World.at(path, lambda at: READY)
    return world, finding_to_json(found(world, question(8)))


def flag(path: Path) -> tuple[World, dict[str, Any]]:
    ends = timeline(
        point("clean", flags={"a": "1"}), point("HEAD", queue(3), flags={"a": "2"}), applies=lambda base, patches: True
    )
    world = World.at(path, lambda at: broken_by()(at) if at.flags["a"] == "2" else READY)
    return world, finding_to_json(found(world, replace(question(3), timeline=ends)))


def moved(path: Path) -> tuple[World, dict[str, Any]]:
    one, two, three = queue(3)
    behind = point("HEAD", [replace(three, number=1), replace(one, number=2), replace(two, number=3)])
    ends = timeline(point("clean", [one, two, three]), behind, applies=lambda base, patches: True)
    world = World.at(path, lambda at: broken_by()(at) if at.patches[0].slug == "p3" else READY)
    return world, finding_to_json(found(world, replace(question(3), timeline=ends)))


def number(path: Path) -> tuple[World, dict[str, Any]]:
    def sized(at: Any) -> Any:
        return replace(READY, facts={"kv_tokens": 800_000 if "p5" in slugs(at) else 1_000_000})

    world = World.at(path, sized)
    return world, finding_to_json(found(world, question(8, bad_when=Threshold.parse("kv_tokens < 900000"))))


def repair(path: Path) -> tuple[World, dict[str, Any]]:
    world = World.at(path, lambda at: READY if "p5" in slugs(at) else broken_by()(at))
    return world, finding_to_json(found(world, question(8, fix=True)))


KINDS: dict[str, Maker] = {
    maker.__name__: maker for maker in (one, noisy, pair, two, band, innocent, refused, flag, moved, number, repair)
}


@pytest.fixture(params=KINDS)
def known(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, World, dict[str, Any]]:
    world, document = KINDS[request.param](tmp_path)
    return request.param, world, {"id": "x", "at": "2026-11-29T19:00:00+00:00", **document}


def test_every_renderer_takes_every_finding(known: tuple[str, World, dict[str, Any]]) -> None:
    _, world, finding = known
    made = page.of_finding(finding, world.store)
    parsed = Parsed(html.rendered(made))
    out = io.StringIO()
    Console(file=out, width=400, soft_wrap=True).print(text.finding_page(finding))
    assert set(parsed.tags) <= ALLOWED
    assert {link.removeprefix("#") for link in parsed.links} <= set(parsed.ids)
    assert parsed.tags["tr"] >= len(finding["trials"])
    for shown in (parsed.text, out.getvalue(), markdown.rendered(made)):
        for change in [finding["culprit"]] if finding["culprit"] else finding["candidates"]:
            assert change["title"] in shown
        if finding["culprit"] is None and not finding["candidates"]:
            assert " ".join(finding["reason"].split()) in " ".join(shown.split())


def test_each_kind_says_what_it_is(known: tuple[str, World, dict[str, Any]]) -> None:
    kind, world, finding = known
    made = page.of_finding(finding, world.store)
    says = {
        "one": (BREAK.found, "bad"),
        "noisy": (BREAK.found, "bad"),
        "pair": (BREAK.found_set, "bad"),
        "two": (BREAK.found_several, "bad"),
        "innocent": (page.ANSWERS["endpoint-failed"], "open"),
        "refused": (page.ANSWERS["endpoint-failed"], "open"),
        "flag": (BREAK.found, "bad"),
        "moved": (BREAK.found, "bad"),
        "number": (BREAK.found, "bad"),
        "repair": (FIX.found, "good"),
    }
    if kind in says:
        assert (made.answer, made.tone) == says[kind]


def test_a_number_stands_with_its_threshold_and_beside_each_launch(tmp_path: Path) -> None:
    world, finding = number(tmp_path)
    made = page.of_finding(finding, world.store)
    out = io.StringIO()
    Console(file=out, width=200).print(text.finding_page(finding))
    said = {"bad": "ready, kv_tokens 800000", "good": "ready, kv_tokens 1000000"}
    assert [row.verdict for row in made.trials] == [said[row.observation] for row in made.trials]
    assert dict(made.facts)["Bad with"] == said["bad"]
    for shown in (Parsed(html.rendered(made)).text, markdown.rendered(made), out.getvalue()):
        assert "kv_tokens < 900000" in shown
        assert said["good"] in shown


def test_a_bisection_by_number_speaks_of_the_number(tmp_path: Path) -> None:
    world, finding = number(tmp_path)
    for trial in finding["trials"]:
        trial["verdict"]["deciding"] = {"line": 9, "text": "The server is fired up and ready to roll!", "rank": ""}
    out = io.StringIO()
    Console(file=out, width=400).print(text.finding_page(finding))
    made = markdown.rendered(page.of_finding(finding, world.store))
    assert (
        "lowers kv_tokens from 1000000 to 800000 (asked: < 900000): necessary, and sufficient alone" in out.getvalue()
    )
    for shown in (out.getvalue(), made):
        assert "the good end with it alone: must have kv_tokens < 900000" in shown
        assert "the bad end without it: must have kv_tokens >= 900000" in shown
        assert not [words for words in ("breaks it", "must fail", "must pass") if words in shown]
    assert "fired up" not in out.getvalue()


def test_those_that_break_it_together_are_all_marked(tmp_path: Path) -> None:
    world, finding = pair(tmp_path)
    assert [each.position for each in page.of_finding(finding, world.store).points if each.culprit] == [3, 6]


def test_confidence_is_seen_to_grow_where_launches_may_err(tmp_path: Path) -> None:
    world, finding = noisy(tmp_path)
    told = [trial["confidence"] for trial in finding["trials"] if trial["confidence"] is not None]
    assert told
    assert told[-1] > told[0]
    drawing = page.of_finding(finding, world.store).narrowing
    assert drawing is not None
    assert any(label.text.endswith("% sure") for label in drawing.labels)
    assert not any(label.text.endswith(" left") for label in drawing.labels)


def test_a_fix_leaves_one_change_in_the_end(tmp_path: Path) -> None:
    world, finding = repair(tmp_path)
    drawing = page.of_finding(finding, world.store).narrowing
    assert drawing is not None
    assert [label.text for label in drawing.labels if label.text.endswith(" left")][-1] == "1 left"


def test_points_that_cannot_be_built_are_told_with_their_reason(tmp_path: Path) -> None:
    def unbuildable(at: Any) -> str:
        return "0004-p4: [red]upstream commit 1[/red] moved its context" if 3 <= len(at.patches) <= 5 else ""

    world = World.at(tmp_path, broken_by("p7"), unbuildable=unbuildable)
    finding = finding_to_json(found(world, question(8)))
    out = io.StringIO()
    Console(file=out, width=200).print(text.finding_page(finding))
    places = [point["position"] for point in finding["unbuildable"]]
    written = f"points {places[0]} to {places[-1]}" if places[1:] else f"point {places[0]}"
    for shown in (out.getvalue(), markdown.rendered(page.of_finding(finding, world.store))):
        assert f"{written}: 0004-p4: [red]upstream commit 1[/red] moved its context" in shown
    states = {point.position: point.state for point in page.of_finding(finding, world.store).points}
    assert {states[place] for place in places} == {"skip"}
