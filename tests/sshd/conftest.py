"""A box behind a real sshd on loopback, with a proxy in between."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from patchbisect.box import Box, BoxSettings, open_box, ssh_files
from tests.sshd.openssh import Machine, Proxy, Sshd, install, running


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    missing = install()
    if missing:
        pytest.skip(missing)
    with running(Sshd(tmp_path_factory.mktemp("sshd"))) as server:
        yield server


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """A whole machine of the test's own; ``sshd`` may be overridden by it."""
    missing = install()
    if missing:
        pytest.skip(missing)
    with running(Machine(tmp_path / "machine")) as own:
        assert isinstance(own, Machine)
        yield own


@pytest.fixture
def proxy(sshd: Sshd) -> Iterator[Proxy]:
    between = Proxy(sshd.port)
    yield between
    between.close()


@pytest.fixture
def home(tmp_path: Path, sshd: Sshd, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The client's home: knows the host behind the proxy as ``rig``."""
    ssh = tmp_path / "home" / ".ssh"
    ssh.mkdir(parents=True, mode=0o700)
    (ssh / "config").write_text(
        f"Host rig\n  HostName 127.0.0.1\n  Port {proxy.port}\n  User {sshd.user}\n"
        f"  IdentityFile {sshd.client_key}\n  IdentitiesOnly yes\n"
    )
    (ssh / "known_hosts").write_text(sshd.known_hosts_line(proxy.port))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(ssh_files, "MACHINE_CONFIG", tmp_path / "etc" / "ssh_config")
    return tmp_path / "home"


@pytest.fixture
def settings(tmp_path: Path, home: Path) -> BoxSettings:
    return BoxSettings(
        host="rig", directory=str(tmp_path / "box"), python=sys.executable, link_timeout_s=3.0, min_free_gb=0.01
    )


@pytest.fixture
def box(settings: BoxSettings, tmp_path: Path) -> Iterator[Box]:
    with open_box("rig", settings, state=tmp_path / "state") as opened:
        yield opened
