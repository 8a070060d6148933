"""The queue onto another pin."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from patchbisect.config import Settings
from patchbisect.config import Upstream as UpstreamSettings
from patchbisect.errors import UsageError
from patchbisect.maintain.fitting import Fit, fit_all, where_applies
from patchbisect.maintain.rebasing import Moved, Rebase, Stopped
from patchbisect.maintain.shop import Shop
from patchbisect.model import Base, Pin
from patchbisect.upstream import Mirror
from tests.maintain.lab import ENGINE, LOADER, Lab
from tests.maintain.test_transaction import killed_at
from tests.tiny_upstream import FILES, commit

pytestmark = pytest.mark.ci


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def pin_of(lab: Lab, rev: str, tag: str = "") -> Pin:
    return Pin(upstream=str(lab.upstream.path), commit=rev, tag=tag)


def newer(lab: Lab, **changes: tuple[str, str]) -> str:
    """One more upstream commit: in engine or loader, one text for another."""
    files = {}
    for name, path in (("engine", ENGINE), ("loader", LOADER)):
        text = (lab.upstream.path / path).read_text()
        for old, new in [changes[name]] if name in changes else []:
            assert old in text
            text = text.replace(old, new)
        files[path] = text
    return commit(lab.upstream.path, files, "Upstream goes on")


def fits(lab: Lab, rev: str, *, clone: bool = True) -> dict[str, tuple[Fit, str]]:
    shop = lab.shop()
    mirror = Mirror(lab.project.state, source="git", clone=str(lab.upstream.path) if clone else "")
    fitted = fit_all(
        mirror,
        Base(pin=shop.pin, rev=rev),
        shop.queue().patches,
        clone=lab.upstream.path if clone else None,
    )
    return {one.patch.slug: (one.fit, one.why) for one in fitted}


def test_how_each_patch_fits(lab: Lab) -> None:
    rev = newer(
        lab, engine=("engine_12 = 12\n", "engine_12 = 12 + 100\n"), loader=("loader_20 = 20\n", "loader_20 = 2\n")
    )
    found = fits(lab, rev)
    assert found["one"][0] is Fit.THREE_WAY
    assert found["two"][0] is Fit.CONFLICT
    assert "loader.py, hunk 1" in found["two"][1]
    assert f"; upstream commit {rev[:12]} (Upstream goes on) moved its context" in found["two"][1]
    assert found["three"][0] is Fit.UPSTREAM
    assert found["four"][0] is Fit.THREE_WAY


def test_a_patch_that_was_merged_is_known_by_its_patch_id(lab: Lab) -> None:
    engine = (lab.upstream.path / ENGINE).read_text().replace("engine_10 = 10\n", "engine_10 = 10 + 100\n")
    merged = commit(lab.upstream.path, {ENGINE: engine}, "Take one")
    later = newer(lab, engine=("engine_10 = 10 + 100\n", "engine_10 = 5\n"))
    assert fits(lab, later)["one"] == (Fit.UPSTREAM, f"as {merged[:12]}")
    assert fits(lab, later, clone=False)["one"][0] is Fit.CONFLICT


def test_a_clean_move(lab: Lab) -> None:
    rebase = Rebase(lab.shop())
    moved = rebase.start(pin_of(lab, lab.upstream.second, "v0.2.0"))
    assert isinstance(moved, Moved)
    assert not rebase.under_way
    assert lab.shop().pin == pin_of(lab, lab.upstream.second, "v0.2.0")
    assert lab.result() == "import os\n" + FILES[ENGINE].replace("engine_10 = 10\n", "engine_10 = 10 + 100\n").replace(
        "engine_12 = 12\n", "engine_12 = 12 + 100\n"
    ).replace("engine_50 = 50\n", "engine_50 = 50 + 100\n")
    assert "1:" in moved.range_diff
    lab.shop().undo()
    assert lab.shop().pin.commit == lab.upstream.first


def test_a_patch_that_is_there_already_leaves_the_queue(lab: Lab) -> None:
    rev = newer(lab, loader=("loader_20 = 20\n", "loader_20 = 20 + 100\n"))
    moved = Rebase(lab.shop()).start(pin_of(lab, rev))
    assert isinstance(moved, Moved)
    assert dict(moved.fits)["0002-two"] == Fit.UPSTREAM
    assert lab.names() == ["0001-one.patch", "0003-three.patch", "0004-four.patch"]


def test_a_conflict_stops_is_resolved_and_remembered(lab: Lab) -> None:
    before = lab.files()
    rev = newer(lab, loader=("loader_20 = 20\n", "loader_20 = 2\n"))
    rebase = Rebase(lab.shop())
    stopped = rebase.start(pin_of(lab, rev))
    assert isinstance(stopped, Stopped)
    assert (stopped.patch, stopped.files) == ("0002-two", (LOADER,))
    assert lab.files() == before
    with pytest.raises(UsageError, match="conflict markers are left"):
        rebase.resume()
    for other in (lambda: rebase.start(pin_of(lab, rev)), lab.shop().editor, lab.shop().undo):
        with pytest.raises(UsageError, match="under way"):
            other()
    text = (stopped.tree / LOADER).read_text()
    resolved = text[: text.index("<<<<<<<")] + "loader_20 = 2 + 100\n" + text[text.index(">>>>>>>") :].split("\n", 1)[1]
    (stopped.tree / LOADER).write_text(resolved)
    assert isinstance(Rebase(lab.shop()).resume(), Moved)
    assert "loader_20 = 2 + 100\n" in lab.result(LOADER)
    after = lab.files()
    lab.shop().undo()
    assert lab.files() == before
    assert isinstance(Rebase(lab.shop()).start(pin_of(lab, rev)), Moved), "the resolution was not remembered"
    assert lab.files() == after


def test_a_conflict_resolved_to_nothing_drops_the_patch(lab: Lab) -> None:
    rev = newer(lab, loader=("loader_20 = 20\n", "loader_20 = 2\n"))
    stopped = Rebase(lab.shop()).start(pin_of(lab, rev))
    assert isinstance(stopped, Stopped)
    (stopped.tree / LOADER).write_text((lab.upstream.path / LOADER).read_text())
    assert isinstance(Rebase(lab.shop()).resume(), Moved)
    assert "0002-two.patch" not in lab.names()


def test_a_patch_that_was_merged_and_changed_since_leaves_the_queue(lab: Lab) -> None:
    newer(lab, engine=("engine_10 = 10\n", "engine_10 = 10 + 100\n"))
    later = newer(lab, engine=("engine_10 = 10 + 100\n", "engine_10 = 5\n"))
    settings = Settings(upstream=UpstreamSettings(clone=str(lab.upstream.path)))
    shop = Shop(replace(lab.project, settings=settings), mirror=lab.shop().mirror)
    moved = Rebase(shop).start(pin_of(lab, later))
    assert isinstance(moved, Moved)
    assert dict(moved.fits)["0001-one"] == Fit.UPSTREAM
    assert "0001-one.patch" not in lab.names()


def test_abort_leaves_everything_as_it_was(lab: Lab) -> None:
    before = lab.files()
    rev = newer(lab, loader=("loader_20 = 20\n", "loader_20 = 2\n"))
    rebase = Rebase(lab.shop())
    rebase.start(pin_of(lab, rev))
    rebase.abort()
    assert lab.files() == before
    assert not rebase.folder.exists()
    with pytest.raises(UsageError, match="no rebase is under way"):
        rebase.abort()


def test_where_each_patch_still_applies(lab: Lab) -> None:
    second = newer(lab, engine=("engine_12 = 12\n", "engine_12 = 3\n"))
    third = newer(lab, loader=("loader_20 = 20\n", "loader_20 = 2\n"))
    last = newer(lab, engine=("engine_60 = 60\n", "engine_60 = 6\n"))
    shop = lab.shop()
    revisions = [last, third, second, lab.upstream.second, lab.upstream.first]
    for clone in (lab.upstream.path, None):
        found = where_applies(shop.mirror, Base(pin=shop.pin), shop.queue().patches, revisions=revisions, clone=clone)
        assert {one.name: one.rev for one in found} == {
            "0001-one": last,
            "0002-two": second,
            "0003-three": lab.upstream.second,
            "0004-four": lab.upstream.second,
            "the whole queue": lab.upstream.second,
        }
    assert "0002-two does not apply" in found[1].why_not_newer


def test_a_rebase_killed_at_any_step_is_put_right_by_a_second_call(lab: Lab) -> None:
    before = lab.files()
    pin = pin_of(lab, newer(lab, loader=("loader_20 = 20\n", "loader_20 = 20 + 100\n")))
    assert isinstance(Rebase(lab.shop()).start(pin), Moved)
    after = lab.files()
    lab.shop().undo()
    at = 0
    while killed_at(at, lambda disk: Rebase(lab.shop(disk)).start(pin)):
        rebase = Rebase(lab.shop())
        assert lab.shop().folder.read() in (before, after)
        if rebase.under_way:
            assert isinstance(rebase.resume(), Moved)
        elif lab.files() == before:
            assert isinstance(rebase.start(pin), Moved)
        assert lab.files() == after, f"step {at}"
        assert not rebase.under_way
        lab.shop().undo()
        assert lab.files() == before
        at += 1
    assert at >= 15
