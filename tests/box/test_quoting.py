"""Nothing that a user may choose harms the box: names with blanks, quotes, newlines, dashes and commands in them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from patchbisect.box import BoxSettings, LaunchSpec, open_box
from patchbisect.box.ssh_config import parse_target
from patchbisect.errors import UsageError
from patchbisect.testing.fake_sglang import FakeSglang
from tests.box.lab import listen

NASTY = ("it's", 'a "b"', "$(touch pwned)", "`touch pwned`", "; touch pwned #", "-rf", "new\nline", "ä ü", "%s{x}\\")


def full_cycle(settings: BoxSettings, folder: Path, upstream: FakeSglang, nasty: str) -> None:
    commit = upstream.commit([f"--line={nasty.replace(chr(10), ' ')}"])
    with open_box(nasty, settings, state=folder) as box, box.lease(nasty):
        assert [held.reason for held in box.leases()] == [nasty.replace("\n", "·")]
        code = box.put_code(upstream.path, commit)
        argv = (sys.executable, "-m", "sglang.launch_server", f"--line={nasty}", "--show-env", "NASTY")
        run = box.start(LaunchSpec("x", argv, env={"NASTY": nasty}, code=code))
        log = listen(run).log.decode()
        assert log == f"{nasty.replace(chr(10), ' ')}\n{nasty}\nNASTY={nasty}\n"
        assert box.apply(upstream.path, commit, patches=[nasty]).placed
        found = box.applied()
        assert found is not None
        assert found.patches == (nasty,)
        assert run.stop(0.0).ended


@pytest.mark.parametrize("nasty", [NASTY[0], *(pytest.param(text, marks=pytest.mark.ci) for text in NASTY[1:])])
def test_locally(tmp_path: Path, upstream: FakeSglang, nasty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = BoxSettings(directory=str(tmp_path / "box" / nasty), python=sys.executable, min_free_gb=0.01)
    full_cycle(settings, tmp_path, upstream, nasty)
    assert not list(tmp_path.rglob("pwned"))


@pytest.mark.parametrize(
    "host", ["-oProxyCommand=touch pwned", "a b", "$(x)@", "u@-x", "host:port", "", "a@b@c", "x\ny"]
)
def test_a_host_that_is_none_is_refused(host: str) -> None:
    with pytest.raises(UsageError, match="not a host"):
        parse_target(host)


@pytest.mark.parametrize("launch_id", ["../x", "a/b", "", "-x", "a b", ".hidden"])
def test_a_launch_id_is_a_plain_name(tmp_path: Path, launch_id: str) -> None:
    settings = BoxSettings(directory=str(tmp_path / "box"), python=sys.executable)
    with open_box("local", settings, state=tmp_path) as box, box.lease("x"), pytest.raises(UsageError):
        box.start(LaunchSpec(launch_id, ("true",)))
