import fcntl
import os
import re
import struct
import subprocess
import sys
import termios
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from patchbisect.journal import Journal
from patchbisect.records import Store
from tests.report import builder
from tests.tasks.conftest import ROOT, A, B, Said


def test_runs_lists_what_is_asked_for(invoke: Callable[..., Said]) -> None:
    said = invoke("runs", "--outcome", "oom")
    assert A in said.out
    assert B not in said.out
    document = invoke("runs", "--json").json
    assert [row["id"] for row in document["runs"]] == [A, B]
    assert document["runs"][0]["outcome"] == "oom"
    assert document["matching"] == 2
    assert "1 earlier runs not shown" in invoke("runs", "--last", "1").err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--box", "locl"), "no run has box 'locl'\n  did you mean 'local'?"),
        (("--profile", "bigg"), "no run has profile 'bigg'\n  known: tiny"),
        (("--point", "0002"), "no run has point '0002'\n  did you mean '0001'?"),
        (("--tag", "x"), "no run has tag 'x'\n  there are none"),
        (("--since", "2100-01-01"), "no run is newer than 2100-01-01T00:00+00:00\n  the newest is of 2026-11-29T18:00"),
        (("--outcome", "oom", "--point", "HEAD"), "no run has all of that\n  leave one of them out"),
    ],
)
def test_a_filter_that_lets_nothing_pass_names_what_there_is(
    invoke: Callable[..., Said], words: tuple[str, ...], message: str
) -> None:
    said = invoke("runs", *words)
    assert (said.out, said.err.strip(), said.code) == ("", message, 0)


def test_runs_of_the_demo_are_kept_apart(invoke: Callable[..., Said], repository: Path) -> None:
    theirs = Store(repository / ".patchbisect" / "demo" / "runs")
    finding = builder.bisection(theirs)
    Journal.create(repository / ".patchbisect" / "demo" / "bisections", finding["id"]).append("answer", finding=finding)
    newest = finding["trials"][-1]["run"]
    assert [row["id"] for row in invoke("runs", "--json").json["runs"]] == [A, B]
    assert len(invoke("runs", "--demo", "--json").json["runs"]) == len(finding["trials"])
    assert invoke("show", "last", "--json").json["id"] == B
    assert invoke("show", "demo", "--json").json["id"] == newest
    assert invoke("show", newest, "--json").json["id"] == newest
    assert invoke("report", "--json").json["id"] == B
    assert invoke("report", "--of", "demo", "--json").json["id"] == finding["id"]
    assert invoke("report", "--of", finding["id"], "--json").json["answer"] == "found"
    for mine in (A, B):
        Store(repository / ".patchbisect" / "runs").remove(mine)
    said = invoke("report", "--json")
    assert said.json["id"] == finding["id"]
    assert "this is the demo's bisection" in said.err
    assert "invoke runs --demo" in invoke("runs").err
    refused = invoke("show", "last")
    assert refused.code == 2
    assert "the demo's last run is called 'demo'" in refused.err


def test_show_gives_the_record_its_log_or_its_json(invoke: Callable[..., Said]) -> None:
    assert "v0.5.9, from release 0.5.9" in invoke("show", "last").out
    assert invoke("show", B, "--json").json["id"] == B
    said = invoke("show", "nope")
    assert said.code == 2
    assert "no run 'nope'" in said.err


def test_show_writes_the_log_and_nothing_else(invoke: Callable[..., Said]) -> None:
    assert invoke("show", "last", "--log").out == builder.case("cpu/03-patch-good").decode()


def test_a_name_sticks_until_it_is_taken_away(invoke: Callable[..., Said]) -> None:
    assert invoke("tag", "last", "baseline", "--json").json == {"id": B, "tags": ["baseline"]}
    assert "baseline" in invoke("runs", "--tag", "baseline").out
    assert invoke("tag", A, "baseline").code == 2
    assert invoke("tag", B, "baseline", "--remove", "--json").json["tags"] == []


def test_gc_spares_what_a_bisection_rests_on(invoke: Callable[..., Said], repository: Path) -> None:
    Journal.create(repository / ".patchbisect" / "bisections", "x").append("trial", record=A)
    dry = invoke("gc", "--keep", "0", "--older-than", "2030-01-01", "--dry-run", "--json").json
    assert (dry["would_remove"], dry["removed"]) == ([B], [])
    assert invoke("gc", "--keep", "0", "--older-than", "2030-01-01", "--json").json["removed"] == [B]
    assert [row["id"] for row in invoke("runs", "--json").json["runs"]] == [A]


def test_a_run_travels_as_one_file(invoke: Callable[..., Said], repository: Path) -> None:
    said = invoke("export-run", "last", "--json").json
    assert said["file"] == f"{B}.zip"
    assert "record.json" in zipfile.ZipFile(repository / said["file"]).namelist()
    assert invoke("import-run", said["file"]).code == 2
    Store(repository / ".patchbisect" / "runs").remove(B)
    assert invoke("import-run", said["file"], "--as", "theirs", "--json").json["tags"] == ["theirs"]


def test_a_log_is_adopted_under_a_name(invoke: Callable[..., Said]) -> None:
    log = str(builder.CASES / "cpu" / "04-unbound.log")
    assert invoke("adopt", log, "--as", "by-hand", "--json").json["outcome"] == "crash"
    assert "adopted" in invoke("show", "by-hand").out
    missing = invoke("adopt", log)
    assert missing.code == 2
    assert "--as NAME" in missing.err


@pytest.mark.parametrize(
    "words", [("adopt", "--as", "junk"), ("classify",), ("explain", "--of"), ("diff-runs", "last"), ("plot", "--run")]
)
def test_what_is_no_server_s_log_gets_no_verdict(invoke: Callable[..., Said], words: tuple[str, ...]) -> None:
    readme = str(ROOT / "README.md")
    said = invoke(words[0], readme, *words[1:]) if words[0] in ("adopt", "classify") else invoke(*words, readme)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith(f"error: {readme}: not the log of a server: no line of it is one that SGLang")
    assert "with lines like [2026-11-29" in said.err
    assert [row["id"] for row in invoke("runs", "--json").json["runs"]] == [A, B]


def test_an_empty_log_has_a_verdict_where_it_is_known_how_the_server_ended(
    invoke: Callable[..., Said], repository: Path
) -> None:
    (repository / "empty.log").write_text("")
    refused = invoke("classify", "empty.log")
    assert (refused.code, "it is empty" in refused.err) == (2, True)
    assert invoke("classify", "empty.log", "--exit-code", "137", "--json").json["cause"] == "killed"


def test_the_story_ends_with_the_fraction(invoke: Callable[..., Said]) -> None:
    last_line = invoke("diff-runs", A, B).out.strip().splitlines()[-1]
    assert last_line.startswith("same code effect, same memory, the fraction differs")
    log = str(builder.CASES / "cpu" / "03b-patch-good-memlow.log")
    conclusion = invoke("diff-runs", log, B, "--json").json["conclusion"]
    assert conclusion.startswith("same code effect, same memory, the fraction differs")


def test_a_report_is_a_page_markdown_or_text(invoke: Callable[..., Said], repository: Path) -> None:
    store = Store(repository / ".patchbisect" / "runs")
    finding = builder.bisection(store)
    Journal.create(repository / ".patchbisect" / "bisections", finding["id"]).append("answer", finding=finding)
    assert "add 0005-print-rest" in invoke("report").out
    assert invoke("report", "--markdown").out.startswith("## Culprit found")
    assert invoke("report", "--of", finding["id"], "--json").json["answer"] == "found"
    said = invoke("report", "--of", B, "--html", "page.html")
    assert said.out == ""
    assert (repository / "page.html").read_text().startswith("<!doctype html>")


def test_a_picture_is_drawn_of_runs_and_logs(invoke: Callable[..., Said], repository: Path) -> None:
    log = str(builder.CASES / "cpu" / "11-tp2.log")
    said = invoke("plot", "--run", B, "--run", log, "-o", "p.svg", "--json")
    assert said.json == {"file": "p.svg", "runs": [B, log]}
    assert "11-tp2" in (repository / "p.svg").read_text()
    assert invoke("plot", "--run", B, "-o", "p.gif").code == 2


@pytest.mark.parametrize("path", ["missing/x", "."])
@pytest.mark.parametrize("words", [("report", "--html"), ("export-run", "last", "--out"), ("plot", "-o")])
def test_a_file_that_cannot_be_written_is_one_clear_line(
    invoke: Callable[..., Said], words: tuple[str, ...], path: str
) -> None:
    said = invoke(*words, f"{path}.png" if words[0] == "plot" and path != "." else path)
    assert said.code == 2
    assert "Traceback" not in said.err
    assert "cannot be written" in said.err or "neither .png nor .svg" in said.err


def test_watching_nothing_says_so(invoke: Callable[..., Said]) -> None:
    assert "nothing runs" in invoke("watch").err
    assert invoke("watch", "--json").json == {"running": []}


TASKS = ("runs", "show", "tag", "gc", "export-run", "import-run", "adopt", "diff-runs", "report", "plot", "watch")


@pytest.mark.parametrize("name", TASKS)
def test_every_help_has_an_example(invoke: Callable[..., Said], name: str) -> None:
    assert f"Example: invoke {name}" in invoke("--help", name).out


def _on_a_terminal(repository: Path, *, width: int = 80, **env: str) -> str:
    """What `runs` writes to a terminal of so many columns."""
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    plain = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
    program = str(Path(sys.executable).with_name("patchbisect"))
    subprocess.run(
        [program, "runs"], cwd=repository, env={**plain, "TERM": "xterm", **env}, stdout=slave, stderr=slave, check=True
    )
    os.close(slave)
    return os.read(master, 65536).decode()


@pytest.mark.ci
def test_a_terminal_gets_colour_and_what_fits_unless_it_wants_none(repository: Path) -> None:
    coloured, plain = _on_a_terminal(repository), _on_a_terminal(repository, NO_COLOR="1")
    assert "\x1b[31m" in coloured
    assert "\x1b[31m" not in plain
    lines = re.sub(r"\x1b\[[0-9;]*m", "", coloured).splitlines()
    assert max(map(len, lines)) <= 80
    assert any(A in line for line in lines)


@pytest.mark.ci
def test_a_dumb_terminal_is_as_wide_as_it_is(repository: Path) -> None:
    lines = _on_a_terminal(repository, width=60, TERM="dumb").splitlines()
    assert max(map(len, lines)) <= 60
    assert any(A in line and "oom/kv-profile" in line for line in lines)


def test_a_pipe_gets_neither_colour_nor_a_cut(invoke: Callable[..., Said], repository: Path) -> None:
    store = Store(repository / ".patchbisect" / "runs")
    point = "upstream:" + "a" * 120
    builder.save(store, builder.record("20261129-200000-cccc", point=point))
    said = invoke("runs")
    assert point in said.out
    assert "\x1b" not in said.out
