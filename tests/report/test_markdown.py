import re
from typing import Any

import pytest

from patchbisect.records import Attachments, Store
from patchbisect.report import markdown, page
from tests.report import builder


@pytest.fixture
def finding(store: Store) -> dict[str, Any]:
    return builder.bisection(store)


def test_the_answer_comes_first_and_long_parts_are_folded(finding: dict[str, Any], store: Store) -> None:
    text = markdown.rendered(page.of_finding(finding, store))
    assert text.startswith("## Culprit found: `add 0005-print-rest: print-rest`\n")
    assert "- ✅ with the culprit (its own point): must fail: `confirmed`" in text
    assert "invoke launch --point run:" in text
    assert text.count("<details>") == text.count("</details>") == 6
    assert ">    93 UnboundLocalError" in text


@pytest.mark.parametrize("attack", ["`", "``", "a ``` b", "@someone #1 <b>", "| x |", "`` ` ``", "x\n\n## y"])
def test_a_code_span_holds_whatever_it_is_given(attack: str) -> None:
    span = markdown.code(attack)
    ticks = re.match("`+", span)
    assert ticks is not None
    inner = span[len(ticks[0]) : -len(ticks[0])]
    assert ticks[0] not in re.findall("`+", inner)
    assert inner.strip() == " ".join(attack.split())
    assert "\n" not in span


def test_a_fence_outlasts_what_is_in_it(finding: dict[str, Any], store: Store) -> None:
    for trial in finding["trials"]:
        if trial["observation"] == "bad":
            trial["verdict"]["deciding"]["text"] = "```\n</details> @someone\n````"
    text = markdown.rendered(page.of_finding(finding, store))
    assert "`````\n" in text


def test_the_longest_report_fits_into_an_issue(finding: dict[str, Any], store: Store) -> None:
    finding["trials"] = [{**trial, "point": "p" * 300} for trial in finding["trials"] * 60]
    bad = finding["proof"]["culprit_bad"]["run"]
    made = store.load(bad)
    store.remove(bad)
    patch = builder.patch_text("0005-print-rest") + f"+{'y' * 2000}\n" * 5000
    log = b"\n".join([b"z" * 20_000] * 120)
    big = made.model_copy(update={"machine": {"cpu": "c" * 9000}, "by_hand": "x" * 4000})
    store.save(big, Attachments(log=log, patches={"0005-print-rest": patch.encode()}))
    assert len(markdown.rendered(page.of_finding(finding, store))) < 65_536


def test_a_pipe_does_not_break_the_table(finding: dict[str, Any], store: Store) -> None:
    finding["trials"][0]["point"] = "a|b"
    row = next(
        line for line in markdown.rendered(page.of_finding(finding, store)).splitlines() if line.startswith("| 1")
    )
    assert len(re.findall(r"(?<!\\)\|", row)) == 8
