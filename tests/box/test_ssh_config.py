"""What ssh's own files say of a host, and what of it is not applied."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchbisect.box import ssh_files
from patchbisect.box.ssh_config import hops_to, lookup, not_applied, parse_target
from patchbisect.errors import UsageError


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / ".ssh"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(ssh_files, "MACHINE_CONFIG", tmp_path / "etc" / "ssh_config")
    return folder


@pytest.fixture
def etc(ssh: Path) -> Path:
    """Where the machine's own configuration is."""
    folder = ssh_files.MACHINE_CONFIG.parent
    folder.mkdir()
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
    (ssh / "narrow").write_text("Host rig\n  Port 2200\n")
    (ssh / "known_hosts").write_text("@cert-authority * ssh-ed25519 AAAA\n")
    found = not_applied("rig")
    assert [line.rpartition("/")[2] for line in found] == [
        "other:2: identityagent is not applied",
        "config:4: certificatefile is not applied",
        "config:6: include is not applied",
        "known_hosts: a @cert-authority line is not applied",
    ]


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


def test_the_machines_configuration_is_read_after_the_users(ssh: Path, etc: Path) -> None:
    (etc / "id").write_text("")
    (ssh / "config").write_text("User ada\nHost other\n  Port 2222\n")
    (etc / "ssh_config").write_text(
        f"Include conf.d/*.conf\nPort 2200\nHost *\n  User eve\n  IdentityFile {etc / 'id'}\n"
    )
    (etc / "conf.d").mkdir()
    (etc / "conf.d" / "site.conf").write_text("Include deeper\nHost rig\n  HostName 10.0.0.7\n  ProxyJump gate\n")
    (etc / "deeper").write_text("HostKeyAlias the-rig\n")
    found = lookup("rig")
    assert (found.user, found.port, found.hostname, found.jumps) == ("ada", 2200, "10.0.0.7", ("gate",))
    assert found.alias == "the-rig"
    assert found.identities == (etc / "id",)
    assert lookup("other").port == 2222


def test_the_files_that_distributions_ship_are_no_fault_of_a_box(ssh: Path, etc: Path) -> None:
    """As Fedora has them: a Match that Paramiko refuses, with a list of algorithms in it."""
    (etc / "ssh_config").write_text("Include conf.d/*.conf\n")
    (etc / "conf.d").mkdir()
    (etc / "policy").write_text("Ciphers aes256-ctr\nMACs hmac-sha2-256\nGSSAPIKexAlgorithms gss-a\n")
    (etc / "conf.d" / "50-redhat.conf").write_text(
        f"Match final all\n\tInclude {etc / 'policy'}\n\tGSSAPIAuthentication yes\n\tForwardX11Trusted yes\n"
    )
    assert lookup("rig").port == 22
    assert not_applied("rig") == []
    (ssh / "config").write_text("Host rig\n  Ciphers aes128-cbc\n")
    assert not_applied("rig") == [f"{ssh / 'config'}:2: ciphers is not applied"]


def test_a_fault_in_the_machines_file_is_not_blamed_on_the_users(ssh: Path, etc: Path) -> None:
    (etc / "ssh_config").write_text("Match exec\n")
    with pytest.raises(UsageError) as caught:
        lookup("rig")
    assert caught.value.message.startswith(f"{etc / 'ssh_config'}: ")


def test_a_condition_that_cannot_be_told_does_not_hold_and_is_named(ssh: Path) -> None:
    (ssh / "config").write_text("Match localnetwork 10.0.0.0/8\n  Port 2200\nMatch Host rig\n  Port 2201\n")
    assert (lookup("rig").port, lookup("other").port) == (2201, 22)
    assert not_applied("rig") == [f"{ssh / 'config'}:1: match localnetwork is not applied"]


def test_a_file_without_conditions_is_included_under_those_of_its_include(ssh: Path) -> None:
    (ssh / "config").write_text("Host rig\n  Include port user\n  HostKeyAlias a\nHost *\n  Port 2201\n")
    (ssh / "port").write_text("Port 2200\n")
    (ssh / "user").write_text("User ada\n")
    found, other = lookup("rig"), lookup("other")
    assert (found.port, found.user, found.alias) == (2200, "ada", "a")
    assert (other.port, other.alias) == (2201, "")
    assert other.user != "ada"
    assert not_applied("rig") == []
