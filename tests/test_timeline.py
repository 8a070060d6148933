import zlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchbisect.model import Axis, Base, Change, Patch, Pin, Point
from patchbisect.timeline import applied, apply, label, point_at, timeline
from patchbisect.upstream import Mirror
from tests.tiny_upstream import ENGINE, LOADER, Upstream, replaced

PIN = Pin("https://example.org/sglang.git", "1" * 40, "v0.5.9")


def patch(number, slug, text="", needs=""):
    trailers = (("Requires", needs),) if needs else ()
    return Patch(number, slug, "a <a@b>", "", f"Change {slug}", "", trailers, "", f"{slug}:{text}", ())


def queue(listed):
    """``"1a 2b' 3c"``: number, slug, and a mark that tells one text from another."""
    return tuple(patch(int(word[0]), word[1], word[2:]) for word in listed.split())


def point(patches=(), name="p", **changes):
    patches = queue(patches) if isinstance(patches, str) else patches
    return Point(**{"name": name, "base": Base(PIN), "patches": patches, "profile": "tiny", **changes})


def always(base, patches):
    return True


def line_of(good, bad, applies=always):
    return timeline(point(good, "good"), point(bad, "bad"), applies=applies)


def titles(line):
    return [change.title for change in line.changes]


def states(line):
    """The queue of each point of the timeline."""
    return [" ".join(p.text.replace(":", "") for p in point_at(line, k).patches) for k in range(len(line.changes) + 1)]


def test_added_patches_come_in_number_order():
    line = line_of("1a", "1a 2b 3c")
    assert titles(line) == ["add 0002-b: Change b", "add 0003-c: Change c"]
    assert states(line) == ["a", "a b", "a b c"]


def test_removed_replaced_and_added():
    line = line_of("1a 2b 3c 4d", "1a 3c' 5e")
    assert [change.verb for change in line.changes] == ["remove", "remove", "replace", "add"]
    assert [change.subject for change in line.changes] == ["d", "b", "c", "e"]
    assert states(line) == ["a b c d", "a b c", "a c", "a c'", "a c' e"]


def test_equal_points_have_no_changes():
    line = line_of("1a 2b", "1a 2b")
    assert line.changes == ()
    assert point_at(line, 0) == line.bad


def test_numbers_alone_are_no_change():
    line = line_of("1a 2b", "1n 2a 3b")
    assert titles(line) == ["add 0001-n: Change n"]
    assert [p.name for p in line.good.patches] == ["0002-a", "0003-b"]
    assert states(line) == ["a b", "n a b"]


def test_a_patch_that_only_the_good_end_has_keeps_its_place_among_new_numbers():
    line = line_of("1a 2b 3x 4c", "1n 2m 3a 4b 5c 6z")
    assert states(line)[0] == "a b x c"
    assert [p.text for p in applied(line.good, line.changes).patches] == ["n:", "m:", "a:", "b:", "c:", "z:"]
    without_removal = [change for change in line.changes if change.verb != "remove"]
    assert [p.slug for p in applied(line.good, without_removal).patches] == list("nmabxcz")


def test_a_new_patch_under_an_old_number():
    line = line_of("1a 2x", "1a 2y")
    assert states(line) == ["a x", "a", "a y"]


def test_reordered_patches():
    line = line_of("1a 2b 3c", "1c 2a 3b")
    assert [(c.verb, c.before.number, c.after.number) for c in line.changes] == [("move", 3, 1)]
    assert titles(line) == ["move 0001-c: Change c"]
    assert label(line.changes[0]) == "0001-c moved"
    assert states(line) == ["a b c", "c a b"]


def test_an_order_in_which_each_queue_applies():
    """``c`` needs ``d`` in place first, although its number is lower."""

    def applies(base, patches):
        slugs = [p.slug for p in patches]
        return "c" not in slugs or "d" in slugs

    line = line_of("1a", "1a 2b 3c 4d", applies)
    assert [change.subject for change in line.changes] == ["b", "d", "c"]


def test_inseparable_edits_are_one_change_that_says_so():
    """``a'`` and ``c'`` only go together; ``b`` is free."""

    def applies(base, patches):
        texts = {p.text for p in patches}
        return ("a:'" in texts) == ("c:'" in texts)

    line = line_of("1a 3c", "1a' 2b 3c' 4d", applies)
    assert [change.subject for change in line.changes] == ["b", "d", "a+c"]
    group = line.changes[-1]
    assert group.verb == "group"
    assert group.title == "together: replace 0001-a: Change a; replace 0003-c: Change c"
    assert states(line) == ["a c", "a b c", "a b c d", "a' b c' d"]


def test_a_group_holds_nothing_that_it_can_do_without():
    def applies(base, patches):
        slugs = {p.slug for p in patches}
        return not slugs or {"a", "e"} <= slugs

    line = line_of("", "1a 2b 3c 4d 5e 6f", applies)
    assert [change.subject for change in line.changes] == ["a+e", "b", "c", "d", "f"]


def test_a_bad_end_that_never_applies_still_has_a_timeline():
    line = line_of("1a", "1a 2b 3c", lambda base, patches: len(patches) == 1)
    assert [change.subject for change in line.changes] == ["b+c"]


def test_requirements_are_kept():
    bad = (patch(1, "a", needs="c"), patch(2, "b"), patch(3, "c"))
    asked = []
    line = timeline(point(), point(bad), applies=lambda base, patches: asked.append(patches) or True)
    assert [change.subject for change in line.changes] == ["b", "c", "a"]
    back = timeline(point(bad), point(), applies=always)
    assert [change.subject for change in back.changes] == ["b", "a", "c"]


def test_other_axes_in_their_order():
    good = point("1a", flags={"tp": 1, "x": True, "old": "v"}, env={"A": "1"}, packages={"torch": "2.9"})
    other = Base(PIN, rev="2" * 40)
    bad = point("1a 2b", base=other, flags={"new": "n", "tp": 2, "x": True}, env={}, packages={"torch": "2.10"})
    line = timeline(good, bad, applies=always)
    assert [(c.axis, c.subject, c.before, c.after) for c in line.changes] == [
        (Axis.BASE, "base", Base(PIN), other),
        (Axis.QUEUE, "b", None, bad.patches[1]),
        (Axis.PACKAGES, "torch", "2.9", "2.10"),
        (Axis.FLAGS, "new", None, "n"),
        (Axis.FLAGS, "tp", 1, 2),
        (Axis.FLAGS, "old", "v", None),
        (Axis.ENV, "A", "1", None),
    ]
    last = applied(good, line.changes)
    assert (last.base, last.flags, last.env, last.packages) == (bad.base, bad.flags, bad.env, bad.packages)


def test_a_flag_that_is_false_is_not_a_flag_that_is_missing():
    line = timeline(point(flags={"x": False}), point(flags={}), applies=always)
    assert [(c.verb, c.before, c.after) for c in line.changes] == [("remove", False, None)]
    assert apply(line.good, line.changes[0]).flags == {}


def test_the_same_commit_under_another_name_is_no_change_of_base():
    good = point(base=Base(replace(PIN, tag="")))
    line = timeline(good, point(), applies=always)
    assert line.changes == ()


def test_queues_are_asked_for_on_the_bad_ends_base():
    other = Base(PIN, rev="2" * 40)
    asked = []
    timeline(point("1a"), point("1a 2b 3c", base=other), applies=lambda base, patches: asked.append(base) or True)
    assert set(asked) == {other}


def test_points_have_names_and_bounds():
    line = line_of("1a", "1a 2b 3c")
    assert [point_at(line, k).name for k in range(3)] == ["good", "good + 1 of 2 (0002-b)", "bad"]
    for k in (-1, 3):
        with pytest.raises(ValueError, match="points 0 to 2"):
            point_at(line, k)


def test_most_timelines_are_asked_for_once_per_edit():
    asked = []
    patches = tuple(patch(n, f"s{n}") for n in range(1, 129))
    line = timeline(point(), point(patches), applies=lambda base, queue: asked.append(queue) or True)
    assert len(line.changes) == 128
    assert len(asked) <= 128


@st.composite
def queues(draw):
    slugs = draw(st.permutations("abcdefg"))[: draw(st.integers(0, 7))]
    numbers = sorted(draw(st.sets(st.integers(1, 12), min_size=len(slugs), max_size=len(slugs))))
    return tuple(patch(n, slug, draw(st.sampled_from(["", "'"]))) for n, slug in zip(numbers, slugs, strict=True))


@given(queues(), queues(), st.randoms(use_true_random=False))
def test_any_two_queues(good, bad, random):
    line = timeline(point(good), point(bad), applies=always)
    assert [p.text for p in line.good.patches] == [p.text for p in good]
    assert applied(line.good, line.changes).patches == bad
    shuffled = list(line.changes)
    random.shuffle(shuffled)
    assert applied(line.good, shuffled).patches == bad
    some = shuffled[: len(shuffled) // 2]
    texts = [p.text for p in applied(line.good, some).patches]
    assert len(set(texts)) == len(texts)
    for change in line.changes:
        assert isinstance(change, Change)
        assert (change.before, change.after) != (None, None)


@given(queues(), queues(), st.integers(0, 2**32))
def test_whatever_applies_each_point_on_the_way_does_or_is_a_group(good, bad, salt):
    """A made-up world in which any queue may fail to apply, only not the two ends."""
    ends = [tuple(p.text for p in good), tuple(p.text for p in bad)]

    def applies(base, patches):
        texts = tuple(p.text for p in patches)
        return texts in ends or zlib.crc32(f"{salt}{texts}".encode()) % 3 > 0

    line = timeline(point(good), point(bad), applies=applies)
    for k in range(1, len(line.changes) + 1):
        assert applies(None, point_at(line, k).patches)
    assert applied(line.good, line.changes).patches == bad


def test_with_the_mirror_edits_of_the_same_lines_stay_in_order(tmp_path):
    upstream = Upstream(tmp_path)
    one = upstream.patch(1, "one", {ENGINE: [replaced("engine_10 = 10")]})
    two = upstream.patch(2, "two", {ENGINE: [("engine_10 = 10 + 100", "engine_10 = 'two'")]})
    three = upstream.patch(3, "three", {LOADER: [replaced("loader_5 = 5")]})
    mirror = Mirror(tmp_path / "state", source="git")
    base = Base(upstream.pin())
    good = Point("good", base, (one, two), "tiny")
    bad = Point("bad", base, (three,), "tiny")
    line = timeline(good, bad, applies=mirror.applies)
    assert titles(line) == [
        "remove 0002-two: Change two",
        "remove 0001-one: Change one",
        "add 0003-three: Change three",
    ]
    upstream.back()
    other = upstream.patch(1, "one", {ENGINE: [("engine_10 = 10", "engine_10 = 'other'")]})
    after = upstream.patch(2, "two", {ENGINE: [("engine_10 = 'other'", "engine_10 = 'after'")]})
    line = timeline(good, replace(bad, patches=(other, after, three)), applies=mirror.applies)
    assert [change.subject for change in line.changes] == ["three", "one+two"]
