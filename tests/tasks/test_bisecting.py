"""The tasks around a bisection, on whole command lines with the fake server in SGLang's place."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.fake_project import FakeProject, fake_project

pytestmark = pytest.mark.ci


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> FakeProject:
    return fake_project(tmp_path_factory.mktemp("bisecting"))


@pytest.fixture(scope="module")
def found(project: FakeProject) -> dict[str, Any]:
    document: dict[str, Any] = project.json("bisect", "--good", "clean", "--bad", "HEAD", "--fresh")
    return document


def test_a_plan_launches_nothing(project: FakeProject) -> None:
    plan = project.json("bisect", "--plan")
    assert plan["axes"] == {"queue": 6}
    assert [change["kind"] for change in plan["timeline"]] == ["queue"] * 6
    assert plan["launches"]["expected"] <= plan["launches"]["worst"] <= 8
    assert "launches:" in project.run("bisect", "--plan").stdout


def test_a_plan_installs_nothing(tmp_path: Path) -> None:
    project = fake_project(tmp_path)
    settings = project.root / "invoke.yaml"
    lines = settings.read_text().splitlines()
    embedded = ["  boxes: {local: {embedded: true}}" if line.startswith("  boxes:") else line for line in lines]
    settings.write_text("\n".join(embedded))
    plan = project.run("bisect", "--plan", env={"PIP_NO_INDEX": "1"})
    assert (plan.returncode, "launches:" in plan.stdout) == (0, True), plan.stderr
    assert "note: the first launch installs the server of box local" in plan.stderr
    assert not (project.root / ".patchbisect" / "cpu").exists()


def test_the_journal_can_be_read_and_replayed(project: FakeProject, found: dict[str, Any]) -> None:
    events = [entry["event"] for entry in project.json("bisect.log", "--of", found["id"])]
    assert events == ["begin", "question", *["intent", "trial", "told"] * found["launches"], "answer"]
    again = project.json("bisect.replay", "--of", found["id"])
    assert again["culprit"] == found["culprit"]
    assert [trial["run"] for trial in again["trials"]] == [trial["run"] for trial in found["trials"]]


def test_why_a_trial_was_made(project: FakeProject, found: dict[str, Any]) -> None:
    searched = next(trial for trial in found["trials"] if trial["purpose"] == "search")
    document = project.json("bisect.why", searched["run"], "--of", found["id"])
    assert document["told"] == searched["observation"]
    assert document["why"]
    assert document["verdict"] == searched["verdict"]
    unknown = project.run("bisect.why", "20200101-000000-aaaa", "--of", found["id"])
    assert unknown.returncode == 2
    assert "is no trial of bisection" in unknown.stderr


def test_an_undone_trial_is_launched_again_on_resume(project: FakeProject, found: dict[str, Any]) -> None:
    undone = project.run("bisect.undo", "--of", found["id"])
    assert undone.returncode == 0
    assert found["trials"][-1]["run"] in undone.stdout
    resumed = project.json("bisect", "--resume", "--of", found["id"])
    assert resumed["culprit"] == found["culprit"]
    old = {trial["run"] for trial in found["trials"]}
    assert len({trial["run"] for trial in resumed["trials"]} - old) == 1


def test_a_second_bisection_reuses_what_is_known(project: FakeProject, found: dict[str, Any]) -> None:
    second = project.json("bisect")
    assert second["culprit"] == found["culprit"]
    assert [trial["purpose"] for trial in second["trials"] if not trial["reused"]] == ["bad end", "good end"]
    assert second["reused"] == len(second["trials"]) - 2 >= 4


def test_a_mark_counts_instead_of_a_launch(project: FakeProject, found: dict[str, Any]) -> None:
    marked = project.run("bisect.mark", "HEAD", "good", "--of", found["id"])
    assert marked.returncode == 0, marked.stderr
    refused = project.run("bisect", "--resume", "--of", found["id"])
    assert refused.returncode == 1
    assert "a person marked it good" in refused.stdout
    assert "HEAD: marked good by a person, not launched" in refused.stdout
    unmarked = project.run("bisect.mark", "HEAD", "none", "--of", found["id"])
    assert (unmarked.returncode, "HEAD is no longer marked" in unmarked.stdout) == (0, True)
    assert project.json("bisect", "--resume", "--of", found["id"])["culprit"] == found["culprit"]


def test_neither_a_replay_nor_a_mark_needs_the_box(project: FakeProject, found: dict[str, Any]) -> None:
    settings = project.root / "invoke.yaml"
    before = settings.read_text()
    settings.write_text(before.replace("lease-dir", "agent-python: /no/python, lease-dir"))
    try:
        assert project.run("box").returncode == 3
        replayed = project.json("bisect.replay", "--of", found["id"])
        marked = project.run("bisect.mark", "4", "bad", "--of", found["id"])
        unmarked = project.run("bisect.mark", "4", "none", "--of", found["id"])
        elsewhere = project.run("bisect.mark", "clean@other", "bad", "--of", found["id"])
    finally:
        settings.write_text(before)
    assert replayed["culprit"] == found["culprit"]
    assert (marked.returncode, unmarked.returncode) == (0, 0), marked.stderr
    assert marked.stdout.startswith("4, clean + 4 of 6 (0004-note-4), is marked bad; go on with")
    assert elsewhere.returncode == 2
    assert "is no point of bisection" in elsewhere.stderr


def test_the_demo_is_read_like_ones_own_and_never_changed(tmp_path: Path) -> None:
    project = fake_project(tmp_path)
    assert "the demo has not been run yet" in project.run("bisect.replay", "--of", "demo").stderr
    elsewhere = project.run("demo")
    assert (elsewhere.returncode, "observer-effect is not there\n  run this in a clone" in elsewhere.stderr) == (
        2,
        True,
    )
    shutil.copytree(project.root / "patches", project.root / "tests" / "queues" / "observer-effect")
    shown = project.json("demo")
    assert shown["culprit"]["id"] == "note-4"
    for name in ("demo", shown["id"]):
        assert project.json("bisect.replay", "--of", name)["culprit"] == shown["culprit"]
    assert project.json("bisect.log", "--of", "demo")[-1]["event"] == "answer"
    last = shown["trials"][-1]
    for words in (["demo"], ["demo", "--of", "demo"], [last["run"]]):
        why = project.json("bisect.why", *words)
        assert (why["bisection"], why["run"], why["told"]) == (shown["id"], last["run"], last["observation"])
    for words in (["bisect", "--resume"], ["bisect.undo"], ["bisect.mark", "4", "good"]):
        refused = project.run(*words, "--of", "demo")
        assert refused.returncode == 2
        assert "the demo's bisection is looked at only" in refused.stderr


def test_the_repair_of_a_removed_patch(project: FakeProject) -> None:
    document = project.json("bisect", "--fix", "--bad", "HEAD", "--good", "HEAD-4")
    assert document["answer"] == "found"
    assert document["culprit"]["id"] == "note-4"
    assert "repairs it" in document["reason"]


def test_short_starts(project: FakeProject) -> None:
    document = project.json("bisect", "--fast", "--fresh")
    assert document["culprit"]["id"] == "note-4"
    assert "confirmed by whole starts" in document["reason"]


def test_a_branch_for_git_bisect(project: FakeProject) -> None:
    done = project.run("bisect", "--export-branch", "line")
    assert done.returncode == 0, done.stderr
    assert project.git("rev-list", "--count", "HEAD..line") == "7"
    again = project.run("bisect", "--export-branch", "line")
    assert again.returncode == 2
    assert "there is a branch line already" in again.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--rates", "uncertain"], "--rates 'uncertain' is not known"),
        (["--depth", "hunks"], "did you mean 'hunk'?"),
        (["--bad-when", "kv_tokens"], "is no condition on a fact"),
        (["--bad-when", "kv_tokns < 9", "--plan"], "no start says its kv_tokns\n  did you mean 'kv_tokens'?"),
        (["--confidence", "1.5"], "is not in [0.5, 1)"),
        (["--repeats", "-1"], "--repeats -1 is less than nothing"),
        (["--budget-launches", "-2"], "0 means no limit"),
        (["--budget-minutes", "-0.5"], "--budget-minutes -0.5 is less than nothing"),
        (["--box", "rig"], "unknown box 'rig'"),
        (["--boxes", "local,rig"], "unknown box 'rig'"),
        (["--scheduler", "tcp://head:8786"], "goes with --engine dask"),
        (["--resume", "--of", "nothing"], "no bisection 'nothing'"),
    ],
)
def test_what_cannot_be_asked_is_said(project: FakeProject, words: list[str], said: str) -> None:
    journals = project.root / ".patchbisect" / "bisections"
    before = {path.name for path in journals.glob("*")}
    done = project.run("bisect", *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert {path.name for path in journals.glob("*")} == before


def test_a_spent_budget_is_raised_on_resume(tmp_path: Path) -> None:
    project = fake_project(tmp_path)
    spent = project.run("bisect", "--budget-launches", "3")
    assert spent.returncode == 1
    assert "--budget-launches N (or --budget-minutes), N in all" in " ".join(spent.stdout.split())
    assert project.json("bisect", "--resume")["launches"] == 3
    plan = project.run("bisect", "--resume", "--budget-launches", "4", "--plan").stdout
    assert "3 of these are made already" in plan
    assert "budget: 4 launches in all, 1 left" in plan
    less = project.run("bisect", "--resume", "--budget-launches", "2")
    assert (less.returncode, "3 are made already" in less.stderr) == (2, True)
    other = project.run("bisect", "--resume", "--depth", "hunk")
    assert (other.returncode, "--depth cannot change on the way" in other.stderr) == (2, True)
    found = project.json("bisect", "--resume", "--budget-launches", "20")
    assert found["culprit"]["id"] == "note-4"
    assert project.json("bisect.replay")["culprit"] == found["culprit"]
    events = [entry["event"] for entry in project.json("bisect.log")]
    assert events.count("budget") == 1
    assert events.count("intent") == found["launches"], "what was launched before the budget was spent counts"


def test_a_box_that_fails_is_said_with_the_way_on(tmp_path: Path) -> None:
    project = fake_project(tmp_path)
    settings = project.root / "invoke.yaml"
    before = settings.read_text()
    settings.write_text(before.replace("lease-dir", "agent-python: /no/python, lease-dir"))
    failed = project.run("bisect")
    settings.write_text(before)
    assert failed.returncode == 3
    way_on = failed.stderr.rpartition("invoke ")[2].split()
    assert way_on[:3] == ["bisect", "--resume", "--of"]
    assert project.json(*way_on)["culprit"]["id"] == "note-4"


def test_another_queue_under_a_journal_is_refused(tmp_path: Path) -> None:
    project = fake_project(tmp_path)
    found = project.json("bisect")
    (project.root / "patches" / "0006-note-6.patch").unlink()
    project.git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-aqm", "one less")
    refused = project.run("bisect", "--resume", "--of", found["id"])
    assert refused.returncode == 2
    assert "gone: add 0006-note-6" in refused.stderr
    marked = project.run("bisect.mark", "4", "good", "--of", found["id"])
    assert (marked.returncode, "cannot go on" in marked.stderr) == (2, True)
    undone = project.run("bisect.undo", "--of", found["id"]).stdout
    assert f"undone: {found['trials'][-1]['point']}" in undone
    assert "but bisection" in undone
    assert "cannot go on" in undone
    assert "--resume" not in undone


def test_a_refused_resume_says_what_is_another_one(tmp_path: Path) -> None:
    project = fake_project(tmp_path)
    found = project.json("bisect")
    patch = project.root / "patches" / "0002-note-2.patch"
    text = patch.read_text()
    patch.write_text(text.replace("NOTE_2 = True", "NOTE_2 = 1 > 0"))
    refused = project.run("bisect", "--resume", "--bad", "worktree")
    assert "--bad cannot change on the way" in refused.stderr
    project.git("commit", "--all", "--quiet", "--message", "another text")
    refused = project.run("bisect", "--resume", "--of", found["id"])
    assert refused.returncode == 2
    assert "the bad end runs not what it was" in refused.stderr
    assert "patch 0002-note-2 has another text" in refused.stderr
    patch.write_text(text)
    project.git("commit", "--all", "--quiet", "--message", "as it was")
    settings = project.root / "invoke.yaml"
    settings.write_text(settings.read_text().replace("flags: {model-path: /m}", "flags: {model-path: /n}"))
    refused = project.run("bisect", "--resume", "--of", found["id"])
    assert refused.returncode == 2
    assert "the good end runs not what it was" in refused.stderr
    assert "flag model-path: /m -> /n" in refused.stderr
