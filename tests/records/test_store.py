import errno
import gzip
import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from patchbisect.errors import UsageError
from patchbisect.records import (
    ID,
    Attachments,
    PatchEntry,
    PointEntry,
    Record,
    Store,
    new_id,
    wanted,
)

OLD = Path(__file__).parent / "old_records"


def record(
    identifier: str,
    *,
    content: str = "c",
    outcome: str = "ready",
    tags: tuple[str, ...] = (),
    created: str = "2026-11-29T18:00:00+00:00",
    origin: str = "trial",
) -> Record:
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
        created=created,
        box="local",
        point=point,
        content_id=content,
        verdict={"outcome": outcome},
        tags=tags,
        origin=origin,
    )


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "runs")


A, B = "20261129-180000-aaaa", "20261130-180000-bbbb"


def test_a_record_comes_back_as_it_was_saved(store: Store) -> None:
    saved = record(A)
    attachments = Attachments(
        log=b"line\xff\n",
        patches={"0001-probe": b"patch text"},
        events=[{"t": 1.5, "line": 3}],
        samples=[{"t": 1, "gpus": [[0, 2.5, 90]]}],
    )
    store.save(saved, attachments)
    assert store.load(saved.id) == saved
    assert store.log(saved.id) == b"line\xff\n"
    assert store.patch_texts(saved.id) == {"0001-probe.patch": b"patch text"}
    assert store.events(saved.id) == [{"t": 1.5, "line": 3}]
    assert store.samples(saved.id) == [{"t": 1, "gpus": [[0, 2.5, 90]]}]


def test_an_id_sorts_by_time_and_cannot_be_read_as_a_point_without_a_patch() -> None:
    named = [new_id() for _ in range(400)]
    for identifier in named:
        assert ID.fullmatch(identifier)
        assert not any(character.isdigit() for character in identifier.rpartition("-")[2])
    assert named == sorted(set(named))


def test_what_was_not_taken_is_empty(store: Store) -> None:
    store.save(record(A), Attachments())
    assert (store.log(A), store.events(A), store.samples(A)) == (b"", [], [])


def test_a_damaged_log_is_a_clear_error(store: Store) -> None:
    store.save(record(A), Attachments(log=b"x" * 1000))
    path = store.path(A) / "server.log.gz"
    path.write_bytes(path.read_bytes()[:-6])
    with pytest.raises(UsageError, match=r"server\.log\.gz: damaged"):
        store.log(A)


def test_a_run_is_named_by_beginning_tag_or_last(store: Store) -> None:
    store.save(record(A, tags=("baseline",)), Attachments())
    store.save(record(B), Attachments())
    assert store.load("20261129").id == A
    assert store.load("baseline").id == A
    assert store.load("last").id == B


@pytest.mark.parametrize(("name", "says"), [("2026", "begins 2 runs"), ("nope", "no run 'nope'"), ("", "no run ''")])
def test_an_unknown_or_ambiguous_run_is_an_error(store: Store, name: str, says: str) -> None:
    for identifier in (A, B):
        store.save(record(identifier), Attachments())
    with pytest.raises(UsageError, match=says):
        store.load(name)


def test_a_misspelt_name_is_told_the_nearest(store: Store) -> None:
    store.save(record(A, tags=("baseline",)), Attachments())
    with pytest.raises(UsageError) as refused:
        store.load("basline")
    assert refused.value.remedy == "did you mean 'baseline'?"


def test_a_name_that_two_runs_bear_is_refused_with_both(store: Store) -> None:
    for identifier in (A, B):
        store.save(record(identifier, tags=("twin",)), Attachments())
    with pytest.raises(UsageError, match="2 runs are tagged 'twin'") as refused:
        store.load("twin")
    assert A in refused.value.remedy
    assert B in refused.value.remedy


def test_a_half_written_record_is_not_seen(store: Store) -> None:
    store.save(record(A), Attachments())
    (store.directory / f".{B}.draft").mkdir()
    assert store.ids() == [A]


def test_one_damaged_record_does_not_hide_the_others(store: Store) -> None:
    for identifier in (A, B):
        store.save(record(identifier), Attachments())
    (store.path(A) / "record.json").write_text("{")
    faults: list[str] = []
    assert [document["id"] for document in store.documents(fault=faults.append)] == [B]
    assert len(faults) == 1
    assert A in faults[0]
    assert store.load("last").id == B


def test_a_record_of_a_later_schema_is_refused_and_an_old_one_read(store: Store) -> None:
    store.save(record(A), Attachments())
    path = store.path(A) / "record.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema_version": 99}))
    with pytest.raises(UsageError, match="schema 99"):
        store.load(A)
    faults: list[str] = []
    assert list(store.documents(fault=faults.append)) == []
    assert "schema 99" in faults[0]


@pytest.mark.parametrize("old", sorted(path.name for path in OLD.iterdir()))
def test_records_of_older_days_stay_readable(old: str) -> None:
    kept = Store(OLD)
    loaded = kept.load(old)
    assert loaded.made_by == ""
    assert loaded.judged.outcome == json.loads((OLD / old / "record.json").read_text())["verdict"]["outcome"]
    assert kept.row(next(d for d in kept.documents() if d["id"] == old))["outcome"] == loaded.judged.outcome
    assert b"Load weight begin" in kept.log(old)


def test_a_name_is_given_taken_away_and_never_shared(store: Store) -> None:
    for identifier in (A, B):
        store.save(record(identifier), Attachments(log=b"kept"))
    assert store.tag("last", "baseline").tags == ("baseline",)
    assert store.tag(B, "baseline").tags == ("baseline",)
    assert store.load("baseline").id == B
    with pytest.raises(UsageError, match="is the name of"):
        store.tag(A, "baseline")
    assert store.untag(B, "baseline").tags == ()
    with pytest.raises(UsageError, match="not tagged"):
        store.untag(B, "baseline")
    assert store.log(B) == b"kept"


@pytest.mark.parametrize("name", ["last", "2026", "", "a b", "../x", "-x"])
def test_what_could_be_taken_for_something_else_is_no_name(store: Store, name: str) -> None:
    store.save(record(A), Attachments())
    with pytest.raises(UsageError, match="cannot name a run"):
        store.tag(A, name)


@pytest.mark.parametrize(("name", "why"), [("last", "always the newest run"), ("demo", "demo's"), ("HEAD", "a point")])
def test_a_name_that_is_taken_is_told_why(store: Store, name: str, why: str) -> None:
    store.save(record(A), Attachments())
    with pytest.raises(UsageError, match=why) as told:
        store.tag(A, name)
    assert told.value.remedy == "give another name, as in invoke tag last baseline"


def test_removing_leaves_nothing(store: Store) -> None:
    store.save(record(A), Attachments(log=b"x", patches={"0001-a": b"y"}))
    assert store.size(A) == sum(path.stat().st_size for path in store.path(A).rglob("*") if path.is_file())
    store.remove(A)
    assert list(store.directory.iterdir()) == []


def test_only_dead_drafts_are_swept(store: Store) -> None:
    import os

    old, young = store.directory / f".{A}.draft", store.directory / f".{B}.draft"
    for path in (old, young):
        path.mkdir(parents=True)
    os.utime(old, (0, 0))
    assert store.dead_drafts() == [old]
    store.remove_drafts(store.dead_drafts())
    assert young.is_dir()
    assert not old.exists()


@pytest.mark.parametrize(
    ("filters", "ids"),
    [
        ({}, [A, B]),
        ({"outcome": "oom"}, [B]),
        ({"point": "HEAD"}, [A, B]),
        ({"point": "0001"}, [A, B]),
        ({"point": "probe"}, [A, B]),
        ({"point": "0002"}, []),
        ({"box": "rig"}, []),
        ({"profile": "tiny", "outcome": "ready"}, [A]),
        ({"tag": "baseline"}, [A]),
        ({"since": datetime(2026, 11, 30, tzinfo=UTC)}, [B]),
    ],
)
def test_a_list_is_filtered(store: Store, filters: dict[str, object], ids: list[str]) -> None:
    store.save(record(A, tags=("baseline",)), Attachments())
    store.save(record(B, outcome="oom", created="2026-11-30T18:00:00+00:00"), Attachments())
    chosen = wanted(**filters)  # type: ignore[arg-type]
    assert [document["id"] for document in store.documents() if chosen.matches(document)] == ids


def test_a_row_has_what_a_list_shows(store: Store) -> None:
    code = {"commit": "c" * 40}
    made = record(A, tags=("x",)).model_copy(update={"timings": {"total": 2.5}, "code": code})
    store.save(made, Attachments(log=gzip.compress(b"")))
    (document,) = store.documents()
    row = store.row(document)
    assert (row["id"], row["outcome"], row["seconds"], row["tags"]) == (A, "ready", 2.5, ["x"])
    assert row["bytes"] > 0
    assert row["kv_tokens"] is None
    assert row["commit"] == "c" * 40


SPOILT = {
    "torn": b'{"id": "x", "created": "2026',
    "no object": b"[]",
    "no schema": b'{"schema_version": "new"}',
    "no point": b'{"created": "2026-11-29T18:00:00+00:00", "box": "local"}',
    "too deep": b"[" * 100_000,
    "empty": b"",
}


@pytest.mark.parametrize("data", SPOILT.values(), ids=SPOILT)
def test_a_spoilt_record_is_one_line_and_hides_no_other(store: Store, data: bytes) -> None:
    store.save(record(A), Attachments())
    store.save(record(B), Attachments())
    (store.path(B) / "record.json").write_bytes(data)
    faults: list[str] = []
    assert [document["id"] for document in store.documents(fault=faults.append)] == [A]
    assert len(faults) == 1
    assert B in faults[0]
    assert "\n" not in faults[0]
    with pytest.raises(UsageError) as refused:
        store.load(B)
    assert "\n" not in refused.value.message


def test_a_record_without_its_file_and_what_is_no_record(store: Store) -> None:
    store.save(record(A), Attachments())
    store.save(record(B), Attachments())
    (store.path(B) / "record.json").unlink()
    (store.directory / "zz-notes").mkdir()
    (store.directory / "notes.txt").write_text("mine")
    faults: list[str] = []
    assert [document["id"] for document in store.documents(fault=faults.append)] == [A]
    assert store.ids() == [A, B]
    assert "has no record.json" in faults[0]


@pytest.mark.parametrize("content", [b"[1]\n", b'{"t": "x"}\n', b'{"t": 1, "gpus": [[0]]}\n', b'{"t":'])
def test_damaged_samples_are_one_line(store: Store, content: bytes) -> None:
    store.save(record(A), Attachments(samples=[{"t": 1.0}]))
    (store.path(A) / "samples.jsonl.gz").write_bytes(gzip.compress(content))
    with pytest.raises(UsageError, match="damaged"):
        store.samples(A)


def test_a_log_is_read_in_pieces_too(store: Store) -> None:
    log = b"line\n" * 1000
    store.save(record(A), Attachments(log=log))
    assert b"".join(store.log_chunks(A)) == log
    (store.path(A) / "server.log.gz").unlink()
    assert list(store.log_chunks(A)) == []


def test_a_record_that_lies_elsewhere_is_unlinked_only(store: Store, tmp_path: Path) -> None:
    store.save(record(A), Attachments())
    elsewhere = tmp_path / "elsewhere"
    store.path(A).rename(elsewhere)
    store.path(A).symlink_to(elsewhere)
    assert store.load(A).id == A
    store.remove(A)
    assert store.ids() == []
    assert (elsewhere / "record.json").exists()


def test_the_demo_s_records_are_found_by_name_and_are_never_the_last(tmp_path: Path) -> None:
    own, shown = tmp_path / "runs", tmp_path / "demo"
    Store(shown).save(record(B), Attachments(log=b"x"))
    store = Store(own, demo=shown)
    assert store.resolve("demo") == store.resolve(B) == B
    assert store.log(B) == b"x"
    assert store.ids() == []
    with pytest.raises(UsageError, match="no run of your own yet"):
        store.resolve("last")
    store.save(record(A), Attachments())
    assert store.resolve("last") == A
    with pytest.raises(UsageError, match="cannot name a run"):
        store.tag(A, "demo")


def test_a_run_that_is_here_already_is_left_as_it_is_also_the_demo_s(tmp_path: Path) -> None:
    shown = tmp_path / "demo"
    Store(shown).save(record(A), Attachments(log=b"x"))
    with pytest.raises(UsageError, match=f"run {A} is here already") as told:
        Store(tmp_path / "runs", demo=shown).save(record(A), Attachments(log=b"y"))
    assert told.value.remedy == f"invoke show {A}"
    assert Store(shown).log(A) == b"x"


def test_a_directory_that_may_not_be_written_is_told_as_that(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(UsageError, match="cannot be written") as told:
        Store(tmp_path / "runs").save(record(A), Attachments())
    assert "writable" in told.value.remedy
    assert "make room" not in told.value.remedy


def test_the_newest_come_first_where_that_is_asked(store: Store) -> None:
    for identifier in (A, B):
        store.save(record(identifier), Attachments())
    assert [document["id"] for document in store.documents(newest_first=True)] == [B, A]
    assert [document["id"] for document in store.documents(having=B.encode())] == [B]


def test_only_what_a_record_has_is_unpacked(tmp_path):
    store = Store(tmp_path / "runs")
    for identifier, name in (("20260101-000000-aaaa", "../../escape"), ("../escape", "record.json")):
        with pytest.raises(ValueError, match="not a record"):
            store.unpack(identifier, {name: b""})
    assert not list(tmp_path.rglob("*escape*"))


def test_a_full_disk_leaves_no_half_record_and_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path / "runs")
    written = Path.write_text

    def full(path: Path, *words: object, **more: object) -> int:
        written(path, "{")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(UsageError, match="No space left on device") as told:
        store.save(record(A), Attachments(log=b"a log"))
    assert "make room" in told.value.remedy
    assert list(store.directory.iterdir()) == []
