"""Naming other people's processes, and telling ours from theirs."""

from __future__ import annotations

import os
import sys
import threading

import pytest

from patchbisect.box import Box, LaunchSpec
from patchbisect.box.agent import processes
from patchbisect.box.agent.processes import describe, harmless, process_of
from tests.box.lab import listen, until_log


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("python train.py --api-key hunter2", "python train.py"),
        (
            "/usr/bin/python3 -u -m sglang.launch_server --api-key hunter2",
            "/usr/bin/python3 -u -m sglang.launch_server",
        ),
        ("python -c password='hunter2'", "python"),
        ("sshpass -p hunter2 ssh rig", "sshpass"),
        ("env HF_TOKEN=hunter2 python train.py", "env"),
        ("mysql -phunter2", "mysql"),
        ("sglang::scheduler_TP0", "sglang::scheduler_TP0"),
        ("", ""),
    ],
)
def test_a_command_is_shown_without_what_may_be_secret(command: str, shown: str) -> None:
    assert harmless(command) == shown


def test_a_process_that_cannot_be_seen_is_named_by_its_number() -> None:
    assert describe(2**22 + 1) == f"pid {2**22 + 1} (?: not visible from here)"


def test_a_thread_is_its_process() -> None:
    seen: list[int] = []
    thread = threading.Thread(
        target=lambda: seen.extend((threading.get_native_id(), process_of(threading.get_native_id())))
    )
    thread.start()
    thread.join()
    assert seen[0] != os.getpid()
    assert seen[1] == os.getpid()
    assert process_of(2**22 + 1) == 2**22 + 1


def test_a_process_lives_as_long_as_one_of_its_threads(box: Box) -> None:
    """Its first thread may be a zombie for seconds while another gives memory of a GPU back."""
    program = (
        "import ctypes, os, platform, threading, time\n"
        "threading.Thread(target=lambda: time.sleep(600)).start()\n"
        "print(os.getpid(), flush=True)\n"
        "ctypes.CDLL(None).syscall(60 if platform.machine() == 'x86_64' else 93, 0)"
    )
    run = box.start(LaunchSpec("headless", (sys.executable, "-c", program)))
    pid = int(listen(run, until=until_log(b"\n")).log)
    while (proc := processes.read_proc(pid)) is not None and proc.state != "Z":
        os.sched_yield()
    assert proc is not None
    assert proc.alive
    report = run.stop(0.0)
    assert pid in report.killed
    assert processes.wait_gone([proc], 0.0) == []


@pytest.mark.parametrize(
    ("files", "meant"),
    [
        ({"/dev/nvidiactl", "/dev/nvidia0"}, False),
        ({"/dev/nvidiactl", "/dev/nvidia-uvm"}, True),
        ({"/dev/null"}, False),
    ],
    ids=["reads GPUs, as an agent does", "computes", "neither"],
)
def test_in_a_container_a_number_means_who_computes(
    monkeypatch: pytest.MonkeyPatch, files: set[str], meant: bool
) -> None:
    monkeypatch.setattr(processes, "pids_of_our_own", lambda: True)
    monkeypatch.setattr(processes, "open_files", lambda pid: files)
    assert (processes.on_gpu(os.getpid()) == os.getpid()) is meant
