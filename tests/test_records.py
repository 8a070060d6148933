from pathlib import Path

import pytest

from patchbisect.errors import UsageError
from patchbisect.records import Attachments, PatchEntry, PointEntry, Record, Store, newest_with_content


def record(identifier: str, *, content: str = "c", outcome: str = "ready", tags: tuple[str, ...] = ()) -> Record:
    point = PointEntry(
        name="HEAD",
        profile="tiny",
        until="serving",
        upstream="https://example.org/sglang.git",
        pin="b" * 40,
        patches=(PatchEntry(name="0001-probe", subject="probe", sha256="0" * 64),),
    )
    return Record(
        id=identifier,
        created="2026-11-29T18:00:00+00:00",
        box="local",
        point=point,
        content_id=content,
        verdict={"outcome": outcome},
        tags=tags,
    )


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "runs")


def test_a_record_comes_back_as_it_was_saved(store: Store) -> None:
    saved = record("20261129-180000-aaaa")
    store.save(saved, Attachments(log=b"line\xff\n", patches={"0001-probe": b"patch text"}))
    assert store.load(saved.id) == saved
    assert store.log(saved.id) == b"line\xff\n"
    assert store.patch_texts(saved.id) == {"0001-probe.patch": b"patch text"}


def test_a_run_is_named_by_beginning_tag_or_last(store: Store) -> None:
    store.save(record("20261129-180000-aaaa", tags=("baseline",)), Attachments())
    store.save(record("20261130-180000-bbbb"), Attachments())
    assert store.load("20261129").id == "20261129-180000-aaaa"
    assert store.load("baseline").id == "20261129-180000-aaaa"
    assert store.load("last").id == "20261130-180000-bbbb"


@pytest.mark.parametrize(("name", "says"), [("2026", "begins 2 runs"), ("nope", "no run 'nope'"), ("", "no run ''")])
def test_an_unknown_or_ambiguous_run_is_an_error(store: Store, name: str, says: str) -> None:
    for identifier in ("20261129-180000-aaaa", "20261130-180000-bbbb"):
        store.save(record(identifier), Attachments())
    with pytest.raises(UsageError, match=says):
        store.load(name)


def test_a_half_written_record_is_not_seen(store: Store) -> None:
    store.save(record("20261129-180000-aaaa"), Attachments())
    (store.directory / ".20261130-180000-bbbb.draft").mkdir()
    assert store.ids() == ["20261129-180000-aaaa"]


def test_a_void_never_stands_in_for_a_launch(store: Store) -> None:
    records = [record("1", outcome="ready"), record("2", outcome="void"), record("3", content="other")]
    found = newest_with_content(records, content_id="c", box="local")
    assert found is not None
    assert found.id == "1"
    assert newest_with_content(records, content_id="c", box="elsewhere") is None
