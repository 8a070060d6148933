from dataclasses import replace
from pathlib import Path

import pytest

from patchbisect.errors import UsageError
from patchbisect.report.plotting import plot
from patchbisect.report.reading import read
from patchbisect.report.sources import Source
from tests.report.builder import case

SAMPLES = tuple({"t": 1000.0 + t, "gpus": [[0, 2.0 * t, 50], [1, 1.5 * t, 50]]} for t in range(40))


def start(name: str, *, sampled: bool = False) -> Source:
    log = case(name)
    return Source(name=name, log=log, record=None, reading=read(log), samples=SAMPLES if sampled else ())


def test_runs_are_laid_over_each_other_with_units_and_stages(tmp_path: Path) -> None:
    path = tmp_path / "p.svg"
    plot([start("logs/r01_swa_two_pools"), start("cpu/02-mem-too-low")], path)
    svg = path.read_text()
    for words in (
        "GiB",
        "seconds after the launch",
        "weight-load",
        "r01_swa_two_pools  TP3",
        "02-mem-too-low",
        "72.11",
    ):
        assert words in svg
    assert "as the log tells it" in svg


def test_samples_are_drawn_where_every_run_has_them(tmp_path: Path) -> None:
    path = tmp_path / "p.svg"
    plot([start("logs/r01_swa_two_pools", sampled=True)], path)
    assert "GPU memory in use, GiB" in path.read_text()
    plot([start("logs/r01_swa_two_pools", sampled=True), start("cpu/11-tp2")], path)
    assert "free memory, GiB" in path.read_text()


def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    a, b = tmp_path / "a.svg", tmp_path / "b.svg"
    for path in (a, b):
        plot([start("cpu/11-tp2")], path)
    assert a.read_bytes() == b.read_bytes()


def test_the_fullest_gpu_is_drawn_where_they_are_not_told_apart(tmp_path: Path) -> None:
    run = replace(start("cpu/11-tp2"), samples=tuple({"t": float(t), "gpu_used_gb": 2.0 * t} for t in range(9)))
    plot([run], tmp_path / "p.svg")
    assert "fullest GPU" in (tmp_path / "p.svg").read_text()


@pytest.mark.filterwarnings("error")
def test_a_png_is_a_png_without_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "p.png"
    plot([start("cpu/04-unbound")], path)
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("name", "case_name"), [("p.gif", "cpu/11-tp2"), ("p.png", "cpu/08-unknown-flag")])
def test_what_cannot_be_drawn_is_one_clear_line(tmp_path: Path, name: str, case_name: str) -> None:
    with pytest.raises(UsageError):
        plot([start(case_name)], tmp_path / name)
    assert not (tmp_path / name).exists()
