from pathlib import Path

from patchbisect.bisection.hunks import hunk_timeline
from patchbisect.model import Base, Point
from patchbisect.timeline import applied, point_with
from patchbisect.upstream import Mirror
from tests.tiny_upstream import ENGINE, LOADER, Upstream, replaced

NEW = "python/sglang/new.py"


def points(tmp_path: Path):
    upstream = Upstream(tmp_path)
    first = upstream.patch(1, "first", {ENGINE: [replaced("engine_3 = 3")]})
    edits = {ENGINE: [replaced("engine_10 = 10"), replaced("engine_40 = 40")], LOADER: [replaced("loader_5 = 5")]}
    three = upstream.patch(2, "three", edits)
    last = upstream.patch(3, "last", {LOADER: [replaced("loader_30 = 30")]})
    base = Base(upstream.pin())
    parent = Point("parent", base, (first, last), "tiny")
    culprit = Point("culprit", base, (first, three, last), "tiny")
    return Mirror(tmp_path / "state", source="git"), parent, culprit, three, upstream


def text(mirror, point, path):
    return mirror.read(mirror.materialize(point.base, point.patches).commit, path).decode()


def test_each_hunk_is_a_change_and_any_of_them_can_be_left_out(tmp_path):
    mirror, parent, culprit, three, _ = points(tmp_path)
    mirror.materialize(culprit.base, culprit.patches)
    line = hunk_timeline(parent, culprit, three)
    assert [change.title.partition(": ")[2] for change in line.changes] == [
        "hunk 1 of 3, engine.py:7",
        "hunk 2 of 3, engine.py:37",
        "hunk 3 of 3, loader.py:2",
    ]
    middle = point_with(line, [1])
    assert middle.name == "parent with 0002-three-hunk-2 alone"
    assert "engine_40 = 40 + 100" in text(mirror, middle, ENGINE)
    assert "engine_10 = 10\n" in text(mirror, middle, ENGINE)
    assert "loader_5 = 5\n" in text(mirror, middle, LOADER)
    assert "loader_30 = 30 + 100" in text(mirror, middle, LOADER)


def test_all_hunks_are_the_patch(tmp_path):
    mirror, parent, culprit, three, _ = points(tmp_path)
    line = hunk_timeline(parent, culprit, three)
    whole = mirror.materialize(culprit.base, culprit.patches)
    mirror.materialize(parent.base, parent.patches)
    parts = applied(line.good, line.changes)
    assert mirror.materialize(parts.base, parts.patches).tree == whole.tree


def test_a_new_file_is_one_piece_and_a_patch_of_one_piece_has_no_inside(tmp_path):
    upstream = Upstream(tmp_path)
    one = upstream.patch_of(1, "one", {NEW: "a = 1\n" * 30})
    base = Base(upstream.pin())
    point = Point("p", base, (), "tiny")
    assert hunk_timeline(point, Point("q", base, (one,), "tiny"), one) is None
    both = upstream.patch_of(2, "both", {NEW: None, LOADER: "other = 1\n"})
    line = hunk_timeline(point, Point("q", base, (one, both), "tiny"), both)
    assert len(line.changes) == 2


def test_a_hunk_behind_one_that_adds_lines_stands_where_it_stood_in_the_old_file(tmp_path):
    upstream = Upstream(tmp_path)
    edits = {ENGINE: [("engine_3 = 3", "engine_3 = 3\nadded = 1"), replaced("engine_40 = 40")]}
    grown = upstream.patch(1, "grown", edits)
    base = Base(upstream.pin())
    parent, culprit = Point("parent", base, (), "tiny"), Point("culprit", base, (grown,), "tiny")
    line = hunk_timeline(parent, culprit, grown)
    mirror = Mirror(tmp_path / "state", source="git")
    second = point_with(line, [1])
    assert mirror.materialize(second.base, second.patches).shifted == ()
    assert "engine_40 = 40 + 100" in text(mirror, second, ENGINE)
    assert "added" not in text(mirror, second, ENGINE)
