from pathlib import Path

import pytest

from patchbisect.config import Project, Settings
from patchbisect.errors import UsageError
from patchbisect.journal import Journal
from patchbisect.records import Store
from patchbisect.report.bisections import finding_of, held_runs
from patchbisect.report.subject import subject
from tests.report import builder


def test_an_open_bisection_has_no_finding_yet(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path, "x")
    journal.append("begin")
    with pytest.raises(UsageError, match="no answer yet"):
        finding_of(journal)
    journal.append("answer", finding={"answer": "none"})
    assert finding_of(journal)["answer"] == "none"
    assert finding_of(journal)["id"] == "x"


def test_what_a_person_said_after_the_answer_makes_it_outdated(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path, "x")
    journal.append("mark", point="3", observation="bad")
    journal.append("answer", finding={"answer": "none"})
    assert finding_of(journal)["amended"] == []
    journal.append("undo", record="run-1")
    journal.append("mark", point="4", observation="good")
    journal.append("unmark", point="4")
    amended = ["run-1 was taken back", "4 was marked good", "4 is no longer marked"]
    assert finding_of(journal)["amended"] == amended


def test_an_open_bisection_says_which_one_has_the_last_answer(tmp_path: Path) -> None:
    project = Project(root=tmp_path, state=tmp_path, settings=Settings())
    Journal.create(project.bisections, "20261129-180000-aaaa").append("answer", finding={"answer": "none"})
    Journal.create(project.bisections, "20261129-190000-bbbb").append("answer", finding={"answer": "none"})
    Journal.create(project.bisections, "20261129-200000-cccc").append("begin")
    with pytest.raises(UsageError, match="20261129-200000-cccc has no answer yet") as caught:
        subject(project, "last")
    assert caught.value.remedy.endswith("the last answer is that of --of 20261129-190000-bbbb")
    assert subject(project, "20261129-1800").document["id"] == "20261129-180000-aaaa"


def test_the_runs_that_a_bisection_rests_on_are_held(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path, "x")
    journal.append("intent", point="HEAD")
    journal.append("trial", record="run-1")
    journal.append("void", record="run-2")
    assert held_runs(tmp_path) == {"run-1", "run-2"}
    assert held_runs(tmp_path / "none") == set()


def test_a_report_is_about_a_bisection_or_a_run(tmp_path: Path) -> None:
    project = Project(root=tmp_path, state=tmp_path, settings=Settings())
    finding = builder.bisection(Store.of(project))
    run = finding["trials"][0]["run"]
    assert subject(project, "last").document["id"] == finding["trials"][-1]["run"]
    Journal.create(tmp_path / "bisections", finding["id"]).append("answer", finding=finding)
    assert subject(project, "last").is_bisection
    assert subject(project, finding["id"][:13]).document["culprit"]["id"] == "0005-print-rest"
    assert subject(project, run).page.kind == "run"
    with pytest.raises(UsageError, match="no bisection and no run 'nope'"):
        subject(project, "nope")
