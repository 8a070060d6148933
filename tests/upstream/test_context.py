"""Which upstream commit took a patch's context away."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchbisect.errors import PointUnbuildable
from patchbisect.model import Base, Patch
from patchbisect.upstream import Mirror
from patchbisect.upstream.context import ContextHistory
from tests.tiny_upstream import ENGINE, LOADER, Upstream, commit, git, replaced

pytestmark = pytest.mark.ci

MAKES = ("engine_10 = 10\n", "engine_10 = 'theirs'\n")


@pytest.fixture
def own(upstream: Upstream) -> Upstream:
    upstream.own()
    return upstream


def goes_on(upstream: Upstream, old: str, new: str, *, path: str = ENGINE, message: str = "Go on") -> str:
    text = (upstream.path / path).read_text()
    assert old in text
    return commit(upstream.path, {path: text.replace(old, new)}, message)


def refused(mirror: Mirror, base: Base, *patches: Patch) -> PointUnbuildable:
    mirror.remember(base.pin, patches)
    with pytest.raises(PointUnbuildable) as caught:
        mirror.materialize(base, patches)
    return caught.value


def mirror_of(upstream: Upstream, state: Path) -> Mirror:
    return Mirror(state, source="git", clone=str(upstream.path))


def test_the_commit_that_is_in_conflict_and_not_those_that_only_came_near(own: Upstream, tmp_path: Path) -> None:
    patch = own.patch(1, "a", {ENGINE: [replaced("engine_10 = 10")]})
    goes_on(own, "engine_7 = 7\n", "engine_7 = 77\n", message="An outer line of the context")
    guilty = goes_on(own, *MAKES, message="Refactor [bold]pools[/bold] (#12)")
    goes_on(own, "engine_50 = 50\n", "engine_50 = 5\n", message="Far away")
    last = goes_on(own, "loader_1 = 1\n", "loader_1 = 2\n", path=LOADER, message="Elsewhere")
    error = refused(mirror_of(own, tmp_path / "state"), Base(own.pin(), rev=last), patch)
    assert (error.patch, error.place) == ("0001-a", f"{ENGINE}, hunk 1")
    assert error.message.endswith(
        f"; upstream commit {guilty[:12]} (Refactor [bold]pools[/bold] (#12)) moved its context"
    )


def test_a_patch_that_stands_on_another_one_of_the_queue(own: Upstream, tmp_path: Path) -> None:
    first = own.patch(1, "first", {ENGINE: [("engine_10 = 10", "engine_10 = 10\nmine = 1")]})
    second = own.patch(2, "second", {ENGINE: [("mine = 1", "mine = 2"), replaced("engine_40 = 40")]})
    goes_on(own, "engine_1 = 1\n", "engine_1 = 0\n")
    guilty = goes_on(own, "engine_40 = 40\n", "engine_40 = 'theirs'\n")
    error = refused(mirror_of(own, tmp_path / "state"), Base(own.pin(), rev=guilty), first, second)
    assert error.patch == "0002-second"
    assert f"upstream commit {guilty[:12]} (Go on) moved its context" in error.message


def test_a_missing_patch_is_no_fault_of_upstream(own: Upstream, tmp_path: Path) -> None:
    first = own.patch(1, "first", {ENGINE: [("engine_10 = 10", "engine_10 = 10\nmine = 1")]})
    second = own.patch(2, "second", {ENGINE: [("mine = 1", "mine = 2")]})
    mirror = mirror_of(own, tmp_path / "state")
    mirror.remember(own.pin(), [first, second])
    last = goes_on(own, "engine_30 = 30\n", "engine_30 = 3\n")
    assert "upstream commit" not in refused(mirror, Base(own.pin(), rev=last), second).message


def test_an_older_base_does_not_have_the_commit_that_brought_the_context(own: Upstream, tmp_path: Path) -> None:
    brought = goes_on(own, *MAKES, message="Bring it")
    goes_on(own, "engine_50 = 50\n", "engine_50 = 5\n")
    pin = own.pin(commit=git(own.path, "rev-parse", "HEAD"), tag="")
    git(own.bench, "fetch", "-q", str(own.path))
    git(own.bench, "checkout", "-q", "-B", "bench", "FETCH_HEAD")
    patch = own.patch(1, "a", {ENGINE: [("engine_10 = 'theirs'", "engine_10 = 'ours'")]})
    error = refused(mirror_of(own, tmp_path / "state"), Base(pin, rev=own.first), patch)
    assert error.message.endswith(
        f"; its context came with upstream commit {brought[:12]} (Bring it), which is not in there"
    )


def test_a_file_that_upstream_took_away(own: Upstream, tmp_path: Path) -> None:
    patch = own.patch(1, "a", {LOADER: [replaced("loader_5 = 5")]})
    goes_on(own, "loader_30 = 30\n", "loader_30 = 3\n", path=LOADER)
    guilty = commit(own.path, {LOADER: None}, "Drop the loader")
    error = refused(mirror_of(own, tmp_path / "state"), Base(own.pin(), rev=guilty), patch)
    assert f"there is no {LOADER}; upstream commit {guilty[:12]} (Drop the loader) took the file away" in error.message


def test_a_patch_made_for_another_pin_that_was_seen(own: Upstream, tmp_path: Path) -> None:
    """As in a bisection between two pins, and in a rebase: the base's own pin is where it does not fit."""
    patch = own.patch(1, "a", {ENGINE: [replaced("engine_10 = 10")]})
    guilty = goes_on(own, *MAKES)
    mirror = mirror_of(own, tmp_path / "state")
    mirror.remember(own.pin(), [patch])
    error = refused(mirror, Base(own.pin(commit=guilty, tag="")), patch)
    assert f"upstream commit {guilty[:12]} (Go on) moved its context" in error.message


def test_it_is_worked_out_once_and_not_at_all_where_nobody_asks(
    own: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch = own.patch(1, "a", {ENGINE: [replaced("engine_10 = 10")]})
    base = Base(own.pin(), rev=goes_on(own, *MAKES))
    asked: list[str] = []
    real = ContextHistory.mover
    monkeypatch.setattr(
        ContextHistory, "mover", lambda self, *args, **named: asked.append("once") or real(self, *args, **named)
    )
    mirror = mirror_of(own, tmp_path / "state")
    mirror.remember(own.pin(), [patch])
    assert not mirror.applies(base, [patch])
    assert asked == []
    first = refused(mirror, base, patch)
    assert refused(mirror_of(own, tmp_path / "state"), base, patch).message == first.message
    assert asked == ["once"]


def test_without_a_clone_it_says_what_would_tell(own: Upstream, tmp_path: Path) -> None:
    patch = own.patch(1, "a", {ENGINE: [replaced("engine_10 = 10")]})
    error = refused(Mirror(tmp_path / "state", source="git"), Base(own.pin(), rev=goes_on(own, *MAKES)), patch)
    assert "upstream commit" not in error.message
    assert "upstream.clone" in error.remedy


def test_where_no_commit_alone_is_to_blame_the_newest_are_named(own: Upstream, tmp_path: Path) -> None:
    """A patch that never fitted the pin: made for a commit that nobody here has seen."""
    goes_on(own, *MAKES, message="Unseen")
    git(own.bench, "fetch", "-q", str(own.path))
    git(own.bench, "checkout", "-q", "-B", "bench", "FETCH_HEAD")
    patch = own.patch(1, "a", {ENGINE: [("engine_10 = 'theirs'", "engine_10 = 'ours'")]})
    git(own.path, "reset", "-q", "--hard", "HEAD~1")
    last = goes_on(own, "engine_50 = 50\n", "engine_50 = 5\n", message="Newest")
    error = refused(mirror_of(own, tmp_path / "state"), Base(own.pin(), rev=last), patch)
    assert f"; engine.py was changed by {last[:12]} (Newest)" in error.message


def test_what_was_made_on_a_commit_in_between_is_counted_from_there(own: Upstream, tmp_path: Path) -> None:
    """As is the difference of two commits of a bisection, when it is tried at the end of the range."""
    before = goes_on(own, *MAKES, message="Before the culprit")
    culprit = goes_on(own, "engine_20 = 20\n", "engine_20 = 'culprit'\n")
    last = goes_on(own, "engine_20 = 'culprit'\n", "engine_20 = 'repaired'\n", message="Repair it")
    mirror = mirror_of(own, tmp_path / "state")
    without = mirror.difference(Base(own.pin(), rev=culprit), Base(own.pin(), rev=before))
    error = refused(mirror, Base(own.pin(), rev=last), without)
    assert f"; upstream commit {last[:12]} (Repair it) moved its context" in error.message
