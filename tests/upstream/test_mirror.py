import os
import re
import shutil
import subprocess
import sys

import pytest

from patchbisect.errors import BoxError, PointUnbuildable
from patchbisect.model import Base
from patchbisect.patchqueue import format_patch, parse_patch
from patchbisect.upstream import Mirror
from patchbisect.upstream.mirror import _short_name
from tests.tiny_upstream import ENGINE, FILES, LOADER, git, replaced, repository


@pytest.fixture
def mirror(tmp_path):
    return Mirror(tmp_path / "state", source="git")


@pytest.fixture
def three(upstream):
    """Three patches, each on top of those before: a and b far apart in one file, c in another."""
    return (
        upstream.patch(1, "a", {ENGINE: [replaced("engine_10 = 10")]}),
        upstream.patch(2, "b", {ENGINE: [("engine_40 = 40", "engine_40 = 40\nextra = 1")]}),
        upstream.patch(3, "c", {LOADER: [replaced("loader_5 = 5")]}),
    )


def text(mirror, code, path=ENGINE):
    return mirror.read(code.commit, path).decode()


def log(mirror, code, form):
    return git(mirror.path, "log", f"--format={form}", f"{code.base_commit}..{code.commit}").splitlines()


def test_a_point_is_the_base_and_a_commit_per_patch(mirror, upstream, three):
    code = mirror.materialize(Base(upstream.pin()), three, exact=True)
    assert code.base_commit == upstream.first
    assert code.patches == ("0001-a", "0002-b", "0003-c")
    assert code.shifted == ()
    assert code.source == f"git ({upstream.path})"
    assert code.tree == git(mirror.path, "rev-parse", f"{code.commit}:python/sglang")
    assert log(mirror, code, "%an <%ae> %ad|%cn|%s") == [
        f"Ada <ada@example.org> Tue Nov 14 23:13:20 2023 +0100|patchbisect|Change {slug}" for slug in "cba"
    ]
    assert log(mirror, code, "%at %ct %G?") == ["1700000000 1700000000 N"] * 3
    assert "extra = 1\n" in text(mirror, code)


def test_it_is_the_tree_that_git_am_makes(mirror, upstream, three, tmp_path):
    code = mirror.materialize(Base(upstream.pin()), three, exact=True)
    upstream.back()
    for patch in three:
        git(upstream.bench, "am", "-q", stdin=format_patch(patch).decode())
    assert code.tree == git(upstream.bench, "rev-parse", "HEAD:python/sglang")


def test_the_message_keeps_body_and_trailers(mirror, upstream, three):
    code = mirror.materialize(Base(upstream.pin()), three[:1])
    body = git(mirror.path, "log", "-1", "--format=%B", code.commit)
    assert body == "Change a\n\nBecause the test says so.\n\nKind: experiment\nForwarded: no"


def test_the_same_input_is_the_same_commit_anywhere(upstream, three, tmp_path, monkeypatch):
    base = Base(upstream.pin())
    first = Mirror(tmp_path / "one", source="git").materialize(base, three)
    config = tmp_path / "gitconfig"
    config.write_text(
        "[user]\nname=Eve\nemail=eve@example.org\n[core]\nautocrlf=true\n[apply]\nwhitespace=fix\n[commit]\ngpgsign=true\n"
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.setenv("GIT_COMMITTER_NAME", "Eve")
    monkeypatch.setenv("GIT_AUTHOR_DATE", "2001-01-01T00:00:00")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    assert Mirror(tmp_path / "two", source="git").materialize(base, three) == first


def test_white_space_is_not_repaired(upstream, mirror, tmp_path):
    patch = upstream.patch(1, "a", {ENGINE: [("engine_10 = 10", "engine_10 = 10   \n\t ")]})
    assert "engine_10 = 10   \n\t \n" in text(mirror, mirror.materialize(Base(upstream.pin()), [patch], exact=True))


def test_a_hook_of_the_users_repository_does_not_lead_git_astray(upstream, three, mirror, tmp_path, monkeypatch):
    other = repository(tmp_path / "other")
    before = git(other, "status", "--porcelain=v2", "--branch")
    for name, value in {
        "GIT_DIR": other / ".git",
        "GIT_WORK_TREE": other,
        "GIT_INDEX_FILE": other / ".git" / "index",
        "GIT_PREFIX": "x/",
    }.items():
        monkeypatch.setenv(name, str(value))
    code = mirror.materialize(Base(upstream.pin()), three, exact=True)
    assert "extra = 1\n" in text(mirror, code)
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX"):
        monkeypatch.delenv(name)
    assert git(other, "status", "--porcelain=v2", "--branch") == before


def test_no_work_tree_is_touched(upstream, three, mirror, tmp_path, monkeypatch):
    monkeypatch.chdir(repository(tmp_path / "here"))
    mirror.materialize(Base(upstream.pin()), three)
    assert git(tmp_path / "here", "status", "--porcelain") == ""
    assert git(upstream.path, "status", "--porcelain") == ""


def test_refs_keep_every_prefix_through_gc(upstream, three, mirror):
    code = mirror.materialize(Base(upstream.pin()), three)
    shorter = mirror.materialize(Base(upstream.pin()), three[:2])
    git(mirror.path, "gc", "--prune=now", "--quiet")
    assert Mirror(mirror.path.parent, source="git").materialize(Base(upstream.pin()), three) == code
    refs = git(mirror.path, "for-each-ref", "--format=%(objectname)", "refs/patchbisect/points").split()
    assert len(refs) == 3
    assert {code.commit, shorter.commit} <= set(refs)


def test_what_was_built_is_not_built_again(upstream, three, mirror, monkeypatch):
    base = Base(upstream.pin())
    code = mirror.materialize(base, three)
    again = Mirror(mirror.path.parent, source="git")
    commands = []
    real = again._store.run
    monkeypatch.setattr(again._store, "run", lambda *args, **kw: commands.append(args[0]) or real(*args, **kw))
    assert again.materialize(base, three) == code
    assert set(commands) == {"cat-file"}


def test_a_failure_keeps_what_was_built_and_names_the_patch(upstream, three, mirror):
    base = Base(upstream.pin())
    bad = parse_patch(format_patch(three[1]).replace(b" engine_39 = 39", b" engine_39 = 40"), filename="0002-bad.patch")
    with pytest.raises(PointUnbuildable) as caught:
        mirror.materialize(base, [three[0], bad])
    error = caught.value
    assert error.exit_code == 2
    assert (error.patch, error.place) == ("0002-bad", f"{ENGINE}, hunk 1")
    assert "line 39 should be 'engine_39 = 40', but is 'engine_39 = 39'" in error.message
    assert error.remedy
    assert len(git(mirror.path, "for-each-ref", "refs/patchbisect/points").splitlines()) == 1


def shifted_by_hand(patch, *, by):
    """The patch with its hunk at another line, as after an edit above it."""
    data = re.sub(
        rb"@@ -(\d+),(\d+) \+(\d+),",
        lambda m: b"@@ -%d,%s +%d," % (int(m[1]) + by, m[2], int(m[3]) + by),
        format_patch(patch),
    )
    return parse_patch(data, filename=f"{patch.name}.patch")


def test_an_offset_is_refused_where_the_queue_must_be_exact(upstream, three, mirror):
    moved = shifted_by_hand(three[1], by=-3)
    with pytest.raises(PointUnbuildable) as caught:
        mirror.materialize(Base(upstream.pin()), [three[0], moved], exact=True)
    assert caught.value.message == (
        f"0002-b applies only with an offset to v0.1.0: {ENGINE}, hunk 1: wanted at line 35, fits at line 38"
    )
    assert caught.value.place == f"{ENGINE}, hunk 1"


def test_an_offset_seen_once_is_still_refused_from_the_cache(upstream, three, mirror):
    moved = [three[0], shifted_by_hand(three[1], by=-3)]
    assert mirror.materialize(Base(upstream.pin()), moved).shifted
    with pytest.raises(PointUnbuildable, match="0002-b"):
        mirror.materialize(Base(upstream.pin()), moved, exact=True)


def test_elsewhere_a_patch_is_merged_and_the_shift_is_told(upstream, three, mirror):
    base = Base(upstream.pin(), rev=upstream.second)
    mirror.remember(upstream.pin(), three)
    code = mirror.materialize(base, three)
    assert "import os\n" in text(mirror, code)
    assert "engine_10 = 10 + 100\n" in text(mirror, code)
    assert code.shifted == (
        f"0001-a: {ENGINE}, hunk 1: wanted at line 7, fits at line 8 (merged 3-way)",
        f"0002-b: {ENGINE}, hunk 1: wanted at line 38, fits at line 39 (merged 3-way)",
    )
    assert Mirror(mirror.path.parent, source="git").materialize(base, three) == code


def test_a_merge_where_the_context_changed(upstream, three, mirror):
    """The hunk's outermost context line is another one there: only a merge can do it."""
    upstream.back()
    neighbour = upstream.patch(9, "neighbour", {ENGINE: [replaced("engine_13 = 13")]})
    mirror.remember(upstream.pin(), three)
    code = mirror.materialize(Base(upstream.pin()), [neighbour, three[0]])
    assert "engine_13 = 13 + 100\n" in text(mirror, code)
    assert "engine_10 = 10 + 100\n" in text(mirror, code)
    assert "merged 3-way" in code.shifted[0]


def test_a_conflict_is_unbuildable_and_leaves_no_trace(upstream, three, mirror):
    upstream.back()
    rival = upstream.patch(9, "rival", {ENGINE: [("engine_10 = 10", "engine_10 = 'rival'")]})
    mirror.remember(upstream.pin(), three)
    with pytest.raises(PointUnbuildable) as caught:
        mirror.materialize(Base(upstream.pin()), [rival, three[0]])
    assert caught.value.patch == "0001-a"
    assert caught.value.message == (
        f"0001-a does not apply to v0.1.0: {ENGINE}, hunk 1: in conflict at line 10: "
        "the patch makes it 'engine_10 = 10 + 100', but there is \"engine_10 = 'rival'\""
    )
    assert caught.value.place == f"{ENGINE}, hunk 1"
    alone = mirror.materialize(Base(upstream.pin()), [rival])
    assert "rival" in text(mirror, alone)
    assert not mirror.applies(Base(upstream.pin()), [rival, three[0]])
    assert mirror.applies(Base(upstream.pin()), [rival, three[2]])


def test_a_conflict_names_the_hunk_that_it_is_in(upstream, mirror):
    """The first hunk only moved, and adds a line; the second is in conflict."""
    edits = [("engine_10 = 10", "engine_10 = 10\nmore = 1"), replaced("engine_40 = 40")]
    two = upstream.patch(1, "two", {ENGINE: edits})
    upstream.back()
    rival = upstream.patch(
        9, "rival", {ENGINE: [("engine_1 = 1", "top = 0\nengine_1 = 1"), ("engine_40 = 40", "engine_40 = 0")]}
    )
    mirror.remember(upstream.pin(), [two])
    with pytest.raises(PointUnbuildable, match="hunk 2: in conflict at line 41: ") as caught:
        mirror.materialize(Base(upstream.pin()), [rival, two])
    assert caught.value.place == f"{ENGINE}, hunk 2"


@pytest.fixture
def neighbours(upstream):
    """Two prints, one below the other, and a change far away in the patch of the second."""
    first = upstream.patch(1, "first", {ENGINE: [("engine_10 = 10", "engine_10 = 10\nprint('a')")]})
    edits = [("print('a')", "print('a')\nprint('b')"), replaced("engine_40 = 40")]
    return [first, upstream.patch(2, "second", {ENGINE: edits})]


def test_a_print_below_that_of_a_patch_which_is_not_there(upstream, neighbours, mirror):
    mirror.remember(upstream.pin(), neighbours)
    code = mirror.materialize(Base(upstream.pin()), neighbours[1:])
    assert "engine_10 = 10\nprint('b')\nengine_11 = 11\n" in text(mirror, code)
    assert "engine_40 = 40 + 100\n" in text(mirror, code)
    told = f"0002-second: {ENGINE}, hunk 1: wanted at line 9, where its context is another (merged 3-way)"
    assert code.shifted[0] == told
    twice = mirror.materialize(Base(upstream.pin(), rev=upstream.second), neighbours[1:])
    assert "engine_10 = 10\nprint('b')\nengine_11 = 11\n" in text(mirror, twice)


def test_two_prints_at_the_same_place_are_in_conflict(upstream, neighbours, mirror):
    upstream.back()
    rival = upstream.patch(9, "rival", {ENGINE: [("engine_10 = 10", "engine_10 = 10\nprint('r')")]})
    mirror.remember(upstream.pin(), neighbours)
    with pytest.raises(PointUnbuildable, match=r"the patch makes it \"print\('a'\)\", but there is "):
        mirror.materialize(Base(upstream.pin()), [rival, neighbours[0]])


def without_blobs(patch):
    """The patch as written by a tool that knows no blobs, so that no merge is possible."""
    lines = [line for line in format_patch(patch).split(b"\n") if not line.startswith(b"index ")]
    return parse_patch(b"\n".join(lines), filename=f"{patch.name}.patch")


def test_without_blobs_a_hunk_may_move_to_the_only_place_where_it_fits(upstream, three, mirror):
    code = mirror.materialize(Base(upstream.pin(), rev=upstream.second), [without_blobs(three[0])])
    assert code.shifted == (f"0001-a: {ENGINE}, hunk 1: wanted at line 7, fits at line 8 (moved)",)


def test_without_blobs_two_places_are_one_too_many(upstream, mirror):
    block = "".join(f"same_{n}\n" for n in range(7))
    twice = f"{block}middle\n{block}"
    upstream.patch_of(1, "twice", {LOADER: twice})
    edited = upstream.patch_of(2, "edit", {LOADER: twice.replace("same_3\n", "other\n", 1)})
    moved = upstream.patch_of(3, "moved", {LOADER: "top\n" + twice})
    upstream.back()
    base_patch = upstream.patch_of(1, "twice", {LOADER: "top\n" + twice})
    assert moved.files == (LOADER,)
    with pytest.raises(PointUnbuildable) as caught:
        mirror.materialize(Base(upstream.pin()), [base_patch, without_blobs(edited)])
    assert "fits at line 2 (also at 10)" in caught.value.message


def test_a_patch_that_the_base_has_already_is_told(upstream, three, mirror):
    mirror.remember(upstream.pin(), three)
    upstream.back()
    same = upstream.patch(8, "same", {ENGINE: [replaced("engine_10 = 10"), replaced("engine_30 = 30")]})
    code = mirror.materialize(Base(upstream.pin()), [same, three[0]])
    assert code.shifted == ("0001-a: changes nothing on v0.1.0, it is there already",)


def test_new_deleted_and_renamed_files(upstream, mirror):
    new = upstream.patch_of(1, "new", {"python/sglang/new.py": "x = 1\n", LOADER: None})
    git(upstream.bench, "mv", "python/sglang/new.py", "python/sglang/newer.py")
    moved = upstream.patch_of(2, "moved", {})
    code = mirror.materialize(Base(upstream.pin()), [new, moved], exact=True)
    listing = git(mirror.path, "ls-tree", "-r", "--name-only", code.commit).splitlines()
    assert listing == ["python/sglang/__init__.py", ENGINE, "python/sglang/newer.py"]


def test_a_file_in_the_way_and_a_file_that_is_missing(upstream, mirror):
    new = upstream.patch_of(1, "new", {"python/sglang/new.py": "x = 1\n"})
    edit = upstream.patch_of(2, "edit", {"python/sglang/new.py": "x = 2\n"})
    again = parse_patch(format_patch(new), filename="0003-again.patch")
    with pytest.raises(PointUnbuildable, match=r"0003-again .*new\.py is there already"):
        mirror.materialize(Base(upstream.pin()), [new, again])
    with pytest.raises(PointUnbuildable, match=r"0002-edit .*there is no python/sglang/new\.py"):
        mirror.materialize(Base(upstream.pin()), [edit])


def test_a_last_line_without_a_line_end(upstream, mirror):
    cut = upstream.patch_of(1, "cut", {LOADER: FILES[LOADER].removesuffix("\n")})
    code = mirror.materialize(Base(upstream.pin()), [cut], exact=True)
    assert text(mirror, code, LOADER) == FILES[LOADER].removesuffix("\n")


def test_an_author_with_letters_of_all_kinds(upstream, three, mirror):
    data = format_patch(three[0]).replace(b"From: Ada <", b"From: =?UTF-8?q?J=C3=BCrgen?= O'Neil <")
    patch = parse_patch(data.replace(b"Because", "Weil größer".encode()), filename="0001-a.patch")
    code = mirror.materialize(Base(upstream.pin()), [patch])
    assert git(mirror.path, "log", "-1", "--format=%an|%b", code.commit).startswith("Jürgen O'Neil|Weil größer")


@pytest.mark.ci
def test_several_processes_build_the_same_point_at_once(upstream, three, tmp_path):
    program = (
        "import sys\nfrom pathlib import Path\nfrom patchbisect.model import Base, Pin\n"
        "from patchbisect.patchqueue import parse_patch\nfrom patchbisect.upstream import Mirror\n"
        "pin = Pin(sys.argv[2], sys.argv[3], 'v0.1.0')\n"
        "patches = [parse_patch(Path(name).read_bytes(), filename=name) for name in sys.argv[4:]]\n"
        "print(Mirror(Path(sys.argv[1]), source='git').materialize(Base(pin), patches).commit)\n"
    )
    names = []
    for patch in three:
        names.append(tmp_path / f"{patch.name}.patch")
        names[-1].write_bytes(format_patch(patch))
    command = [sys.executable, "-c", program, tmp_path / "shared", upstream.path, upstream.first, *names]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    running = [subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, env=env) for _ in range(4)]
    printed = {process.communicate()[0] for process in running}
    assert [process.returncode for process in running] == [0, 0, 0, 0]
    assert len(printed) == 1


@pytest.mark.parametrize(
    ("commits", "on_first", "on_second"),
    [
        ("v0.1.0..", False, True),
        ("..v0.1.0", True, False),
        ("v0.0.9..v0.2.0", True, True),
        ("v0.2.0..v0.3.0", False, False),
    ],
)
def test_a_patch_is_left_out_where_the_base_is_not_in_its_range(tmp_path, upstream, commits, on_first, on_second):
    """By ancestry in a local clone; by release numbers without one."""
    upstream.own()
    git(upstream.path, "tag", "v0.3.0", upstream.second)
    git(upstream.path, "tag", "v0.0.9", git(upstream.path, "commit-tree", "-m", "root", "v0.1.0^{tree}"))
    patch = upstream.patch(1, "a", {LOADER: [replaced("loader_5 = 5")]}, trailers=f"Upstream: {commits}")
    mirror = Mirror(tmp_path / "state", source="git", clone=str(upstream.path))
    for rev, wanted in (("", on_first), (upstream.second, on_second)):
        code = mirror.materialize(Base(upstream.pin(), rev=rev), [patch])
        assert code.patches == (("0001-a",) if wanted else ())
        assert ("left out" in " ".join(code.shifted)) is not wanted


def test_a_range_that_cannot_be_judged_leaves_nothing_out(tmp_path, upstream, mirror):
    patch = upstream.patch(1, "a", {LOADER: [replaced("loader_5 = 5")]}, trailers="Upstream: main..feature")
    assert mirror.materialize(Base(upstream.pin()), [patch]).patches == ("0001-a",)


def test_a_damaged_mirror_is_said_in_one_line(upstream, three, mirror):
    mirror.base(Base(upstream.pin()))
    for path in mirror.path.glob("objects/pack/*"):
        path.unlink()
    shutil.rmtree(mirror.path / "objects" / upstream.first[:2], ignore_errors=True)
    with pytest.raises(BoxError, match="git .* failed in|has lost") as caught:
        mirror.materialize(Base(upstream.pin()), three)
    assert caught.value.exit_code == 3


def test_different_releases_have_different_short_names(upstream):
    releases = [Base(upstream.pin(), rev=f"release:0.5.{n}.post1") for n in (8, 9)]
    assert [_short_name(base) for base in releases] == ["release-0-5-8-post1", "release-0-5-9-post1"]
    assert _short_name(Base(upstream.pin(), rev="a" * 40)) == "a" * 12
