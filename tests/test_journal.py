import errno
import json
import os
from pathlib import Path

import pytest

from patchbisect.errors import UsageError
from patchbisect.journal import Journal, named, newest


def test_what_was_appended_is_read_back_in_order(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path, "one")
    journal.append("begin", good="clean")
    journal.append("trial", record="r1")
    assert [(entry.event, entry.data) for entry in journal.entries()] == [
        ("begin", {"good": "clean"}),
        ("trial", {"record": "r1"}),
    ]


@pytest.mark.parametrize("torn", [b'{"event": "tri', b'{"event": "trial", "at": "x", "rec'])
def test_a_torn_last_line_is_passed_over_and_does_not_swallow_the_next(tmp_path: Path, torn: bytes) -> None:
    journal = Journal.create(tmp_path, "one")
    journal.append("begin")
    with journal.path.open("ab") as file:
        file.write(torn)
    assert [entry.event for entry in journal.entries()] == ["begin"]
    journal.append("trial", record="r2")
    assert [entry.event for entry in journal.entries()] == ["begin", "trial"]


def test_a_disk_that_takes_an_entry_in_parts_has_all_of_it_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal.create(tmp_path, "one")
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:7]))
    journal.append("trial", record="r1")
    assert [entry.data for entry in journal.entries()] == [{"record": "r1"}]


def test_a_full_disk_is_told_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal.create(tmp_path, "one")
    journal.append("begin")

    def full(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(UsageError, match="No space left on device") as told:
        journal.append("trial", record="r1")
    assert told.value.remedy.endswith("invoke bisect --resume --of one")


def test_damage_is_named_with_its_line(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path, "one")
    journal.append("begin")
    journal.path.write_bytes(journal.path.read_bytes() + b"garbage\n")
    with pytest.raises(UsageError, match=":2: not a journal entry"):
        list(journal.entries())


def test_each_entry_is_one_line_of_json(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path, "one")
    journal.append("trial", why="two\nlines")
    (line,) = journal.path.read_text().splitlines()
    assert json.loads(line)["why"] == "two\nlines"


def test_the_newest_journal_is_the_one_begun_last(tmp_path: Path) -> None:
    assert newest(tmp_path) is None
    for name in ("20261129-1", "20261129-3", "20261129-2"):
        Journal.create(tmp_path, name).append("begin")
    found = newest(tmp_path)
    assert found is not None
    assert found.identifier == "20261129-3"


def test_a_whole_id_goes_before_longer_ones_that_it_begins(tmp_path: Path) -> None:
    for name in ("20261129-1", "20261129-12", "20261130-1"):
        Journal.create(tmp_path, name).append("begin")
    for said, meant in [("20261129-1", "20261129-1"), ("20261130", "20261130-1"), ("", None), ("1", None)]:
        found = named(tmp_path, said)
        assert (found and found.identifier) == meant
    with pytest.raises(UsageError, match="'20261129' begins 2 bisections") as refusal:
        named(tmp_path, "20261129")
    assert refusal.value.remedy == "say more of it: 20261129-1, 20261129-12"
