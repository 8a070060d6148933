"""The queue as a branch and back."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchbisect.errors import UsageError
from patchbisect.maintain.branching import commits_of, export_branch, import_branch
from patchbisect.maintain.exporting import mbox, quilt_series
from patchbisect.model import Base, Patch
from patchbisect.patchqueue import format_patch
from tests.maintain.lab import ENGINE, Lab
from tests.tiny_upstream import commit, git

pytestmark = pytest.mark.ci


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def export(lab: Lab, to: Path) -> Path:
    shop = lab.shop()
    export_branch(shop.mirror, Base(pin=shop.pin), shop.queue(), name="mine", to=to)
    return to


def back(lab: Lab) -> list[Patch]:
    shop = lab.shop()
    patches = import_branch(shop.mirror, Base(pin=shop.pin), shop.queue(), name="mine")
    return list(shop.editor().shifted(patches))


def test_out_and_back_changes_no_byte(lab: Lab, tmp_path: Path) -> None:
    path = lab.root / "patches" / "0002-two.patch"
    path.write_bytes(path.read_bytes().replace(b"Forwarded: no\n", b"Forwarded: no\nEnabled: no\n"))
    odd = lab.root / "patches" / "0003-three.patch"
    odd.write_bytes(odd.read_bytes().replace(b"From: Ada", b"From: =?UTF-8?q?Ad=C3=A1?="))
    before = {name: data for name, data in lab.files().items() if name.endswith(".patch")}
    export(lab, tmp_path / "tree")
    assert {f"{patch.name}.patch": format_patch(patch) for patch in back(lab)} == before


def test_any_git_tool_in_between(lab: Lab, tmp_path: Path) -> None:
    tree = export(lab, tmp_path / "tree")
    git(tree, "-c", "sequence.editor=sed -i '1{h;d};2{G}'", "rebase", "-q", "-i", "HEAD~2")
    commit(tree, {"python/sglang/new.py": "x = 1\n"}, "Add a file\n\nWhy.\n\nKind: fix\nForwarded: no")
    patches = back(lab)
    assert [patch.name for patch in patches] == [
        "0001-one",
        "0002-two",
        "0003-four",
        "0004-three",
        "0005-add-a-file",
    ]
    assert patches[4].trailers == (("Kind", "fix"), ("Forwarded", "no"))
    lab.shop().put("import", patches)
    assert lab.result().count("+ 100") == 3


def test_a_message_changed_on_the_branch(lab: Lab, tmp_path: Path) -> None:
    tree = export(lab, tmp_path / "tree")
    message = git(tree, "show", "-s", "--format=%B").replace("Change four", "Quadruple")
    git(tree, "commit", "-q", "--amend", "-m", message)
    patch = back(lab)[3]
    assert (patch.name, patch.subject) == ("0004-four", "Quadruple")
    assert "Patch-Name" not in patch.text


def test_what_is_no_queue_is_refused(lab: Lab, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no branch mine"):
        back(lab)
    tree = export(lab, tmp_path / "tree")
    with pytest.raises(UsageError, match="is there already"):
        export(lab, tree)
    git(tree, "checkout", "-q", "-b", "side", "HEAD~1")
    commit(tree, {"x": "1"}, "side")
    git(tree, "checkout", "-q", "mine")
    git(tree, "merge", "-q", "--no-edit", "side")
    with pytest.raises(UsageError, match="has a merge"):
        back(lab)
    with pytest.raises(UsageError, match="no name for a branch"):
        export_branch(lab.shop().mirror, Base(pin=lab.shop().pin), lab.shop().queue(), name="a..b")


def test_git_am_takes_the_mailbox(lab: Lab, tmp_path: Path) -> None:
    path = lab.root / "patches" / "0001-one.patch"
    path.write_bytes(path.read_bytes().replace(b"Because the test", b"From here on.\n\nBecause the test"))
    (tmp_path / "m.mbox").write_bytes(mbox(lab.shop().queue().patches))
    git(lab.upstream.path, "checkout", "-q", "-b", "am", "v0.1.0")
    git(lab.upstream.path, "am", "-q", "--patch-format=mboxrd", str(tmp_path / "m.mbox"))
    assert (lab.upstream.path / ENGINE).read_text() == lab.result()
    assert "\nFrom here on.\n" in git(lab.upstream.path, "show", "-s", "--format=%B", "HEAD~3")


def test_a_quilt_folder_lists_disabled_patches_as_comments(lab: Lab) -> None:
    path = lab.root / "patches" / "0002-two.patch"
    path.write_bytes(path.read_bytes().replace(b"Forwarded: no\n", b"Forwarded: no\nEnabled: no\n"))
    files = quilt_series(lab.shop().queue().patches)
    assert files["series"] == b"0001-one.patch\n# 0002-two.patch\n0003-three.patch\n0004-four.patch\n"
    assert files["0001-one.patch"] == (lab.root / "patches" / "0001-one.patch").read_bytes()


def test_commits_of_a_clone(lab: Lab) -> None:
    clone = lab.upstream.path
    first = commit(clone, {"python/sglang/a.py": "a = 1\n"}, "A")
    second = commit(clone, {"python/sglang/b.py": "b = 1\n"}, "B")
    shop = lab.shop()
    base = Base(pin=shop.pin)
    assert commits_of(shop.mirror, base, rev=f"{first}~1..{second}", clone=clone) == [first, second]
    assert commits_of(shop.mirror, base, rev="HEAD", clone=clone) == [second]
    with pytest.raises(UsageError, match="no revision"):
        commits_of(shop.mirror, base, rev="nope", clone=clone)
