"""Edits of a queue: what the files are afterwards, every patch exact."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchbisect.errors import UsageError
from patchbisect.maintain.editing import Editor
from patchbisect.maintain.rebuilding import Rebuilt
from patchbisect.maintain.shop import Shop
from patchbisect.patchqueue import format_patch, parse_patch
from tests.maintain.lab import ENGINE, LOADER, Lab
from tests.maintain.test_transaction import killed_at
from tests.tiny_upstream import replaced


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def edit(lab: Lab, title: str, **numbers: int) -> None:
    verb, number = title.split()
    lab.shop().edit(title, lambda editor: getattr(editor, verb)(int(number), **numbers))


def test_refresh_of_exact_patches_changes_no_byte(lab: Lab) -> None:
    before = lab.files()
    outcome = lab.shop().edit("refresh", Editor.refresh)
    assert (outcome.changed, lab.files()) == ((), before)


def test_drop_leaves_the_number_free_and_the_rest_exact(lab: Lab) -> None:
    edit(lab, "drop 1")
    assert lab.names() == ["0002-two.patch", "0003-three.patch", "0004-four.patch"]
    assert "engine_10 = 10\n" in lab.result()
    assert "engine_12 = 12 + 100\n" in lab.result()


def test_what_another_patch_requires_is_not_dropped(tmp_path: Path) -> None:
    lab = Lab(tmp_path, patches=[])
    first = lab.upstream.patch(1, "one", {ENGINE: [replaced("engine_10 = 10")]})
    second = lab.upstream.patch(2, "two", {LOADER: [replaced("loader_20 = 20")]}, trailers="Requires: one")
    for patch in (first, second):
        (lab.root / "patches" / f"{patch.name}.patch").write_bytes(format_patch(patch))
    with pytest.raises(UsageError, match="0002-two requires it"):
        edit(lab, "drop 1")
    with pytest.raises(UsageError, match="requires 0002-one, which comes after it"):
        edit(lab, "move 1", to=2)
    assert lab.names() == ["0001-one.patch", "0002-two.patch"]


def test_a_patch_that_others_build_on_is_not_dropped(tmp_path: Path) -> None:
    lab = Lab(tmp_path, patches=[])
    first = lab.upstream.patch(1, "one", {ENGINE: [replaced("engine_10 = 10")]})
    second = lab.upstream.patch(2, "two", {ENGINE: [replaced("engine_10 = 10 + 100")]})
    for patch in (first, second):
        (lab.root / "patches" / f"{patch.name}.patch").write_bytes(format_patch(patch))
    before = lab.files()
    with pytest.raises(UsageError, match="cannot drop 0001-one: 0002-two does not apply"):
        edit(lab, "drop 1")
    assert lab.files() == before


def neighbours(folder: Path, *additions: str) -> Lab:
    """Patches of one added line each, every one right below the line of the patch before it."""
    lab = Lab(folder, patches=[])
    last = "engine_10 = 10"
    for number, line in enumerate(additions, start=1):
        patch = lab.upstream.patch(number, f"p{number}", {ENGINE: [(last, f"{last}\n{line}")]})
        (lab.root / "patches" / f"{patch.name}.patch").write_bytes(format_patch(patch))
        last = line
    return lab


@pytest.mark.parametrize("number", [1, 2, 3])
def test_any_of_neighbouring_prints_is_dropped(tmp_path: Path, number: int) -> None:
    prints = ["print('a')", "print('b')", "print('c')"]
    lab = neighbours(tmp_path, *prints)
    edit(lab, f"drop {number}")
    left = "\n".join(line for at, line in enumerate(prints, start=1) if at != number)
    assert f"engine_10 = 10\n{left}\nengine_11 = 11\n" in lab.result()


def test_a_line_that_reads_what_is_dropped_is_refused_with_the_way_out(tmp_path: Path) -> None:
    lab = neighbours(tmp_path, "started = 1", "print(started)")
    with pytest.raises(UsageError) as caught:
        edit(lab, "drop 1")
    assert caught.value.message.endswith("the patch makes it 'print(started)', but 'started = 1' is not there")
    assert "`invoke drop 2`" in caught.value.remedy
    assert "`invoke fold 2 --into 1`" in caught.value.remedy
    edit(lab, "fold 2", into=1)
    edit(lab, "drop 1")


def test_move_makes_room(lab: Lab) -> None:
    before = lab.result(), lab.result(LOADER)
    edit(lab, "move 4", to=2)
    assert lab.names() == ["0001-one.patch", "0002-four.patch", "0003-two.patch", "0004-three.patch"]
    assert (lab.result(), lab.result(LOADER)) == before
    edit(lab, "move 2", to=4)
    assert lab.names() == ["0001-one.patch", "0002-two.patch", "0003-three.patch", "0004-four.patch"]


def test_fold_keeps_both_changes_and_both_messages(lab: Lab) -> None:
    before = lab.result(), lab.result(LOADER)
    edit(lab, "fold 3", into=1)
    assert lab.names() == ["0001-one.patch", "0002-two.patch", "0004-four.patch"]
    assert (lab.result(), lab.result(LOADER)) == before
    folded = lab.shop().queue().patch(1)
    assert folded.subject == "Change one"
    assert "Change three" in folded.body


def test_a_later_patch_takes_an_earlier_one(lab: Lab) -> None:
    before = lab.result(), lab.result(LOADER)
    edit(lab, "fold 1", into=3)
    assert lab.names() == ["0002-two.patch", "0003-three.patch", "0004-four.patch"]
    assert (lab.result(), lab.result(LOADER)) == before


def test_split_by_files(lab: Lab) -> None:
    before = lab.result(), lab.result(LOADER)
    lab.shop().edit("split 4", lambda editor: editor.split(4, paths=["loader.py"], slug="five"))
    assert lab.names()[3:] == ["0004-four.patch", "0005-five.patch"]
    queue = lab.shop().queue()
    assert (queue.patch(4).files, queue.patch(5).files) == ((ENGINE,), (LOADER,))
    assert (lab.result(), lab.result(LOADER)) == before


@pytest.mark.parametrize(("paths", "message"), [(["loader.py", "engine.py"], "left with nothing"), (["x.py"], "x.py")])
def test_a_split_that_cannot_be(lab: Lab, paths: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        lab.shop().edit("split 4", lambda editor: editor.split(4, paths=paths, slug="five"))


def test_a_new_patch_in_the_middle(lab: Lab) -> None:
    lab.upstream.back()
    new = lab.upstream.patch(9, "new", {ENGINE: [replaced("engine_30 = 30")]})
    lab.shop().edit("add", lambda editor: editor.insert([new], after=2))
    assert lab.names()[2:] == ["0003-new.patch", "0004-three.patch", "0005-four.patch"]
    assert "engine_30 = 30 + 100\n" in lab.result()
    with pytest.raises(UsageError, match="has a patch new already"):
        lab.shop().edit("add", lambda editor: editor.insert([new]))


def test_a_new_patch_takes_a_number_that_is_free_and_the_rest_keep_theirs(lab: Lab) -> None:
    edit(lab, "drop 3")
    lab.upstream.back()
    new = lab.upstream.patch(9, "new", {ENGINE: [replaced("engine_30 = 30")]})
    lab.shop().edit("add", lambda editor: editor.insert([new], after=2))
    assert lab.names() == ["0001-one.patch", "0002-two.patch", "0003-new.patch", "0004-four.patch"]


def test_patches_that_change_places_share_the_numbers_that_they_had(lab: Lab) -> None:
    edit(lab, "drop 2")
    edit(lab, "move 4", to=3)
    assert lab.names() == ["0001-one.patch", "0003-four.patch", "0004-three.patch"]


def test_disabled_patches_stay_as_they_are(lab: Lab) -> None:
    path = lab.root / "patches" / "0003-three.patch"
    path.write_bytes(path.read_bytes().replace(b"Forwarded: no\n", b"Forwarded: no\nEnabled: no\n"))
    kept = path.read_bytes()
    edit(lab, "drop 1")
    assert path.read_bytes() == kept
    assert "engine_12 = 12\n" in lab.result()


def test_unknown_numbers_are_told(lab: Lab) -> None:
    with pytest.raises(UsageError, match="no patch 0009"):
        edit(lab, "drop 9")
    with pytest.raises(UsageError, match="at 2 already"):
        edit(lab, "move 2", to=2)


def drop(editor: Editor) -> Rebuilt:
    return editor.drop(1)


def move(editor: Editor) -> Rebuilt:
    return editor.move(4, to=1)


def fold(editor: Editor) -> Rebuilt:
    return editor.fold(3, into=1)


def split(editor: Editor) -> Rebuilt:
    return editor.split(4, paths=["loader.py"], slug="five")


@pytest.mark.ci
@pytest.mark.parametrize("verb", [drop, move, fold, split])
def test_an_edit_killed_at_any_step_is_put_right_by_undo_or_a_second_call(tmp_path: Path, verb) -> None:  # type: ignore[no-untyped-def]
    lab = Lab(tmp_path)
    before = lab.files()
    lab.shop().edit("an edit", verb)
    after = lab.files()
    lab.shop().undo()
    assert lab.files() == before
    at = 0
    while killed_at(at, lambda disk: lab.shop(disk).edit("an edit", verb)):
        # As it was, or wholly done: never in between.
        assert read(lab.shop()) in (before, after)
        if read(lab.shop()) == before:
            lab.shop().edit("an edit", verb)
        assert read(lab.shop()) == after
        lab.shop().undo()
        assert read(lab.shop()) == before
        at += 1
    assert at >= 8
    assert read(lab.shop()) == after


def read(shop: Shop) -> dict[str, bytes]:
    return shop.folder.read()


def test_patches_are_parsed_back(lab: Lab) -> None:
    edit(lab, "fold 3", into=1)
    for name, data in lab.files().items():
        if name.endswith(".patch"):
            assert format_patch(parse_patch(data, filename=name)) == data
