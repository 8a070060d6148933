"""Other ways than a plain start of ``sh``: a prefix, a login that chatters, an old or missing Python."""

from __future__ import annotations

import ast
import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from patchbisect.box import Box, BoxSettings, open_box
from patchbisect.box.agent.base import locked, shortage
from patchbisect.box.agent.rundir import RunDir
from patchbisect.box.conversation import BOOT, FILES
from patchbisect.box.failures import LinkLost, NoSuchLaunch, Unreachable
from patchbisect.box.link import ProcessChannel
from patchbisect.errors import BoxError, UsageError
from tests.box.lab import launch, leased, listen, settings_for

pytestmark = pytest.mark.ci


def test_a_prefix_is_a_way_to_the_box(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, prefix=("env", "VIA=prefix"))
    with leased(settings, tmp_path) as box:
        assert listen(launch(box, "--line", "hello")).log == b"hello\n"


def test_a_login_that_chatters_is_read_past(tmp_path: Path) -> None:
    motd = "printf '%s\\n' 'Welcome!' '{\"agent\": is not json' ''; echo 'to stderr' >&2; exec \"$@\""
    with open_box("x", settings_for(tmp_path, prefix=("sh", "-c", motd, "sh")), state=tmp_path) as box:
        assert box.hello().directory.endswith("/box")


def test_a_login_that_does_not_end_its_line_is_read_past(tmp_path: Path) -> None:
    prompt = "printf 'Last login: now '; exec \"$@\""
    settings = settings_for(tmp_path, prefix=("sh", "-c", prompt, "sh"))
    for _ in ("asks for the agent", "has it"):
        with open_box("x", settings, state=tmp_path) as box:
            assert box.hello().directory.endswith("/box")


def test_a_prefix_that_fails_is_told_with_its_own_words(tmp_path: Path) -> None:
    failing = ("sh", "-c", "echo 'Error: No such container: sgl' >&2; exit 1")
    settings = settings_for(tmp_path, prefix=failing)
    with open_box("x", settings, state=tmp_path) as box, pytest.raises(BoxError, match="No such container: sgl"):
        box.hello()


def test_host_and_prefix_together_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="both"), open_box("x", BoxSettings(host="a", prefix=("b",)), state=tmp_path):
        pass


def test_a_damaged_agent_is_sent_again(tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    with open_box("x", settings, state=tmp_path) as box:
        box.hello()
    (damaged,) = (tmp_path / "box").glob("agent-*/patchbisect_agent/verbs.py")
    damaged.write_text("raise SystemExit(9)\n")
    with open_box("x", settings, state=tmp_path) as box:
        assert box.hello().hostname


def test_the_agent_is_python_3_9_and_the_standard_library() -> None:
    for name, text in FILES.items():
        tree = ast.parse(text, filename=name, feature_version=(3, 9))
        for node in ast.walk(tree):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            for module in modules:
                assert module.partition(".")[0] in {*sys.stdlib_module_names, "pynvml"}, f"{name}: {module}"
    ast.parse(BOOT, feature_version=(3, 9))


def pythons_at(version: str) -> str | None:
    """A Python of that version, if this machine has one that runs."""
    found = shutil.which(f"python{version}")
    works = found and subprocess.run([found, "-c", "pass"], capture_output=True, check=False).returncode == 0
    homes = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python3"))
    return found if works else str(homes[-1]) if homes else None


@pytest.mark.other_python
@pytest.mark.skipif(pythons_at("3.9") is None, reason="there is no Python 3.9 on this machine")
def test_the_agent_runs_on_python_3_9(tmp_path: Path) -> None:
    with leased(settings_for(tmp_path, agent_python=pythons_at("3.9")), tmp_path) as box:
        assert box.hello().python.startswith("3.9.")
        run = launch(box, "--line", "hello", "--grandchildren", "1", "--end", "exit:4")
        story = listen(run)
        assert story.exited is not None
        assert story.exited.exit_code == 4
        assert run.stop(0.0).ended


@pytest.mark.other_python
@pytest.mark.skipif(pythons_at("3.8") is None, reason="there is no Python 3.8 on this machine")
def test_a_python_that_is_too_old_is_told(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, agent_python=pythons_at("3.8"))
    with open_box("x", settings, state=tmp_path) as box, pytest.raises(Unreachable, match=r"too old .* needs 3\.9"):
        box.hello()


# .. Ctrl-C in the middle of a request


@pytest.fixture
def interrupt(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Makes the next wait for an answer end in a KeyboardInterrupt; the request has been sent by then."""
    read = ProcessChannel.read
    due: list[None] = []

    def read_or_interrupt(self: ProcessChannel, timeout_s: float) -> bytes:
        if due:
            due.clear()
            raise KeyboardInterrupt
        return read(self, timeout_s)

    monkeypatch.setattr(ProcessChannel, "read", read_or_interrupt)
    return lambda: due.append(None)


def test_the_answer_to_an_interrupted_request_is_not_taken_for_the_next_ones(
    box: Box, interrupt: Callable[[], None]
) -> None:
    box.hello()
    interrupt()
    with pytest.raises(KeyboardInterrupt):
        box.hello()
    assert box.free_port() > 0


def test_a_refusal_keeps_the_conversation(box: Box) -> None:
    box.hello()
    before = box._control
    with pytest.raises(NoSuchLaunch):
        box.attach("no-such-launch")
    assert box._control is before


def test_a_launch_is_stopped_after_its_provenance_was_interrupted(box: Box, interrupt: Callable[[], None]) -> None:
    run = launch(box, "--line", "up", "--end", "hang")
    interrupt()
    with pytest.raises(KeyboardInterrupt):
        run.provenance()
    report = run.stop(0.0)
    assert report.ended
    assert report.killed


@pytest.mark.ci
def test_an_agent_in_the_middle_of_a_stop_finishes_it_although_its_client_hangs_up(
    box: Box, interrupt: Callable[[], None], tmp_path: Path
) -> None:
    run = launch(box, "--ignore-sigterm", "--line", "up", "--end", "hang")
    listen(run, until=lambda story: b"up" in story.log)
    interrupt()
    with pytest.raises(KeyboardInterrupt):
        run.stop(grace_s=3.0)  # longer than a hang-up waits before it sends SIGTERM
    with locked(RunDir(str(tmp_path / "box"), run.launch_id).file("ending")):
        assert box.launches() == ()


@pytest.mark.parametrize(
    ("limit", "said"),
    [(4, "cannot start there: too many open files"), (12, "only 12 files may be open at once, and 32 are needed")],
)
def test_a_box_where_too_few_files_may_be_open_is_told(tmp_path: Path, limit: int, said: str) -> None:
    settings = settings_for(tmp_path, prefix=("sh", "-c", f'ulimit -n {limit}; exec "$@"', "sh"))
    with open_box("x", settings, state=tmp_path) as box, pytest.raises(Unreachable) as caught:
        box.hello()
    assert said in caught.value.message
    assert "ulimit -n" in caught.value.remedy


def test_too_many_files_that_are_open_here_are_no_fault_of_the_prefix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*words: object, **more: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with open_box("x", settings_for(tmp_path), state=tmp_path) as box, pytest.raises(OSError, match="open files"):
        box.hello()


@pytest.mark.parametrize(
    ("number", "said", "remedy"),
    [(errno.EMFILE, "too many files are open on the box", "ulimit -n"), (errno.ENOSPC, "is full", "make room")],
)
def test_what_the_box_has_too_little_of_is_told_with_a_remedy(number: int, said: str, remedy: str) -> None:
    told = shortage(OSError(number, os.strerror(number), "/f"))
    assert told is not None
    assert said in told["message"]
    assert remedy in told["remedy"]


def test_a_python_that_may_not_be_run_is_told(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("")
    settings = settings_for(tmp_path, python=str(python))
    with open_box("x", settings, state=tmp_path) as box, pytest.raises(Unreachable) as caught:
        box.hello()
    assert caught.value.message == f"box x: {python} cannot be run there: Permission denied"
    assert "`python` or `agent-python` of the box" in caught.value.remedy


@pytest.mark.parametrize(
    ("login", "said"),
    [
        ("echo 'This account is not available.'; exit 1", "This account is not available. (exit code 1)"),
        ("echo 'no login today' >&2; exit 3", "no login today (exit code 3)"),
    ],
)
def test_a_login_that_runs_no_commands_is_told_with_its_words(tmp_path: Path, login: str, said: str) -> None:
    with (
        open_box("x", settings_for(tmp_path, prefix=("sh", "-c", login)), state=tmp_path) as box,
        pytest.raises(LinkLost) as caught,
    ):
        box.hello()
    assert caught.value.message == f"box x: no agent came of the login: {said}"
    assert "login shell" in caught.value.remedy
