import io
from typing import Any

import pytest
from rich.console import Console, RenderableType

from patchbisect.records import Store
from patchbisect.report import text
from tests.report import builder


def shown(renderable: RenderableType, *, width: int = 120, terminal: bool = False) -> str:
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=terminal, soft_wrap=True, highlight=False, color_system=None).print(
        renderable
    )
    return out.getvalue()


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        ({"outcome": "ready"}, "ready"),
        ({"outcome": "oom", "stage": "kv-profile", "cause": "kv-profile"}, "oom at kv-profile"),
        ({"outcome": "crash", "stage": "import", "cause": "syntax-error"}, "crash (syntax-error) at import"),
        ({"outcome": "hang", "stage": None, "cause": None}, "hang"),
    ],
)
def test_an_outcome_in_words(verdict: dict[str, Any], words: str) -> None:
    assert text.outcome(verdict) == words


def test_a_record_tells_what_ran_what_came_of_it_and_how_to_repeat_it() -> None:
    record = builder.record("20261129-180000-aaaa", patches=["0001-kv-probe"], verdict=builder.UNBOUND, env={"A": "1"})
    page = shown(text.record_page(record.model_dump(mode="json")))
    for words in (
        "20261129-180000-aaaa",
        "HEAD  (profile tiny, until ready)",
        "v0.5.9, from release 0.5.9",
        "0001-kv-probe",
        "--mem-fraction-static 0.05",
        "A=1",
        "proven on the box",
        "crash (unbound-name) at kv-profile",
        "UnboundLocalError",
        "by hand, on the box",
    ):
        assert words in page


def test_a_command_is_never_broken_by_the_width_of_the_terminal() -> None:
    record = builder.record("20261129-180000-aaaa").model_copy(update={"by_hand": "python " + "--flag value " * 40})
    assert "python " + "--flag value " * 40 in shown(text.record_page(record.model_dump(mode="json")), width=60)


def test_tables_fit_the_terminal(store: Store) -> None:
    finding = builder.bisection(store)
    table = shown(text.trials_table(finding["trials"]), width=60)
    assert max(map(len, table.splitlines())) <= 60


def test_text_from_a_log_is_neither_markup_nor_an_order_to_the_terminal() -> None:
    verdict = {**builder.UNBOUND, "why": "[bold]x[/bold] \x1b[2J\x07", "advice": "[link=http://evil]y[/link]"}
    page = shown(text.verdict_lines(verdict), terminal=True)
    assert "[bold]x[/bold]" in page
    assert "[link=http://evil]y[/link]" in page
    assert "\x1b[2J" not in page
    assert "\x07" not in page


def test_two_culprits_are_both_in_the_first_line(store: Store) -> None:
    finding = builder.bisection(store)
    finding["others"] = [finding["timeline"][6:7]]
    first = shown(text.finding_page(finding), width=200).splitlines()[0]
    assert first.split("  ")[0] == "culprits"
    assert finding["culprit"]["title"] in first
    assert finding["timeline"][6]["title"] in first


def test_a_finding_says_culprit_sureness_proof_and_how_to_see_it_again(store: Store) -> None:
    finding = builder.bisection(store)
    page = shown(text.finding_page(finding), width=200)
    assert "add 0005-print-rest: print-rest" in page
    assert "100% after 6 launches, assuming that the same point always ends the same way" in page
    assert "the bad end without it: must pass" in page
    assert finding["reproduce"]["culprit"]["by_hand"] in page
    assert page.index("culprit") < page.index("proof") < page.index("culprit again")


def test_a_trial_s_reasons_use_the_words_of_the_tables(store: Store) -> None:
    finding = builder.bisection(store)
    trial = next(trial for trial in finding["trials"] if trial["observation"] == "bad")
    told = {"bisection": "b", **{key: trial[key] for key in ("run", "point", "purpose", "why", "verdict")}}
    page = shown(text.reason_page({**told, "told": "bad", "undone": False}))
    assert text.outcome(trial["verdict"]) in page
    assert "BAD" in page
    assert "taken back" not in page
    page = shown(text.reason_page({**told, "verdict": {}, "told": "", "undone": True}))
    assert f"{trial['run']}  (taken back)" in page
    assert "verdict" not in page
    assert "- (not known yet what is bad)" in page


def test_what_a_person_said_is_shown_as_such(store: Store) -> None:
    finding = builder.bisection(store)
    marked = finding["trials"][2]
    marked |= {"run": "", "reused": True, "verdict": {"outcome": "void", "why": "not launched"}}
    finding["proof"]["parent_good"] = {"status": "confirmed", "run": None}
    page = shown(text.finding_page(finding), width=200)
    assert "void" not in page
    assert "known before" not in page
    (row,) = [line for line in page.splitlines() if f"{marked['purpose']}, marked" in line]
    assert f"{marked['observation'].upper()}  -" in row
    assert f"rests on  {marked['point']}: marked {marked['observation']} by a person, not launched" in page
    assert "confirmed  by a mark" in page


def test_launches_inside_the_culprit_follow_the_others(store: Store) -> None:
    finding = builder.bisection(store)
    within = {
        **finding["trials"][2],
        "run": "20261128-120000-hunk",
        "point": "clean with 1 of 3 hunks",
        "purpose": "search",
    }
    finding |= {"inside": {**finding, "trials": [within], "inside": None}}
    page = shown(text.finding_page(finding), width=200)
    (row,) = [line for line in page.splitlines() if "20261128-120000-hunk" in line]
    assert row.split()[0] == str(len(finding["trials"]) + 1)
    assert "inside, search  clean with 1 of 3 hunks" in row


def test_without_a_culprit_the_candidates_are_named(store: Store) -> None:
    finding = builder.bisection(store)
    finding |= {"answer": "set", "culprit": None, "candidates": finding["timeline"][2:4], "proof": {}, "reproduce": {}}
    page = shown(text.finding_page(finding), width=200)
    assert "add 0003-print-ranks" in page
    assert "add 0004-count-tokens" in page


def test_a_long_value_does_not_stretch_the_comparison() -> None:
    sizes = "[1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120, 128]"
    side = {"name": "x", "point": None, "verdict": builder.READY}
    cause = [
        {"kind": "argument", "subject": "cuda_graph_bs", "a": sizes, "b": "None"},
        {"kind": "argument", "subject": "max_total_tokens", "a": "4096", "b": "None"},
    ]
    effect = [{"kind": "probe", "subject": "kv rest_gb", "a": 1.0000000000000002, "b": None}]
    comparison = {"a": side, "b": side, "cause": cause, "effect": effect, "explanation": "", "conclusion": "x"}
    lines = shown(text.comparison_page(comparison)).splitlines()
    cells = {tuple(line.split()) for line in lines}
    assert ("argument", "cuda_graph_bs", "below", "below") in cells
    assert ("argument", "max_total_tokens", "4096", "-") in cells
    assert ("probe", "kv", "rest_gb", "1", "-") in cells
    assert any(line.startswith("cuda_graph_bs, a") and "128]" in "".join(lines) for line in lines)


def test_a_list_tells_runs_of_one_name_apart_by_their_commit(store: Store) -> None:
    rows = []
    for identifier, commit in (("20261129-180000-aaaa", "1" * 40), ("20261129-190000-bbbb", "2" * 40)):
        made = builder.record(identifier)
        rows.append(
            store.row(made.model_copy(update={"code": {**made.code, "commit": commit}}).model_dump(mode="json"))
        )
    page = shown(text.runs_table(rows))
    assert " 111111111111 " in page
    assert " 222222222222 " in page


def test_a_comparison_ends_with_what_it_means() -> None:
    side = {"name": "x", "point": None, "verdict": {"outcome": "ready"}}
    comparison = {
        "a": side,
        "b": side,
        "cause": [{"kind": "flag", "subject": "mem-fraction-static", "a": "0.02", "b": None}],
        "effect": [{"kind": "stage", "subject": "kv-alloc", "a": None, "b": 0.5}],
        "explanation": "0.02 leaves nothing",
        "conclusion": "the fraction differs",
    }
    lines = shown(text.comparison_page(comparison)).rstrip().splitlines()
    assert lines[-1] == "the fraction differs"
    assert any("mem-fraction-static  0.02  -" in line for line in lines)
    assert any("kv-alloc  not reached  0.5 s" in line for line in lines)


def test_no_colour_leaves_the_words(store: Store) -> None:
    rows = [store.row({**document, "id": document["id"]}) for document in _saved(store)]
    table = shown(text.runs_table(rows))
    assert "oom/kv-profile" in table
    assert "\x1b" not in table


def _saved(store: Store) -> list[dict[str, Any]]:
    builder.save(store, builder.record("20261129-180000-aaaa", verdict=builder.OOM))
    return list(store.documents())
