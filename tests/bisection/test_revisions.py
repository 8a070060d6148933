"""Two revisions of a queue repository: commit first, then inside the guilty one."""

from dataclasses import replace

import pytest

from patchbisect.bisection import AnswerKind, conduct
from patchbisect.bisection.revisions import revision_timeline
from patchbisect.config import Settings
from patchbisect.journal import Journal
from patchbisect.points import PointResolver
from patchbisect.timeline import point_at
from patchbisect.upstream import Mirror
from tests.bisection.test_running import statuses
from tests.bisection.world import FAILS, READY, World, question
from tests.tiny_upstream import ENGINE, LOADER, Upstream, git, replaced


class Repository:
    """Four pull requests on top of an empty queue: one patch, three patches, a message alone, one patch."""

    def __init__(self, folder):
        upstream = Upstream(folder / "up")
        self.root = folder / "queue"
        (self.root / "patches").mkdir(parents=True)
        git(self.root, "init", "-q", "-b", "main")
        pin = upstream.pin()
        text = f'upstream = "{pin.upstream}"\ncommit = "{pin.commit}"\ntag = "{pin.tag}"\n'
        (self.root / "patches" / "pin.toml").write_text(text)
        self.commit("Begin")
        edits = [(ENGINE, 3), (ENGINE, 20), (LOADER, 5), (ENGINE, 50), (LOADER, 30)]
        names = [("engine", "loader")[file == LOADER] for file, _ in edits]
        patches = [
            upstream.patch(k, f"p{k}", {file: [replaced(f"{name}_{line} = {line}")]})
            for k, ((file, line), name) in enumerate(zip(edits, names, strict=True), start=1)
        ]
        for numbers, title in (([1], "One"), ([2, 3, 4], "Three at once"), ([], "Words"), ([5], "Last")):
            for number in numbers:
                patch = patches[number - 1]
                (self.root / "patches" / f"{patch.name}.patch").write_bytes(patch.text.encode())
            self.commit(title)
        self.mirror = Mirror(folder / "state", source="git")
        settings = Settings.model_validate({"profile": "tiny", "profiles": {"tiny": {"flags": {}}}})
        self.resolver = PointResolver(
            root=self.root, settings=settings, mirror=self.mirror, runs=lambda identifier: None
        )

    def commit(self, title):
        git(self.root, "add", "-A")
        git(self.root, "commit", "-q", "--allow-empty", "-m", title)

    def line(self, first="HEAD~4", last="HEAD"):
        good, bad = (self.resolver.resolve(name).point for name in (first, last))
        return revision_timeline(
            self.resolver,
            good,
            bad,
            names=(first, last),
            applies=self.mirror.applies,
            route=lambda before, after: [after],
        )

    def world(self, tmp_path, guilty):
        def tree(at):
            return self.mirror.materialize(at.base, at.patches).tree

        def rule(at):
            return FAILS if guilty in {patch.slug for patch in at.patches} else READY

        return World.at(tmp_path, rule, contents=tree)

    def found(self, tmp_path, guilty, **more):
        world = self.world(tmp_path, guilty)
        journal = Journal.create(tmp_path / "bisections", "b")
        journal.append("begin", asked={}, root=str(tmp_path))
        finding = conduct(question(timeline=self.line()), world, journal=journal, store=world.store, **more)
        return finding, world


@pytest.fixture
def repository(tmp_path):
    return Repository(tmp_path)


def test_each_commit_that_touches_the_queue_is_a_change(repository):
    line = repository.line()
    three = git(repository.root, "rev-parse", "HEAD~2")
    assert [change.title for change in line.changes] == [
        "add 0001-p1: Change p1",
        f"commit {three[:12]}: Three at once",
        "add 0005-p5: Change p5",
    ]
    assert [len(point_at(line, k).patches) for k in range(4)] == [0, 1, 4, 5]
    assert point_at(line, 2).name == f"HEAD~4 + 2 of 3 (commit {three[:12]})"


@pytest.mark.parametrize(
    ("first", "last"), [("clean", "HEAD"), ("HEAD", "HEAD~2"), ("HEAD~1", "HEAD"), ("HEAD~4", "HEAD-2")]
)
def test_other_ends_have_no_commits_in_between(repository, first, last):
    assert repository.line(first, last) is None


def test_the_guilty_commit_then_the_patch_inside_it(repository, tmp_path):
    finding, world = repository.found(tmp_path, "p3")
    assert finding.answer is AnswerKind.FOUND
    assert finding.culprit.subject == "p3"
    assert "(Three at once), patch 0003-p3 (Change p3) breaks it: necessary, and sufficient alone" in finding.reason
    assert set(statuses(finding).values()) == {"confirmed"}
    assert finding.launches == len(world.launched)
    assert len({step.trial.content_id for step in finding.steps}) == len(finding.steps)


def test_the_commit_is_enough_where_that_is_asked(repository, tmp_path):
    finding, _ = repository.found(tmp_path, "p3", depth="queue")
    assert finding.culprit.note.endswith(": Three at once")
    assert finding.reason.startswith("commit ")


def test_a_commit_of_one_patch_is_that_patch(repository, tmp_path):
    finding, _ = repository.found(tmp_path, "p5")
    assert finding.culprit.subject == "p5"
    assert finding.culprit.note == ""


def test_settings_come_after_the_commits(repository):
    good, bad = (repository.resolver.resolve(name).point for name in ("HEAD~4", "HEAD"))
    line = revision_timeline(
        repository.resolver,
        good,
        replace(bad, flags={"mem": "0.9"}),
        names=("HEAD~4", "HEAD"),
        applies=repository.mirror.applies,
        route=lambda before, after: [after],
    )
    assert [change.subject for change in line.changes][-1] == "mem"
    assert point_at(line, 3).flags == {}
    assert point_at(line, 3).patches == bad.patches
