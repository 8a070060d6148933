"""Two boxes, each a machine of its own behind its own sshd; one of them loses power in the middle of a bisection."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.box.lab import none_left
from tests.fake_project import GOOD, OOM, PROGRAM, FakeProject, clean_environment, fake_project, with_boxes
from tests.sshd.openssh import Machine, install, running
from tests.sshd.rig import story_repository

pytestmark = pytest.mark.sshd

HOSTS = ("a", "b")
SLOW = ("--pace", "0.01")


@pytest.fixture
def machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Machine]]:
    """By host name of the client's ssh configuration."""
    missing = install()
    if missing:
        pytest.skip(missing)
    home = tmp_path / "home"
    ssh = home / ".ssh"
    ssh.mkdir(parents=True, mode=0o700)
    monkeypatch.setenv("HOME", str(home))
    with ExitStack() as stack:
        made = {host: stack.enter_context(running(Machine(tmp_path / f"machine-{host}"))) for host in HOSTS}
        (ssh / "config").write_text(
            "".join(
                f"Host {host}\n  HostName 127.0.0.1\n  Port {one.port}\n  User {one.user}\n"
                f"  IdentityFile {one.client_key}\n  IdentitiesOnly yes\n"
                for host, one in made.items()
            )
        )
        (ssh / "known_hosts").write_text("".join(one.known_hosts_line(one.port) for one in made.values()))
        yield made  # type: ignore[misc]


def bisected(root: Path, *, when: Callable[[], bool], then: Callable[[], None]) -> dict[str, Any]:
    """The answer of a bisection on both boxes, in which something happens ``when`` the moment has come."""
    words = [str(PROGRAM), "bisect", "--boxes", ",".join(HOSTS), "--fresh", "--plain", "--json"]
    with (root.parent / "said").open("w") as said:
        bisecting = subprocess.Popen(words, cwd=root, env=clean_environment(), stdout=subprocess.PIPE, stderr=said)
        while not when():
            assert bisecting.poll() is None, (root.parent / "said").read_text()
            time.sleep(0.01)
        then()
        out, _ = bisecting.communicate(timeout=600)
    told = (root.parent / "said").read_text()
    assert out, told
    return {**json.loads(out), "said": told}


def logs_on(box: Path) -> list[Path]:
    return sorted((box / "runs").glob("*/log"))


def test_a_box_that_dies_loses_its_trial_and_the_other_finds_the_culprit(
    tmp_path: Path, machines: dict[str, Machine]
) -> None:
    """It dies in its second launch, while the other box is at work too."""
    project = two_boxes(tmp_path, doomed="b")
    found = bisected(
        project.root,
        when=lambda: len(logs := logs_on(tmp_path / "box-b")) > 1 and logs[-1].stat().st_size > 0,
        then=machines["b"].stop,
    )
    assert found["culprit"]["id"] == "note-9"
    assert {step["status"] for step in found["proof"].values()} == {"confirmed"}
    assert "box b is left out from now on" in found["said"]
    assert [trial["box"] for trial in found["trials"]].count("b") == 1
    assert {trial["observation"] for trial in found["trials"]} == {"good", "bad"}
    assert none_left(tmp_path / "box-a")


def two_boxes(folder: Path, *, doomed: str) -> FakeProject:
    """The ``doomed`` one is given up soon after its link is lost; a busy machine may make the other one wait."""
    fake = fake_project(folder, guilty=9, patches=12, base=(*GOOD, *SLOW), bad=(*OOM, *SLOW))
    with_boxes(fake, *HOSTS, host="{box}")
    settings = fake.root / "invoke.yaml"
    document = yaml.safe_load(settings.read_text())
    for box, keys in document["patchbisect"]["boxes"].items():
        keys["link-patience-s"] = 3.0 if box == doomed else 300.0
    settings.write_text(yaml.safe_dump(document))
    return fake


@pytest.mark.full
@pytest.mark.real
def test_a_box_that_dies_with_a_real_server_on_it(
    tmp_path: Path, machines: dict[str, Machine], count_launch: Callable[[str], None]
) -> None:
    """It dies while it loads the weights of the bad end; all else happens on the other box, one server at a time."""
    root = story_repository(tmp_path, HOSTS, doomed="a")
    found = bisected(
        root,
        when=lambda: any(b"Load weight begin" in log.read_bytes() for log in logs_on(tmp_path / "box-a")),
        then=machines["a"].stop,
    )
    count_launch("fleet over ssh: bad end HEAD, on the box that dies")
    for trial in found["trials"]:
        count_launch(f"fleet over ssh: {trial['purpose']} {trial['point']} {trial['seconds']} s")
    assert found["culprit"]["id"] == "log-rest-memory"
    assert {step["status"] for step in found["proof"].values()} == {"confirmed"}
    assert {trial["box"] for trial in found["trials"]} == {"b"}
    assert "box a is left out from now on" in found["said"]
    assert none_left(tmp_path / "box-b")
