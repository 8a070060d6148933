"""The tables of causes: complete in the documentation, and never empty."""

from __future__ import annotations

import re
from pathlib import Path

from patchbisect.model import Stage
from patchbisect.startup import causes, decide, hang
from tests.startup.handed import ALL
from tests.startup.messages import listed
from tests.startup.test_messages import SAID

DOCUMENT = Path(__file__).parents[2] / "docs" / "verdicts.md"

IN_CODE = {row.name for row in causes.EXCEPTIONS} | {
    row.name for _, row in causes.LINES if row.grade is not causes.Grade.NOTE
}
BY_RULE = {
    *(causes.oom_cause(stage, where) for stage in Stage for where in ("", "nvshmem")),
    *(row.name for row in (causes.ANY_EXCEPTION, causes.WARMUP_FAILED, causes.WARMUP_TIMEOUT)),
    *decide.BY_SIGNAL.values(),
    *hang.CAUSES,
    *("exited", "deepgemm-warmup-timeout", "stuck-STAGE", "unfinished"),
}


def documented() -> list[str]:
    section = DOCUMENT.read_text().partition("## Causes")[2].partition("\n## ")[0]
    return re.findall(r"^\| `([\w-]+)` \|", section, re.MULTILINE)


def test_every_cause_is_documented_once_and_no_other() -> None:
    assert sorted(documented()) == sorted((IN_CODE | BY_RULE) - {causes.DEVICE_OOM})


def test_budgets_are_documented() -> None:
    table = DOCUMENT.read_text().partition("## Budgets of silence")[2].partition("\n## ")[0]
    for stage, seconds in hang.SILENCE.items():
        assert re.search(rf"\| [^|]*\b{stage}\b[^|]* \| {seconds:g} \|", table), stage


def test_the_words_of_a_row_let_its_lines_through() -> None:
    """A row is tried only where one of its words is: no line that its pattern fits may lack them all."""
    lines = [line for case in ALL for line in case.lines] + [*SAID, *listed()]
    fits = [(words, row, line) for words, row in causes.LINES for line in lines if row.pattern.search(line)]
    assert len({row.name for _, row, _ in fits}) > 10
    unread = {(row.name, line[:80]) for words, row, line in fits if not any(word in line for word in words)}
    assert {name for name, _ in unread} <= {"comm-buffer"}, unread  # its words demand "out of memory" as well


def test_a_type_alone_is_a_cause() -> None:
    assert causes.of_exception("torch.cuda.OutOfMemoryError", "x").name == causes.DEVICE_OOM
    assert causes.of_exception("KeyboardInterrupt", "").grade is causes.Grade.CONSEQUENCE
    assert causes.of_exception("my.Own", "thing").name == "exception"
