import subprocess

import pytest

from patchbisect.bisection import export_branch
from patchbisect.config import Settings
from patchbisect.errors import UsageError
from patchbisect.points import PointResolver
from patchbisect.timeline import point_at, timeline
from patchbisect.upstream import Mirror
from tests.bisection.test_running import across
from tests.bisection.world import point, queue
from tests.tiny_upstream import ENGINE, LOADER, Upstream, git, replaced


@pytest.fixture
def resolver(tmp_path):
    upstream = Upstream(tmp_path / "up")
    root = tmp_path / "queue"
    (root / "patches").mkdir(parents=True)
    git(root, "init", "-q", "-b", "main")
    pin = upstream.pin()
    (root / "patches" / "pin.toml").write_text(
        f'upstream = "{pin.upstream}"\ncommit = "{pin.commit}"\ntag = "{pin.tag}"\n'
    )
    for patch in (
        upstream.patch(1, "one", {ENGINE: [replaced("engine_3 = 3")]}),
        upstream.patch(2, "two", {LOADER: [replaced("loader_5 = 5")]}),
    ):
        (root / "patches" / f"{patch.name}.patch").write_bytes(patch.text.encode())
    (root / "kept.txt").write_text("kept")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "queue")
    mirror = Mirror(tmp_path / "state", source="git")
    settings = Settings.model_validate({"profile": "tiny", "profiles": {"tiny": {"flags": {}}}})
    return PointResolver(root=root, settings=settings, mirror=mirror, runs=lambda identifier: None)


def test_each_commit_of_the_branch_is_a_point_of_the_timeline(resolver):
    clean, head = (resolver.resolve(name).point for name in ("clean", "HEAD"))
    line = timeline(clean, head, applies=resolver.mirror.applies)
    before = git(resolver.root, "status", "--porcelain")
    commits = export_branch(resolver.root, "line", line)
    assert len(commits) == 3
    for k, commit in enumerate(commits):
        assert resolver.resolve(commit).point.patches == point_at(line, k).patches
    assert git(resolver.root, "log", "--format=%s", "line").splitlines() == [
        "add 0002-two: Change two",
        "add 0001-one: Change one",
        "clean: the good end",
        "queue",
    ]
    assert git(resolver.root, "show", "line:kept.txt") == "kept"
    assert git(resolver.root, "status", "--porcelain") == before


def test_git_bisect_run_finds_the_commit(resolver):
    clean, head = (resolver.resolve(name).point for name in ("clean", "HEAD"))
    commits = export_branch(resolver.root, "line", timeline(clean, head, applies=resolver.mirror.applies))
    git(resolver.root, "bisect", "start", commits[-1], commits[0])
    done = subprocess.run(
        ["git", "-C", str(resolver.root), "bisect", "run", "sh", "-c", "! test -e patches/0002-two.patch"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"{commits[2]} is the first bad commit" in done.stdout


def test_a_branch_that_is_there_is_not_overwritten(resolver):
    clean, head = (resolver.resolve(name).point for name in ("clean", "HEAD"))
    line = timeline(clean, head, applies=resolver.mirror.applies)
    for name, said in (("main", "there is a branch main already"), ("a..b", "cannot name a branch")):
        with pytest.raises(UsageError, match=said):
            export_branch(resolver.root, name, line)


def test_flags_are_no_code(resolver):
    line = across(point("clean"), point("HEAD", queue(1), flags={"mem": "0.9"})).timeline
    with pytest.raises(UsageError, match="a branch holds code, and set mem=0.9 is none"):
        export_branch(resolver.root, "line", line)
