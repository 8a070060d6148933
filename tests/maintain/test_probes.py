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


BLOCKS = """\
def run(items):
    try:
        for item in items:
            use(item)
        else:
            done = 1
    except ValueError:
        failed = 1
    except TypeError as error:
        failed = 2
    finally:
        closed = 1
    if items: one = 1
    two = 2; three = 3
    with items as (
        a,
        b,
    ):
        @decorated
        def inner():
            return 1
    match items:
        case []:
            four = 4
    return closed
"""


@pytest.mark.parametrize(
    ("after", "next_line"),
    [
        ("else:", "            done = 1"),
        ("except ValueError:", "        failed = 1"),
        ("except TypeError as error:", "        failed = 2"),
        ("finally:", "        closed = 1"),
        ("try:", "        for item in items:"),
        ("):", "        @decorated"),
        ("case []:", "            four = 4"),
        ("closed = 1", "    if items: one = 1"),
    ],
)
def test_first_in_the_block_of_any_clause(after: str, next_line: str) -> None:
    lines = probe(after, "items", text=BLOCKS).split("\n")
    start = next(at for at, line in enumerate(lines) if line.strip() == "print(")
    end = next(at for at in range(start, len(lines)) if lines[at].strip() == ")")
    assert lines[end + 1] == next_line
    assert lines[start - 1].strip() == after
    compile("\n".join(lines), "x.py", "exec")


@pytest.mark.parametrize(
    ("after", "message"),
    [
        ("if items: one = 1", "holds several statements"),
        ("two = 2; three = 3", "holds several statements"),
        ("@decorated", "is in no statement"),
    ],
)
def test_a_line_of_more_or_less_than_one_statement(after: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        probe(after, "items", text=BLOCKS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("yield 3", "not a list of expressions"),
        ("(yield 3), 1", "hands control"),
        ("a)  # ", "not a list of expressions"),
        ("(n := 3)", "binds a name"),
        ("[(n := i) for i in a]", "binds a name"),
        ("await a", "hands control"),
        ("*a", "is not one value"),
        ("a\nimport os", "not a list of expressions"),
        ("x=3", "not a list of expressions"),
        ("", "not a list of expressions"),
        ("a,,b", "not a list of expressions"),
        ("a[0", "not a list of expressions"),
    ],
)
def test_what_is_no_expression_to_look_at(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        split_expressions(text)


def test_awkward_expressions_print_what_they_say() -> None:
    wanted = """cell, f"{cell!r:>{10}}", "it's" + 'a "b"', {"a": [1, "b,c"]}, [c for c in (1, 2)]"""
    wanted += ''', "{no field}", "%s%%", b"x"'''
    made = probe("rest = cell + 1", *split_expressions(wanted))
    said: list[str] = []
    namespace: dict[str, object] = {}
    exec(compile(made, "x.py", "exec"), namespace)
    namespace["logger"] = type("Log", (), {"info": lambda self, text, *values: said.append(text % values)})()
    runner = namespace["Runner"]()  # type: ignore[operator]
    runner.cells = lambda ratio: 7
    runner.size(0)
    told = """PROBE size cell=7 value_2=         7 value_3=it'sa "b" value_4={'a': [1, 'b,c']} value_5=[1, 2]"""
    assert said == [told + " value_6={no field} value_7=%s%% value_8=b'x'"]


def test_a_file_with_crlf_stays_one() -> None:
    made = probe("rest = cell + 1", "cell", text=TEXT.replace("\n", "\r\n"))
    assert made.replace("\r\n", "\n") == probe("rest = cell + 1", "cell")
