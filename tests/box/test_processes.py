"""Naming other people's processes, and telling ours from theirs."""

from __future__ import annotations

import os
import threading

import pytest

from patchbisect.box.agent.processes import describe, harmless, process_of


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
