"""What ssh's own files say of a host, and what of it is not applied."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from patchbisect.box.ssh_config import host_keys, lookup, not_applied, parse_target
from patchbisect.errors import UsageError


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / ".ssh"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    return folder


def test_a_target_is_user_host_and_port() -> None:
    assert parse_target("ada@rig:2222").user == "ada"
    assert parse_target("ada@rig:2222").port == 2222
    assert parse_target("[::1]:22").host == "::1"
    assert parse_target("rig").port == 0


def test_ssh_config_is_honoured_and_the_target_wins(ssh: Path) -> None:
    (ssh / "id").write_text("")
    (ssh / "config").write_text(
        "Host rig\n  HostName 10.0.0.7\n  Port 2200\n  User ada\n  IdentityFile ~/.ssh/id\n  IdentitiesOnly yes\n"
        "  ProxyJump gate,inner\n  HostKeyAlias the-rig\n"
    )
    found = lookup("rig")
    assert (found.hostname, found.port, found.user) == ("10.0.0.7", 2200, "ada")
    assert found.identities == (ssh / "id",)
    assert found.identities_only
    assert found.jumps == ("gate", "inner")
    assert found.known_as == "the-rig"
    assert lookup("bob@rig:22").user == "bob"
    assert lookup("bob@rig:22").port == 22


def test_a_host_that_no_file_names_is_taken_as_it_is(ssh: Path) -> None:
    found = lookup("plain.example")
    assert (found.hostname, found.port, found.jumps) == ("plain.example", 22, ())


def test_a_file_that_cannot_be_read_is_told(ssh: Path) -> None:
    (ssh / "config").write_text('Host "rig\n')
    with pytest.raises(UsageError, match="config"):
        lookup("rig")


def test_what_is_not_applied_is_named_with_its_line(ssh: Path) -> None:
    (ssh / "config").write_text("Include other\nHost rig\n  Compression no\n  CertificateFile c\n  # Include x\n")
    (ssh / "known_hosts").write_text("@cert-authority * ssh-ed25519 AAAA\n")
    found = not_applied("rig")
    assert [line.rpartition("/")[2] for line in found] == [
        "config:1: include is not applied",
        "config:4: certificatefile is not applied",
        "known_hosts: a @cert-authority line is not applied",
    ]


def test_known_hosts_with_rubbish_in_it_still_gives_its_keys(ssh: Path, tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "key")], check=True)
    public = (tmp_path / "key.pub").read_text()
    (ssh / "known_hosts").write_text(f"# comment\n\nrubbish\nrig ssh-ed25519 !!!\nrig {public}")
    (entry,) = host_keys(lookup("rig"))
    assert entry[0] == ["rig"]
