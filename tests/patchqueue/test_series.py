import pytest

from patchbisect.errors import UsageError
from patchbisect.patchqueue import Queue, Severity, survey
from tests.patchqueue.test_patchfile import PATCH

PLAIN = PATCH.replace("Requires: kv-probe, memory\n", "")


def files(*names, **trailers):
    """Patch files by name; ``slug="Enabled: no"`` adds a trailer to that patch."""
    return {
        name: PLAIN.replace(
            "Kind: fix\n", f"Kind: fix\n{trailers.get(name[5:-6], '')}\n".replace("\n\n", "\n")
        ).encode()
        for name in names
    }


def faults(given):
    return [str(fault) for fault in survey(given, where="patches")[1]]


def test_number_order_and_other_files_left_alone():
    queue = Queue.read({**files("0002-b.patch", "0001-a.patch", "0010-c.patch"), "pin.toml": b"", "README.md": b"x"})
    assert [patch.name for patch in queue.patches] == ["0001-a", "0002-b", "0010-c"]


def test_disabled_patches_keep_their_number_and_are_not_applied():
    queue = Queue.read(files("0001-a.patch", "0002-b.patch", "0003-c.patch", b="Enabled: no"))
    assert [patch.name for patch in queue.enabled] == ["0001-a", "0003-c"]
    assert [patch.name for patch in queue.up_to(2)] == ["0001-a"]
    assert queue.warnings == ()


def test_a_gap_is_a_warning_that_names_what_is_missing():
    queue = Queue.read(files("0001-a.patch", "0004-d.patch"))
    [warning] = queue.warnings
    assert warning.severity is Severity.WARNING
    assert "no 0002, 0003" in warning.message


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("0001-a.patch", "0001-b.patch"), "patches/0001-b.patch: has the number 0001 of 0001-a.patch too"),
        (("0001-a.patch", "0002-a.patch"), "patches/0002-a.patch: has the slug a of 0001-a.patch too"),
    ],
)
def test_duplicates(names, said):
    assert faults(files(*names)) == [said]
    with pytest.raises(UsageError, match="too") as caught:
        Queue.read(files(*names))
    assert caught.value.exit_code == 2


def test_a_duplicate_number_is_seen_even_where_one_of_the_two_cannot_be_read():
    given = {**files("0001-a.patch"), "0001-b.patch": b""}
    assert len(faults(given)) == 2


@pytest.mark.parametrize(
    ("trailers", "said"),
    [
        (
            {"b": "Requires: aa"},
            "patches/0002-b.patch:10: requires aa, which the queue does not have (did you mean a?)",
        ),
        ({"a": "Requires: b"}, "patches/0001-a.patch:10: requires 0002-b, which comes after it"),
        ({"b": "Requires: a", "a": "Enabled: no"}, "patches/0002-b.patch:10: requires 0001-a, which is disabled"),
    ],
)
def test_requirements_that_cannot_be_kept(trailers, said):
    assert faults(files("0001-a.patch", "0002-b.patch", **trailers)) == [said]


def test_requirements_kept():
    assert faults(files("0001-a.patch", "0002-b.patch", b="Requires: a")) == []


def test_all_faults_are_told_one_line_each():
    given = {**files("0001-a.patch"), "0002-b.patch": b"", "x.patch": b"y"}
    with pytest.raises(UsageError) as caught:
        Queue.read(given)
    assert len(caught.value.message.splitlines()) == 2


def test_an_unknown_number():
    with pytest.raises(UsageError, match=r"no patch 0002; it has 0001-a to 0001-a"):
        Queue.read(files("0001-a.patch")).up_to(2)
    with pytest.raises(UsageError, match="it has none"):
        Queue.read({}).patch(1)
