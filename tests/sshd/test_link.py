"""Reaching a box: what OpenSSH's configuration says is done, and what is refused is refused with the line to run."""

from __future__ import annotations

import dataclasses
import getpass
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from patchbisect.box import Box, BoxSettings, open_box, ssh_files
from patchbisect.box.failures import LinkLost, Unreachable
from tests.box.lab import launch
from tests.sshd.openssh import Proxy, Sshd, free_port, make_key, running

pytestmark = pytest.mark.sshd

RELAY = """\
import os, select, socket, sys
assert len(sys.argv) == 3
peer = socket.create_connection((sys.argv[1], int(sys.argv[2])))
while True:
    for source in select.select([0, peer], [], [])[0]:
        data = os.read(0, 65536) if source == 0 else peer.recv(65536)
        if not data:
            sys.exit()
        peer.sendall(data) if source == 0 else os.write(1, data)
"""


def hello(settings: BoxSettings, state: Path) -> str:
    with open_box("rig", settings, state=state) as box:
        return box.hello().user


def refusal(settings: BoxSettings, state: Path) -> Unreachable:
    with pytest.raises(Unreachable) as caught:
        hello(settings, state)
    return caught.value


def test_a_host_of_ssh_config_is_reached(box: Box) -> None:
    facts = box.hello()
    assert facts.hostname == socket.gethostname()
    assert facts.user == getpass.getuser()


def test_a_host_of_the_machines_own_configuration_is_reached(settings: BoxSettings, home: Path, sshd: Sshd) -> None:
    ssh_files.MACHINE_CONFIG.parent.mkdir()
    (home / ".ssh" / "config").rename(ssh_files.MACHINE_CONFIG)
    assert hello(settings, home) == sshd.user


def test_user_and_port_in_the_setting_win_over_ssh_config(settings: BoxSettings, sshd: Sshd, home: Path) -> None:
    (home / ".ssh" / "known_hosts").write_text(sshd.known_hosts_line(sshd.port))
    direct = dataclasses.replace(settings, host=f"{sshd.user}@rig:{sshd.port}")
    assert hello(direct, home) == sshd.user


def test_an_unknown_host_key_is_refused_with_the_line_to_run(settings: BoxSettings, home: Path) -> None:
    (home / ".ssh" / "known_hosts").write_text("")
    refused = refusal(settings, home)
    assert "is not known here" in refused.message
    assert "ssh -- rig" in refused.remedy
    assert (home / ".ssh" / "known_hosts").read_text() == ""


def test_a_changed_host_key_is_refused_with_both_fingerprints(
    settings: BoxSettings, home: Path, proxy: Proxy, tmp_path: Path
) -> None:
    other = make_key(tmp_path / "other").with_suffix(".pub").read_text().split()
    (home / ".ssh" / "known_hosts").write_text(f"[127.0.0.1]:{proxy.port} {other[0]} {other[1]}\n")
    refused = refusal(settings, home)
    assert refused.message.count("SHA256:") == 2
    assert f"ssh-keygen -R '[127.0.0.1]:{proxy.port}'" in refused.remedy


def test_a_revoked_host_key_is_refused_and_a_certificate_line_does_no_harm(
    settings: BoxSettings, home: Path, sshd: Sshd, proxy: Proxy
) -> None:
    known = home / ".ssh" / "known_hosts"
    line = sshd.known_hosts_line(proxy.port)
    known.write_text(f"@cert-authority *.example {line.split(maxsplit=1)[1]}{line}")
    assert hello(settings, home) == sshd.user
    known.write_text(f"@revoked * {line.split(maxsplit=1)[1]}{line}")
    assert "is not known here" in refusal(settings, home).message


@pytest.mark.parametrize("names", ["*", "127.0.0.?", "[127.0.0.1]:*", "127.0.0.1"])
def test_a_host_key_is_known_by_whatever_openssh_knows_it(
    settings: BoxSettings, home: Path, sshd: Sshd, names: str
) -> None:
    (home / ".ssh" / "known_hosts").write_text(f"{names} {sshd.known_hosts_line(1).split(maxsplit=1)[1]}")
    assert hello(settings, home) == sshd.user


def test_one_of_several_keys_of_a_kind_is_enough(
    settings: BoxSettings, home: Path, sshd: Sshd, proxy: Proxy, tmp_path: Path
) -> None:
    known, line = home / ".ssh" / "known_hosts", sshd.known_hosts_line(proxy.port)
    other = make_key(tmp_path / "other").with_suffix(".pub").read_text().rpartition(" ")[0]
    for lines in (f"{line}* {other}\n", f"* {other}\n{line}"):
        known.write_text(lines)
        assert hello(settings, home) == sshd.user


def test_the_host_is_asked_for_a_kind_of_key_that_is_known_of_it(
    settings: BoxSettings, home: Path, tmp_path: Path
) -> None:
    """It has two kinds, of which the one that is not known would be preferred; of a third it has none."""
    subprocess.run(["ssh-keygen", "-q", "-t", "rsa", "-N", "", "-f", str(tmp_path / "rsa")], check=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-f", str(tmp_path / "ecdsa")], check=True)
    both = Sshd(tmp_path / "both", extra=f"HostKey {tmp_path / 'rsa'}")
    both.start()
    try:
        keys = [(tmp_path / f"{kind}.pub").read_text() for kind in ("ecdsa", "rsa")]
        (home / ".ssh" / "known_hosts").write_text("".join(f"[127.0.0.1]:{both.port} {key}" for key in keys))
        config = home / ".ssh" / "config"
        config.write_text(f"Host rig\n  HostName 127.0.0.1\n  Port {both.port}\n  IdentityFile {both.client_key}\n")
        assert hello(settings, home) == both.user
    finally:
        both.stop(sessions=True)


def test_another_key_under_the_name_without_the_port_makes_it_unknown_not_changed(
    settings: BoxSettings, home: Path, tmp_path: Path
) -> None:
    other = make_key(tmp_path / "other").with_suffix(".pub").read_text()
    (home / ".ssh" / "known_hosts").write_text(f"127.0.0.1 {other}")
    assert "is not known here" in refusal(settings, home).message


def test_a_hashed_known_hosts_file_is_read(settings: BoxSettings, home: Path, sshd: Sshd) -> None:
    known = home / ".ssh" / "known_hosts"
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(known)], check=True, capture_output=True)
    assert "127.0.0.1" not in known.read_text()
    assert hello(settings, home) == sshd.user


def test_a_host_key_alias_is_looked_up_without_the_port(settings: BoxSettings, home: Path, sshd: Sshd) -> None:
    with (home / ".ssh" / "config").open("a") as config:
        config.write("  HostKeyAlias the-rig\n")
    (home / ".ssh" / "known_hosts").write_text("the-rig " + sshd.known_hosts_line(1).split(maxsplit=1)[1])
    assert hello(settings, home) == sshd.user


def test_a_wrong_key_is_told(settings: BoxSettings, home: Path, sshd: Sshd, tmp_path: Path) -> None:
    wrong = make_key(tmp_path / "wrong")
    config = home / ".ssh" / "config"
    config.write_text(config.read_text().replace(str(sshd.client_key), str(wrong)))
    refused = refusal(settings, home)
    assert "accepts none of our keys" in refused.message
    assert str(wrong) in refused.message


def test_a_user_who_does_not_exist_is_told(settings: BoxSettings, home: Path) -> None:
    assert "no such user" in refusal(dataclasses.replace(settings, host="nobody-here@rig"), home).message


def test_a_locked_key_is_told(settings: BoxSettings, home: Path, sshd: Sshd, tmp_path: Path) -> None:
    locked = make_key(tmp_path / "locked", passphrase="correct horse")
    (sshd.folder / "authorized_keys").open("a").write(locked.with_suffix(".pub").read_text())
    config = home / ".ssh" / "config"
    config.write_text(config.read_text().replace(str(sshd.client_key), str(locked)))
    refused = refusal(settings, home)
    assert "passphrase" in refused.message
    assert refused.remedy == f"ssh-add {locked}"


def test_without_any_key_it_is_said_that_there_is_none(settings: BoxSettings, home: Path, proxy: Proxy) -> None:
    (home / ".ssh" / "config").write_text(f"Host rig\n  HostName 127.0.0.1\n  Port {proxy.port}\n")
    refused = refusal(settings, home)
    assert "we have no key for" in refused.message
    assert "ssh-keygen" in refused.remedy


def test_a_port_where_nobody_listens_is_told(settings: BoxSettings, home: Path) -> None:
    refused = refusal(dataclasses.replace(settings, host=f"rig:{free_port()}"), home)
    assert "refused the connection" in refused.message


def test_a_name_without_an_address_is_told(settings: BoxSettings, home: Path) -> None:
    assert "no address" in refusal(dataclasses.replace(settings, host="no-such-host.invalid"), home).message


def test_a_host_that_does_not_answer_is_told(settings: BoxSettings, home: Path, proxy: Proxy) -> None:
    proxy.black_hole()
    assert "no SSH server answered in 3 s" in refusal(settings, home).message


def test_a_login_that_never_speaks_is_given_up_with_a_hint(settings: BoxSettings, tmp_path: Path, home: Path) -> None:
    with running(Sshd(tmp_path / "waiting", extra="ForceCommand sleep 60")) as waiting:
        (home / ".ssh" / "known_hosts").write_text(waiting.known_hosts_line(waiting.port))
        (home / ".ssh" / "config").write_text(f"Host rig\n  IdentityFile {waiting.client_key}\n")
        mute = dataclasses.replace(settings, host=f"{waiting.user}@127.0.0.1:{waiting.port}", link_timeout_s=0.5)
        (home / ".ssh" / "id_ed25519").write_bytes(waiting.client_key.read_bytes())
        with pytest.raises(LinkLost) as caught:
            hello(mute, home)
        assert "does a start-up file of the shell there wait" in caught.value.remedy


def test_a_server_that_grants_one_session_a_connection_gets_more_connections(
    settings: BoxSettings, tmp_path: Path, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with running(Sshd(tmp_path / "narrow", extra="MaxSessions 1")) as narrow:
        (home / ".ssh" / "id_ed25519").write_bytes(narrow.client_key.read_bytes())
        (home / ".ssh" / "known_hosts").write_text(narrow.known_hosts_line(narrow.port))
        one_each = dataclasses.replace(settings, host=f"{narrow.user}@127.0.0.1:{narrow.port}")
        with open_box("rig", one_each, state=home) as box, box.lease("test"):
            run = launch(box, "--line", "up", "--end", "hang")
            for _ in run.events():
                assert box.leases(), "asked while the log is followed"
                break
            assert run.stop(0.0).ended
        assert not [one for one in caplog.records if one.name == "patchbisect.box.patience"], "no link was lost"


def through(home: Path, command: str) -> None:
    """Have ``rig`` reached by a ProxyCommand."""
    with (home / ".ssh" / "config").open("a") as config:
        config.write(f"  ProxyCommand {command}\n")


def test_a_proxy_command_is_a_line_of_the_shell(settings: BoxSettings, home: Path, sshd: Sshd, tmp_path: Path) -> None:
    relay = tmp_path / "relay.py"
    relay.write_text(RELAY)
    through(home, f"{sys.executable} {relay} %h %p 2>/dev/null")
    assert hello(settings, home) == sshd.user


@pytest.mark.parametrize(
    ("command", "said"), [("/no/such/relay %h", "/no/such/relay"), ("sh -c 'echo closed today >&2'", "closed today")]
)
def test_a_proxy_command_that_fails_is_told_with_its_own_words(
    settings: BoxSettings, home: Path, command: str, said: str
) -> None:
    through(home, command)
    slow_to_give_up = dataclasses.replace(settings, link_timeout_s=3600.0)  # its end is noticed, not waited for
    with pytest.raises(LinkLost, match=f"ProxyCommand to .* ended .*; its ProxyCommand says: .*{said}") as caught:
        hello(slow_to_give_up, home)
    assert "try it by hand: ssh -- rig" in caught.value.remedy


def test_an_ipv6_address_is_a_host(settings: BoxSettings, tmp_path: Path, home: Path) -> None:
    with running(Sshd(tmp_path / "six", extra="ListenAddress ::1")) as six:
        (home / ".ssh" / "id_ed25519").write_bytes(six.client_key.read_bytes())
        line = six.known_hosts_line(six.port).replace("[127.0.0.1]", "[::1]")
        (home / ".ssh" / "known_hosts").write_text(line)
        assert hello(dataclasses.replace(settings, host=f"{six.user}@[::1]:{six.port}"), home) == six.user


def test_a_jump_host_is_gone_through_and_its_key_is_checked_too(
    settings: BoxSettings, home: Path, sshd: Sshd, tmp_path: Path
) -> None:
    with running(Sshd(tmp_path / "jump")) as jump:
        (home / ".ssh" / "config").write_text(
            f"Host inner\n  HostName 127.0.0.1\n  Port {sshd.port}\n  IdentityFile {sshd.client_key}\n"
            f"  ProxyJump outer\n"
            f"Host outer\n  HostName 127.0.0.1\n  Port {jump.port}\n  IdentityFile {jump.client_key}\n"
        )
        inner = dataclasses.replace(settings, host="inner")
        known = home / ".ssh" / "known_hosts"
        known.write_text(sshd.known_hosts_line(sshd.port))
        assert f"[127.0.0.1]:{jump.port}" in refusal(inner, home).message
        known.write_text(sshd.known_hosts_line(sshd.port) + jump.known_hosts_line(jump.port))
        assert hello(inner, home) == sshd.user
        assert "Accepted publickey" in (jump.folder / "sshd.log").read_text()


def test_ssh_itself_as_a_prefix_reaches_the_same_box(settings: BoxSettings, home: Path, sshd: Sshd) -> None:
    prefix = ("ssh", "-F", str(home / ".ssh" / "config"), "-o", f"UserKnownHostsFile={home}/.ssh/known_hosts", "rig")
    assert hello(dataclasses.replace(settings, host="", prefix=prefix), home) == sshd.user


def test_a_missing_python_is_told(settings: BoxSettings, home: Path) -> None:
    refused = refusal(dataclasses.replace(settings, python="/no/such/python"), home)
    assert "there is no /no/such/python there" in refused.message


def test_a_directory_that_cannot_be_written_is_told(settings: BoxSettings, home: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused = refusal(dataclasses.replace(settings, directory=str(tmp_path / "file" / "box")), home)
    assert "cannot be written" in refused.message


def test_a_server_with_too_many_logins_pending_is_told(settings: BoxSettings, tmp_path: Path, home: Path) -> None:
    with running(Sshd(tmp_path / "busy", extra="PerSourceMaxStartups 0")) as busy:
        (home / ".ssh" / "known_hosts").write_text(busy.known_hosts_line(busy.port))
        with pytest.raises(LinkLost, match="turned us away: Exceeded MaxStartups") as caught:
            hello(dataclasses.replace(settings, host=f"{busy.user}@127.0.0.1:{busy.port}"), home)
    assert "MaxStartups in its sshd_config" in caught.value.remedy
