"""What a base asks for, as its pyproject or its wheel words it."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from patchbisect.model import Base
from patchbisect.upstream import Mirror
from patchbisect.upstream.needs import PROJECT_FILE, Need, Needs, needs_of_project, needs_of_wheel
from tests.tiny_upstream import Upstream, commit, package_files, wheel
from tests.tiny_wheels import tiny_wheel

OLD = """
[project]
name = "sglang"
dependencies = ["requests", "torch ==2.8.0 ; sys_platform == 'linux'"]
[project.optional-dependencies]
common = ["uvloop"]
srt = ["sglang[common]", "sgl-kernel==0.3.5"]
openai = ["openai>=1"]
all = ["sglang[srt]", "sglang[openai]"]
"""


def texts(needs: tuple[Need, ...]) -> list[str]:
    return [need.text for need in needs]


def test_the_servers_extra_counts_with_what_it_names_and_no_other_one_does() -> None:
    assert texts(needs_of_project(OLD.encode())) == [
        "requests",
        "sgl-kernel==0.3.5",
        'torch==2.8.0; sys_platform == "linux"',
        "uvloop",
    ]


@pytest.mark.parametrize("text", [b"[project", b"\xff", b"[tool.x]\n", b'[project]\ndependencies = ["=="]\n'])
def test_a_file_that_says_nothing_asks_for_nothing(text: bytes) -> None:
    assert needs_of_project(text) == ()


def test_a_wheel_asks_for_its_plain_requirements_and_for_those_of_the_server(tmp_path: Path) -> None:
    requires = ["b==1; python_version >= '3.0'", "c==2; extra == 'srt'", "d; extra == 'dev'", "a"]
    path = tiny_wheel(tmp_path, "sglang", "0.5.2", requires=requires)
    assert texts(needs_of_wheel(path)) == ["a", 'b==1; python_version >= "3.0"', "c==2"]
    with zipfile.ZipFile(tmp_path / "bare.whl", "w"):
        pass
    assert needs_of_wheel(tmp_path / "bare.whl") == ()


def test_what_moved_is_what_is_worded_otherwise_or_new() -> None:
    def of(*lines: str) -> tuple[Need, ...]:
        return tuple(map(Need.of, lines))

    needs = Needs(pin=of("a==1", "b", "sgl-kernel==0.3.21"), base=of("a == 2", "b", "sglang_kernel==0.4.1", "c"))
    assert [(need.package, need.text) for need in needs.moved] == [
        ("a", "a==2"),
        ("sgl-kernel", "sglang_kernel==0.4.1"),
        ("c", "c"),
    ]


def test_a_commit_asks_by_its_own_file_and_a_patch_may_change_it(tmp_path: Path) -> None:
    upstream = Upstream(tmp_path / "up")
    path = upstream.own()

    def saying(version: str) -> str:
        return commit(path, {PROJECT_FILE: f'[project]\nname = "sglang"\ndependencies = ["a=={version}"]\n'})

    one, two = saying("1"), saying("2")
    pin = upstream.pin(commit=one, tag="")
    mirror = Mirror(tmp_path / "state", source="git", clone=str(path))
    first, second = Base(pin), Base(pin, rev=two)
    assert mirror.needs(first, mirror.materialize(first, ()), pin=pin).moved == ()
    assert texts(mirror.needs(second, mirror.materialize(second, ()), pin=pin).moved) == ["a==2"]
    there = mirror.difference(first, second)
    assert texts(mirror.needs(first, mirror.materialize(first, [there]), pin=pin).moved) == ["a==2"]


def test_a_release_asks_by_its_wheel_and_where_the_pin_says_nothing_nothing_moves(tmp_path: Path) -> None:
    kept = tmp_path / "state" / "wheels"
    _, sha256 = wheel(kept / "0.5.9", "0.5.9", package_files())
    newer, _ = wheel(kept / "0.5.10", "0.5.10", package_files())
    with zipfile.ZipFile(newer, "a") as archive:
        archive.writestr("more-1.dist-info/METADATA", "Name: more\n")
    pin = Upstream(tmp_path / "up").pin(release="0.5.9", wheel_sha256=sha256)
    mirror = Mirror(tmp_path / "state", source="release")
    later = Base(pin, rev="release:0.5.10")
    assert mirror.needs(later, mirror.materialize(later, ()), pin=pin) == Needs()
