import io
import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from patchbisect.model import Signals
from patchbisect.report import live
from patchbisect.startup import Classifier
from tests.report.builder import case


def test_what_is_watched_can_be_followed_from_another_shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    classifier = Classifier()
    with live.watching(tmp_path, what="trial of HEAD", plainly=True) as watcher:
        watcher.step("launching on port 1")
        for event in classifier.feed(case("cpu/02-mem-too-low")):
            watcher.event(event, 1.0)
        watcher.signals(Signals(silent_for_s=0.5, gpu_used_gb=2.0), 2.0)
        watcher.search(changes=8, candidates=4, confidence=None, launches=1, expected=5.0)
        (path,) = live.running(tmp_path)
        now = live.now(path)
        told = list(live.followed(path, once=True))
    assert live.running(tmp_path) == []
    assert now["what"] == "trial of HEAD"
    assert now["pid"] == os.getpid()
    assert now["launches"][0]["ranks"] == {"": "kv-profile"}
    assert now["search"]["candidates"] == 4
    assert [message["kind"] for message in told if message["kind"] != "event"] == [
        "begin",
        "step",
        "signals",
        "search",
    ]
    assert "Load weight begin" in capsys.readouterr().err


def test_launches_in_threads_of_their_own_are_kept_apart(tmp_path: Path) -> None:
    with live.watching(tmp_path, what="x", plainly=True) as watcher, ThreadPoolExecutor(2) as pool:
        both = threading.Barrier(2)

        def trial(number: int) -> None:
            both.wait()
            watcher.step(f"launching {number}")

        for done in [pool.submit(trial, number) for number in (1, 2)]:
            done.result()
        (path,) = live.running(tmp_path)
        assert sorted(launch["step"] for launch in live.now(path)["launches"]) == ["launching 1", "launching 2"]


def test_a_follower_waits_for_what_is_still_to_come(tmp_path: Path) -> None:
    path = tmp_path / f"{os.getpid()}.jsonl"
    path.write_text('{"kind": "begin"}\n{"kind": "st')
    pauses: list[int] = []

    def meanwhile() -> None:
        pauses.append(1)
        with path.open("a") as file:
            file.write('ep", "text": "x"}\n{"kind": "end"}\n{"kind": "never read"}\n')

    assert [m["kind"] for m in live.followed(path, pause=meanwhile)] == ["begin", "step", "end"]
    assert pauses == [1]


def test_the_files_of_the_dead_are_not_running_and_are_swept(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    directory = tmp_path / "live"
    directory.mkdir()
    dead = directory / f"{gone.pid}.jsonl"
    dead.write_text(json.dumps({"kind": "begin"}) + "\n")
    assert live.running(tmp_path) == []
    assert [message["kind"] for message in live.followed(dead)] == ["begin"]
    with live.watching(tmp_path, what="x", plainly=True):
        assert not dead.exists()


def test_a_pipe_gets_lines_and_a_terminal_gets_a_screen() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for stream, plainly, screen in (
        (io.StringIO(), False, False),
        (Terminal(), False, True),
        (Terminal(), True, False),
    ):
        with live.shown(plainly=plainly, stream=stream) as show:
            show({"kind": "begin", "what": "trial of HEAD"})
        assert "trial of HEAD" in stream.getvalue()
        assert ("\x1b[?25l" in stream.getvalue()) is screen


def test_a_flood_of_events_ends_before_the_disk_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_MOST_TOLD", 10)
    (event, *_) = Classifier().feed(b"[2026-11-29 18:00:00] Load weight begin. avail mem=22.06 GB\n")
    with live.watching(tmp_path, what="x", plainly=True) as watcher:
        for number in range(100):
            watcher.event(event, float(number))
        watcher.step("stopping")
        (path,) = live.running(tmp_path)
        kinds = [message["kind"] for message in live.followed(path, once=True)]
    assert kinds == ["begin", *["event"] * 9, "step"]


def test_a_full_disk_does_not_hinder_the_trial(tmp_path: Path) -> None:
    path = tmp_path / "live" / f"{os.getpid()}.jsonl"
    path.parent.mkdir()
    path.symlink_to("/dev/full")
    with live.watching(tmp_path, what="x", plainly=True) as watcher:
        watcher.step("goes on")
        assert path.is_symlink()
