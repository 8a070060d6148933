"""One launch: its log, its signals, its end, and that nothing of it is left."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from patchbisect.box import Box, LaunchSpec, open_box
from patchbisect.box.agent.launching import says_no_program
from patchbisect.box.agent.rundir import RunDir
from patchbisect.box.failures import CannotLaunch, NoSuchLaunch
from patchbisect.model import Signals
from tests.box.lab import FAKE_SERVER, Story, alive, launch, leased, listen, settings_for, until_log


def state_of(box: Box, run_id: str) -> dict[str, int]:
    import json

    return json.loads(Path(box.hello().directory, "runs", run_id, "state.json").read_text())


def test_the_log_is_told_whole_and_the_exit_code_follows(box: Box) -> None:
    run = launch(box, "--line", "one", "--line", "two", "--end", "exit:3")
    story = listen(run)
    assert story.log == b"one\ntwo\n"
    assert story.exited is not None
    assert story.exited.exit_code == 3


@pytest.mark.ci
def test_death_by_a_signal_is_told_as_subprocess_does(box: Box) -> None:
    story = listen(launch(box, "--end", "signal:11"))
    assert story.exited is not None
    assert story.exited.exit_code == -11


def test_a_program_that_is_not_there_is_found_before_the_launch(box: Box) -> None:
    with pytest.raises(CannotLaunch, match="No such file") as caught:
        box.start(LaunchSpec("gone", ("/no/such/python", "-m", "sglang.launch_server")))
    assert "correct `python` of the box" in caught.value.remedy


@pytest.mark.parametrize(
    ("said", "missing"),
    [
        ({"errno": 2, "file": "/no/python"}, True),
        ({"errno": 13, "file": "/no/python"}, True),
        ({"errno": 28, "file": "/box/runs/x/exit.json"}, False),
        ({"errno": 2, "file": "/box/runs/x/exit.json"}, False),
        ({"errno": 11, "file": "/no/python"}, False),
        ({}, False),
    ],
    ids=["not there", "not executable", "disk full", "run directory gone", "no process left", "no answer"],
)
def test_only_a_program_that_cannot_run_is_a_reason_not_to_try_again(said: dict[str, object], missing: bool) -> None:
    assert says_no_program(said, {"argv": ["/no/python", "-c", ""]}) is missing


@pytest.mark.ci
def test_health_counts_only_from_this_launch_own_processes(box: Box) -> None:
    port = box.free_port()
    other = subprocess.Popen(
        [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        run = box.start(LaunchSpec("beside", (sys.executable, "-c", "import time; time.sleep(60)"), port=port))
        seen: list[bool | None] = []

        def enough(story: Story) -> bool:
            if story.signals is not None:
                seen.append(story.signals.http_ready)
            return len(seen) > 3

        listen(run, until=enough)
        assert not any(seen)
        report = run.stop(0.0)
        assert f"port {port} is still held by pid {other.pid}" in report.faults[0]
    finally:
        other.kill()
        other.wait()


def test_a_server_that_answers_is_ready_and_its_port_is_free_afterwards(box: Box) -> None:
    port = box.free_port()
    run = launch(box, "--end", "serve", port=port)
    story = listen(run, until=lambda s: s.signals is not None and s.signals.http_ready)
    assert story.signals is not None
    assert story.signals.alive
    report = run.stop(0.0)
    assert report.ended
    assert report.faults == ()
    assert box.prove_clean(port).clean


@pytest.mark.ci
def test_our_own_health_question_does_not_break_the_silence(box: Box) -> None:
    run = launch(box, "--end", "serve", port=box.free_port())
    story = listen(run, until=lambda s: s.signals and s.signals.http_ready and s.log.count(b"/health") > 1)
    assert story.signals is not None
    assert story.signals.silent_for_s is not None
    assert story.signals.silent_for_s > 4.0
    run.stop(0.0)


@pytest.mark.parametrize("escape", [(), ("--escape",)], ids=["same session", "own session"])
def test_stop_ends_what_ignores_sigterm_and_was_reparented(box: Box, escape: tuple[str, ...]) -> None:
    run = launch(box, "--ignore-sigterm", "--grandchildren", "3", *escape, "--line", "up", "--end", "hang")
    listen(run, until=until_log(b"up"))
    report = run.stop(0.1)
    assert report.ended
    assert len(report.killed) == 4
    assert not any(map(alive, report.killed))


@pytest.mark.ci
def test_processes_that_survive_their_launcher_are_told_and_ended(box: Box) -> None:
    run = launch(box, "--grandchildren", "2", "--escape", "--end", "exit:1")
    story = listen(run)
    assert story.exited is not None
    assert story.exited.exit_code == 1
    assert len(story.exited.left) == 2
    assert set(run.stop(0.0).killed) == set(story.exited.left)


@pytest.mark.ci
def test_a_server_that_wiped_its_title_and_environment_is_still_known(box: Box) -> None:
    run = launch(box, "--title", "sglang::scheduler_TP1", "--grandchildren", "1", "--line", "up", "--end", "hang")
    story = listen(run, until=lambda s: s.signals is not None and s.signals.alive_ranks == (1,))
    assert b"up" in story.log
    os.kill(state_of(box, run.launch_id)["supervisor"], signal.SIGKILL)
    assert len(run.stop(0.0).killed) == 2


@pytest.mark.ci
def test_a_graceful_server_gets_its_second(box: Box, tmp_path: Path) -> None:
    script = tmp_path / "polite.py"
    script.write_text(
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('bye', flush=True), sys.exit(7)))\n"
        "print('up', flush=True)\n"
        "while True: time.sleep(1)\n"
    )
    run = box.start(LaunchSpec("polite", (sys.executable, str(script))))
    listen(run, until=until_log(b"up"))
    assert run.stop(5.0).exit_code == 7
    assert listen(run).log == b"up\nbye\n"


@pytest.mark.ci
def test_a_shell_in_the_run_directory_is_left_alone(box: Box) -> None:
    run = launch(box, "--line", "up", "--end", "hang")
    listen(run, until=until_log(b"up"))
    directory = Path(box.hello().directory, "runs", run.launch_id)
    reader = subprocess.Popen(["tail", "-f", "log"], cwd=directory, stdout=subprocess.DEVNULL)
    try:
        assert run.stop(0.0).ended
        assert reader.poll() is None
    finally:
        reader.kill()
        reader.wait()


@pytest.mark.ci
def test_stopping_twice_proves_the_same(box: Box) -> None:
    run = launch(box, "--line", "up", "--end", "hang")
    listen(run, until=until_log(b"up"))
    first, second = run.stop(0.0), run.stop(0.0)
    assert first.killed
    assert second.ended
    assert second.killed == ()


@pytest.mark.ci
def test_a_killed_supervisor_is_replaced_and_the_log_goes_on(box: Box, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    script = tmp_path / "two.py"
    script.write_text(
        f"import os, time\nprint('one', flush=True)\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.01)\n"
        "print('two', flush=True)\n"
    )
    run = box.start(LaunchSpec("orphaned", (sys.executable, str(script))))
    story = listen(run, until=until_log(b"one"))
    first = state_of(box, "orphaned")["supervisor"]
    os.kill(first, signal.SIGKILL)

    def replaced(_: Story) -> bool:
        if state_of(box, "orphaned")["supervisor"] != first:
            gate.touch()
        return False

    listen(run, until=replaced, story=story)
    assert story.log == b"one\ntwo\n"
    assert story.exited is not None
    assert story.exited.exit_code is None, "nobody could wait for it"
    assert run.stop(0.0).ended


def test_a_second_client_attaches_and_reads_from_where_it_likes(tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    with leased(settings, tmp_path) as box:
        run = launch(box, "--line", "one", "--line", "two", "--end", "hang")
        listen(run, until=until_log(b"two"))
    with leased(settings, tmp_path) as box:
        again = box.attach(run.launch_id)
        first = next(iter(again.events(from_offset=4)))
        assert (first.offset, first.data) == (4, b"two\n")
        assert again.stop(0.0).ended
        with pytest.raises(NoSuchLaunch):
            box.attach("never-was")


def test_a_launch_told_twice_is_one_launch(box: Box) -> None:
    spec = LaunchSpec("once", (sys.executable, "-c", "print('up', flush=True)"))
    box.start(spec)
    assert listen(box.start(spec)).log == b"up\n"


@pytest.mark.ci
def test_a_server_that_nobody_follows_is_ended(tmp_path: Path) -> None:
    with leased(settings_for(tmp_path, abandon_s=0.5), tmp_path) as box:
        run = launch(box, "--line", "up", "--end", "hang")
        kept = launch(box, "--line", "up", "--end", "hang", keep=True)

        def processes() -> dict[str, int]:
            return {found.launch_id: found.processes for found in box.launches()}

        while processes()[run.launch_id]:
            assert processes()[kept.launch_id] == 1
        report = run.stop(0.0)
        assert report.box_changed == ("nobody followed the server for 0 s: it was ended",)
        assert kept.stop(0.0).killed


@pytest.mark.ci
def test_a_request_that_is_repeated_while_the_first_is_at_work_starts_nothing_twice(box: Box, tmp_path: Path) -> None:
    spec = LaunchSpec("twice", (sys.executable, "-c", "print('up', flush=True); import time; time.sleep(60)"))
    starting = [threading.Thread(target=start_as_another_client, args=(box, spec, tmp_path)) for _ in range(3)]
    for thread in starting:
        thread.start()
    for thread in starting:
        thread.join()
    run = box.attach("twice")
    assert listen(run, until=until_log(b"up")).log == b"up\n"
    assert run.stop(0.0).ended


def start_as_another_client(box: Box, spec: LaunchSpec, folder: Path) -> None:
    with open_box("local", box.settings, state=folder) as other, other.reserved(box.leases()[0].fence):
        other.start(spec)


@pytest.mark.ci
def test_a_flood_is_told_whole(box: Box) -> None:
    size = 64 << 20
    run = launch(box, "--flood", str(size), "--end", "exit:0")
    got = 0
    for item in run.events():
        got += len(getattr(item, "data", b""))
    assert got == size


@pytest.mark.ci
def test_the_news_of_a_death_does_not_overtake_the_log(box: Box, tmp_path: Path) -> None:
    size = 8 << 20
    run = launch(box, "--flood", str(size), "--end", "signal:9")
    folder = RunDir(str(tmp_path / "box"), run.launch_id)
    while folder.exit() is None:
        time.sleep(0.01)
    told = 0
    for item in run.events():
        told += len(getattr(item, "data", b""))
        time.sleep(0.02)  # a slow link
        assert told == size or not isinstance(item, Signals) or item.alive, f"dead after {told} bytes of {size}"
    assert told == size


def test_a_tmpdir_is_short_enough_for_a_socket_and_gone_afterwards(box: Box, tmp_path: Path) -> None:
    code = "import os, socket, tempfile; p = os.path.join(tempfile.mkdtemp(), 'x' * 30); "
    code += "socket.socket(socket.AF_UNIX).bind(p); print(os.environ['TMPDIR'], flush=True)"
    run = box.start(LaunchSpec("sockets-" + "y" * 60, (sys.executable, "-c", code)))
    story = listen(run)
    assert story.exited is not None
    assert story.exited.exit_code == 0, story.log
    directory = Path(story.log.decode().strip())
    assert any(path.name.startswith("tmp") for path in directory.iterdir())
    kept = directory.resolve()
    run.stop(0.0)
    assert not directory.exists() or directory == kept
    assert not any(path.name.startswith("tmp") for path in kept.iterdir())


@pytest.mark.ci
def test_shared_memory_that_a_killed_server_leaves_is_removed(box: Box) -> None:
    code = (
        "from multiprocessing import shared_memory as s, resource_tracker as r; m = s.SharedMemory(create=True, size=9)"
        ";"
        "r.unregister(m._name, 'shared_memory'); print(m.name, flush=True); import time; time.sleep(60)"
    )
    run = box.start(LaunchSpec("shm", (sys.executable, "-c", code)))
    story = listen(run, until=until_log(b"\n"))
    file = Path("/dev/shm", story.log.decode().strip())
    assert file.exists()
    assert run.stop(0.0).swept == (str(file),)
    assert not file.exists()


@pytest.mark.ci
def test_what_lay_in_shared_memory_before_the_launch_is_left_alone(box: Box) -> None:
    own = Path("/dev/shm") / f"patchbisect-test-{os.getpid()}"
    models = own.with_suffix(".models")
    models.mkdir()
    weights = (own, models / "model.safetensors")
    try:
        for path in weights:
            path.write_bytes(b"weights")
        code = (
            "import mmap, sys; files = [open(path) for path in sys.argv[1:]]; "
            "held = [mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) for file in files]; "
            "print('up', flush=True); import time; time.sleep(60)"
        )
        run = box.start(LaunchSpec("models", (sys.executable, "-c", code, *map(str, weights))))
        assert listen(run, until=until_log(b"up")).exited is None
        assert run.stop(0.0).swept == ()
        assert all(path.exists() for path in weights)
    finally:
        shutil.rmtree(models)
        own.unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("variable", "below"),
    [("HOME", ".cache/torch_extensions"), ("XDG_CACHE_HOME", "torch_extensions"), ("TORCH_EXTENSIONS_DIR", ".")],
)
def test_a_build_lock_that_the_kill_left_is_removed_and_an_older_one_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, below: str
) -> None:
    """Where the server builds is said by its own environment, not by that of a login."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "login"))
    older, ours = (tmp_path / "builds" / below / name / "lock" for name in ("older", "ours"))
    for path in (older, ours):
        path.parent.mkdir(parents=True)
    older.touch()
    hour_ago = time.time() - 3600
    os.utime(older, (hour_ago, hour_ago))
    with leased(settings_for(tmp_path), tmp_path) as box:
        code = f"f = open({str(ours)!r}, 'x'); print('building', flush=True); import time; time.sleep(60)"
        env = {variable: str(tmp_path / "builds")}
        run = box.start(LaunchSpec("jit", (sys.executable, "-c", code), env=env))
        listen(run, until=until_log(b"building"))
        assert run.stop(0.0).swept == (str(ours),)
    assert older.exists()


def test_the_server_sees_the_profile_and_not_the_clients_own_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SGLANG_LEAK", "client")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    shown = [word for name in ("SGLANG_LEAK", "PYTHONDONTWRITEBYTECODE", "A", "B") for word in ("--show-env", name)]
    with leased(settings_for(tmp_path, env={"A": "box", "B": "box"}), tmp_path) as box:
        story = listen(launch(box, *shown, env={"B": "profile; $(x) 'y'"}))
    assert story.log.decode().splitlines() == [
        "SGLANG_LEAK=",
        "PYTHONDONTWRITEBYTECODE=",
        "A=box",
        "B=profile; $(x) 'y'",
    ]


@pytest.mark.ci
@pytest.mark.parametrize(
    ("env", "seen"),
    [({}, ["PCI_BUS_ID", "4,5"]), ({"CUDA_VISIBLE_DEVICES": "5"}, ["PCI_BUS_ID", "5"])],
    ids=["the box's", "the profile's"],
)
def test_a_server_sees_the_gpus_of_its_box_alone(tmp_path: Path, env: dict[str, str], seen: list[str]) -> None:
    shown = ("--show-env", "CUDA_DEVICE_ORDER", "--show-env", "CUDA_VISIBLE_DEVICES")
    with leased(settings_for(tmp_path, gpus=(4, 5)), tmp_path) as box:
        story = listen(launch(box, *shown, env=env))
    assert [line.partition("=")[2] for line in story.log.decode().splitlines()] == seen


def test_secrets_reach_the_server_and_no_file_and_no_log_copy(tmp_path: Path) -> None:
    token, key = "hf_0123456789abcdef", "sk-swordfish-42"
    with leased(settings_for(tmp_path), tmp_path) as box:
        run = launch(
            box, "--api-key", key, "--show-env", "HF_TOKEN", "--line", f"args: api_key='{key}'", "--pace", "0.01",
            secret_env={"HF_TOKEN": token}, env={"PLAIN": "seen"},
        )  # fmt: skip
        story = listen(run)
        run.stop(0.0)
    assert f"args: api_key='{'*' * len(key)}'\nHF_TOKEN={'*' * len(token)}\n".encode() == story.log
    for path in (tmp_path / "box").rglob("*"):
        if path.is_file() and path.name != "log":
            content = path.read_bytes()
            assert token.encode() not in content, path
            assert key.encode() not in content, path


def test_who_joins_a_launch_again_sees_no_secret_either(box: Box) -> None:
    key = "sk-swordfish-42"
    argv = (sys.executable, FAKE_SERVER, "--api-key", key, "--line", f"args: api_key='{key}'")
    spec = LaunchSpec("joined", argv)
    box.start(spec)
    assert listen(box.rejoin(spec)).log == f"args: api_key='{'*' * len(key)}'\n".encode()


def test_a_python_and_a_path_in_the_home_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "my env").mkdir()
    (tmp_path / "my env" / "python").symlink_to(sys.executable)
    settings = settings_for(tmp_path, python="~/my env/python", pythonpath=("~/more modules",))
    with leased(settings, tmp_path) as box:
        argv = ("~/my env/python", "-c", "import os, sys; print(os.environ['PYTHONPATH'], sys.orig_argv[0], sep='\\n')")
        log = listen(box.start(LaunchSpec("home", argv))).log.decode().splitlines()
    assert log == [f"{tmp_path}/more modules", f"{tmp_path}/my env/python"]
