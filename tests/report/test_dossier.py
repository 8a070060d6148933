"""A hang shows where it stood, in the terminal, on the page and in what is passed on."""

import io
import zipfile
from typing import Any

import pytest
from rich.console import Console

from patchbisect.errors import UsageError
from patchbisect.records import Store
from patchbisect.report import dossier, html, markdown, page
from patchbisect.report.bundle import exported, imported
from patchbisect.report.scrub import Scrubber
from patchbisect.report.sources import recorded
from patchbisect.report.text import record_page
from tests.report import builder

HANG = {**builder.OOM, "outcome": "hang", "cause": "stuck-after-load", "stage": "weight-load", "signature": None}
FOUND: dict[str, Any] = {
    "processes": [
        {
            "pid": 7,
            "title": "sglang::scheduler_TP0",
            "state": "S",
            "waits_in": "futex_wait",
            "cpu_s": 12.34,
            "threads": 9,
        },
        {"pid": 8, "title": "sglang::scheduler_TP1", "state": "R", "waits_in": "0"},
    ],
    "stacks": {"7": "Thread 1 (idle)\n" + "".join(f"    frame{n} (x.py:{n})\n" for n in range(20))},
    "last_lines": {"": "INFO: 503", "10": "barrier", "2": "Load weight end.\x1b[31m"},
    "ranks_alive": [0, 1],
    "ranks_missing": [3, 5],
    "nvidia_smi": "",
}
RUN = "20261129-180000-aaaa"


@pytest.fixture
def hung(store: Store) -> Store:
    builder.save(store, builder.record(RUN, verdict=HANG), log=builder.case("cpu/11-tp2"), dossier=FOUND)
    return store


def test_rows_name_the_missing_the_last_words_and_who_waits() -> None:
    assert list(dossier.rows(FOUND)) == [
        ("missing", "ranks 3, 5: seen in the log, and no process of theirs lives"),
        ("alive", "ranks 0, 1"),
        ("last line", "INFO: 503"),
        ("TP2 said", "Load weight end.·[31m"),
        ("TP10 said", "barrier"),
        ("pid 7", "sglang::scheduler_TP0, state S, waits in futex_wait, 12.3 s of CPU, 9 threads"),
        ("pid 8", "sglang::scheduler_TP1, state R"),
    ]
    assert list(dossier.rows({})) == []


def test_a_stack_is_named_by_its_process_and_its_absence_is_said() -> None:
    assert [whose for whose, _ in dossier.stacks(FOUND)] == ["pid 7 sglang::scheduler_TP0"]
    missing = {"stacks": {"": "py-spy is not on the box"}}
    assert list(dossier.stacks(missing)) == [("stacks", "py-spy is not on the box")]


def test_it_is_shown_in_the_terminal_and_on_the_page(hung: Store) -> None:
    out = io.StringIO()
    Console(file=out, width=100).print(record_page(hung.load(RUN).model_dump(mode="json"), hung.dossier(RUN)))
    assert "where it stood" in out.getvalue()
    assert "… 9 more lines: show --json" in out.getvalue()
    shown = page.of_run(recorded(hung, RUN), hung)
    for text in (html.rendered(shown), markdown.rendered(shown)):
        assert "waits in futex_wait" in text
    assert "frame19" in html.rendered(shown)


def test_it_goes_out_without_secrets_and_comes_in_elsewhere(hung: Store, tmp_path: Any) -> None:
    path = tmp_path / "x.zip"
    path.write_bytes(exported(hung, RUN, scrubber=Scrubber(values=["sglang::scheduler_TP0"])))
    elsewhere = Store(tmp_path / "elsewhere")
    found = elsewhere.dossier(imported(elsewhere, path).id)
    assert found["ranks_missing"] == [3, 5]
    assert found["processes"][0]["title"] == "***"


@pytest.mark.parametrize("content", ["[]", "{", '{"processes": [1]}', '{"stacks": []}'])
def test_a_damaged_one_is_one_line(hung: Store, content: str) -> None:
    (hung.path(RUN) / "dossier.json").write_text(content)
    with pytest.raises(UsageError, match="damaged"):
        hung.dossier(RUN)


def test_a_bundle_with_a_damaged_one_is_refused(hung: Store, tmp_path: Any) -> None:
    path = tmp_path / "x.zip"
    path.write_bytes(exported(hung, RUN, scrubber=Scrubber()))
    with zipfile.ZipFile(path) as whole, zipfile.ZipFile(tmp_path / "y.zip", "w") as spoilt:
        spoilt.writestr("record.json", whole.read("record.json"))
        spoilt.writestr("dossier.json", "[]")
    elsewhere = Store(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="its dossier is damaged"):
        imported(elsewhere, tmp_path / "y.zip")
