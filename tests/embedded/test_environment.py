from __future__ import annotations

import sys
from pathlib import Path

import pytest

from patchbisect.embedded import find
from patchbisect.embedded.environment import STANDINS, Layout, complete_key, layout, memory_gb_per_node
from patchbisect.embedded.models import write_models


@pytest.fixture
def finished(tmp_path: Path) -> Layout:
    place = layout(tmp_path)
    place.python.parent.mkdir(parents=True)
    place.python.write_text("")
    write_models(place.models)
    place.write_stamp("check", key=complete_key("pins"), facts={"torch": "2.13.0+cpu"})
    return place


def test_what_a_launch_needs(tmp_path: Path, finished: Layout) -> None:
    found = find(tmp_path, pins="pins")
    assert found is not None
    assert found.pythonpath == (STANDINS,)
    assert found.env["SGLANG_USE_CPU_ENGINE"] == "1"
    assert set(found.variables) == {"tiny-model", "big-model", "fraction-enough", "fraction-too-low"}
    assert all(isinstance(value, str) for value in found.variables.values())
    assert float(found.variables["fraction-too-low"]) < float(found.variables["fraction-enough"])


@pytest.mark.parametrize("gone", ["venv/bin/python", "models/tiny/config.json", "stamps/check.json"])
def test_what_is_missing_makes_it_unfound(tmp_path: Path, finished: Layout, gone: str) -> None:
    (finished.root / gone).unlink()
    assert find(tmp_path, pins="pins") is None


def test_other_pins_make_it_out_of_date(tmp_path: Path, finished: Layout) -> None:
    assert find(tmp_path, pins="other") is None


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"key": 1}'])
def test_a_stamp_that_is_no_stamp(tmp_path: Path, finished: Layout, text: str) -> None:
    finished.stamp("check").write_text(text)
    assert find(tmp_path, pins="pins") is None
    finished.stamp("venv").write_text(text)
    assert finished.interpreter() is None


def test_the_interpreter_stays_the_link_that_makes_it_an_environment(tmp_path: Path, finished: Layout) -> None:
    finished.python.unlink()
    finished.python.symlink_to(sys.executable)
    found = find(tmp_path, pins="pins")
    assert found is not None
    assert found.python == tmp_path / "cpu" / "venv" / "bin" / "python"


def test_a_relative_state_directory(tmp_path: Path, finished: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = find(Path(), pins="pins")
    assert found is not None
    assert found.python.is_absolute()


def test_memory_is_the_kernels_total() -> None:
    total_kb = int(Path("/proc/meminfo").read_text().split()[1])
    nodes = len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))) or 1
    assert memory_gb_per_node() == pytest.approx(total_kb / 2**20 / nodes, rel=0.01)
