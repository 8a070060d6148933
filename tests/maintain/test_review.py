"""Two states of a queue compared for a reviewer, and the facts of patches."""

from __future__ import annotations

import hashlib
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from patchbisect.maintain.facts import facts_of, graph_svg
from patchbisect.maintain.lint import Finding
from patchbisect.maintain.review import PatchChange, What, markdown, refused_markdown
from patchbisect.maintain.reviewing import pin_in, reader, review_against
from patchbisect.model import Base
from patchbisect.patchqueue import Queue, format_patch
from tests.maintain.lab import ENGINE, Lab
from tests.tiny_upstream import commit, git

pytestmark = pytest.mark.ci


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    lab = Lab(tmp_path)
    git(lab.root, "init", "-q", "-b", "main")
    commit(lab.root, {".gitignore": ".patchbisect/\n"}, "first")
    return lab


def review(lab: Lab):  # type: ignore[no-untyped-def]
    return review_against(lab.project, "main", mirror=lab.shop().mirror)


def whats(lab: Lab) -> dict[str, What]:
    return {change.name: change.what for change in review(lab).changes}


def test_nothing_changed(lab: Lab) -> None:
    assert review(lab).changes == ()
    assert "Queue and pin are the same." in markdown(review(lab))


def test_waivers_are_told_of_the_patches_that_changed(lab: Lab) -> None:
    lab.shop().edit("drop", lambda editor: editor.drop(1))
    names = ("0002-two", "0003-three")
    findings = tuple(Finding(patch=name, rule="call", why="f", waived="it is pure") for name in names)
    wrong = Finding(patch="0002-two", rule="call", why="g")
    found = replace(review(lab), findings=(*findings, wrong))
    assert found.to_be_told == (findings[1], wrong)


def test_added_removed_and_refitted(lab: Lab) -> None:
    lab.shop().edit("drop", lambda editor: editor.drop(1))
    assert whats(lab) == {"0003-three": What.REFITTED, "0004-four": What.REFITTED, "0001-one": What.REMOVED}
    commit(lab.root, {}, "drop one")
    lab.shop().undo()
    assert whats(lab)["0001-one"] is What.ADDED


def test_reordered(lab: Lab) -> None:
    lab.shop().edit("move", lambda editor: editor.move(4, to=1))
    [moved] = [change for change in review(lab).changes if change.moved_from]
    assert (moved.name, moved.moved_from, moved.what) == ("0001-four", "0004-four", What.MOVED)


def test_reworded(lab: Lab) -> None:
    path = lab.root / "patches" / "0002-two.patch"
    path.write_bytes(path.read_bytes().replace(b"Because the test says so.", b"Because."))
    assert whats(lab) == {"0002-two": What.REWORDED}


def test_the_interdiff_is_of_the_file_and_not_of_the_patch(lab: Lab) -> None:
    for name in ("0001-one.patch", "0003-three.patch"):
        path = lab.root / "patches" / name
        path.write_bytes(path.read_bytes().replace(b"engine_10 = 10 + 100", b"engine_10 = 10 + 7"))
    lab.shop().edit("refresh", lambda editor: editor.refresh())
    [change] = [change for change in review(lab).changes if change.what is What.CHANGED]
    assert change.name == "0001-one"
    edited = [line for line in change.interdiff.split("\n") if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    assert edited == ["-engine_10 = 10 + 100", "+engine_10 = 10 + 7"]


def test_a_moved_pin_is_no_change_of_a_patch(lab: Lab) -> None:
    pin = lab.root / "patches" / "pin.toml"
    pin.write_text(pin.read_text().replace(lab.upstream.first, lab.upstream.second))
    lab.shop().edit("refresh", lambda editor: editor.refresh())
    found = review(lab)
    assert found.pin_moved
    assert {change.what for change in found.changes} == {What.REFITTED}
    assert f"`{lab.upstream.second[:12]}`" in markdown(found)


def test_a_patch_cannot_write_into_the_comment(lab: Lab) -> None:
    path = lab.root / "patches" / "0002-two.patch"
    nasty = b"Change two | @everyone <img src=x> [a](http://b) ```"
    path.write_bytes(path.read_bytes().replace(b"Change two", nasty).replace(b"Because the", b"```\n<script>\nBecause"))
    text = markdown(review(lab))
    row = next(line for line in text.split("\n") if line.startswith("| `0002-two`"))
    assert row.count(" | ") == 3
    assert "@everyone" not in row
    assert "\\<img" in row
    assert "````text\n```\n<script>" in text


def test_a_comment_is_not_longer_than_the_host_takes(lab: Lab) -> None:
    shop = lab.shop()
    lines = "".join(f"+line_{number} = '{'x' * 100}'\n" for number in range(390))
    for number in (5, 6):
        name = f"python/sglang/large_{number}.py"
        text = f"From: A <a@b.c>\nDate: Sun, 29 Nov 2026 10:00:00 +0000\nSubject: [PATCH] Large {number}\n\nWhy.\n\n"
        text += f"Kind: fix\nForwarded: no\n---\ndiff --git a/{name} b/{name}\nnew file mode 100644\n"
        text += f"--- /dev/null\n+++ b/{name}\n@@ -0,0 +1,390 @@\n{lines}"
        (lab.root / "patches" / f"000{number}-large-{number}.patch").write_text(text)
    shop.edit("refresh", lambda editor: editor.refresh())
    shown = markdown(review(lab))
    assert len(shown) < 65536
    assert "Too long to show here: `0006-large-6`" in shown
    assert "| `0006-large-6`" in shown


def test_facts(lab: Lab) -> None:
    files = lab.files()
    queue = Queue.read(files)
    record = {
        "id": "20261129-100000-abcd",
        "created": "2026-11-29T10:00:00+00:00",
        "box": "rig",
        "verdict": {"outcome": "ready", "facts": {"kv_gb": 3.5, "kv_tokens": 100}},
        "point": {
            "patches": [
                {"name": "0001-one", "sha256": hashlib.sha256(format_patch(queue.patch(1))).hexdigest()},
                {"name": "0002-two", "sha256": "another text"},
            ]
        },
    }
    read = reader(lab.shop().mirror, Base(pin=pin_in(files)))
    facts = facts_of(queue.patches, read=read, records=[record], now=datetime(2023, 11, 24, tzinfo=UTC))
    by_slug = {fact.patch.slug: fact for fact in facts}
    assert by_slug["three"].builds_on == ("0001-one",)
    assert by_slug["four"].builds_on == ()
    assert by_slug["one"].functions == {ENGINE: ("(module)",)}
    proof = by_slug["one"].proof
    assert proof is not None
    assert (proof.run, proof.box, proof.kv_gb) == ("20261129-100000-abcd", "rig", 3.5)
    assert by_slug["two"].proof is None
    assert by_slug["one"].age_days == 9
    svg = ElementTree.fromstring(graph_svg(facts))
    assert len(svg.findall("{http://www.w3.org/2000/svg}circle")) == 4
    assert len(svg.findall("{http://www.w3.org/2000/svg}path")) == 1


def test_hundreds_of_the_worst_subjects_are_still_a_comment(lab: Lab) -> None:
    patch = lab.shop().queue().patch(1)
    worst = [replace(patch, number=number, slug="s" * 60, subject="@*|`<" * 200) for number in range(1, 400)]
    shown = markdown(replace(review(lab), changes=tuple(PatchChange(What.ADDED, None, one) for one in worst)))
    assert len(shown) < 65_000
    assert "and 339 more" in shown
    assert len(refused_markdown("main", "\n".join(["x" * 10_000] * 1000))) < 65_000
