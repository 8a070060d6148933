"""A box's settings reach the box."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from patchbisect.box import BoxSettings
from patchbisect.box.ssh_config import parse_target
from patchbisect.config import load_settings
from patchbisect.trial.rig import _box_settings

EVERYTHING = """\
patchbisect:
  secrets: [MY_SECRET]
  boxes:
    rig:
      host: rig
      dir: /scratch
      python: /opt/python
      agent-python: /usr/bin/python3
      checkout: /srv/sglang
      env: {A: "1"}
      pythonpath: [/more]
      gpus: [4, 5]
      lease-dir: /leases
      lease-s: 77
      build: [make]
      build-sources: [kernel]
      min-free-gb: 7
      gpu-idle-gb: 7
      gpu-slack-gb: 7
      gpu-budget-s: 7
      abandon-s: 7
      environments-gb: 7
      pip-args: [--no-index]
      gpu-residents: [gnome-shell]
      link-timeout-s: 7
      link-patience-s: 7
    container: {prefix: [docker, exec, -i, sgl]}
    local: {embedded: true}
"""


@pytest.mark.parametrize(
    ("setting", "target"),
    [
        ("host: rig", "rig"),
        ("host: rig, user: ada, port: 2222", "ada@rig:2222"),
        ("host: '::1', user: ada, port: 2222", "ada@[::1]:2222"),
        ("host: '[::1]:2222', user: ada", "ada@[::1]:2222"),
        ("host: 'fe80::1%eth0'", "[fe80::1%eth0]"),
    ],
)
def test_where_a_box_is_may_be_said_in_parts(tmp_path: Path, setting: str, target: str) -> None:
    file = tmp_path / "invoke.yaml"
    file.write_text(f"patchbisect: {{boxes: {{rig: {{{setting}}}}}}}")
    settings = load_settings(file)
    found = _box_settings(settings.boxes["rig"], None, cast(Any, SimpleNamespace(settings=settings)))
    assert found.host == target
    assert parse_target(found.host)


def test_every_setting_of_a_box_can_be_set(tmp_path: Path) -> None:
    file = tmp_path / "invoke.yaml"
    file.write_text(EVERYTHING)
    settings = load_settings(file)
    project = cast(Any, SimpleNamespace(settings=settings))
    default = BoxSettings()
    found = {name: _box_settings(settings.boxes[name], None, project) for name in ("rig", "container", "local")}
    unset = {
        field.name
        for field in dataclasses.fields(BoxSettings)
        if all(getattr(box, field.name) == getattr(default, field.name) for box in found.values())
    }
    assert unset == set()
    assert found["rig"].lease_s == 77.0
