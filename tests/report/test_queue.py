"""The queue on a terminal of 80 columns."""

from __future__ import annotations

import io

from rich.console import Console, RenderableType

from patchbisect.report.queue import note, queue_table

PATCHES = [
    {
        "name": f"{number:04d}-not-enough-memory-numbers",
        "kind": "instrumentation",
        "forwarded": "https://github.com/sgl-project/sglang/pull/12345",
        "subject": f"Say with which numbers [{number}] the memory is not enough",
        "files": ["sglang/srt/model_executor/model_runner.py", "sglang/srt/server_args.py"],
        "enabled": number != 2,
    }
    for number in (1, 2, 3)
]


def shown(what: RenderableType, width: int) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, soft_wrap=True).print(what)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_a_patch_is_one_line_with_its_whole_name() -> None:
    lines = shown(queue_table(PATCHES), 80)
    assert [line.split()[0] for line in lines[1:4]] == [patch["name"] for patch in PATCHES]
    assert max(map(len, lines)) <= 80
    assert "[1]" in lines[1]
    assert "(disabled)" in lines[2]
    assert lines[4:] == ["no room for: files, forwarded, kind"]


def test_in_a_pipe_all_of_it_is_there() -> None:
    _, line, *_ = shown(queue_table(PATCHES), 1000)
    for word in ("instrumentation", PATCHES[0]["forwarded"], PATCHES[0]["subject"], *PATCHES[0]["files"]):
        assert str(word) in line


def test_a_note_folds_between_words() -> None:
    text = "Give it more lines of context: on another base it may land in the wrong place [x]."
    lines = shown(note(text, indent=2), 40)
    assert " ".join(" ".join(lines).split()) == text
    assert all(line.startswith("  ") and len(line) <= 40 for line in lines)
