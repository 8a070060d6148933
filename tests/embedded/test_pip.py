from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from patchbisect.embedded.environment import CONSTRAINTS
from patchbisect.embedded.pip import Transfer, _Reader, forget_unfinished, gpu_parts, is_complete, only_from, pinned
from patchbisect.errors import UsageError
from tests.embedded.fakes import cpu_report


@pytest.mark.parametrize(
    ("version", "requires", "parts"),
    [
        ("2.13.0+cpu", ["sympy"], ()),
        ("2.13.0", ["sympy", "filelock"], ()),
        ("2.13.0+cu130", [], ("+cu130",)),
        ("2.13.0+rocm7.0", [], ("+rocm7.0",)),
        ("2.13.0", ['nvidia-cudnn-cu13==9.20.0.48; platform_system == "Linux"'], ("nvidia-cudnn-cu13",)),
        ("2.13.0", ['cuda-bindings<14; platform_system == "Linux"', "triton==3.7"], ("cuda-bindings", "triton")),
        ("2.13.0", ['nvidia-cudnn-cu13==9; platform_machine == "aarch64"'], ()),
        ("2.13.0", ['nvidia-cudnn-cu13==9; extra == "cuda"'], ()),
    ],
)
def test_what_belongs_to_a_gpu_build(version: str, requires: list[str], parts: tuple[str, ...]) -> None:
    report: dict[str, Any] = cpu_report(version=version, requires=requires)
    assert gpu_parts(report) == parts


def test_downloads_have_sizes() -> None:
    seen: list[Transfer] = []
    reader = _Reader(seen.append)
    for line in (
        "Collecting torch==2.13.0",
        "  Downloading https://host/x/torch-2.13.0.whl.metadata (30 kB)",
        "Downloading https://user:****@host/x/torch-2.13.0-cp311-none-any.whl (191.8 MB)",
        "Progress 1000 of 191794682",
        "Using cached numpy-2.4.6-cp311-none-any.whl (16.9 MB)",
        "Installing collected packages: numpy, torch",
    ):
        reader.line(line)
    assert seen == [
        Transfer("torch-2.13.0-cp311-none-any.whl"),
        Transfer("torch-2.13.0-cp311-none-any.whl", 1000, 191794682),
        Transfer("numpy-2.4.6-cp311-none-any.whl"),
        Transfer("unpacking 2 packages"),
    ]


def test_a_folder_of_wheels_is_the_only_place(tmp_path: Path) -> None:
    folder = tmp_path / "with space"
    folder.mkdir()
    assert only_from(str(folder))["PIP_INDEX_URL"] == folder.as_uri()
    (folder / "torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl").write_text("")
    assert only_from(str(folder)) == {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": folder.as_uri()}


def test_a_folder_that_is_not_there_is_not_ignored() -> None:
    with pytest.raises(UsageError, match="torch-index: /nowhere/wheels is neither a URL nor a folder"):
        only_from("/nowhere/wheels")


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    site = tmp_path / "lib" / "python3.11" / "site-packages"
    info = site / "alpha-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "alpha.py").write_text("x = 1\n")
    (site / "data").write_text("")
    (info / "INSTALLER").write_text("pip\n")
    (info / "RECORD").write_text(
        '"alpha.py",sha256=x,6\ndata,sha256=x,0\n../../../bin/alpha,sha256=x,3\n__pycache__/alpha.pyc,,\n'
        "alpha-1.0.dist-info/RECORD,,\n"
    )
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "alpha").write_text("#!\n")
    return tmp_path


def test_a_whole_package_is_left_alone(venv: Path) -> None:
    assert forget_unfinished(venv) == []


def test_what_a_killed_pip_had_moved_aside_goes_away(venv: Path) -> None:
    site = venv / "lib" / "python3.11" / "site-packages"
    (site / "~lpha-0.9.dist-info").mkdir()
    (site / "~lpha.py").write_text("")
    assert not is_complete(venv, "alpha==1.0")
    assert forget_unfinished(venv) == []
    assert is_complete(venv, "alpha==1.0")


@pytest.mark.parametrize(
    "damage",
    [
        lambda venv, site: (site / "alpha.py").unlink(),
        lambda venv, site: (site / "alpha.py").write_text(""),
        lambda venv, site: (venv / "bin" / "alpha").unlink(),
        lambda venv, site: (site / "alpha-1.0.dist-info" / "RECORD").unlink(),
        lambda venv, site: (site / "alpha-1.0.dist-info" / "INSTALLER").unlink(),
        lambda venv, site: (site / "alpha-1.0.dist-info" / "RECORD").write_text('"alpha.py'),
        lambda venv, site: (site / "alpha-1.0.dist-info" / "RECORD").write_bytes(b"\0" * 64),
        lambda venv, site: (site / "alpha-1.0.dist-info" / "RECORD").write_text(""),
    ],
)
def test_a_damaged_package_is_forgotten(venv: Path, damage: Any) -> None:
    site = venv / "lib" / "python3.11" / "site-packages"
    damage(venv, site)
    assert forget_unfinished(venv) == ["alpha-1.0"]
    assert not (site / "alpha-1.0.dist-info").exists()


def test_the_constraints_are_names_and_versions_only() -> None:
    text = CONSTRAINTS.read_text()
    pins = pinned(text)
    assert pins["torch"] == "2.13.0"
    assert "pip" in pins
    assert not {"sglang", "triton", "torchvision"} & set(pins), "code comes from the point, the others are stand-ins"
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert [f"{name}=={version}" for name, version in pins.items()] == lines
