import pytest

from patchbisect.upstream.ranges import by_version, version_of


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("v0.5.9", "0.5.9"),
        ("0.5.9", "0.5.9"),
        ("release:0.5.5.post3", "0.5.5.post3"),
        ("v0.5.10rc0", "0.5.10rc0"),
        ("main", ""),
        ("v1", ""),
        ("bbe9c7eeb520b0a67e92d133dfc137a3688dc7f2", ""),
    ],
)
def test_versions_of_names(name, version):
    assert version_of(name) == version


@pytest.mark.parametrize(
    ("version", "commits", "answer"),
    [
        ("0.5.9", "v0.5.8..v0.5.9", True),
        ("0.5.8", "v0.5.8..v0.5.9", False),
        ("0.5.10", "v0.5.8..v0.5.9", False),
        ("0.5.10", "v0.5.9..", True),
        ("0.5.9", "..v0.5.10", True),
        ("0.5.8.post1", "v0.5.8..v0.5.9", True),
        ("0.5.9", "abc1234..v0.5.9", None),
        ("", "v0.5.8..v0.5.9", None),
    ],
)
def test_ranges_by_version(version, commits, answer):
    assert by_version(version, commits) is answer
