"""Something answers at the port of a box, and it is no login: what it is, and what to do next."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from patchbisect.box import BoxSettings, open_box, ssh_files
from patchbisect.box.failures import LinkLost, Unreachable
from patchbisect.errors import BoxError


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody's ssh configuration has a say."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(ssh_files, "MACHINE_CONFIG", tmp_path / "ssh_config")


@contextlib.contextmanager
def answering(answer: Callable[[socket.socket], object]) -> Iterator[int]:
    """A port at which every connection is treated so, and then closed."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            with peer, contextlib.suppress(OSError):
                answer(peer)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        listener.close()


def failure(answer: Callable[[socket.socket], object], state: Path) -> BoxError:
    with answering(answer) as port:
        settings = BoxSettings(host=f"ada@127.0.0.1:{port}", python="python3", link_timeout_s=2.0)
        with open_box("rig", settings, state=state) as box, pytest.raises(BoxError) as caught:
            box.hello()
    return caught.value


def hang_up(peer: socket.socket) -> None:
    """At once, as tcpd and a port forward to nothing do."""


def hang_up_rudely(peer: socket.socket) -> None:
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def saying(text: bytes, *, waits: bool = False) -> Callable[[socket.socket], object]:
    def answer(peer: socket.socket) -> None:
        peer.recv(1024)
        peer.sendall(text)
        if waits:
            peer.settimeout(10.0)
            while peer.recv(1024):
                pass

    return answer


@pytest.mark.ci
@pytest.mark.parametrize("answer", [hang_up, hang_up_rudely])
def test_a_connection_that_is_closed_without_a_word_says_what_to_look_at(
    answer: Callable[[socket.socket], object], tmp_path: Path
) -> None:
    told = failure(answer, tmp_path)
    assert isinstance(told, LinkLost), "an sshd that is being restarted does so too"
    assert "took the connection and closed it before a word of SSH" in told.message
    for hint in ("the right port", "forwarded", "fail2ban", "hosts.deny", "MaxStartups", "ssh -p"):
        assert hint in told.remedy


@pytest.mark.ci
@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        (saying(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "'HTTP/1.1 400 Bad Request'"),
        (saying(b"220 mail.example ESMTP\r\n", waits=True), "'220 mail.example ESMTP'"),
        (saying(b"\x15\x03\x01\x00\x02\x02\x46"), r"'\x15\x03\x01"),
        (saying(b"\x1b[2Jgone\n"), r"'\x1b[2Jgone'"),
        (saying(b"x\n" * 200, waits=True), "'x'"),
    ],
    ids=["web", "mail", "TLS", "orders to the terminal", "endless"],
)
def test_what_is_no_ssh_server_is_told_by_its_own_words(
    answer: Callable[[socket.socket], object], shown: str, tmp_path: Path
) -> None:
    told = failure(answer, tmp_path)
    assert isinstance(told, Unreachable), "trying again will not help"
    assert f"is no SSH server: it says {shown}" in told.message
    assert "`port` of the box" in told.remedy


@pytest.mark.ci
def test_an_sshd_that_hangs_up_after_its_banner_is_to_be_tried_by_hand(tmp_path: Path) -> None:
    told = failure(saying(b"Welcome to the gate\r\nSSH-2.0-OpenSSH_9.2\r\n"), tmp_path)
    assert isinstance(told, LinkLost)
    assert "the connection broke while it was made" in told.message
    assert "()" not in told.message
    assert "try it by hand: ssh -p" in told.remedy


@pytest.mark.ci
def test_an_sshd_that_turns_us_away_says_why(tmp_path: Path) -> None:
    told = failure(saying(b"Not allowed at this time\r\n"), tmp_path)
    assert isinstance(told, LinkLost)
    assert "turned us away: Not allowed at this time" in told.message
    assert "bars this address" in told.remedy
