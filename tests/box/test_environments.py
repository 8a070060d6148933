"""Environments of ours on a box: built over the server's, never half there, never more than they may take."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from patchbisect.box import Box, EnvironmentOrder
from patchbisect.box.agent.base import Refused
from patchbisect.box.agent.environments import STAMP, Environments, failure, plain_name, reached, whole
from patchbisect.box.failures import CannotEquip
from tests.box.lab import launch, leased, settings_for
from tests.tiny_wheels import interpreter_with, tiny_wheel

# -- what needs no pip ------------------------------------------------------------------------------------------------


def kept(folder: Path, key: str, *, size_gb: float, used: float) -> Path:
    """An environment that is there, as far as keeping and dropping goes."""
    home = folder / "environments" / key
    home.mkdir(parents=True)
    (home / STAMP).write_text(json.dumps({"size_gb": size_gb, "python": f"{home}/bin/python"}))
    os.utime(home / STAMP, (used, used))
    return home


A, B, C = "a" * 16, "b" * 16, "c" * 16


@pytest.fixture
def three(tmp_path: Path) -> dict[str, Path]:
    """The first was used last; 10 GiB each."""
    return {key: kept(tmp_path, key, size_gb=10.0, used=1000.0 - k) for k, key in enumerate((A, B, C))}


def test_the_ones_not_used_for_longest_go_first_and_only_as_many_as_must(
    tmp_path: Path, three: Mapping[str, Path]
) -> None:
    environments = Environments(str(tmp_path), limit_gb=20.0)
    assert environments.collect() == [C]
    assert [one["key"] for one in environments.all()] == [A, B]
    assert environments.collect() == []


def test_the_one_just_made_stays_whatever_it_takes(tmp_path: Path, three: Mapping[str, Path]) -> None:
    assert Environments(str(tmp_path), limit_gb=5.0).collect(keep=C) == [A, B]
    assert three[C].exists()


def test_one_in_which_a_launch_runs_stays(tmp_path: Path, three: Mapping[str, Path]) -> None:
    run = tmp_path / "runs" / "launch-1"
    run.mkdir(parents=True)
    (run / "state.json").write_text(json.dumps({"python": f"{three[B]}/bin/python"}))
    environments = Environments(str(tmp_path), limit_gb=0.0)
    assert environments.collect() == [A, C]
    (run / "ended.json").write_text("{}")
    assert environments.collect() == [B]


def test_one_that_somebody_builds_stays_and_what_a_killed_build_left_goes(tmp_path: Path) -> None:
    unfinished = tmp_path / "environments" / A / "bin"
    unfinished.mkdir(parents=True)
    (tmp_path / "environments" / f"{B}.wheels").mkdir()
    lock = tmp_path / "environments" / f"{A}.lock"
    with lock.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        Environments(str(tmp_path), limit_gb=9.0).collect()
        assert unfinished.exists()
        assert not (tmp_path / "environments" / f"{B}.wheels").exists()
    Environments(str(tmp_path), limit_gb=9.0).collect()
    assert not unfinished.exists()


def test_a_key_is_no_path(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="not the key"):
        Environments(str(tmp_path), limit_gb=1.0).ensure({"key": "../../home/me/venv"}, lambda about: None)


def test_what_is_taken_comes_of_what_is_sought_or_is_there_already() -> None:
    found: dict[str, Any] = {
        "transformers": {"requires_dist": ["huggingface-hub<2,>=1.3", "Typer_Slim; extra == 'cli'"]},
        "huggingface-hub": {"requires_dist": []},
        "typer-slim": {},
        "triton": {"requires_dist": ["setuptools"]},
    }
    assert reached(found, {"transformers"}) == {"transformers", "huggingface-hub", "typer-slim"}
    assert reached(found, {"huggingface-hub"}) == {"huggingface-hub"}


@pytest.mark.parametrize(
    ("output", "kind", "said"),
    [
        ("ERROR: No matching distribution found for sgl-kernel==0.4.1 (from x)", "no-wheels", "sgl-kernel==0.4.1"),
        ("WARNING: Retrying after connection broken by 'NewConnectionError'", "no-wheels", "reaches no package index"),
        ("ERROR: Cannot install a==1 and b==2 because these have conflicting dependencies.", "no-wheels", "together"),
        ("ERROR: Could not install: [Errno 28] No space left on device", "disk-full", "full"),
        ("boom", "no-wheels", "boom"),
    ],
)
def test_pip_in_words_that_a_user_can_act_on(output: str, kind: str, said: str) -> None:
    refused = failure("pip install", f"Collecting x\n{output}\n")
    assert refused.kind == kind
    assert said in refused.message
    assert refused.remedy


def test_byte_code_does_not_tell_whether_a_distribution_is_whole(tmp_path: Path) -> None:
    info = tmp_path / "a-1.dist-info"
    info.mkdir()
    (tmp_path / "a.py").write_text("x = 1\n")
    (info / "RECORD").write_text("a.py,,6\n__pycache__/a.cpython-311.pyc,,99\na-1.dist-info/RECORD,,\n")
    assert whole(str(info))
    (tmp_path / "a.py").write_text("")
    assert not whole(str(info))
    (info / "RECORD").write_text("")
    assert not whole(str(info))


# -- with pip ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    tiny_wheel(folder, "tiny-dep", "1.0")
    tiny_wheel(folder, "tiny-dep", "2.0", requires=["tiny-other>=3", "packaging"])
    tiny_wheel(folder, "tiny-other", "3.1")
    return folder


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory, wheels: Path) -> Path:
    """The server's own interpreter: it has tiny-dep 1.0."""
    return interpreter_with(tmp_path_factory.mktemp("base") / "venv", wheels / "tiny_dep-1.0-py3-none-any.whl")


@pytest.fixture
def box(tmp_path: Path, base: Path, wheels: Path) -> Iterator[Box]:
    pip_args = ("--no-index", "--find-links", str(wheels))
    settings = settings_for(tmp_path, python=str(base), agent_python=sys.executable, pip_args=pip_args)
    with leased(settings, tmp_path) as opened:
        yield opened


def ordered(box: Box, *wanted: str, key: str = A) -> EnvironmentOrder:
    sought = tuple(plain_name(one.partition("=")[0]) for one in wanted)
    return EnvironmentOrder(key=key, python=box.installed().executable, sought=sought, wanted=wanted)


def versions(python: str) -> str:
    """What is imported there, and what its metadata says."""
    code = "import importlib.metadata as m, tiny_dep, packaging; print(tiny_dep.VERSION, m.version('tiny-dep'))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file() and "__pycache__" not in p.parts}


@pytest.mark.ci
def test_what_differs_is_in_front_of_what_is_there_and_that_is_not_touched(box: Box, base: Path) -> None:
    before = contents(base.parents[1])
    told: list[Mapping[str, Any]] = []
    made = box.environment(ordered(box, "tiny-dep==2.0"), progress=told.append)
    assert made.built
    assert made.added == {"tiny-dep": "2.0", "tiny-other": "3.1"}
    assert versions(made.python) == "2.0 2.0"
    assert versions(str(base)) == "1.0 1.0"
    assert contents(base.parents[1]) == before
    assert any(about.get("detail") == "tiny-dep 2.0" for about in told)
    run = launch(box, "--end", "exit:0", environment=made)
    assert run.provenance()["packages"]["tiny-dep"] == "2.0"
    assert run.provenance()["executable"] == made.python
    run.stop()
    assert not box.environment(ordered(box, "tiny-dep==2.0"), progress=told.append).built
    assert [one.key for one in box.environments()] == [A]
    assert box.drop_environments() == (A,)


@pytest.mark.ci
def test_one_that_was_damaged_is_made_again(box: Box) -> None:
    made = box.environment(ordered(box, "tiny-dep==2.0"), progress=lambda about: None)
    module = next(Path(made.python).parents[1].glob("lib/*/site-packages/tiny_other/__init__.py"))
    module.write_text("")
    again = box.environment(ordered(box, "tiny-dep==2.0"), progress=lambda about: None)
    assert again.built
    assert module.read_text() == "VERSION = '3.1'\n"


@pytest.mark.ci
def test_a_build_whose_client_goes_away_is_finished_by_the_next_one(box: Box, tmp_path: Path) -> None:
    class Away(Exception):
        pass

    def leave(about: Mapping[str, Any]) -> None:
        if about.get("done") == 2:
            raise Away

    with pytest.raises(Away):
        box.environment(ordered(box, "tiny-dep==2.0"), progress=leave)
    told: list[str] = []
    made = box.environment(ordered(box, "tiny-dep==2.0"), progress=lambda about: told.append(about.get("detail", "")))
    assert versions(made.python) == "2.0 2.0"
    assert not list((tmp_path / "box" / "environments").glob("*.wheels"))


@pytest.mark.ci
def test_what_cannot_be_had_is_refused_by_name_and_leaves_no_environment(box: Box) -> None:
    with pytest.raises(CannotEquip, match="no wheel of tiny-dep==9"):
        box.environment(ordered(box, "tiny-dep==9"), progress=lambda about: None)
    assert box.environments() == ()


@pytest.mark.ci
def test_what_the_box_holds_or_lives_without_is_not_changed(box: Box) -> None:
    held = replace(ordered(box, "tiny-dep==2.0"), held=("tiny-other==3.0",))
    with pytest.raises(CannotEquip, match="cannot be had together|no wheel"):
        box.environment(held, progress=lambda about: None)
    without = replace(ordered(box, "tiny-dep==2.0", key=B), without=("tiny-other",))
    assert box.environment(without, progress=lambda about: None).added == {"tiny-dep": "2.0"}
