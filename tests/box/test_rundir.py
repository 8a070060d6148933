"""The directory of a launch after accidents: a reboot, a power cut, a full disk, a number that was given away."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from patchbisect.box import Box
from patchbisect.box.agent import processes
from patchbisect.box.agent.base import boot_id
from patchbisect.box.agent.processes import life_id, process_table, read_proc
from patchbisect.box.agent.rundir import REBOOTED, RunDir, samples_of, unfinished_runs
from tests.box.lab import launch, listen, until_log


@pytest.fixture
def stranger() -> Iterator[int]:
    """A process in a session whose leader has gone, as a daemon's."""
    code = "import os, time; os.fork() and os._exit(0); print(os.getpid(), flush=True); time.sleep(600)"
    leader = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True, text=True)
    assert leader.stdout is not None
    pid = int(leader.stdout.readline())
    leader.wait()
    yield pid
    os.kill(pid, 9)
    leader.stdout.close()


def run_dir(folder: Path, **state: Any) -> RunDir:
    run = RunDir(str(folder), "launch")
    Path(run.path).mkdir(parents=True)
    about = {"boot": life_id(), "supervisor": 0, "supervisor_start": 0, "server": 0, "server_start": 0, "shm": []}
    Path(run.file("state.json")).write_text(json.dumps({**about, **state}))
    return run


def test_once_nothing_is_left_a_session_of_that_number_is_a_strangers(tmp_path: Path, stranger: int) -> None:
    session = process_table()[stranger].session
    assert read_proc(session) is None
    run = run_dir(tmp_path, server=session, server_start=1)
    assert [proc.pid for proc in run.members()] == [stranger], "as long as something of ours may be in it"
    Path(run.file("gone")).touch()
    assert run.members() == []


@pytest.mark.ci
def test_a_supervisor_says_that_nothing_is_left(box: Box, tmp_path: Path) -> None:
    run = launch(box, "--grandchildren", "1", "--escape", "--line", "up", "--end", "hang")
    listen(run, until=until_log(b"up"))
    folder = RunDir(str(tmp_path / "box"), run.launch_id)
    assert not folder.gone
    assert run.stop(0.0).ended
    assert Path(folder.file("gone")).exists()


def test_the_processes_of_another_boot_are_strangers(tmp_path: Path, stranger: int) -> None:
    about = read_proc(stranger)
    assert about is not None
    run = run_dir(tmp_path, boot="another", server=stranger, server_start=about.start)
    Path(run.file("known.json")).write_text(json.dumps({"processes": [{"pid": stranger, "start": about.start}]}))
    assert run.members() == []
    ended = run.exit()
    assert ended is not None
    assert ended["changed"] == [REBOOTED]


def test_a_container_that_was_started_anew_gives_pids_out_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stranger: int
) -> None:
    run = run_dir(tmp_path, boot=life_id(), server=process_table()[stranger].session, server_start=1)
    assert run.members()
    first = read_proc(1)
    assert first is not None
    started = {1: first._replace(start=first.start + 1)}
    monkeypatch.setattr(processes, "read_proc", lambda pid: started.get(pid) or read_proc(pid))
    assert run.members() == []


def test_a_launch_of_an_older_agent_is_still_ours(tmp_path: Path, stranger: int) -> None:
    run = run_dir(tmp_path, boot=boot_id(), server=process_table()[stranger].session, server_start=1)
    assert [proc.pid for proc in run.members()] == [stranger]


@pytest.mark.parametrize("content", ["", '{"launch_id": "l'])
def test_a_state_that_a_power_cut_left_unreadable_hinders_nobody(box: Box, tmp_path: Path, content: str) -> None:
    torn = tmp_path / "box" / "runs" / "torn"
    torn.mkdir(parents=True)
    (torn / "state.json").write_text(content)
    assert unfinished_runs(str(tmp_path / "box")) == []
    assert box.prove_clean().clean
    assert box.launches() == ()


def test_a_sample_that_a_full_disk_cut_off_costs_that_sample(tmp_path: Path) -> None:
    run = run_dir(tmp_path)
    Path(run.file("samples.jsonl")).write_text('{"t": 1}\n{"t": 2, "gp{"t": 3}\n{"t": 4}\n{"t":')
    assert [sample["t"] for sample in samples_of(run)] == [1, 4]
