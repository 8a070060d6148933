"""What ssh's own files say of a host, and what of it is not applied."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from patchbisect.box.ssh_config import hops_to, host_keys, lookup, not_applied, parse_target
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
    (ssh / "config").write_text(
        "Include other\nHost rig\n  Compression no\n  CertificateFile c\n  # Include x\n  Include narrow\n"
        "Host else\n  SecurityKeyProvider s\n"
    )
    (ssh / "other").write_text("Host rig\n  IdentityAgent none\n")
    (ssh / "known_hosts").write_text("@cert-authority * ssh-ed25519 AAAA\n")
    found = not_applied("rig")
    assert [line.rpartition("/")[2] for line in found] == [
        "other:2: identityagent is not applied",
        "config:4: certificatefile is not applied",
        "config:6: include is not applied",
        "known_hosts: a @cert-authority line is not applied",
    ]


def test_known_hosts_with_rubbish_in_it_still_gives_its_keys(ssh: Path, tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "key")], check=True)
    public = (tmp_path / "key.pub").read_text()
    (ssh / "known_hosts").write_text(f"# comment\n\nrubbish\nrig ssh-ed25519 !!!\nrig {public}")
    (entry,) = host_keys(lookup("rig"))
    assert entry[0] == ["rig"]


def test_what_is_included_holds_and_what_follows_it_is_not_of_its_last_host(ssh: Path) -> None:
    (ssh / "conf.d").mkdir()
    (ssh / "conf.d" / "a").write_text("Host rig\n  HostName 10.0.0.7\n")
    (ssh / "conf.d" / "b").write_text("Include deeper nowhere\nHost else\n  User eve\n")
    (ssh / "conf.d" / ".a.swp").write_text("Host rig\n  HostName 10.0.0.8\n")
    (ssh / "deeper").write_text("Match originalhost rig\n  Port 2200\n")
    (ssh / "config").write_text("Include conf.d/*\nUser ada\nHost *\n  include=~/.ssh/last\n")
    (ssh / "last").write_text("IdentitiesOnly yes\n")
    found = lookup("rig")
    assert (found.hostname, found.port, found.user, found.identities_only) == ("10.0.0.7", 2200, "ada", True)


def test_a_file_that_includes_itself_is_read_to_an_end(ssh: Path) -> None:
    (ssh / "config").write_text("Include config\nHost rig\n  Port 2200\n")
    assert lookup("rig").port == 2200


def test_where_no_host_key_is_kept_the_remedy_is_not_to_accept_it(ssh: Path) -> None:
    (ssh / "config").write_text("Host lab\n  UserKnownHostsFile /dev/null\n")
    assert "ssh -- rig" in lookup("rig").to_accept
    assert "UserKnownHostsFile is /dev/null" in lookup("lab").to_accept


def test_the_first_jump_host_may_have_one_of_its_own_and_nobody_is_reached_through_himself(ssh: Path) -> None:
    (ssh / "config").write_text(
        "Host rig\n  ProxyJump inner,last\nHost inner\n  ProxyJump gate\nHost last gate\n  ProxyJump gate\n"
    )
    assert [hop.target for hop in hops_to(lookup("rig"))] == ["gate", "inner", "last"]
    (ssh / "config").write_text("Host *\n  ProxyJump gate\n")
    assert [hop.target for hop in hops_to(lookup("rig"))] == ["gate"]
    (ssh / "config").write_text("Host a\n  ProxyJump b\nHost b\n  ProxyJump a\n")
    assert [hop.target for hop in hops_to(lookup("a"))] == ["b"]
