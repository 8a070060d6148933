"""An open edit: a real work tree, taken into the queue by refresh."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from patchbisect.errors import UsageError
from patchbisect.maintain.bench import Bench, Opened
from tests.maintain.lab import ENGINE, LOADER, Lab
from tests.maintain.test_editing import neighbours
from tests.maintain.test_transaction import killed_at
from tests.tiny_upstream import commit, git, repository

NEW = Opened(
    parent="",
    slug="new",
    kind="fix",
    subject="Mend it",
    author="Bob <bob@example.org>",
    date="Sun, 29 Nov 2026 10:00:00 +0000",
)

pytestmark = pytest.mark.ci


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_edit_and_refresh(lab: Lab) -> None:
    bench = Bench(lab.shop())
    tree = bench.open(1)
    assert "engine_10 = 10 + 100\n" in (tree / ENGINE).read_text()
    assert "engine_12 = 12\n" in (tree / ENGINE).read_text()
    replace(tree / ENGINE, "engine_10 = 10 + 100", "engine_10 = 10 + 7")
    replace(tree / ENGINE, "engine_1 = 1\n", "engine_0 = 0\nengine_1 = 1\n")
    outcome = bench.refresh()
    assert outcome.changed == ("0001-one.patch", "0003-three.patch", "0004-four.patch")
    assert "engine_10 = 10 + 7\nengine_11 = 11\nengine_12 = 12 + 100\n" in lab.result()
    assert bench.opened is None
    assert not tree.exists()


def test_the_first_of_two_neighbouring_prints_is_mended(tmp_path: Path) -> None:
    lab = neighbours(tmp_path, "print(wrong)", "print('b')")
    bench = Bench(lab.shop())
    replace(bench.open(1) / ENGINE, "print(wrong)", "print('right')")
    bench.refresh()
    assert "engine_10 = 10\nprint('right')\nprint('b')\nengine_11 = 11\n" in lab.result()


def test_a_patch_that_became_another_one_while_it_was_open_is_not_written_over(tmp_path: Path) -> None:
    lab = neighbours(tmp_path, "print('a')", "print('b')")
    bench = Bench(lab.shop())
    replace(bench.open(1) / ENGINE, "print('a')", "print('right')")
    lab.shop().edit("fold", lambda editor: editor.fold(2, into=1))
    with pytest.raises(UsageError, match="0001-p1 is not what it was when this edit was opened"):
        bench.refresh()
    assert "print('a')\nprint('b')\n" in lab.result()


def test_a_new_patch(lab: Lab) -> None:
    bench = Bench(lab.shop())
    tree = bench.open_new(NEW)
    with pytest.raises(UsageError, match="nothing is changed"):
        bench.refresh()
    (tree / "python/sglang/fresh.py").write_text("x = 1\n")
    bench.refresh()
    patch = lab.shop().queue().patch(5)
    assert (patch.name, patch.subject, patch.trailer("Kind"), patch.author) == (
        "0005-new",
        "Mend it",
        "fix",
        "Bob <bob@example.org>",
    )


def test_several_commits_become_several_patches(lab: Lab) -> None:
    bench = Bench(lab.shop())
    tree = bench.open(4)
    commit(tree, {ENGINE: (tree / ENGINE).read_text().replace("engine_20 = 20", "engine_20 = 0")}, "Zero twenty")
    replace(tree / LOADER, "loader_1 = 1\n", "loader_1 = 0\n")
    bench.refresh()
    assert lab.names()[3:] == ["0004-four.patch", "0005-zero-twenty.patch"]
    second = lab.shop().queue().patch(5)
    assert second.files == (ENGINE, LOADER)
    assert "engine_20 = 0\n" in lab.result()


def test_an_amended_message_is_taken_over(lab: Lab) -> None:
    bench = Bench(lab.shop())
    tree = bench.open(2)
    git(tree, "commit", "-q", "--amend", "-m", "Another subject\n\nFor a reason.\n\nKind: fix\nForwarded: no")
    bench.refresh()
    patch = lab.shop().queue().patch(2)
    assert (patch.name, patch.subject, patch.body, patch.trailer("Kind")) == (
        "0002-two",
        "Another subject",
        "For a reason.",
        "fix",
    )


def test_what_running_the_code_leaves_is_not_taken_over(lab: Lab) -> None:
    bench = Bench(lab.shop())
    tree = bench.open(1)
    cache = tree / "python/sglang/__pycache__"
    cache.mkdir()
    (cache / "engine.cpython-311.pyc").write_bytes(b"x")
    bench.refresh()
    assert lab.shop().queue().patch(1).files == (ENGINE,)


def test_one_edit_at_a_time_and_abandoned_work_is_kept(lab: Lab) -> None:
    before = lab.files()
    bench = Bench(lab.shop())
    tree = bench.open(1)
    with pytest.raises(UsageError, match="an edit is open"):
        bench.open(2)
    replace(tree / ENGINE, "engine_10 = 10 + 100", "engine_10 = 11")
    ref = bench.abandon()
    assert "engine_10 = 11\n" in git(bench.store.where, "show", f"{ref}:{ENGINE}") + "\n"
    assert lab.files() == before
    with pytest.raises(UsageError, match="no edit is open"):
        bench.abandon()


def test_an_edit_that_a_later_patch_does_not_fit_stays_open(lab: Lab) -> None:
    before = lab.files()
    bench = Bench(lab.shop())
    tree = bench.open(1)
    replace(tree / ENGINE, "engine_12 = 12\n", "")
    with pytest.raises(UsageError, match="0003-three does not apply"):
        bench.refresh()
    assert lab.files() == before
    assert bench.opened is not None
    assert tree.exists()


def test_a_refresh_killed_at_any_step_is_put_right_by_a_second_call(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    at = 0
    while True:
        bench = Bench(lab.shop())
        if bench.opened is None:
            bench.open(1)
            text = (bench.tree / ENGINE).read_text()
            (bench.tree / ENGINE).write_text(re.sub(r"(?m)^engine_10 = .*", f"engine_10 = {at + 1000}", text))
        if not killed_at(at, lambda disk: Bench(lab.shop(disk)).refresh()):
            break
        Bench(lab.shop()).refresh()
        assert f"engine_10 = {at + 1000}\n" in lab.result()
        if Bench(lab.shop()).opened is not None:
            Bench(lab.shop()).abandon()
        at += 1
    assert at >= 8


def test_a_repository_in_the_work_tree_is_refused_and_the_edit_stays_open(lab: Lab) -> None:
    bench = Bench(lab.shop())
    tree = bench.open(1)
    repository(tree / "python" / "sglang" / "vendored")
    with pytest.raises(UsageError, match=r"vendored.* is a submodule"):
        bench.refresh()
    shutil.rmtree(tree / "python" / "sglang" / "vendored")
    git(tree, "init", "-q", "empty")
    with pytest.raises(UsageError, match="git cannot take what is in .*empty"):
        bench.refresh()
    assert bench.opened


def test_a_users_settings_of_git_change_no_byte(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "gitconfig"
    config.write_text("[core]\n\tautocrlf = true\n\tfileMode = false\n\tsymlinks = false\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    bench = Bench(lab.shop())
    tree = bench.open(1)
    (tree / "python" / "sglang" / "crlf.py").write_bytes(b"a = 1\r\n")
    (tree / LOADER).chmod(0o755)
    bench.refresh()
    assert b"\n+a = 1\r\n" in lab.files()["0001-one.patch"]
    assert b"\nnew mode 100755\n" in lab.files()["0001-one.patch"]


def test_a_patch_that_nobody_reads_is_not_taken_in(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("patchbisect.patchqueue.patchfile.LARGEST", 100_000)
    bench = Bench(lab.shop())
    tree = bench.open(1)
    (tree / "python" / "sglang" / "data.txt").write_text("0123456789\n" * 20_000)
    before = lab.files()
    with pytest.raises(UsageError, match="has 0 MiB: more than anybody reads"):
        bench.refresh()
    assert lab.files() == before
    assert bench.opened
