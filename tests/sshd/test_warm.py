"""Launches from a warm process over SSH, with a link that breaks."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchbisect.box import Box
from tests.box.lab import alive, listen, until_log
from tests.box.warm_lab import Lab
from tests.sshd.openssh import Proxy

pytestmark = pytest.mark.sshd


def test_a_warm_process_outlives_the_link_and_not_the_lease(box: Box, proxy: Proxy, tmp_path: Path) -> None:
    with box.lease("test"):
        lab = Lab(box, tmp_path)
        lab.told(lab.start())
        (process,) = box.warm()
        run = lab.start("--stay")
        story = listen(run, until=until_log(b"server"))
        proxy.cut()
        assert run.stop(0.0).ended
        told = lab.told(lab.start())
        assert told["server"]["third"] == told["child"]["third"] == process.pid
        assert b'"third": %d' % process.pid in story.log
        assert told["exit_code"] == 7
    assert not alive(process.pid)
