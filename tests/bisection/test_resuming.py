from dataclasses import asdict, replace

import pytest

from patchbisect.bisection import AnswerKind, Asked, begin, conduct, heard, note_budget, resumed
from patchbisect.config import Project, Settings
from patchbisect.errors import UsageError
from patchbisect.journal import Journal
from patchbisect.search import Budget
from tests.bisection.world import World, broken_by, question


@pytest.fixture
def project(tmp_path):
    return Project(root=tmp_path, state=tmp_path / "state", settings=Settings())


ASKED = Asked(good="clean", bad="HEAD")


def again(**words):
    """The words of a command that resumes; what it does not say is as usual."""
    return replace(ASKED, **words)


def searched(asked, project, journal, *, rule=None):
    """The bisection with the budget that is asked for by now, in a world whose launches take 10 s."""
    world = World.at(project.state, rule or broken_by("p6"))
    budget = Budget(launches=asked.budget_launches or None, seconds=asked.budget_minutes * 60 or None)
    return conduct(question(16, budget=budget), world, journal=journal, store=world.store), world


RULES = {"one": broken_by("p6"), "pair": broken_by("p2", "p11")}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("first", range(1, 9))
def test_a_larger_budget_goes_on_where_the_smaller_one_was_spent(project, rule, first):
    whole, unlimited = searched(ASKED, project, begin(ASKED, project=project), rule=RULES[rule])
    asked = again(budget_launches=first)
    journal = begin(asked, project=project)
    _, world = searched(asked, project, journal, rule=RULES[rule])
    launched = list(world.launched)
    for budget in (first + 1, first + 2, 40):
        journal, before = resumed(journal.identifier, project=project)
        asked = heard(before, again(budget_launches=budget), journal=journal, project=project)
        note_budget(asked, before=before, journal=journal)
        finding, world = searched(asked, project, journal, rule=RULES[rule])
        launched += world.launched
    assert launched == unlimited.launched, "nothing is launched twice, and nothing else than in one go"
    assert (finding.answer, finding.candidates, finding.reason) == (whole.answer, whole.candidates, whole.reason)
    assert [step.status for step in finding.proof] == [step.status for step in whole.proof]


def test_the_budget_is_an_event_and_what_is_asked_by_now_has_the_last_one(project):
    asked = again(budget_launches=3, budget_minutes=1.5)
    journal = begin(asked, project=project)
    for words, expected in [
        ({}, (3, 1.5)),
        ({"budget_launches": 5}, (5, 1.5)),
        ({"budget_minutes": 2.0}, (5, 2.0)),
        ({"budget_launches": 5}, (5, 2.0)),
    ]:
        _, before = resumed(journal.identifier, project=project)
        asked = heard(before, again(**words), journal=journal, project=project)
        assert (asked.budget_launches, asked.budget_minutes) == expected
        note_budget(asked, before=before, journal=journal)
    events = [entry.data for entry in journal.entries() if entry.event == "budget"]
    assert events == [
        {"budget_launches": 5, "budget_minutes": 1.5},
        {"budget_launches": 5, "budget_minutes": 2.0},
    ]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"budget_launches": 3}, r"--budget-launches 3: 4 are made already"),
        ({"budget_minutes": 0.5}, r"--budget-minutes 0.5: 0.67 are spent already"),
    ],
)
def test_a_budget_that_is_spent_already_is_refused(project, words, says):
    asked = again(budget_launches=4)
    journal = begin(asked, project=project)
    finding, _ = searched(asked, project, journal)
    assert finding.answer is AnswerKind.INCONCLUSIVE
    with pytest.raises(UsageError, match=says):
        heard(asked, again(**words), journal=journal, project=project)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"confidence": 0.9}, r"--confidence cannot change on the way: .* was begun with 0.95"),
        ({"bad": "3"}, r"--bad cannot .* begun with HEAD"),
        ({"good_sets": ("flag:a=1",)}, r"--good-set cannot .* begun without it"),
        ({"sets": ("flag:a=2", "env:HF_TOKEN=other")}, r"--set cannot .* begun with flag:a=1, env:HF_TOKEN=\*\*\*"),
        ({"carry": ("4",)}, r"--carry cannot .* begun with 1, 2"),
        ({"full_history": True}, r"--full-history cannot"),
        ({"fast": True}, r"--fast cannot .* begun without it"),
        ({"boxes": ("a", "b")}, r"--boxes cannot"),
        ({"paths": ("x",)}, r"--path cannot"),
    ],
)
def test_what_was_asked_cannot_become_another_question_on_the_way(project, words, says):
    journal = begin(again(sets=("flag:a=1", "env:HF_TOKEN=secret"), carry=("1", "2")), project=project)
    _, asked = resumed("last", project=project)
    with pytest.raises(UsageError, match=says):
        heard(asked, again(**words), journal=journal, project=project)


def test_a_bisection_is_gone_on_with_by_the_unambiguous_beginning_of_its_id(project):
    names = ("20261129-190000-aaaa", "20261129-200000-bbbb")
    for name in names:
        Journal.create(project.bisections, name).append("begin", asked=asdict(ASKED), root=str(project.root))
    journal, _ = resumed("20261129-19", project=project)
    assert journal.identifier == names[0]
    with pytest.raises(UsageError, match="'20261129-' begins 2 bisections") as refusal:
        resumed("20261129-", project=project)
    assert all(name in refusal.value.remedy for name in names)


@pytest.mark.parametrize("name", ["", "nope", "../bisections/20261129-190000-aaaa"])
def test_what_is_no_id_of_a_bisection_is_refused(project, name):
    Journal.create(project.bisections, "20261129-190000-aaaa").append(
        "begin", asked=asdict(ASKED), root=str(project.root)
    )
    with pytest.raises(UsageError, match=f"no bisection '{name}'"):
        resumed(name, project=project)


def test_the_same_words_again_and_another_scheduler_are_taken(project):
    words = {"sets": ("flag:a=1", "env:HF_TOKEN=secret"), "carry": ("1",), "fast": True, "engine": "dask"}
    journal = begin(again(**words, scheduler="tcp://a:1", suspects=("p1",)), project=project)
    _, asked = resumed("last", project=project)
    assert heard(asked, again(**words, scheduler="tcp://b:2"), journal=journal, project=project) == replace(
        asked, scheduler="tcp://b:2"
    )
    assert heard(asked, ASKED, journal=journal, project=project) == asked


def test_a_refusal_names_the_option_as_the_command_line_has_it(project):
    from patchbisect.tasks.bisecting import bisect

    options = {f"--{name.replace('_', '-')}" for argument in bisect.get_arguments() for name in argument.names}
    journal = begin(ASKED, project=project)
    for name in asdict(ASKED).keys() - {"suspects", "scheduler", "budget_launches", "budget_minutes"}:
        other = again(**{name: ("x",) if isinstance(getattr(ASKED, name), tuple) else "x"})
        with pytest.raises(UsageError) as refusal:
            heard(ASKED, other, journal=journal, project=project)
        assert refusal.value.message.split()[0] in options
