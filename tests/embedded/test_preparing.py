"""Setup, step by step, on a machine that is only files; ``test_real_setup`` does it with the real pip."""

from __future__ import annotations

import shutil
import sys
import threading
from pathlib import Path

import pytest

from patchbisect.config import EmbeddedSettings
from patchbisect.embedded import Embedded, Progress, find, preparing, setup
from patchbisect.errors import BoxError, PatchbisectError, UsageError
from tests.embedded.fakes import PINS, FakeMachine, Killed, cpu_report

CUDA = cpu_report(version="2.13.0", requires=['cuda-toolkit==13.0; platform_system == "Linux"', "nvidia-cudnn-cu13"])


def answer(version: str = "3.11", *, venv: bool = True, real: str = "") -> dict[str, object]:
    return {
        "version": version,
        "full": f"{version}.7",
        "real": real or f"/real/python{version}",
        "venv": venv,
    }


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH, with files named like interpreters; nothing else on the machine is seen."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for version in ("3.11", "3.12", "3.13"):
        (folder / f"python{version}").write_text("")
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path / "nowhere"))
    return folder


@pytest.fixture
def machine(path: Path) -> FakeMachine:
    return FakeMachine(interpreters={str(path / "python3.11"): answer()})


def prepare(
    state: Path, machine: FakeMachine, *, settings: EmbeddedSettings | None = None, pins: str = PINS
) -> tuple[Embedded, list[Progress]]:
    said: list[Progress] = []
    made = setup(
        state, settings=settings or EmbeddedSettings(torch_index=None), progress=said.append, run=machine, pins=pins
    )
    return made, said


def packages(state: Path) -> set[str]:
    whole = state.glob("cpu/venv/lib/python*/site-packages/*.dist-info/INSTALLER")
    return {installer.parent.name.removesuffix(".dist-info") for installer in whole}


ALL = {"pip-26.3", "alpha-1.0", "beta_two-2.0", "torch-2.13.0"}


def test_makes_everything_and_finds_it_again(tmp_path: Path, machine: FakeMachine) -> None:
    assert find(tmp_path, pins=PINS) is None
    made, said = prepare(tmp_path, machine)
    assert packages(tmp_path) == ALL
    assert made == find(tmp_path, pins=PINS)
    assert made.python == tmp_path / "cpu/venv/bin/python"
    assert made.versions["torch"] == "2.13.0+cpu"
    assert (Path(made.variables["big-model"]) / "config.json").is_file()
    assert [p.step for p in said if p.detail] == sorted(
        [p.step for p in said], key=["venv", "torch", "packages", "models", "check"].index
    )
    assert Progress("torch", "torch-2.13.0-py3-none-any.whl", 512, 1024, 0) in [
        Progress(p.step, p.detail, p.done_bytes, p.total_bytes, 0) for p in said
    ]


def test_a_second_call_runs_nothing(tmp_path: Path, machine: FakeMachine) -> None:
    prepare(tmp_path, machine)
    before = len(machine.ran)
    _, said = prepare(tmp_path, machine)
    assert len(machine.ran) == before
    assert said == []


def commands_of_a_whole_setup() -> int:
    return 7  # probe, venv, pip, torch (which build), torch, packages, check: asserted below


def test_number_of_commands(tmp_path: Path, machine: FakeMachine) -> None:
    prepare(tmp_path, machine)
    assert len(machine.ran) == commands_of_a_whole_setup()


@pytest.mark.parametrize("command", range(commands_of_a_whole_setup()))
def test_killed_in_the_middle_of_any_command_the_next_call_completes_it(
    tmp_path: Path, machine: FakeMachine, command: int
) -> None:
    machine.kill_at = command
    with pytest.raises(Killed):
        prepare(tmp_path, machine)
    assert find(tmp_path, pins=PINS) is None
    machine.kill_at = None
    prepare(tmp_path, machine)
    assert packages(tmp_path) == ALL
    assert find(tmp_path, pins=PINS) is not None


def test_what_was_done_before_the_kill_is_not_done_again(tmp_path: Path, machine: FakeMachine) -> None:
    machine.kill_at = 5
    with pytest.raises(Killed):
        prepare(tmp_path, machine)
    machine.kill_at = None
    prepare(tmp_path, machine)
    assert sum(" -m venv " in command for command in machine.ran) == 1


def test_other_pins_change_the_environment_in_place(tmp_path: Path, machine: FakeMachine) -> None:
    prepare(tmp_path, machine)
    newer = PINS.replace("alpha==1.0\n", "gamma==3.0\n")
    assert find(tmp_path, pins=newer) is None
    prepare(tmp_path, machine, pins=newer)
    assert packages(tmp_path) == ALL - {"alpha-1.0"} | {"gamma-3.0"}
    assert sum(" -m venv " in command for command in machine.ran) == 1


def test_a_package_damaged_later_is_installed_again(tmp_path: Path, machine: FakeMachine) -> None:
    prepare(tmp_path, machine)
    alpha = next(tmp_path.glob("cpu/venv/lib/python3.11/site-packages/alpha.py"))
    alpha.write_text("")
    _, said = prepare(tmp_path, machine)
    assert alpha.read_text() == "x = 1\n"
    assert "repairing alpha-1.0" in [p.detail for p in said]


def test_a_package_removed_later_is_installed_again(tmp_path: Path, machine: FakeMachine) -> None:
    prepare(tmp_path, machine)
    shutil.rmtree(next(tmp_path.glob("cpu/venv/lib/python3.11/site-packages/alpha-1.0.dist-info")))
    prepare(tmp_path, machine)
    assert packages(tmp_path) == ALL


def test_an_environment_is_kept_when_a_better_interpreter_turns_up(tmp_path: Path, path: Path) -> None:
    machine = FakeMachine(interpreters={str(path / "python3.13"): answer("3.13")}, reports={"3.11": CUDA})
    prepare(tmp_path, machine)
    machine.interpreters = {**machine.interpreters, str(path / "python3.11"): answer("3.11")}
    prepare(tmp_path, machine, pins=PINS.replace("alpha==1.0", "alpha==1.1"))
    assert sum(" -m venv " in command for command in machine.ran) == 1
    assert "alpha-1.1" in packages(tmp_path)


def test_an_interpreter_that_is_gone_makes_the_environment_anew(tmp_path: Path, machine: FakeMachine) -> None:
    prepare(tmp_path, machine)
    python = tmp_path / "cpu/venv/bin/python"
    python.unlink()
    python.symlink_to("/gone/python3.11")
    assert find(tmp_path, pins=PINS) is None
    prepare(tmp_path, machine)
    assert packages(tmp_path) == ALL


def test_never_a_cuda_build(tmp_path: Path, machine: FakeMachine) -> None:
    machine.reports["3.11"] = CUDA
    with pytest.raises(UsageError) as refused:
        prepare(tmp_path, machine)
    assert "CUDA build of torch==2.13.0 (cuda-toolkit, nvidia-cudnn-cu13" in refused.value.message
    assert "embedded.torch-index" in refused.value.remedy
    assert "\n" not in refused.value.message + refused.value.remedy
    assert not any("torch==2.13.0" in command and "--dry-run" not in command for command in machine.ran)


def test_a_python_for_which_torch_is_a_cpu_build_is_taken_instead(tmp_path: Path, path: Path) -> None:
    interpreters = {str(path / f"python{version}"): answer(version) for version in ("3.11", "3.12", "3.13")}
    machine = FakeMachine(interpreters=interpreters, reports={"3.11": CUDA, "3.13": CUDA})
    prepare(tmp_path, machine)
    assert (tmp_path / "cpu/venv/lib/python3.12").is_dir()
    assert not (tmp_path / "cpu/venv/lib/python3.11").exists()


def test_each_python_version_is_refused_once_and_named(tmp_path: Path, path: Path) -> None:
    interpreters = {str(path / f"python{version}"): answer(version) for version in ("3.11", "3.12", "3.13")}
    machine = FakeMachine(interpreters=interpreters, reports=dict.fromkeys(("3.11", "3.12", "3.13"), CUDA))
    with pytest.raises(UsageError) as refused:
        prepare(tmp_path, machine)
    assert refused.value.message.count("Python 3.11, 3.12, 3.13: pip would take a CUDA build") == 1


INDEX = "https://wheels.example/cpu"


def test_where_pip_has_only_a_cuda_build_torch_comes_from_the_setting_alone(
    tmp_path: Path, machine: FakeMachine
) -> None:
    machine.reports = {"3.11": CUDA, INDEX: cpu_report()}
    prepare(tmp_path, machine, settings=EmbeddedSettings(torch_index=INDEX))
    from_index = [env.get("PIP_INDEX_URL") == env.get("PIP_EXTRA_INDEX_URL") == INDEX for env in machine.envs]
    commands = [command for command, there in zip(machine.ran, from_index, strict=True) if there]
    assert ["--dry-run" in command for command in commands] == [True, False]
    assert all(command.endswith("torch==2.13.0") for command in commands)


def test_where_pip_has_no_torch_at_all_it_comes_from_the_setting(tmp_path: Path, machine: FakeMachine) -> None:
    machine.reports = {"3.11": {}}
    prepare(tmp_path, machine, settings=EmbeddedSettings(torch_index=INDEX))
    assert packages(tmp_path) == ALL


def test_where_pip_has_a_cpu_build_the_setting_is_not_needed(tmp_path: Path, machine: FakeMachine) -> None:
    prepare(tmp_path, machine, settings=EmbeddedSettings(torch_index=INDEX))
    assert not any(INDEX in env.values() for env in machine.envs)


def test_a_cuda_build_at_the_place_of_the_setting_is_refused_too(tmp_path: Path, machine: FakeMachine) -> None:
    machine.reports = {"3.11": CUDA, INDEX: CUDA}
    with pytest.raises(UsageError, match="CUDA build"):
        prepare(tmp_path, machine, settings=EmbeddedSettings(torch_index=INDEX))


def test_a_setting_that_is_a_typing_mistake_is_said_first(tmp_path: Path, machine: FakeMachine) -> None:
    with pytest.raises(UsageError, match=r"embedded\.torch-index: /nope is neither"):
        prepare(tmp_path, machine, settings=EmbeddedSettings(torch_index="/nope"))
    assert machine.ran == []


def test_no_venv_is_one_clear_line(tmp_path: Path, path: Path) -> None:
    machine = FakeMachine(interpreters={str(path / "python3.11"): answer(venv=False)})
    with pytest.raises(UsageError) as refused:
        prepare(tmp_path, machine)
    assert "cannot make a virtual environment" in refused.value.message
    assert "apt install python3.11-venv" in refused.value.remedy


def test_an_interpreter_with_venv_is_taken_before_giving_up(tmp_path: Path, path: Path) -> None:
    other = path / "more"
    other.mkdir()
    (other / "python3.11").write_text("")
    machine = FakeMachine(
        interpreters={
            str(path / "python3.11"): answer(venv=False, real="/a"),
            str(other / "python3.11"): answer(real="/b"),
        }
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{path}:{other}")
        prepare(tmp_path, machine)
    assert f"{other}/python3.11 -m venv {tmp_path}/cpu/venv" in machine.ran


def test_only_shims_that_do_not_work(tmp_path: Path, path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        prepare(tmp_path, FakeMachine(interpreters={}))
    assert "the embedded box needs Python 3.11" in refused.value.message
    assert "embedded.python" in refused.value.remedy


def test_the_interpreter_of_the_setting_is_the_only_one_asked(tmp_path: Path, path: Path) -> None:
    chosen = str(path / "python3.13")
    machine = FakeMachine(interpreters={chosen: answer("3.13")})
    prepare(tmp_path, machine, settings=EmbeddedSettings(python=chosen))
    assert (tmp_path / "cpu/venv/lib/python3.13").is_dir()


def test_an_interpreter_of_the_setting_that_does_not_run(tmp_path: Path, machine: FakeMachine) -> None:
    with pytest.raises(UsageError, match=r"embedded\.python: /nope is not a Python that runs"):
        prepare(tmp_path, machine, settings=EmbeddedSettings(python="/nope"))


NO_WHEELS = "ERROR: Could not find a version\nERROR: No matching distribution found for alpha==1.0\n"
NO_NETWORK = "WARNING: Retrying (Retry(total=4)) after connection broken by 'NewConnectionError'\n" + NO_WHEELS


@pytest.mark.parametrize(
    ("output", "kind", "words"),
    [
        (NO_WHEELS, UsageError, "Python 3.11: No matching distribution found for alpha==1.0"),
        (NO_NETWORK, BoxError, "cannot reach its package index"),
        ("ERROR: [Errno 28] No space left on device\n", BoxError, "the disk is full"),
        ("Killed", BoxError, "pip failed: exit code 1: Killed"),
    ],
)
def test_what_pip_fails_with_is_said_in_one_line(
    tmp_path: Path, machine: FakeMachine, output: str, kind: type[PatchbisectError], words: str
) -> None:
    machine.fails = {" -r ": output}
    with pytest.raises(kind) as failed:
        prepare(tmp_path, machine)
    assert words in failed.value.message
    assert failed.value.remedy
    assert "\n" not in failed.value.message
    machine.fails = {}
    prepare(tmp_path, machine)
    assert packages(tmp_path) == ALL


def test_an_environment_that_does_not_import_is_not_called_ready(tmp_path: Path, machine: FakeMachine) -> None:
    machine.fails = {"import torch": "Traceback …\nImportError: libgomp.so.1: cannot open shared object file\n"}
    with pytest.raises(BoxError, match=r"does not work: ImportError: libgomp\.so\.1"):
        prepare(tmp_path, machine)
    assert find(tmp_path, pins=PINS) is None


def test_nobody_finds_it_while_it_is_repaired(tmp_path: Path, machine: FakeMachine) -> None:
    prepare(tmp_path, machine)
    next(tmp_path.glob("cpu/venv/lib/python3.11/site-packages/alpha.py")).unlink()
    machine.kill_at = len(machine.ran) + 2
    with pytest.raises(Killed):
        prepare(tmp_path, machine)
    assert find(tmp_path, pins=PINS) is None


def test_too_little_disk_is_said_before_anything_is_made(
    tmp_path: Path, machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparing, "NEEDED_GB", 1e9)
    with pytest.raises(BoxError, match="GB are free at"):
        prepare(tmp_path, machine)
    assert not (tmp_path / "cpu/venv").exists()


def test_a_state_directory_that_cannot_be_written(tmp_path: Path, machine: FakeMachine) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BoxError, match="cannot write at"):
        prepare(tmp_path / "file", machine)


def test_two_calls_take_turns(tmp_path: Path, machine: FakeMachine) -> None:
    """The second one waits for the first and then finds all of it done."""
    inside, go_on = threading.Event(), threading.Event()
    waiting = threading.Event()

    def hold(progress: Progress) -> None:
        if progress.step == "models":
            inside.set()
            assert go_on.wait(10)

    def see(progress: Progress) -> None:
        if progress.step == "wait":
            waiting.set()

    def call(report: preparing.Report) -> threading.Thread:
        thread = threading.Thread(
            target=setup,
            args=(tmp_path,),
            kwargs={"settings": EmbeddedSettings(), "progress": report, "run": machine, "pins": PINS},
        )
        thread.start()
        return thread

    first = call(hold)
    assert inside.wait(10)
    second = call(see)
    assert waiting.wait(10)
    go_on.set()
    first.join(10)
    second.join(10)
    assert len(machine.ran) == commands_of_a_whole_setup()
