import io
import json
import zipfile
from pathlib import Path

import pytest

from patchbisect.config import Settings
from patchbisect.errors import UsageError
from patchbisect.records import Store
from patchbisect.report.bundle import exported, imported, scrubber_for
from patchbisect.report.scrub import Scrubber
from tests.report import builder

RUN = "20261129-180000-aaaa"
SECRET = "hf_abcdefghijklmnopqrstuvwx"


def private(store: Store) -> None:
    """A run whose every part tells something that is nobody's business."""
    words = f"HF_TOKEN={SECRET} on rig7.corp.example 10.20.30.40 /home/ada/models grace@node42"
    log = f"[2026-11-29 18:00:00] {words}\n".encode()
    made = builder.record(
        RUN,
        patches=["0001-kv-probe"],
        env={"MASTER": "rig7.corp.example"},
        box="rig7",
        tags=("mine",),
        machine={"hostname": "node42", "user": "grace", "boot_id": "b00t", "cpu": "EPYC"},
    )
    builder.save(
        store,
        made,
        log=log,
        events=[{"t": 1.0, "line": 1, "text": "10.20.30.40"}],
        samples=[{"t": 1, "host": "rig7.corp.example"}],
    )


def bundle(store: Store) -> bytes:
    return exported(store, RUN, scrubber=Scrubber(values=[SECRET], hosts=["rig7.corp.example"], users=["ada"]))


def test_nothing_private_is_in_any_member(store: Store) -> None:
    private(store)
    with zipfile.ZipFile(io.BytesIO(bundle(store))) as file:
        members = {name: file.read(name) for name in file.namelist()}
    assert sorted(members) == [
        "events.jsonl",
        "patches/0001-kv-probe.patch",
        "record.json",
        "samples.jsonl",
        "server.log",
    ]
    everything = b"\n".join(members.values())
    for word in (
        SECRET.encode(),
        b"rig7",
        b"corp.example",
        b"10.20.30.40",
        b"/home/ada",
        b'"mine"',
        b"node42",
        b"grace",
        b"b00t",
    ):
        assert word not in everything


def test_the_same_run_gives_the_same_bytes(store: Store) -> None:
    private(store)
    assert bundle(store) == bundle(store)


def test_a_run_goes_out_and_comes_in_elsewhere(store: Store, tmp_path: Path) -> None:
    private(store)
    path = tmp_path / "run.zip"
    path.write_bytes(bundle(store))
    other = Store(tmp_path / "elsewhere")
    record = imported(other, path, name="theirs")
    assert (record.id, record.origin, record.tags, record.box) == (RUN, "imported", ("theirs",), "box")
    assert b"address-1" in other.log("theirs")
    assert list(other.patch_texts("theirs")) == ["0001-kv-probe.patch"]
    assert other.events("theirs")[0]["t"] == 1.0
    with pytest.raises(UsageError, match="here already"):
        imported(other, path)


def written(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        for name, data in members.items():
            file.writestr(name, data)
    return path


@pytest.mark.parametrize(
    "members",
    [
        {"../../evil": b""},
        {"/etc/passwd": b""},
        {"record.json": b"{}", "patches/../../x.patch": b""},
        {"record.json": b"not json"},
        {"record.json": b'{"id": "x"}'},
        {"server.log": b""},
        {},
    ],
)
def test_what_export_did_not_make_is_refused_and_leaves_nothing(
    store: Store, tmp_path: Path, members: dict[str, bytes]
) -> None:
    with pytest.raises(UsageError, match="not a run made by export-run"):
        imported(store, written(tmp_path / "x.zip", members))
    assert store.ids() == []


def test_an_id_that_is_a_path_is_refused(store: Store, tmp_path: Path) -> None:
    document = builder.record("../../outside").model_dump(mode="json")
    path = written(tmp_path / "x.zip", {"record.json": json.dumps(document).encode()})
    with pytest.raises(UsageError, match="is no run id"):
        imported(store, path)


def test_a_bomb_is_not_unpacked(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("patchbisect.report.bundle._LARGEST_BYTES", 1000)
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("server.log", b"0" * 1_000_000)
    with pytest.raises(UsageError, match="MiB unpacked"):
        imported(store, path)


@pytest.mark.parametrize("content", [None, b"", b"PK\x03\x04 broken", b"text"])
def test_a_file_that_is_no_zip_is_one_clear_line(store: Store, tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "x.zip"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError):
        imported(store, path)


def test_the_machine_and_the_settings_say_what_is_private(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "abcdefgh1234")
    settings = Settings.model_validate(
        {"boxes": {"rig": {"host": "gpu.corp.example", "user": "grace", "env": {"HF_TOKEN": "zyxwvuts"}}}}
    )
    text = scrubber_for(settings).text("abcdefgh1234 zyxwvuts grace@gpu.corp.example")
    assert text == "*** *** user@host-1"


@pytest.mark.parametrize(
    "spoilt",
    [
        {"verdict": {}},
        {"verdict": {"outcome": "no such"}},
        {"machine": {"gpus": 3}},
        {"provenance": {"packages": None}},
        {"created": "2026-11-29T18:00:00"},
        {"point": []},
        {"tags": "x", "timings": []},
    ],
)
def test_a_record_that_would_break_whoever_shows_it_is_refused(
    store: Store, tmp_path: Path, spoilt: dict[str, object]
) -> None:
    document = {**builder.record("20261129-180000-aaaa").model_dump(mode="json"), **spoilt}
    path = written(tmp_path / "x.zip", {"record.json": json.dumps(document).encode()})
    with pytest.raises(UsageError, match="its record cannot be read"):
        imported(store, path)
    assert store.ids() == []


@pytest.mark.parametrize("member", ["samples.jsonl", "events.jsonl"])
@pytest.mark.parametrize("content", [b"[1]\n", b"torn", b'{"t": "soon"}\n'])
def test_damaged_samples_are_refused(store: Store, tmp_path: Path, member: str, content: bytes) -> None:
    document = builder.record("20261129-180000-aaaa").model_dump(mode="json")
    members = {"record.json": json.dumps(document).encode(), member: content}
    with pytest.raises(UsageError, match="not a run made by export-run"):
        imported(store, written(tmp_path / "x.zip", members))
    assert store.ids() == []


def test_a_directory_or_a_device_is_not_read(store: Store, tmp_path: Path) -> None:
    for path in (tmp_path, Path("/dev/zero")):
        with pytest.raises(UsageError, match="no plain file"):
            imported(store, path)


def test_of_a_huge_log_beginning_and_end_go_out(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("patchbisect.report.bundle._LARGEST_LOG_BYTES", 1000)
    monkeypatch.setattr("patchbisect.records.store._CHUNK_BYTES", 64)
    made = builder.save(store, builder.record("20261129-180000-aaaa"), log=b"first\n" + b"x" * 5000 + b"\nlast\n")
    with zipfile.ZipFile(io.BytesIO(exported(store, made.id, scrubber=Scrubber()))) as bundle:
        log = bundle.read("server.log")
    assert log.startswith(b"first\n")
    assert log.endswith(b"\nlast\n")
    assert b"bytes left out by export-run" in log
    assert 1000 < len(log) < 1100
