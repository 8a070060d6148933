"""An environment that is built on a box behind SSH, over a link that breaks meanwhile."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from patchbisect.box import BoxSettings, EnvironmentOrder, open_box
from tests.sshd.openssh import Proxy
from tests.sshd.rig import once_noticed
from tests.tiny_wheels import interpreter_with, tiny_wheel

pytestmark = pytest.mark.sshd


@pytest.mark.parametrize("break_it", [Proxy.cut, Proxy.black_hole], ids=["cut", "black hole"])
def test_a_build_outlives_a_link_that_breaks(
    settings: BoxSettings, proxy: Proxy, tmp_path: Path, break_it: Callable[[Proxy], None]
) -> None:
    wheels = tmp_path / "wheels"
    tiny_wheel(wheels, "tiny-dep", "2.0", requires=["tiny-other"])
    tiny_wheel(wheels, "tiny-other", "1.0")
    python = str(interpreter_with(tmp_path / "venv", tiny_wheel(wheels, "tiny-dep", "1.0")))
    pip_args = ("--no-index", "--find-links", str(wheels))
    over = dataclasses.replace(settings, python=python, agent_python=settings.python, pip_args=pip_args)
    order = EnvironmentOrder(key="a" * 16, python=python, sought=("tiny-dep",), wanted=("tiny-dep==2.0",))
    broken: list[str] = []

    def progress(about: Mapping[str, Any]) -> None:
        if about.get("done") == 1 and not broken:
            broken.append(str(about["detail"]))
            break_it(proxy)

    with once_noticed(proxy.heal), open_box("rig", over, state=tmp_path / "state") as box, box.lease("test"):
        made = box.environment(order, progress=progress)
        assert made.added == {"tiny-dep": "2.0", "tiny-other": "1.0"}
        assert [one.key for one in box.environments()] == [order.key]
    assert broken
