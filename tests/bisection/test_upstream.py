"""Bisecting over commits of upstream, by real git: the queue is carried along, steps of the base are undone alone."""

from dataclasses import replace

import pytest

from patchbisect.bisection import AnswerKind, Claim, conduct
from patchbisect.journal import Journal
from patchbisect.model import Axis, Base, Point
from patchbisect.timeline import label, timeline
from patchbisect.upstream import Mirror, Way
from tests.bisection.test_running import statuses
from tests.bisection.world import FAILS, READY, World, found, question
from tests.tiny_upstream import ENGINE, FILES, LOADER, Upstream, commit, git, replaced

pytestmark = pytest.mark.ci

OTHER = "docs/readme.md"


class History:
    """Ten commits on top of the pin; the sixth writes ``broken``; some touch nothing that runs."""

    def __init__(self, folder):
        folder.mkdir(exist_ok=True)
        self.upstream = Upstream(folder)
        path = self.upstream.own()
        self.mirror = Mirror(folder / "state", source="git", clone=str(path))
        git(path, "checkout", "-q", "-B", "main", "v0.1.0")
        engine, self.commits = FILES[ENGINE].splitlines(), []
        for number in range(1, 11):
            if number in (3, 8):
                files = {OTHER: f"read {number}\n"}
            else:
                engine[number * 5] = "broken = 1" if number == 6 else f"changed_{number} = 1"
                files = {ENGINE: "\n".join(engine) + "\n"}
            self.commits.append(commit(path, files, f"Commit {number}"))

    def base(self, number):
        return Base(self.upstream.pin(), rev=self.commits[number - 1] if number else "")

    def point(self, name, number, patches=()):
        return Point(name, self.base(number), tuple(patches), "tiny")

    def line(self, good, bad, **way):
        def route(before, after):
            return self.mirror.route(before, after, way=Way(**way))

        return timeline(good, bad, applies=self.mirror.applies, route=route)

    def text(self, point, path=ENGINE):
        return self.mirror.read(self.mirror.materialize(point.base, point.patches).commit, path).decode()

    def world(self, tmp_path, rule=None):
        def broken(at):
            return FAILS if "broken = 1" in self.text(at) else READY

        world = World.at(
            tmp_path, rule or broken, contents=lambda at: self.mirror.materialize(at.base, at.patches).tree
        )
        world.difference = self.mirror.difference
        return world


@pytest.fixture
def history(tmp_path):
    return History(tmp_path)


def test_only_commits_that_change_what_runs_are_on_the_line(history):
    line = history.line(history.point("clean", 0), history.point("upstream", 10))
    assert [change.after.subject for change in line.changes] == [f"Commit {n}" for n in (1, 2, 4, 5, 6, 7, 9, 10)]
    assert all(change.axis is Axis.BASE for change in line.changes)
    assert label(line.changes[0]) == f"upstream {history.commits[0][:12]}"


def test_a_guilty_commit_is_found_and_undone_alone(history, tmp_path):
    world = history.world(tmp_path)
    asked = question(timeline=history.line(history.point("clean", 0), history.point("upstream", 10)))
    finding = found(world, asked)
    assert finding.answer is AnswerKind.FOUND
    assert finding.culprit.after.rev == history.commits[5]
    short = history.commits[5][:12]
    assert finding.reason == f"upstream {short} (Commit 6) breaks it: necessary, and sufficient alone"
    assert set(statuses(finding).values()) == {"confirmed"}
    assert f"upstream without upstream {short}" in world.launched
    assert f"clean with upstream {short} alone" in world.launched
    proof = {step.claim: step.trial.point for step in finding.proof}
    assert "broken" not in history.text(proof[Claim.WITHOUT_CULPRIT_GOOD])
    assert "changed_10" in history.text(proof[Claim.WITHOUT_CULPRIT_GOOD])
    assert "changed_5" not in history.text(proof[Claim.ALONE_BAD])


def test_the_queue_is_carried_along_and_what_does_not_take_it_is_never_bad(history, tmp_path):
    """Patch 1 edits the line that commit 4 changes: from there on it cannot be built."""
    patch = history.upstream.patch(1, "near", {ENGINE: [replaced("engine_21 = 21")]})
    moved = history.upstream.patch(2, "far", {LOADER: [replaced("loader_5 = 5")]})
    world = history.world(tmp_path)
    asked = question(
        timeline=history.line(history.point("good", 0, [moved]), history.point("bad", 10, [moved])),
    )
    finding = found(world, asked)
    assert finding.culprit.after.rev == history.commits[5]
    assert all("loader_5 = 5 + 100" in history.text(step.trial.point, LOADER) for step in finding.steps)
    assert not history.mirror.applies(history.base(4), [patch])
    assert history.mirror.applies(history.base(2), [patch])


def test_a_moved_pin_takes_the_form_of_a_patch_that_applies_at_each_base(history, tmp_path):
    old = history.upstream.patch(1, "near", {ENGINE: [replaced("engine_21 = 21")]})
    history.mirror.remember(history.upstream.pin(), [old])
    git(history.upstream.bench, "fetch", "-q", str(history.upstream.path), "main")
    git(history.upstream.bench, "checkout", "-q", "-B", "bench", history.commits[9])
    new = history.upstream.patch(1, "near", {ENGINE: [("changed_4 = 1", "changed_4 = 'mine'")]})
    world = history.world(tmp_path)
    line = history.line(history.point("before", 0, [old]), history.point("after", 10, [new]))
    finding = found(world, question(timeline=line))
    assert finding.culprit.after.rev == history.commits[5]
    texts = [history.text(step.trial.point) for step in finding.steps]
    assert any("engine_21 = 21 + 100" in text for text in texts)
    assert any("changed_4 = 'mine'" in text for text in texts)
    assert not any(step.observation.value == "skip" for step in finding.steps)


def test_a_range_of_commits_resumes(history, tmp_path):
    asked = question(timeline=history.line(history.point("clean", 0), history.point("upstream", 10)))
    world = history.world(tmp_path)
    journal = Journal.create(tmp_path / "bisections", "b")
    first = conduct(asked, world, journal=journal, store=world.store)
    launched = len(world.launched)
    again = conduct(asked, world, journal=journal, store=world.store)
    assert again.reason == first.reason
    assert len(world.launched) == launched


def test_commits_are_fetched_together(history):
    said = []
    mirror = history.mirror
    mirror._git = replace(mirror._git, say=said.append)
    mirror._sources = (mirror._git,)
    history.line(history.point("clean", 0), history.point("upstream", 10))
    assert [text.partition(" from")[0] for text in said] == ["fetching 8 commits"]
