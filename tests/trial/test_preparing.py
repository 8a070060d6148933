"""What a point needs is told beside the project's pin, whichever pin the point itself has."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchbisect.config import BoxConfig, OtherWheels
from patchbisect.model import Base, Patch, Pin, Point
from patchbisect.trial import Desk, prepare
from patchbisect.upstream import PROJECT_FILE, Mirror
from tests.tiny_upstream import Upstream, commit, git


class Moved:
    """An upstream that asks for a==1, then for a==2, and a pin at either."""

    def __init__(self, folder: Path) -> None:
        upstream = Upstream(folder / "up")
        path = upstream.own()
        said = '[project]\nname = "sglang"\ndependencies = ["a=={}"]\n'
        commits = [commit(path, {PROJECT_FILE: said.format(version)}) for version in (1, 2)]
        git(upstream.bench, "fetch", "-q", str(path), commits[1])
        git(upstream.bench, "checkout", "-q", "FETCH_HEAD")
        self.asks_for_3 = upstream.patch_of(1, "wheels", {PROJECT_FILE: said.format(3)})
        self.old, self.new = (upstream.pin(commit=one, tag="") for one in commits)
        self.mirror = Mirror(folder / "state", source="git", clone=str(path))

    def content(
        self, point_pin: Pin, *, pin: Pin, policy: OtherWheels = "build", rev: str = "", patches: tuple[Patch, ...] = ()
    ) -> dict[str, str]:
        config = BoxConfig(other_wheels=policy)
        desk = Desk(mirror=self.mirror, config=config, embedded=None, secret_names=(), pin=pin)
        return dict(prepare(desk, Point("p", Base(point_pin, rev=rev), patches, "x")).wants.content)


@pytest.fixture
def moved(tmp_path: Path) -> Moved:
    return Moved(tmp_path)


def test_an_older_revision_of_the_queue_needs_what_its_own_pin_asks_for(moved: Moved) -> None:
    assert moved.content(moved.old, pin=moved.new) == {"a": "a==1"}
    assert moved.content(moved.old, pin=moved.old) == {}
    assert moved.content(moved.new, pin=moved.new) == {}


def test_the_same_commit_needs_the_same_whatever_it_is_called(moved: Moved) -> None:
    assert moved.content(moved.new, rev=moved.old.commit, pin=moved.new) == {"a": "a==1"}
    assert moved.content(moved.old, rev=moved.new.commit, pin=moved.new) == {}


def test_a_box_that_ignores_them_has_no_needs(moved: Moved) -> None:
    assert moved.content(moved.old, pin=moved.new, policy="ignore") == {}


def test_a_patch_may_change_what_the_pin_needs(moved: Moved) -> None:
    assert moved.content(moved.new, pin=moved.new, patches=(moved.asks_for_3,)) == {"a": "a==3"}
