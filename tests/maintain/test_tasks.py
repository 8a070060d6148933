"""The tasks as they are typed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.maintain.lab import ENGINE, LOADER, Lab
from tests.tiny_upstream import commit, git

pytestmark = pytest.mark.ci

PROGRAM = Path(sys.executable).parent / "patchbisect"


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    lab = Lab(tmp_path)
    git(lab.root, "init", "-q", "-b", "main")
    commit(lab.root, {".gitignore": ".patchbisect/\n"}, "first")
    return lab


def run(lab: Lab, *words: str, code: int = 0) -> str:
    env = {name: value for name, value in os.environ.items() if name != "PATCHBISECT_HOME"}
    done = subprocess.run([str(PROGRAM), *words], cwd=lab.root, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr
    return done.stdout if code == 0 or "--json" in words else done.stdout + done.stderr


def said(lab: Lab, *words: str, code: int = 0) -> Any:
    return json.loads(run(lab, *words, "--json", code=code))


def test_a_day_with_the_queue(lab: Lab, tmp_path: Path) -> None:
    before = lab.files()
    assert said(lab, "lint") == {"findings": [], "wrong": 0}
    assert said(lab, "drop", "0001")["removed"] == ["0001-one.patch"]
    assert said(lab, "undo") == {"undone": "drop 0001"}
    assert said(lab, "move", "4", "--to", "1")["added"][0] == "0001-four.patch"
    run(lab, "undo")
    assert said(lab, "fold", "3", "--into", "1")["removed"] == ["0003-three.patch"]
    run(lab, "undo")
    assert said(lab, "drop", "three")["removed"] == ["0003-three.patch"]
    run(lab, "undo")
    assert said(lab, "split", "4", "--files", "loader.py", "--slug", "x")["added"] == ["0005-x.patch"]
    run(lab, "undo")
    tree = Path(said(lab, "edit", "2")["tree"])
    (tree / LOADER).write_text((tree / LOADER).read_text() + "more = 1\n")
    assert said(lab, "refresh")["changed"] == ["0002-two.patch", "0004-four.patch"]
    run(lab, "undo")
    assert lab.files() == before
    tree = Path(said(lab, "new-patch", "fresh", "--kind", "fix")["tree"])
    (tree / ENGINE).write_text((tree / ENGINE).read_text() + "more = 1\n")
    assert said(lab, "refresh")["added"] == ["0005-fresh.patch"]
    assert [change["what"] for change in said(lab, "review", "--base", "HEAD")["changes"]] == ["added"]
    assert "| added |" in run(lab, "review", "--base", "main", "--markdown")
    assert said(lab, "facts")[2]["builds_on"] == ["0001-one"]
    run(lab, "export", str(tmp_path / "quilt"), "--quilt")
    back = said(lab, "import", str(tmp_path / "quilt"), "--instead")
    assert not any([back["added"], back["changed"], back["notes"], *back["account"].values()])
    run(lab, "export", str(tmp_path / "all.mbox"), "--mbox")
    run(lab, "export", "--branch", "mine", "--to", str(tmp_path / "mine"))
    assert said(lab, "import", "--branch", "mine")["changed"] == []
    run(lab, "drop", "5")
    assert said(lab, "import", str(tmp_path / "quilt" / "0005-fresh.patch"))["added"] == ["0005-fresh.patch"]
    assert said(lab, "rebase-queue", "--onto", "v0.2.0", "--dry-run")["patches"][1]["fit"] == "clean"
    assert said(lab, "where-applies", "--among", "v0.1.0,v0.2.0")[-1]["newest"] == "v0.2.0"
    assert said(lab, "rebase-queue", "--onto", "v0.2.0")["moved"] == "rebase onto v0.2.0"
    assert said(lab, "lint")["wrong"] == 0


def test_a_probe(lab: Lab) -> None:
    shown = run(lab, "insert-probe", "engine.py", "--after", "engine_3 = 3", "--expr", "engine_3,engine_2", "--dry-run")
    assert "PROBE engine" in shown
    assert said(lab, "insert-probe", "engine.py", "--after", "engine_3 = 3", "--expr", "engine_3")["added"]
    assert said(lab, "lint")["wrong"] == 0
    refused = run(lab, "insert-probe", "engine.py", "--after", "engine_3 = 3", "--expr", "engine_9", code=2)
    assert "unbound" in refused


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("drop", "x"), "there is no patch 'x'"),
        (("drop", "thre"), "did you mean three"),
        (("import", "a..b", "--clone", "nowhere"), "nowhere: there is no such folder"),
        (("import", "a..b", "--clone", "patches"), "patches has no"),
        (("drop", "9"), "no patch 0009"),
        (("new-patch", "a", "--kind", "fxi"), "did you mean fix"),
        (("new-patch", "../a"), "is no slug"),
        (("undo",), "no edit to undo"),
        (("export", "x"), "--quilt, --branch, --mbox"),
        (("import", "nowhere"), "names no commits"),
        (("rebase-queue",), "--onto REV"),
        (("rebase-queue", "--continue"), "no rebase is under way"),
        (("where-applies",), "--among"),
        (("where-applies", "--range", "a..b"), "needs a clone"),
        (("review", "--base", "nowhere"), "no revision 'nowhere'"),
        (("lint", "--only", "x"), "there is no patch 'x'"),
        (("lint", "--only", "2,99"), "there is no patch 0099"),
        (("export", ".gitignore", "--quilt"), "is there already"),
        (("export", "mine", "--branch", "--to", ".gitignore"), "is there already"),
        (("insert-probe", "engine.py", "--after", "engine_10 = 10", "--expr", "yield 3"), "not a list of expressions"),
        (("init", "."), "has a queue already"),
        (("abandon",), "no edit is open"),
    ],
)
def test_mistakes_are_one_clear_line(lab: Lab, words: tuple[str, ...], message: str) -> None:
    assert message in run(lab, *words, code=2)


def test_a_patch_that_is_here_already_is_not_taken_in_again(lab: Lab, tmp_path: Path) -> None:
    again = tmp_path / "0001-one.patch"
    again.write_bytes(lab.files()["0001-one.patch"])
    refused = run(lab, "import", str(again), code=2)
    assert "nothing was taken in: here already: 0001-one\n" in refused
    assert "--instead" in refused


def test_lint_is_negative_where_something_is_wrong(lab: Lab) -> None:
    path = lab.root / "patches" / "0001-one.patch"
    path.write_bytes(path.read_bytes().replace(b"Kind: experiment", b"Kind: instrumentation"))
    found = said(lab, "lint", code=1)
    assert {one["rule"] for one in found["findings"]} >= {"changes-code"}
    assert found["wrong"] >= 1
    assert said(lab, "lint", "--only", "2") == {"findings": [], "wrong": 0}
    assert said(lab, "lint", "--at", "HEAD")["wrong"] == 0
    assert "unbound" in run(lab, "lint", "--rules")
