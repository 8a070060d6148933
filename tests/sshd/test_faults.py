"""Every fault at every moment, with the shipped fake server over a real sshd."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sshd.faults import FAULTS, Fault
from tests.sshd.openssh import Proxy, Sshd
from tests.sshd.scene import FakeServer, Scene

pytestmark = pytest.mark.sshd

EACH = [pytest.param(fault, at, id=" ".join((fault.name, *at))) for fault in FAULTS for at in fault.one_by_one]


@pytest.fixture
def scene(tmp_path: Path, home: Path, sshd: Sshd, proxy: Proxy) -> Scene:
    return Scene.over(tmp_path, server=FakeServer(tmp_path), sshd=sshd, proxy=proxy)


@pytest.mark.parametrize(("fault", "moments"), EACH)
def test_fault(scene: Scene, fault: Fault, moments: tuple[str, ...]) -> None:
    fault.befalls(scene, moments)
