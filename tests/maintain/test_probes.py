"""insert-probe: where a probe goes and how it prints."""

from __future__ import annotations

import pytest

from patchbisect.errors import UsageError
from patchbisect.maintain.lint.instrumentation import judge
from patchbisect.maintain.probes import insert_probe, split_expressions

TEXT = '''\
import logging

logger = logging.getLogger(__name__)


class Runner:
    def size(self, ratio):
        """How large."""
        cell = self.cells(
            ratio,
        )
        if ratio:
            extra = 1
        rest = cell + 1
        same = 1
        same = 1
        return rest
'''


def probe(after: str, *expressions: str, text: str = TEXT) -> str:
    return insert_probe(text, path="x.py", after=after, expressions=expressions, name="size").text


def test_behind_a_statement_of_several_lines_in_the_files_own_style() -> None:
    text = probe("cell = self.cells(", "cell", "self.cells")
    assert (
        """\
        )
        logger.info(
            "PROBE size cell=%s cells=%s",
            cell,
            self.cells,
        )
        if ratio:
"""
        in text
    )
    assert judge(TEXT, text) == []


def test_first_in_the_block_that_the_line_opens() -> None:
    assert "        if ratio:\n            logger.info(\n" in probe("if ratio:", "ratio")
    assert '"""How large."""\n        logger.info(' in probe("def size(self, ratio):", "ratio")


def test_a_file_without_a_logger_gets_a_flushed_print() -> None:
    text = TEXT.replace("logger = logging.getLogger(__name__)\n", "")
    made = probe("rest = cell + 1", "rest", "(1, 2)", text=text)
    assert "flush=True" in made
    compile(made, "x.py", "exec")
    assert judge(text, made) == []


def test_keys_are_words() -> None:
    text = probe("rest = cell + 1", "self.a.b", "cell * 2", "b")
    assert "PROBE size b=%s value_2=%s b_3=%s" in text


@pytest.mark.parametrize(
    ("after", "message"),
    [
        ("same = 1", "stands 2 times in x.py: at lines 15, 16"),
        ("rest = cell + 2", "no line"),
        ("return rest", "is a return: nothing behind it runs"),
    ],
)
def test_a_line_that_will_not_do(after: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        probe(after, "cell")


def test_expressions() -> None:
    assert split_expressions("a, f(b, c), d[1, 2]") == ["a", "f(b, c)", "d[1, 2]"]
    with pytest.raises(UsageError, match="not a list of expressions"):
        split_expressions("a b")
    with pytest.raises(UsageError, match="not an expression"):
        probe("rest = cell + 1", "a =")


def test_lint_sees_what_is_not_bound() -> None:
    assert [one.rule for one in judge(TEXT, probe("rest = cell + 1", "extra"))] == ["unbound"]
