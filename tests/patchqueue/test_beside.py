"""Statements beside statements that are changed or gone: placed where that is certain, and nowhere else."""

from __future__ import annotations

import pytest

from patchbisect.patchqueue import placed_beside


def placed(before: str, wanted: str, there: str) -> str | None:
    sides = (text.split("\n") if text else [] for text in (before, wanted, there))
    before_lines, wanted_lines, there_lines = sides
    found = placed_beside(there=there_lines, before=before_lines, wanted=wanted_lines)
    return None if found is None else "\n".join(found)


@pytest.mark.parametrize(
    ("before", "wanted", "there", "result"),
    [
        ("    p(a)", "    p(a)\n    p(b)", "", "    p(b)"),
        ("    p(a)", "    p(b)\n    p(a)", "", "    p(b)"),
        ("    p(a)\n    p(c)", "    p(a)\n    p(b)\n    p(c)", "", "    p(b)"),
        ("    p(a)", "    p(a)\n    p(b)", "    p(aa)", "    p(aa)\n    p(b)"),
        ("    p(a)", "    p(b)\n    p(a)", "    p(aa)", "    p(b)\n    p(aa)"),
        (
            "    p(a)",
            "    p(a)\n    if b:\n        p(b)",
            "    x = 1\n    p(x)",
            "    x = 1\n    p(x)\n    if b:\n        p(b)",
        ),
        ("    t = now()", "    t = now()\n    p(t)", "    t = clock()", "    t = clock()\n    p(t)"),
        ("    p(a)", "    p(a)\n    p(a)", "", "    p(a)"),
        ("    # why", "    # why\n    p(a)", "", "    p(a)"),
    ],
)
def test_the_only_place(before: str, wanted: str, there: str, result: str) -> None:
    assert placed(before, wanted, there) == result


@pytest.mark.parametrize(
    ("before", "wanted", "there"),
    [
        pytest.param("", "    p(b)", "    p(a)", id="both add at the same place"),
        pytest.param("    p(a)", "    p(aa)", "", id="changes what is gone"),
        pytest.param("    p(a)", "    p(aa)\n    p(b)", "", id="changes what is gone, and adds"),
        pytest.param(
            "    p(a)\n    p(c)", "    p(a)\n    p(b)\n    p(c)", "    p(ac)", id="in the midst of what changed"
        ),
        pytest.param("    p(a)", "    p(a)\n    p(b)\n    p(a)", "", id="before or after"),
        pytest.param("    t = now()", "    t = now()\n    p(t)", "", id="a name that is gone"),
        pytest.param(
            "    self.t = 1", "    self.t = 1\n    p(self.t)", "    self.u = 1", id="an attribute that is gone"
        ),
        pytest.param("    import os", "    import os\n    p(os.environ)", "", id="a module that is gone"),
        pytest.param(
            "    def f():\n        pass", "    def f():\n        pass\n    f()", "", id="a function that is gone"
        ),
        pytest.param("    if a:\n        p(a)", "    if a:\n        p(a)\n        p(b)", "", id="inside what is gone"),
        pytest.param(
            "    else:\n        p(a)", "    else:\n        p(a)\n        p(b)", "", id="a branch that is gone"
        ),
        pytest.param("    p(a)", "    p(a)\n    p(b)", "    if c:", id="no whole statement is there now"),
        pytest.param("    p(a)", "    p(a)\n    p(b)", "        p(a)", id="in another suite now"),
        pytest.param("    p(a)", "    p(a)\n        b)", "", id="no whole statement is added"),
        pytest.param("    p(a)", "    p(a)\n    p(b)", "    p(aa)\n    p(b)", id="it is there already"),
        pytest.param("    a = f()", "    a = f()\n    p(b)", "    return f()", id="nothing comes there any more"),
        pytest.param("    p(\n    )", "    p(\n    b\n    )", "", id="inside a call that is gone"),
    ],
)
def test_no_place_that_is_certain(before: str, wanted: str, there: str) -> None:
    assert placed(before, wanted, there) is None
