"""What git said, in the words that are told."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from patchbisect.upstream import git as module
from patchbisect.upstream.git import Git, Ran, _lines
from tests.tiny_upstream import Upstream


@pytest.mark.parametrize(
    ("err", "reason"),
    [
        ("warning: x\nfatal: no such ref\n", "no such ref"),
        (
            "fatal: unable to connect to 127.0.0.1:\n127.0.0.1[0: 127.0.0.1]: errno=Connection refused\n\n",
            "unable to connect to 127.0.0.1: errno=Connection refused",
        ),
        ("fatal: it ends in a colon:", "it ends in a colon:"),
    ],
)
def test_the_reason_is_the_last_fatal_line_with_what_belongs_to_it(err: str, reason: str) -> None:
    assert Ran(status=128, out=b"", err=err).reason == reason


def test_a_line_that_is_written_over_is_a_line() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"remote: Counting\rReceiving objects:  50% (1/2)\rReceiving objects: 100% (2/2), done.\nlast")
    os.close(writing)
    with io.FileIO(reading) as stream:
        assert list(_lines(stream)) == [  # type: ignore[arg-type]
            "remote: Counting",
            "Receiving objects:  50% (1/2)",
            "Receiving objects: 100% (2/2), done.",
            "last",
        ]


def test_a_fetch_tells_how_far_it_is_and_keeps_that_out_of_its_complaint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream = Upstream(tmp_path / "up")
    monkeypatch.setattr(module, "_TELL_EVERY_S", -1.0)
    store = Git(tmp_path / "store.git")
    store.output("init", "--bare", "--quiet", "--template=", str(store.where))
    said: list[str] = []
    assert store.fetch("--depth=1", upstream.path.as_uri(), f"{upstream.first}:refs/x", say=said.append).status == 0
    assert any("objects" in line for line in said)
    failed = store.fetch(upstream.path.as_uri(), "nowhere:refs/y", say=said.append)
    assert failed.status
    assert "nowhere" in failed.reason


def test_a_commit_is_named_by_what_names_one(upstream: Upstream) -> None:
    repository = Git(upstream.path, worktree=True)
    head = repository.text("rev-parse", "HEAD")
    assert [repository.commit(rev) for rev in ("HEAD", head, head[:9])] == [head] * 3
    for rev in ("^HEAD", "HEAD..HEAD", "HEAD^!", "HEAD^@", "--all", "-x", "", "nowhere", "HEAD:", "HEAD\nHEAD"):
        assert repository.commit(rev) == "", rev
