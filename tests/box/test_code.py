"""The code that runs is the code that was asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from patchbisect.box import Box, LaunchSpec, PlacedCode
from patchbisect.box.agent import git as on_box
from patchbisect.box.agent import worktree
from patchbisect.box.agent.base import Refused
from patchbisect.box.agent.git import EMPTY_TREE, blob_mtime, tree_id
from patchbisect.box.failures import CannotLaunch, CodeChanged, WrongCode
from patchbisect.errors import UsageError
from patchbisect.testing.fake_sglang import FakeSglang
from tests.box.lab import Story, leased, listen, settings_for

pytestmark = pytest.mark.ci


def run_code(box: Box, code: PlacedCode, name: str, *arguments: str) -> tuple[Story, dict[str, object]]:
    argv = (sys.executable, "-m", "sglang.launch_server", *arguments)
    run = box.start(LaunchSpec(name, argv, code=code))
    story = listen(run)
    provenance = run.provenance()
    run.stop(0.0)
    return story, provenance


def test_the_tree_id_is_gits(upstream: FakeSglang) -> None:
    commit = upstream.commit(["--line", "x"], files={"b/c.txt": "", "b.txt": "dot sorts before slash", "b-d": "x"})
    package = upstream.path / "python" / "sglang"
    (package / "run.sh").write_text("#!/bin/sh\n")
    (package / "run.sh").chmod(0o755)
    (package / "link").symlink_to("behaviour.py")
    (package / "empty").mkdir()
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "x.pyc").touch()
    assert tree_id(str(package)) != upstream.git("rev-parse", f"{commit}:python/sglang")
    upstream.git("add", "--all", ":!python/sglang/__pycache__")
    assert tree_id(str(package)) == upstream.git("write-tree", "--prefix=python/sglang/")
    assert upstream.git("hash-object", "-t", "tree", os.devnull) == EMPTY_TREE


def test_code_is_placed_once_and_proven(box: Box, upstream: FakeSglang) -> None:
    commit = upstream.commit(["--line", "hello"])
    first, second = (box.put_code(upstream.path, commit) for _ in range(2))
    assert (first.placed, second.placed) == (True, False)
    assert first.path == second.path
    story, provenance = run_code(box, second, "a")
    assert story.log == b"hello\n"
    assert provenance["sglang"] == f"{first.path}/sglang/__init__.py"
    assert provenance["tree"] == upstream.git("rev-parse", f"{commit}:python/sglang")


def test_what_a_killed_agent_left_half_made_is_dropped(box: Box, upstream: FakeSglang, tmp_path: Path) -> None:
    box.put_code(upstream.path, upstream.commit(["--line", "one"]))
    tree = "0" * 40
    dead, alive = 4_000_000, os.getpid()
    left = {
        pid: [tmp_path / f"box/trees/.{tree}.{pid}", tmp_path / f"box/code.git/incoming.{pid}"] for pid in (dead, alive)
    }
    for folder, bundle in left.values():
        (folder / "python").mkdir(parents=True)
        bundle.write_bytes(b"half")
    box.put_code(upstream.path, upstream.commit(["--line", "two"]))
    assert not any(path.exists() for path in left[dead])
    assert all(path.exists() for path in left[alive])


def test_only_what_the_box_lacks_travels(box: Box, upstream: FakeSglang, monkeypatch: pytest.MonkeyPatch) -> None:
    from patchbisect.box import code as client

    sent: list[int] = []
    parts = client.parts
    monkeypatch.setattr(client, "parts", lambda path: (sent.append(path.stat().st_size), parts(path))[1])
    base = upstream.commit(["--line", "base"], files={"big.bin": os.urandom(200_000).hex()})
    box.put_code(upstream.path, base)
    box.put_code(upstream.path, upstream.commit(["--line", "patched"]))
    box.put_code(upstream.path, base)
    assert len(sent) == 2
    assert sent[0] > 200_000
    assert sent[1] < 2_000


def test_commits_without_their_parents_travel_and_others_after_them(
    box: Box, upstream: FakeSglang, tmp_path: Path
) -> None:
    """A mirror fetches one commit of upstream at a time: git must not look for the parents on the box either."""
    mirror = tmp_path / "mirror.git"
    subprocess.run(["git", "init", "--quiet", "--bare", str(mirror)], check=True)
    for name in ("one", "two", "three"):
        upstream.commit(["--line", f"before {name}"])
        commit = upstream.commit(["--line", name])
        fetch = ["fetch", "--quiet", "--depth=1", upstream.path.as_uri(), f"{commit}:refs/bases/{name}"]
        subprocess.run(["git", "-C", str(mirror), *fetch], check=True)
        assert box.put_code(mirror, commit).placed
        tree = f"{commit}^{{tree}}"
        made = ["-c", "user.name=a", "-c", "user.email=a@b", "commit-tree", tree, "-p", commit, "-m", "patched"]
        patched = subprocess.run(["git", "-C", str(mirror), *made], check=True, capture_output=True, text=True).stdout
        assert box.put_code(mirror, patched.strip()).tree == upstream.git("rev-parse", f"{commit}:python/sglang")


def test_what_the_users_checkout_has_does_not_travel(tmp_path: Path, upstream: FakeSglang) -> None:
    base = upstream.commit(["--line", "base"], files={"big.bin": os.urandom(200_000).hex()})
    checkout = tmp_path / "checkout"
    subprocess.run(["git", "clone", "--quiet", str(upstream.path), str(checkout)], check=True)
    with leased(settings_for(tmp_path, checkout=str(checkout)), tmp_path) as box:
        box.put_code(upstream.path, base)
        assert sum(path.stat().st_size for path in (tmp_path / "box" / "code.git").rglob("*.pack")) == 0


def test_a_checkout_that_is_none_is_told_with_what_to_do(tmp_path: Path, upstream: FakeSglang) -> None:
    commit = upstream.commit([])
    (tmp_path / "plain").mkdir()
    for name, said in (("nowhere", "is not there"), ("plain", "is no git checkout")):
        with (
            leased(settings_for(tmp_path, checkout=str(tmp_path / name)), tmp_path) as box,
            pytest.raises(UsageError, match=said) as caught,
        ):
            box.put_code(upstream.path, commit)
        assert caught.value.remedy == "correct `checkout` of the box"


def test_a_checkout_that_lent_its_objects_and_is_gone_is_told(tmp_path: Path, upstream: FakeSglang) -> None:
    commit = upstream.commit([])
    checkout = tmp_path / "checkout"
    subprocess.run(["git", "clone", "--quiet", str(upstream.path), str(checkout)], check=True)
    with leased(settings_for(tmp_path, checkout=str(checkout)), tmp_path) as box:
        box.put_code(upstream.path, commit)
    checkout.rename(tmp_path / "moved")
    with leased(settings_for(tmp_path, checkout=str(tmp_path / "moved")), tmp_path) as box:
        with pytest.raises(UsageError, match="borrows objects of .*checkout/.git/objects, which is not there"):
            box.put_code(upstream.path, commit)
        (tmp_path / "box" / "code.git").rename(tmp_path / "aside")
        assert box.put_code(upstream.path, commit).tree


def test_git_uses_what_belongs_to_others_where_the_user_trusts_it(
    tmp_path: Path, upstream: FakeSglang, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream.commit([])
    theirs = tmp_path / "it's theirs"
    upstream.path.rename(theirs)
    monkeypatch.setitem(on_box.GIT_ENV, "GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(Refused) as caught:
        on_box.borrowable_objects(str(theirs))
    assert "belongs to another user" in caught.value.message
    remedy = caught.value.remedy.partition("on the box: ")[2]
    subprocess.run(["sh", "-c", remedy], check=True)
    assert on_box.borrowable_objects(str(theirs)) == f"{theirs}/.git/objects"


def test_code_changed_by_hand_is_set_aside_and_said(box: Box, upstream: FakeSglang) -> None:
    commit = upstream.commit(["--line", "hello"])
    code = box.put_code(upstream.path, commit)
    file = Path(code.path, "sglang", "behaviour.py")
    file.chmod(0o644)
    file.write_text(file.read_text().replace("hello", "jello"))
    with pytest.raises(WrongCode):
        box.start(LaunchSpec("a", (sys.executable, "-m", "sglang.launch_server"), code=code))
    again = box.put_code(upstream.path, commit)
    assert again.placed
    aside = Path(again.note.rpartition(" ")[2])
    assert "jello" in (aside / "python" / "sglang" / "behaviour.py").read_text()
    assert run_code(box, again, "b")[0].log == b"hello\n"


def test_a_file_that_trees_share_and_that_was_changed_by_hand_spoils_neither(box: Box, upstream: FakeSglang) -> None:
    one = upstream.commit(["--line", "one"], files={"shared.py": "SAME = 1\n"})
    two, three = upstream.commit(["--line", "two"]), upstream.commit(["--line", "three"])
    first, second = box.put_code(upstream.path, one), box.put_code(upstream.path, two)
    files = [Path(code.path, "sglang", "shared.py") for code in (first, second)]
    assert files[0].samefile(files[1]), "linked, not written anew"
    before = files[0].stat()
    files[0].chmod(0o644)
    files[0].write_text("SAME = 2\n")
    os.utime(files[0], ns=(before.st_atime_ns, before.st_mtime_ns))
    for commit in (three, two, one):
        code = box.put_code(upstream.path, commit)
        assert code.placed
        assert Path(code.path, "sglang", "shared.py").read_text() == "SAME = 1\n"


def test_a_file_added_by_hand_is_noticed(box: Box, upstream: FakeSglang) -> None:
    commit = upstream.commit([])
    code = box.put_code(upstream.path, commit)
    Path(code.path, "sglang", "sitecustomize.py").touch()
    assert "set aside" in box.put_code(upstream.path, commit).note


def test_a_commit_with_another_tree_is_refused(box: Box, upstream: FakeSglang) -> None:
    commit = upstream.commit([])
    box.put_code(upstream.path, commit)
    with pytest.raises(WrongCode):
        box.ask("place", commit=commit, tree="0" * 40)


@pytest.mark.ci
def test_byte_code_never_goes_stale_and_is_warm_at_once(box: Box, upstream: FakeSglang) -> None:
    """Twelve quick switches between contents of the same length, as in DESIGN's measurement."""
    commits = [upstream.commit(["--line", f"v{number:03}"]) for number in range(4)]
    for turn in range(12):
        commit = commits[turn % 4]
        code = box.put_code(upstream.path, commit)
        compiled = Path(code.path, "sglang", "__pycache__")
        if turn:
            assert any(path.name.startswith("fake_server.") for path in compiled.iterdir()), "linked from the last tree"
        assert run_code(box, code, f"turn-{turn}")[0].log == f"v{turn % 4:03}\n".encode()
        assert any(path.name.startswith("behaviour.") for path in compiled.iterdir()), "this test needs byte-code"


def test_time_stamps_are_a_function_of_the_content(box: Box, upstream: FakeSglang) -> None:
    code = box.put_code(upstream.path, upstream.commit([]))
    for path in Path(code.path, "sglang").glob("*.py"):
        assert path.stat().st_mtime == blob_mtime(upstream.git("hash-object", str(path)))


def test_names_with_everything_in_them_arrive(box: Box, upstream: FakeSglang) -> None:
    odd = {"a b.py": "1\n", "quote'\".py": "2\n", "$(touch x).py": "3\n", "-n.py": "4\n", "ä\n.py": "5\n"}
    code = box.put_code(upstream.path, upstream.commit([], files=odd))
    for name, text in odd.items():
        assert Path(code.path, "sglang", name).read_text() == text


def test_an_installed_sglang_is_found_out(box: Box, upstream: FakeSglang, tmp_path: Path) -> None:
    code = box.put_code(upstream.path, upstream.commit([]))
    other = tmp_path / "other" / "sglang"
    other.mkdir(parents=True)
    (other / "__init__.py").touch()
    first = PlacedCode(code.commit, code.tree, str(other.parent), False, 0.0)
    run = box.start(LaunchSpec("a", (sys.executable, "-c", "pass"), code=first))
    assert run.provenance()["sglang"] == str(other / "__init__.py")
    run.stop(0.0)


# .. what apply-queue uses


def test_apply_is_read_back_and_a_second_call_changes_nothing(box: Box, upstream: FakeSglang) -> None:
    one, two = upstream.commit(["--line", "one"]), upstream.commit(["--line", "two"])
    assert box.applied() is None
    for commit in (one, two, one):
        applied = box.apply(upstream.path, commit, patches=["0001-x"])
        assert applied.placed
        assert applied.commit == commit
        assert applied.tree == upstream.git("rev-parse", f"{commit}:python/sglang")
        assert not box.apply(upstream.path, commit, patches=["0001-x"]).placed
    found = box.applied()
    assert found is not None
    assert (found.commit, found.patches, found.changed) == (one, ("0001-x",), ())
    assert "one" in Path(found.path, "sglang", "behaviour.py").read_text()


@pytest.mark.parametrize("in_place", [False, True], ids=["applied", "checkout"])
def test_a_byte_changed_by_hand_is_noticed_refused_and_rescued(
    tmp_path: Path, upstream: FakeSglang, in_place: bool
) -> None:
    one, two = upstream.commit(["--line", "one"]), upstream.commit(["--line", "two"])
    checkout = tmp_path / "checkout"
    subprocess.run(["git", "clone", "--quiet", str(upstream.path), str(checkout)], check=True)
    with leased(settings_for(tmp_path, checkout=str(checkout)), tmp_path) as box:
        code = box.apply(upstream.path, one, in_place=in_place)
        file = Path(code.path, "sglang", "behaviour.py")
        before = file.stat()
        file.write_text(file.read_text().replace("one", "0ne"))
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
        found = box.applied()
        assert found is not None
        assert found.changed == ("python/sglang/behaviour.py",)
        for commit in (one, two):
            with pytest.raises(CodeChanged, match=r"behaviour\.py") as refused:
                box.apply(upstream.path, commit, in_place=in_place)
            assert "--rescue" in refused.value.remedy
        assert "0ne" in file.read_text()
        rescued = box.apply(upstream.path, two, in_place=in_place, rescue=True)
        assert "two" in file.read_text()
    ref = next(word for word in rescued.note.split() if word.startswith("refs/patchbisect/rescued/"))
    repo = checkout if in_place else tmp_path / "box" / "code.git"
    shown = subprocess.run(["git", "-C", str(repo), "show", f"{ref}:python/sglang/behaviour.py"], capture_output=True)
    assert b"0ne" in shown.stdout


def test_two_rescues_in_one_second_are_both_kept(upstream: FakeSglang, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worktree.time, "strftime", lambda _: "20260101-000000")
    commit = upstream.commit([], files={"notes.py": "as it was"})
    place = worktree.WorkTree(
        str(tmp := upstream.path.parent / "applied"), repo=str(upstream.path / ".git"), index=f"{tmp}.i"
    )
    place.bring_to(commit, rescue=False, objects="")
    for text in ("one", "two"):
        (tmp / "python" / "sglang" / "notes.py").write_text(text)
        place.bring_to(commit, rescue=True, objects="")
    kept = upstream.git("for-each-ref", "--format=%(refname)", "refs/patchbisect/rescued").split()
    assert {upstream.git("show", f"{ref}:python/sglang/notes.py") for ref in kept} == {"one", "two"}


def test_in_place_says_where_the_checkout_was_and_leaves_its_branch(tmp_path: Path, upstream: FakeSglang) -> None:
    upstream.commit(["--line", "one"])
    checkout = tmp_path / "checkout"
    subprocess.run(["git", "clone", "--quiet", str(upstream.path), str(checkout)], check=True)
    head = subprocess.run(["git", "-C", str(checkout), "rev-parse", "main"], capture_output=True).stdout
    (checkout / "notes.txt").write_text("mine")
    two = upstream.commit(["--line", "two"])
    with leased(settings_for(tmp_path, checkout=str(checkout)), tmp_path) as box:
        assert "it was at main" in box.apply(upstream.path, two, in_place=True).note
    assert subprocess.run(["git", "-C", str(checkout), "rev-parse", "main"], capture_output=True).stdout == head
    assert (checkout / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("in_place", [False, True], ids=["applied", "checkout"])
@pytest.mark.parametrize(
    ("mine", "theirs"),
    [("new.py", "new.py"), ("docs", "docs/new.py"), ("docs/my/own.py", "docs"), (".cache/x", ".cache/x")],
    ids=["same name", "file for a folder", "folder for a file", "ignored"],
)
def test_untracked_files_that_the_commit_would_overwrite_are_refused_and_rescued(
    tmp_path: Path, upstream: FakeSglang, in_place: bool, mine: str, theirs: str
) -> None:
    (upstream.path / ".gitignore").write_text(".cache\n")
    one = upstream.commit(["--line", "one"])
    there = upstream.path / theirs
    there.parent.mkdir(exist_ok=True)
    there.write_text("theirs")
    upstream.git("add", "--force", theirs)
    two = upstream.commit(["--line", "two"])
    checkout = tmp_path / "checkout"
    subprocess.run(["git", "clone", "--quiet", str(upstream.path), str(checkout)], check=True)
    with leased(settings_for(tmp_path, checkout=str(checkout)), tmp_path) as box:
        top = Path(box.apply(upstream.path, one, in_place=in_place).path).parent
        file = top / mine
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("mine")
        with pytest.raises(CodeChanged, match=mine):
            box.apply(upstream.path, two, in_place=in_place)
        assert file.read_text() == "mine"
        rescued = box.apply(upstream.path, two, in_place=in_place, rescue=True)
        assert (top / theirs).read_text() == "theirs"
    ref = next(word for word in rescued.note.split() if word.startswith("refs/patchbisect/rescued/"))
    repo = checkout if in_place else tmp_path / "box" / "code.git"
    shown = subprocess.run(["git", "-C", str(repo), "show", f"{ref}:{mine}"], capture_output=True)
    assert shown.stdout == b"mine"


def test_an_untracked_file_that_is_the_commits_own_is_in_nobodys_way(tmp_path: Path, upstream: FakeSglang) -> None:
    one = upstream.commit(["--line", "one"])
    (upstream.path / "new.py").write_text("same")
    two = upstream.commit(["--line", "two"])
    checkout = tmp_path / "checkout"
    subprocess.run(["git", "clone", "--quiet", str(upstream.path), str(checkout)], check=True)
    with leased(settings_for(tmp_path, checkout=str(checkout)), tmp_path) as box:
        box.apply(upstream.path, one, in_place=True)
        (checkout / "new.py").write_text("same")
        assert box.apply(upstream.path, two, in_place=True).commit == two


# .. files that git does not track


@pytest.fixture
def built_checkout(tmp_path: Path, upstream: FakeSglang) -> Path:
    """A user's checkout with a kernel that was built into it."""
    (upstream.path / "sgl-kernel").mkdir()
    (upstream.path / "sgl-kernel" / "a.cu").write_text("v1")
    upstream.commit(["--line", "base"])
    checkout = tmp_path / "checkout"
    subprocess.run(["git", "clone", "--quiet", str(upstream.path), str(checkout)], check=True)
    (checkout / "python" / "sglang" / "_kernel.so").write_text("built from v1")
    (checkout / "python" / "sglang" / "_version.py").write_text("version = '0.5.9'\n")
    return checkout


def test_built_files_are_linked_in_while_their_sources_are_the_same(
    tmp_path: Path, upstream: FakeSglang, built_checkout: Path
) -> None:
    commit = upstream.commit(["--line", "patched"])
    with leased(settings_for(tmp_path, checkout=str(built_checkout)), tmp_path) as box:
        code = box.put_code(upstream.path, commit)
        assert Path(code.path, "sglang", "_kernel.so").read_text() == "built from v1"
        assert Path(code.path, "sglang", "_version.py").exists()
        assert run_code(box, code, "a")[0].log == b"patched\n"
        assert not box.put_code(upstream.path, commit).placed


def test_other_sources_without_a_build_command_are_refused(
    tmp_path: Path, upstream: FakeSglang, built_checkout: Path
) -> None:
    (upstream.path / "sgl-kernel" / "a.cu").write_text("v2")
    commit = upstream.commit(["--line", "patched"])
    with (
        leased(settings_for(tmp_path, checkout=str(built_checkout)), tmp_path) as box,
        pytest.raises(CannotLaunch, match="built from other sources"),
    ):
        box.put_code(upstream.path, commit)


def test_a_build_command_runs_once_for_the_same_sources(
    tmp_path: Path, upstream: FakeSglang, built_checkout: Path
) -> None:
    (upstream.path / "sgl-kernel" / "a.cu").write_text("v2")
    commits = [upstream.commit(["--line", text]) for text in ("x", "y")]
    command = f"echo ran >> '{tmp_path}/builds'; (printf 'built from '; cat sgl-kernel/a.cu) > python/sglang/_kernel.so"
    settings = settings_for(tmp_path, checkout=str(built_checkout), build=("sh", "-c", command))
    with leased(settings, tmp_path) as box:
        for commit in commits:
            code = box.put_code(upstream.path, commit)
            assert Path(code.path, "sglang", "_kernel.so").read_text() == "built from v2"
    assert (tmp_path / "builds").read_text() == "ran\n"
