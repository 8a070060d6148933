"""What a box needs is checked, with a remedy for each fault; and the dossier of a hang."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from patchbisect.box import Box, Check, open_box
from patchbisect.box.agent import doctor as on_box
from patchbisect.box.agent import dossier
from patchbisect.testing.fake_sglang import FakeSglang
from tests.box.lab import launch, listen, settings_for, until_log


def checks(folder: Path, **more: object) -> dict[str, Check]:
    with open_box("local", settings_for(folder, **more), state=folder) as box:
        return {check.check: check for check in box.doctor()}


def test_a_box_is_examined_and_every_fault_has_a_remedy(tmp_path: Path) -> None:
    found = checks(tmp_path)
    assert {"link", "git", "server's Python", "directory", "lease", "GPUs", "logout"} <= found.keys()
    assert found["link"].ok
    assert found["git"].ok
    assert all(check.remedy for check in found.values() if not check.ok)


def test_a_box_that_cannot_be_reached_is_one_failed_check(tmp_path: Path) -> None:
    (check,) = checks(tmp_path, prefix=("/no/such/command",)).values()
    assert not check.ok
    assert check.remedy


def test_a_python_without_torch_is_told(tmp_path: Path) -> None:
    found = checks(tmp_path, python="/usr/bin/false", agent_python="python3")["server's Python"]
    assert not found.ok
    assert "`python` of the box" in found.remedy


def test_a_box_without_git_is_told(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sh").symlink_to("/bin/sh")
    found = checks(tmp_path, prefix=("/usr/bin/env", f"PATH={tmp_path / 'bin'}"), python=sys.executable)["git"]
    assert not found.ok
    assert found.detail.startswith("there is no git on the box")
    assert found.remedy == "install git on the box"


def test_a_partial_clone_is_told(tmp_path: Path, upstream: FakeSglang) -> None:
    upstream.commit([])
    upstream.git("config", "uploadpack.allowFilter", "true")
    partial = tmp_path / "partial"
    url = f"file://{upstream.path}"
    subprocess.run(["git", "clone", "--quiet", "--no-checkout", "--filter=blob:none", url, str(partial)], check=True)
    found = checks(tmp_path, checkout=str(partial))["checkout"]
    assert not found.ok
    assert "no full clone" in found.detail


def test_killing_of_user_processes_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_box, "kills_user_processes", lambda: True)
    monkeypatch.setattr(os.path, "exists", lambda path: False)
    (found,) = on_box._survives_logout("", {})
    assert not found["ok"]
    assert found["remedy"].startswith("loginctl enable-linger ")


def test_too_few_open_files_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_box.resource, "getrlimit", lambda which: (256, 512))
    (found,) = on_box._open_files("", {})
    assert not found["ok"]
    assert "at most 512" in found["detail"]
    assert "nofile" in found["remedy"]


def test_a_box_that_names_gpus_of_a_machine_without_any_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_box, "device_files", list)
    (found,) = on_box._gpus("", {"gpus": [0, 1]})
    assert not found["ok"]
    assert found["detail"] == "none on this machine, and the box names 0, 1"
    assert "`gpus` of the box" in found["remedy"]


def test_launches_are_listed(box: Box) -> None:
    run = launch(box, "--line", "up", "--end", "hang", keep=True)
    listen(run, until=until_log(b"up"))
    (found,) = box.launches()
    assert (found.launch_id, found.keep, found.processes) == (run.launch_id, True, 1)
    run.stop(0.0)
    assert box.launches() == ()


@pytest.mark.parametrize("dies", [True, False], ids=["dies", "waits in the driver for ever"])
def test_a_dossier_does_not_wait_for_what_never_answers(monkeypatch: pytest.MonkeyPatch, dies: bool) -> None:
    kill, killed = subprocess.Popen.kill, []
    monkeypatch.setattr(subprocess.Popen, "kill", lambda self: killed.append(self) or (kill(self) if dies else None))
    monkeypatch.setattr(dossier, "DYING_S", 5.0 if dies else 0.01)
    begun = dossier.asked("sh", "-c", "echo so far; exec sleep 600")
    assert dossier.answer(begun, within_s=0.2) == ("so far\n" if dies else "") + "no answer within 0 s"
    assert killed == [begun]
    kill(begun)
    begun.communicate()


@pytest.mark.ci
def test_a_dossier_tells_the_missing_rank_and_the_last_lines(box: Box, tmp_path: Path) -> None:
    spy = tmp_path / "bin" / "py-spy"
    spy.parent.mkdir()
    spy.write_text('#!/bin/sh\necho "stack of $4 key sk-swordfish-42"\n')
    spy.chmod(0o755)
    fake_python = tmp_path / "bin" / "python"
    fake_python.symlink_to(box.settings.python)
    box.settings = dataclasses.replace(box.settings, python=str(fake_python), agent_python=box.settings.python)
    run = launch(
        box, "--title", "sglang::scheduler_TP1", "--end", "hang",
        "--line", "[x TP0] one", "--line", "[x TP1] two", "--line", "[x TP0] three",
        secret_env={"API_KEY": "sk-swordfish-42"},
    )  # fmt: skip
    listen(run, until=lambda s: b"three" in s.log and s.signals and s.signals.alive_ranks == (1,))
    found = run.dossier()
    assert found["ranks_alive"] == [1]
    assert found["ranks_missing"] == [0]
    assert found["last_lines"] == {"0": "[x TP0] three", "1": "[x TP1] two"}
    (process,) = found["processes"]
    assert found["stacks"] == {str(process["pid"]): f"stack of {process['pid']} key ***\n"}
    run.stop(0.0)
