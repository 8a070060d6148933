"""The same faults on a real SGLang server over a real sshd: one of each class in CI, the whole list in --full."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sshd.faults import FAULTS, Fault, killed
from tests.sshd.openssh import Proxy, Sshd
from tests.sshd.scene import RealServer, Scene, kill

pytestmark = [pytest.mark.real, pytest.mark.sshd]


def kill_scheduler(scene: Scene) -> None:
    assert kill(scene.processes("sglang::scheduler")) == 1


REAL = (*FAULTS, Fault("scheduler killed", kill_scheduler, ("dist-init",), point="clean", ends=killed))
IN_CI = (
    ("link cut", ("weight-load",)),
    ("supervisor killed", ("dist-init",)),
    ("scheduler killed", ("dist-init",)),
)


def tier(fault: Fault, at: tuple[str, ...]) -> pytest.MarkDecorator:
    return pytest.mark.ci if (fault.name, at) in IN_CI else pytest.mark.full


ALL = [
    pytest.param(fault, at, marks=tier(fault, at), id=" ".join((fault.name, *at)))
    for fault in REAL
    for at in fault.together
]


@pytest.fixture
def scene(tmp_path: Path, home: Path, sshd: Sshd, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    return Scene.over(tmp_path, server=RealServer(), sshd=sshd, proxy=proxy)


@pytest.mark.parametrize(("fault", "moments"), ALL)
def test_fault(scene: Scene, fault: Fault, moments: tuple[str, ...], count_launch: Callable[[str], None]) -> None:
    if fault.launches:
        count_launch(f"over ssh: {fault.point}, {fault.name}")
    fault.befalls(scene, moments)
