"""Lint of a queue: header, place, compilation, diagnostics, probes, waivers."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from patchbisect.maintain.lint import Finding, diagnose, lint, waivers_used
from patchbisect.maintain.lint.findings import RULES
from patchbisect.patchqueue import Severity, compose, format_patch

PATH = "python/sglang/engine.py"
BEFORE = """\
import logging

logger = logging.getLogger(__name__)


def start(size, ratio=None):
    if size > 4:
        half = size // 2
    total = size + 1
    return total


def stop():
    pass
"""


def patch(
    number: int,
    after: str,
    *,
    before: str = BEFORE,
    kind: str = "instrumentation",
    trailers: Sequence[tuple[str, str]] = (),
    path: str = PATH,
) -> tuple[str, bytes]:
    diff = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), fromfile=f"a/{path}", tofile=f"b/{path}"
    )
    made = compose(
        number=number,
        slug=f"patch-{number}",
        author="Ada <ada@example.org>",
        date="Sun, 29 Nov 2026 10:00:00 +0000",
        subject="Look",
        body="Because.",
        trailers=[("Kind", kind), ("Forwarded", "no"), *trailers],
        diff="".join(diff),
    )
    return f"{made.name}.patch", format_patch(made)


def insert(line: str, *, before: str = "    return total\n") -> str:
    return BEFORE.replace(before, f"    {line}\n{before}")


def run(*patches: tuple[str, bytes], text: str | None = BEFORE) -> list[Finding]:
    return lint(dict(patches), read=lambda path: text if path == PATH else None, diagnose=diagnose)


def rules(found: list[Finding]) -> list[str]:
    return [one.rule for one in found]


def test_a_good_probe_is_silent() -> None:
    good = patch(1, insert('logger.info("PROBE start total=%s", total)'), trailers=[("Probe", "start")])
    assert run(good) == []


def test_a_finding_names_the_line_of_the_patch_and_of_the_file() -> None:
    name, data = patch(1, insert("logger.info(half)"))
    [found] = run((name, data))
    assert found.rule == "unbound"
    assert data.decode().split("\n")[found.line - 1] == "+    logger.info(half)"
    assert (found.path, found.path_line) == (PATH, 10)
    assert found.remedy


def test_patches_are_judged_on_top_of_those_before_them() -> None:
    first = insert("logger.info(total)")
    second = first.replace("    return total\n", "    logger.info(size)\n    return total\n")
    assert run(patch(1, first), patch(2, second, before=first)) == []


def test_a_disabled_patch_is_not_applied() -> None:
    first = insert("logger.info(half)")
    assert run(patch(1, first, trailers=[("Enabled", "no")]), patch(2, first, kind="fix")) != []
    assert run(patch(1, first, trailers=[("Enabled", "no")])) == []


def test_headers_and_numbers() -> None:
    name, data = patch(1, insert("logger.info(total)"))
    broken = data.replace(b"Kind: instrumentation", b"Knid: instrumentation")
    assert "trailer" in rules(run((name, broken)))
    assert "gap" in rules(run((name.replace("0001", "0003"), data)))
    twice = run((name, data), ("0001-other.patch", data))
    assert "duplicate" in rules(twice)


def test_an_offset_is_no_exact_place() -> None:
    good = patch(1, insert("logger.info(total)"))
    [found] = run(good, text="# moved\n" + BEFORE)
    assert found.rule == "exact"
    assert "fits at line" in found.why
    [missing] = run(good, text=None)
    assert missing.rule == "exact"


def test_an_anchor_that_stands_twice_is_a_warning() -> None:
    before = "a()\nb()\nc()\nd()\ne()\nf()\ng()\n" * 2
    head, tail = before[: len(before) // 2 + 16], before[len(before) // 2 + 16 :]
    found = run(patch(1, head + "new()\n" + tail, before=before, kind="experiment"), text=before)
    [anchor] = [one for one in found if one.rule == "anchor"]
    assert anchor.severity is Severity.WARNING
    assert "line 2 too" in anchor.why


def test_what_does_not_compile() -> None:
    [found] = run(patch(1, insert("logger.info((total)"), kind="fix"))
    assert (found.rule, found.path_line) == ("compiles", 10)


def test_new_diagnostics_only() -> None:
    upstream = BEFORE.replace("    pass\n", "    undefined_upstream\n")
    after = upstream.replace("    return total\n", "    undefined_here\n    return total\n")
    found = run(patch(1, after, before=upstream, kind="fix"), text=upstream)
    assert [(one.rule, "undefined_here" in one.why) for one in found] == [("diagnostic", True)]


def test_possibly_unbound_names_of_a_fix_are_a_warning() -> None:
    [found] = run(patch(1, insert("print(half)"), kind="fix"))
    assert (found.rule, found.severity) == ("diagnostic", Severity.WARNING)


def test_one_mistake_is_told_once() -> None:
    assert rules(run(patch(1, insert("logger.info(nowhere)")))) == ["unbound"]


def test_probes_and_trailers_agree() -> None:
    assert rules(run(patch(1, insert("logger.info(total)"), trailers=[("Probe", "start")]))) == ["probe"]
    printed = insert('logger.info("PROBE other x=1")')
    assert rules(run(patch(1, printed, trailers=[("Probe", "start")]))) == ["probe", "probe"]


def test_a_waiver_needs_a_reason_and_a_rule_that_complains() -> None:
    bad = insert("logger.info(half)")
    [waived] = run(patch(1, bad, trailers=[("Waive", "unbound only started with size 8")]))
    assert waived.waived == "only started with size 8"
    assert not waived.counts
    unneeded = run(patch(1, insert("logger.info(total)"), trailers=[("Waive", "unbound because")]))
    assert [(one.rule, one.counts) for one in unneeded] == [("waive", False)]
    misspelt = run(patch(1, bad, trailers=[("Waive", "unbuond because")]))
    assert sorted((one.rule, one.counts) for one in misspelt) == [("unbound", True), ("waive", True)]
    assert "did you mean unbound" in misspelt[0].why + misspelt[1].why
    name, data = patch(1, bad, trailers=[("Waive", "unbound because")])
    [refused] = [one for one in run((name, data.replace(b"unbound because", b"unbound"))) if one.rule == "trailer"]
    assert "reason" in refused.why


def test_a_waiver_is_told_in_one_line_however_often_it_is_used() -> None:
    once = Finding(patch="0001-a", rule="unbound", why="half", waived="size is 8")
    twice = Finding(patch="0001-a", rule="call", why="f", waived="it is pure")
    found = [once, twice, twice, Finding(patch="0001-a", rule="call", why="g")]
    assert waivers_used(found) == [
        "0001-a: unbound, because size is 8",
        "0001-a: call (2 times), because it is pure",
    ]


def test_what_does_not_apply_or_compile_cannot_be_waived() -> None:
    broken = insert("logger.info((total)")
    found = run(patch(1, broken, kind="fix", trailers=[("Waive", "compiles it is only a draft")]))
    assert sorted((one.rule, one.counts) for one in found) == [("compiles", True), ("waive", True)]


def test_every_rule_is_described() -> None:
    assert all(RULES.values())


def test_a_source_in_its_own_encoding_is_read_as_python_reads_it() -> None:
    declared = f"# coding: latin-1\n# caf\udce9\n{BEFORE}"
    looks = declared.replace("    return total\n", '    logger.info("%s", total)\n    return total\n')
    assert run(patch(1, looks, before=declared), text=declared) == []
    undeclared = BEFORE.replace("import logging", "import logging  # caf\udce9")
    [found] = run(patch(1, undeclared))
    assert found.rule == "compiles"
    assert "encoding" in found.why
