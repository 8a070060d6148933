"""Which keys known_hosts has of a host: as OpenSSH reads it, whatever stands there."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies

from patchbisect.box.known_hosts import keys_of


@pytest.fixture
def public(tmp_path: Path) -> str:
    """Kind and key."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "key")], check=True)
    return " ".join((tmp_path / "key.pub").read_text().split()[:2])


DAMAGED = [
    "rubbish",
    "rig ssh-ed25519 !!!",
    "rig ssh-rsa AAAAB3NzaC1yc2EAAAADAQAB",
    "rig ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIZZZ",
    "rig ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBA==",
    "rig ssh-\x80 AAAA",
    "|1|rubbish|x ssh-ed25519 AAAA",
    "|1 ssh-ed25519 AAAA",
]


def test_known_hosts_with_rubbish_in_it_still_gives_its_keys(tmp_path: Path, public: str) -> None:
    (tmp_path / "known_hosts").write_text("\n".join(["# comment", "", *DAMAGED, f"rig {public} a comment"]))
    (key,) = keys_of([tmp_path / "known_hosts"], "rig")
    assert key.get_base64() == public.split()[1]


@given(strategies.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@pytest.mark.parametrize("kind", ["ed25519", "rsa", "ecdsa"])
def test_whatever_happens_to_a_line_the_others_are_read(
    tmp_path: Path, public: str, kind: str, data: strategies.DataObject
) -> None:
    file = tmp_path / kind
    if not file.exists():
        subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", str(file)], check=True)
    name, key = file.with_suffix(".pub").read_text().split()[:2]
    raw = base64.b64decode(key)
    begin = data.draw(strategies.integers(0, 60))
    cut = data.draw(strategies.integers(0, 8))
    damaged = raw[:begin] + data.draw(strategies.binary(max_size=8)) + raw[begin + cut :]
    (tmp_path / "known_hosts").write_text(f"rig {name} {base64.b64encode(damaged).decode()}\nrig {public}\n")
    assert keys_of([tmp_path / "known_hosts"], "rig")[-1].get_base64() == public.split()[1]


@pytest.mark.parametrize(
    ("names", "known"),
    [
        ("[10.0.0.7]:2200", True),
        ("gate,[10.0.0.7]:2200", True),
        ("[10.0.0.?]:2200", True),
        ("*,!10.0.0.*", True),
        ("*,![10.0.0.*", False),
        ("10.0.0.7", False),
        ("[10.0.0.7]:22", False),
        ("[10x0.0.7]:2200", False),
        ("[[1]0.0.0.7]:2200", False),
    ],
)
def test_names_are_patterns_as_openssh_has_them(tmp_path: Path, public: str, names: str, known: bool) -> None:
    file, name = tmp_path / "known_hosts", "[10.0.0.7]:2200"
    file.write_text(f"{names} {public}\n")
    assert bool(keys_of([file], name)) == known
    assert (subprocess.run(["ssh-keygen", "-F", name, "-f", file], capture_output=True).returncode == 0) == known


def test_names_may_be_hashed(tmp_path: Path, public: str) -> None:
    file = tmp_path / "known_hosts"
    file.write_text(f"[10.0.0.7]:2200 {public}\n")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", file], check=True, capture_output=True)
    assert file.read_text().startswith("|1|")
    assert keys_of([file], "[10.0.0.7]:2200")
    assert not keys_of([file], "10.0.0.7")
    assert not keys_of([file], "[10.0.0.8]:2200")
