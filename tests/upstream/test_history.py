from pathlib import Path

import pytest

from patchbisect.errors import BoxError, UsageError
from patchbisect.model import Base
from patchbisect.upstream import Mirror, Way
from patchbisect.upstream import history as module
from patchbisect.upstream.history import commits_between, releases_between
from patchbisect.upstream.sources import NotAnswering
from tests.tiny_upstream import ENGINE, LOADER, Upstream, commit, git


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    return Upstream(tmp_path / "up")


def merged(upstream: Upstream) -> list[str]:
    """Two commits on a branch, merged into main by a merge commit; then one more on main."""
    path = upstream.own()
    git(path, "checkout", "-q", "-B", "side", upstream.second)
    side = [commit(path, {LOADER: f"side = {n}\n"}, f"side {n}") for n in (1, 2)]
    git(path, "checkout", "-q", "-B", "main", upstream.second)
    git(path, "merge", "-q", "--no-ff", "-m", "merge side", "side")
    merge = git(path, "rev-parse", "HEAD")
    return [*side, merge, commit(path, {ENGINE: "engine = 1\n"}, "after")]


def subjects(bases: tuple[Base, ...]) -> list[str]:
    return [base.subject for base in bases]


def test_first_parents_only_unless_the_full_history_is_wanted(upstream: Upstream) -> None:
    commits = merged(upstream)
    good, bad = Base(upstream.pin()), Base(upstream.pin(), rev=commits[-1])
    way = Way()
    assert subjects(commits_between(upstream.path, good, bad, way)) == ["second", "merge side", "after"]
    full = commits_between(upstream.path, good, bad, Way(first_parent=False))
    assert subjects(full) == ["second", "side 1", "side 2", "after"]


def test_paths_narrow_and_the_end_stands_for_itself(upstream: Upstream) -> None:
    commits = merged(upstream)
    good, bad = Base(upstream.pin()), Base(upstream.pin(), rev=commits[-1])
    narrowed = commits_between(upstream.path, good, bad, Way(paths=(LOADER,)))
    assert [base.rev for base in narrowed] == commits[-2:]


def test_ends_that_are_not_on_one_line_are_refused_with_where_they_part(upstream: Upstream) -> None:
    commits = merged(upstream)
    good, bad = Base(upstream.pin(), rev=commits[-1]), Base(upstream.pin(), rev=commits[0])
    with pytest.raises(UsageError, match=f"does not come before {commits[0][:12]}: they part at {commits[0][:12]}"):
        commits_between(upstream.path, good, bad, Way())


def test_a_commit_that_the_clone_has_not_is_named(upstream: Upstream) -> None:
    with pytest.raises(UsageError, match="has no commit 222222222222"):
        commits_between(upstream.path, Base(upstream.pin()), Base(upstream.pin(), rev="2" * 40), Way())


def test_what_leads_from_one_base_to_another_is_a_patch_that_can_be_turned_round(
    upstream: Upstream, tmp_path: Path
) -> None:
    mirror = Mirror(tmp_path / "state", source="git", clone=str(upstream.path))
    first, second = Base(upstream.pin()), Base(upstream.pin(), rev=upstream.second)
    there, back = mirror.difference(first, second), mirror.difference(second, first)
    assert mirror.materialize(first, [there]).tree == mirror.materialize(second, ()).tree
    assert mirror.materialize(second, [back]).tree == mirror.materialize(first, ()).tree


PIP = "sglang (0.5.10)\nAvailable versions: 0.5.10, 0.5.10rc1, 0.5.9.post1, 0.5.9, 0.5.8, oddity\n"


def test_releases_serve_as_commits_where_there_is_no_history(
    upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_released", lambda pip_args: module._VERSIONS.search(PIP)[1].split(", "))
    pin = upstream.pin(release="0.5.8", tag="v0.5.8")
    between = releases_between(Base(pin), Base(pin, rev="release:0.5.10"), pip_args=())
    assert [base.rev for base in between] == ["release:0.5.9", "release:0.5.9.post1", "release:0.5.10"]
    with pytest.raises(NotAnswering, match="not both ends are releases"):
        releases_between(Base(pin), Base(pin, rev="main"), pip_args=())


def test_up_to_a_release_the_steps_are_releases_although_git_answers(
    upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_released", lambda pip_args: module._VERSIONS.search(PIP)[1].split(", "))
    pin = upstream.pin(release="0.5.9", tag="v0.5.9")
    mirror = Mirror(tmp_path / "state", source="git", clone=str(upstream.path))
    steps = mirror.route(Base(pin), Base(pin, rev="release:0.5.10"))
    assert [base.rev for base in steps] == ["release:0.5.9.post1", "release:0.5.10"]


def at_url(upstream: Upstream, state: Path) -> tuple[Mirror, list[str]]:
    """A mirror that has nothing but the URL of upstream, and what it says while it works."""
    git(upstream.path, "config", "uploadpack.allowFilter", "true")
    said: list[str] = []
    return Mirror(state, source="git", say=said.append), said


def test_a_range_comes_from_the_url_alone_and_needs_it_only_once(upstream: Upstream, tmp_path: Path) -> None:
    commits = merged(upstream)
    pin = upstream.pin(upstream=upstream.path.as_uri())
    good, bad = Base(pin), Base(pin, rev=commits[-1])
    mirror, said = at_url(upstream, tmp_path / "state")
    assert subjects(mirror.route(good, bad)) == ["second", "merge side", "after"]
    assert said[0] == f"fetching the history from {pin.commit[:12]} to {commits[-1][:12]} from {pin.upstream}"
    full = mirror.route(good, bad, way=Way(first_parent=False))
    assert subjects(full) == ["second", "side 1", "side 2", "after"]
    mirror.base(good)
    upstream.path.rename(tmp_path / "unplugged")
    again = Mirror(tmp_path / "state", source="git")
    assert subjects(again.route(good, bad)) == ["second", "merge side", "after"]
    assert again.freeze(Base(pin, rev=commits[-1][:12])).rev == commits[-1]
    assert all(again.materialize(base, ()).tree for base in (good, *full))


def test_history_holds_no_file_and_the_mirror_is_whole(upstream: Upstream, tmp_path: Path) -> None:
    commits = merged(upstream)
    pin = upstream.pin(upstream=upstream.path.as_uri())
    mirror, _ = at_url(upstream, tmp_path / "state")
    mirror.route(Base(pin), Base(pin, rev=commits[-1]))
    kinds = git(tmp_path / "state" / "history.git", "cat-file", "--batch-all-objects", "--batch-check=%(objecttype)")
    assert set(kinds.split()) == {"commit", "tree"}
    assert "partial" not in (mirror.path / "config").read_text()
    assert git(mirror.path, "rev-list", "--objects", "--missing=print", "--all").count("?") == 0


def test_ends_the_wrong_way_round_are_refused_from_a_url_too(upstream: Upstream, tmp_path: Path) -> None:
    pin = upstream.pin(upstream=upstream.path.as_uri())
    mirror, _ = at_url(upstream, tmp_path / "state")
    with pytest.raises(UsageError, match=f"they part at {upstream.first[:12]}"):
        mirror.route(Base(pin, rev=upstream.second), Base(pin))


def test_without_a_network_the_way_out_is_named(upstream: Upstream, tmp_path: Path) -> None:
    pin = upstream.pin(upstream="git://127.0.0.1:1/sglang")
    with pytest.raises(BoxError, match="cannot reach git://127.0.0.1:1/sglang") as caught:
        Mirror(tmp_path / "state").route(Base(pin), Base(pin, rev=upstream.second))
    assert "upstream.clone" in caught.value.remedy


def test_a_path_that_no_commit_touches_is_refused_and_what_it_leaves_out_is_said(upstream: Upstream) -> None:
    commits = merged(upstream)
    good, bad = Base(upstream.pin()), Base(upstream.pin(), rev=commits[-1])
    with pytest.raises(UsageError, match="no commit from .* touches python/sglang/nope"):
        commits_between(upstream.path, good, bad, Way(paths=("python/sglang/nope",)))
    narrowed = commits_between(upstream.path, good, bad, Way(paths=(LOADER,)))
    assert subjects(narrowed) == ["merge side (with 1 before it that --path leaves out)", "after"]
