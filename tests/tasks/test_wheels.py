"""Bases that need other wheels, at the command line: refused, planned, built, dropped."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from patchbisect.testing.fake_sglang import FakeSglang
from tests.fake_project import GOOD, OOM, FakeProject
from tests.tiny_wheels import interpreter_with, tiny_wheel

MOVES, GUILTY, COMMITS = 3, 5, 7

BEHAVIOUR = """\
import tiny_dep
assert tiny_dep.VERSION == {version!r}, tiny_dep.VERSION
ARGUMENTS = {arguments!r}
"""
NEEDS = '[project]\nname = "sglang"\ndependencies = ["packaging", "torch==0", "tiny-dep=={version}"]\n'
SETTINGS = """\
patchbisect:
  profile: fake
  upstream: {{source: git}}
  boxes:
    local:
      python: {python}
      agent-python: {agent}
      lease-dir: {folder}/lease
      other-wheels: {policy}
      pip-args: [--no-index, --find-links, {folder}/wheels]
  profiles: {{fake: {{flags: {{model-path: /m}}}}}}
"""


class Needing:
    """A queue without patches on an upstream of which commit ``MOVES`` insists on another tiny-dep."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        old = tiny_wheel(folder / "wheels", "tiny-dep", "1.0")
        tiny_wheel(folder / "wheels", "tiny-dep", "2.0")
        self.python = interpreter_with(folder / "venv", old)
        upstream = FakeSglang(folder / "upstream")
        self.commits = [self._commit(upstream, k) for k in range(COMMITS + 1)]
        (folder / "queue" / "patches").mkdir(parents=True)
        pin = f'upstream = "{upstream.path.as_uri()}"\ncommit = "{self.commits[0]}"\n'
        (folder / "queue" / "patches" / "pin.toml").write_text(pin)
        self.project = FakeProject(root=folder / "queue", upstream=upstream)
        self.project.git("init", "--quiet")
        self.bad = f"upstream:{self.commits[-1]}"

    @staticmethod
    def _commit(upstream: FakeSglang, k: int) -> str:
        version = "2.0" if k >= MOVES else "1.0"
        behaviour = BEHAVIOUR.format(version=version, arguments=list(OOM if k >= GUILTY else GOOD))
        files = {"behaviour.py": behaviour, "k.py": f"K = {k}\n", "../pyproject.toml": NEEDS.format(version=version)}
        return upstream.commit([f"commit {k}"], files=files)

    def allow(self, policy: str) -> FakeProject:
        settings = SETTINGS.format(python=self.python, agent=sys.executable, folder=self.folder, policy=policy)
        (self.project.root / "invoke.yaml").write_text(settings)
        return self.project


@pytest.fixture
def needing(tmp_path: Path) -> Needing:
    return Needing(tmp_path)


@pytest.mark.ci
def test_a_box_that_may_not_build_tells_what_it_lacks_before_anything_is_launched(needing: Needing) -> None:
    project = needing.allow("refuse")
    plan = project.run("bisect", "--bad", needing.bad, "--plan")
    assert "not testable on local: points 3-7: needs tiny-dep==2.0, the box has 1.0" in plan.stdout
    done = project.run("bisect", "--bad", needing.bad)
    assert done.returncode == 2
    assert "needs tiny-dep==2.0, the box has 1.0" in done.stderr
    assert "other-wheels: build" in done.stderr
    alone = project.run("trial", needing.bad)
    assert alone.returncode == 125
    middle = project.json("bisect", "--bad", f"upstream:{needing.commits[2]}", "--plan")
    assert middle["environments"] == {"build": 0, "there": 0, "minutes": 0.0, "untestable": []}


@pytest.mark.ci
def test_a_culprit_behind_other_wheels_is_found_in_one_environment(needing: Needing) -> None:
    project = needing.allow("build")
    plan = project.json("bisect", "--bad", needing.bad, "--plan")
    assert (plan["environments"]["build"], plan["environments"]["there"]) == (1, 0)
    answer = project.json("bisect", "--bad", needing.bad)
    assert answer["culprit"]["id"] == needing.commits[GUILTY][:12]
    placed = [trial for trial in answer["trials"] if trial["position"] is not None]
    runs = [project.json("show", "--run", trial["run"]) for trial in placed]
    seen = {
        trial["position"]: run["provenance"]["packages"]["tiny-dep"] for trial, run in zip(placed, runs, strict=True)
    }
    assert all(version == ("2.0" if k >= MOVES else "1.0") for k, version in seen.items())
    assert project.json("bisect", "--bad", needing.bad, "--plan")["environments"]["there"] == 1
    assert "tiny-dep 2.0" in project.run("box").stdout
    assert "1 of 1 environments dropped" in project.run("box.gc").stdout


@pytest.mark.ci
def test_a_package_is_an_axis_and_goes_before_what_the_base_asks_for(needing: Needing) -> None:
    project = needing.allow("build")
    answer = project.json("bisect", "--bad", "clean", "--bad-set", "package:Tiny.Dep=2.0", "--bad-is", "any")
    assert (answer["culprit"]["kind"], answer["culprit"]["id"]) == ("packages", "tiny-dep")
    held = project.run("launch", "--point", needing.bad, "--set", "package:tiny-dep=1.0", "--json")
    assert json.loads(held.stdout)["cause"] == "assertion"


@pytest.mark.ci
def test_what_pip_cannot_have_makes_an_end_untestable_and_says_so(needing: Needing) -> None:
    project = needing.allow("build")
    (needing.folder / "wheels" / "tiny_dep-2.0-py3-none-any.whl").unlink()
    answer = project.json("bisect", "--bad", needing.bad)
    assert answer["answer"] == "endpoint-failed"
    assert "needs tiny-dep==2.0, the box has 1.0, and cannot get it" in answer["reason"]
