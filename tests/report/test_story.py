"""A journal read as what happened."""

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from patchbisect.config import Project, Settings
from patchbisect.journal import Journal
from patchbisect.records import Store
from patchbisect.report import story
from patchbisect.report.bisections import finding_of
from patchbisect.report.subject import subject
from patchbisect.report.words import next_step
from tests.report import builder

ASKED = {"good": "clean", "bad": "HEAD", "sets": [], "good_sets": [], "bad_sets": ["env:A=1"], "fix": False}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(root=tmp_path, state=tmp_path, settings=Settings())


@pytest.fixture
def finding(project: Project) -> dict[str, Any]:
    return builder.bisection(Store.of(project))


@pytest.fixture
def journal(project: Project, finding: dict[str, Any]) -> Journal:
    """The journal of the finding, as a bisection writes it."""
    made = Journal.create(project.bisections, finding["id"])
    made.append("begin", asked=ASKED, root=str(project.root))
    made.append("question", good="g", bad="b", changes=finding["timeline"])
    for trial in finding["trials"]:
        launched = {name: trial[name] for name in ("purpose", "point")}
        launched.update(record=trial["run"], content_id=trial["point"])
        made.append("intent", **launched)
        made.append("trial", **launched, reused=False)
    return made


def told(project: Project, journal: Journal) -> list[tuple[str, str]]:
    store = Store.of(project)
    known = {identifier: store.load(identifier).model_dump(mode="json") for identifier in store.ids()}
    return [(each.what, each.text) for each in story.told(journal.entries(), known=known.get)]


def test_it_tells_question_launches_reasons_and_answer(
    project: Project, finding: dict[str, Any], journal: Journal
) -> None:
    journal.append("answer", finding=finding)
    lines = told(project, journal)
    assert lines[0][0] == "asked"
    assert lines[0][1].startswith(
        "what broke HEAD, where clean starts (--bad-set env:A=1)? 8 changes between them: add"
    )
    assert ("launch", f"bad end: 8  ({finding['trials'][0]['run']})") in lines
    assert ("ended", "BAD: crash (unbound-name) at kv-profile after 9.9 s") in lines
    assert ("why", "halves what is left") in lines
    assert ("ended", "GOOD: ready after 9.9 s; 4 of 8 changes left") in lines
    assert [what for what, _ in lines[-2:]] == ["culprit", "because"]


def test_where_a_number_was_asked_about_it_tells_threshold_and_values(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path, "x")
    journal.append("begin", asked={**ASKED, "bad_sets": [], "bad_when": "kv_tokens < 900000"})
    journal.append("question", changes=[])
    journal.append("trial", record="r", content_id="c", purpose="spread", point="HEAD")
    record = {"verdict": {"outcome": "ready", "facts": {"kv_tokens": 800_000}}, "timings": {}}
    lines = [each.text for each in story.told(journal.entries(), known={"r": record}.get)]
    assert '(--bad-when "kv_tokens < 900000")?' in lines[0]
    assert lines[1] == "ready, kv_tokens 800000"


def test_before_the_answer_it_tells_what_is_known(project: Project, journal: Journal) -> None:
    lines = told(project, journal)
    assert ("ended", "ready after 9.9 s") in lines
    assert lines[-1][0] == "ended"


def test_before_the_answer_each_trial_tells_what_the_search_was_told(project: Project, journal: Journal) -> None:
    first, second = [entry.data["record"] for entry in journal.entries() if entry.event == "trial"][:2]
    journal.append("told", record=first, observation="bad", why="it failed")
    journal.append("told", record=second, observation="good", why="")
    lines = told(project, journal)
    assert ("why", "it failed") in lines
    assert ("ended", "BAD: crash (unbound-name) at kv-profile after 9.9 s") in lines
    assert ("ended", "GOOD: ready after 9.9 s") in lines


def test_a_launch_that_never_ended_and_what_people_said_are_told(
    project: Project, finding: dict[str, Any], journal: Journal
) -> None:
    journal.append("intent", purpose="search", point="6", content_id="six", record="run-1")
    journal.append("intent", purpose="search", point="6", content_id="six", record="run-2")
    journal.append("undo", record="run-0")
    journal.append("mark", content_id="six", point="6", observation="good")
    lines = told(project, journal)
    assert ("resumed", "run-1 was interrupted and is launched again") in lines
    assert ("taken back", "run-0 no longer counts") in lines
    assert ("marked", "6 is good, a person says") in lines
    assert lines[-1] == ("open", "run-2 has not ended: it runs, or its bisection was interrupted (--resume)")
    journal.append("answer", finding=finding)
    assert "open" not in [what for what, _ in told(project, journal)], "it was not needed for the answer"


def test_a_point_that_was_known_was_not_launched(project: Project, journal: Journal, finding: dict[str, Any]) -> None:
    before = told(project, journal)
    intended = {"purpose": "search", "point": "clean + 4", "content_id": "c4"}
    journal.append("intent", **intended, record="20261129-200000-bbbb")
    journal.append("trial", **intended, record=finding["trials"][0]["run"], reused=True)
    added = told(project, journal)[len(before) :]
    assert [what for what, _ in added] == ["known"]
    assert added[0][1].startswith("search: clean + 4 is ")


def test_each_day_is_named_once_and_the_page_fits(project: Project, journal: Journal) -> None:
    out = io.StringIO()
    Console(file=out, width=60).print(story.page(story.told(journal.entries(), known=lambda run: None)))
    assert max(map(len, out.getvalue().splitlines())) <= 60
    assert out.getvalue().count("UTC") == 1


def test_an_answer_says_what_was_taken_back_after_it(
    project: Project, finding: dict[str, Any], journal: Journal
) -> None:
    journal.append("undo", record="before-the-answer")
    journal.append("answer", finding=finding)
    assert finding_of(journal)["amended"] == []
    run = finding["trials"][-1]["run"]
    journal.append("undo", record=run)
    page = subject(project, "last").page
    assert page.tone == "open"
    assert page.answer == "Answered before something was taken back"
    wanted = f"{run} was taken back after this answer: invoke bisect --resume --of {finding['id']} answers anew"
    assert dict(page.facts)["Next"] == wanted
    out = io.StringIO()
    Console(file=out, width=300).print(subject(project, "last").text)
    assert out.getvalue().startswith(f"outdated  {wanted}")


def test_a_budget_that_was_given_on_the_way_is_told(journal: Journal) -> None:
    journal.append("budget", budget_launches=20, budget_minutes=1.5)
    journal.append("budget", budget_launches=0, budget_minutes=90)
    said = [each.text for each in story.told(journal.entries(), known=lambda run: None) if each.what == "budget"]
    assert said == ["20 launches, 1.5 minutes in all from here on", "90 minutes in all from here on"]


def test_all_culprits_are_told(project: Project, finding: dict[str, Any], journal: Journal) -> None:
    other = finding["timeline"][6]
    journal.append("answer", finding={**finding, "others": [[other]]})
    journal.append("answer", finding={**finding, "culprit": None, "together": True, "candidates": [other]})
    assert [line for line in told(project, journal) if line[0] == "culprits"] == [
        ("culprits", f"{finding['culprit']['title']}; independently of that, {other['title']}"),
        ("culprits", other["title"]),
    ]


SPENT = "not tested: the budget is spent"


@pytest.mark.parametrize(
    "finding",
    [
        {"answer": "inconclusive", "reason": "the budget is spent before one change stood out", "proof": {}},
        {"answer": "found", "reason": "it breaks it", "proof": {"alone_bad": {"status": SPENT}}},
        {"answer": "found", "reason": "it breaks it", "proof": {}, "inside": {"reason": "the budget is spent"}},
    ],
)
def test_where_the_budget_ended_it_the_way_on_is_named(finding: dict[str, Any]) -> None:
    said = next_step({"id": "b", "trials": [], **finding})
    assert "invoke bisect --resume --of b --budget-launches N" in said


@pytest.mark.parametrize(
    ("answer", "trials", "says"),
    [
        ("found", [], ""),
        ("set", [], "invoke bisect.mark K good"),
        ("none", [], "name ends that differ"),
        ("none", [{"purpose": "bad end", "verdict": {}}], "invoke diff-runs"),
        ("inconclusive", [], "--rates unknown"),
        ("endpoint-failed", [{"purpose": "bad end again", "verdict": {}}], "--bad run:ID"),
        ("endpoint-failed", [{"purpose": "bad end again", "verdict": {}}], "the ends are swapped"),
        ("endpoint-failed", [{"purpose": "good end again", "verdict": {}}], "--follow-baseline"),
        ("endpoint-failed", [{"purpose": "bad end", "verdict": {"outcome": "void", "advice": "free it"}}], "free it"),
    ],
)
def test_where_nothing_is_named_the_next_step_is(answer: str, trials: list[dict[str, Any]], says: str) -> None:
    said = next_step({"answer": answer, "trials": trials})
    assert said == says == "" or (says and says in said)


def test_where_a_number_was_asked_about_the_next_step_is_another_number() -> None:
    trials = [{"purpose": "good end", "verdict": {}}]
    said = next_step({"answer": "endpoint-failed", "bad_when": "kv_tokens < 900000", "trials": trials})
    assert said.startswith("ask about a number")
