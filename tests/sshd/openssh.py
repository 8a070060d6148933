"""A real OpenSSH server of our own on loopback, and a TCP proxy in front of it that can fail in every way."""

from __future__ import annotations

import contextlib
import getpass
import os
import random
import select
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

SSHD = "/usr/sbin/sshd"


def install() -> str:
    """Have an OpenSSH server here. Returns why there is none, or nothing."""
    if Path(SSHD).exists():
        return ""
    if os.getuid() != 0 or shutil.which("apt-get") is None:
        return "there is no /usr/sbin/sshd, and only root on Debian can install it: apt-get install openssh-server"
    for words in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", "openssh-server"]):
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        done = subprocess.run(["apt-get", *words], env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            return f"apt-get {words[0]} failed: {done.stderr.strip()[-300:]}"
    return ""


def free_port() -> int:
    """Below the range from which connections take theirs: it is listened on only later, and again after a restart."""
    while True:
        port = random.randrange(20000, 32000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def make_key(path: Path, *, passphrase: str = "") -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-f", str(path)], check=True)
    return path


class Sshd:
    """sshd with its own configuration, host key and authorized key, on a port of its own."""

    def __init__(self, folder: Path, *, extra: str = "") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.port = free_port()
        self.user = getpass.getuser()
        self.host_key = make_key(folder / "host_key")
        self.client_key = make_key(folder / "client_key")
        Path("/run/sshd").mkdir(exist_ok=True)
        (folder / "home").mkdir(exist_ok=True)  # with no start-up files: a login that is killed in them may leave locks
        (folder / "authorized_keys").write_text(self.client_key.with_suffix(".pub").read_text())
        self._config = folder / "sshd_config"
        self._config.write_text(
            f"{extra}\nPort {self.port}\nListenAddress 127.0.0.1\nHostKey {self.host_key}\n"
            f"AuthorizedKeysFile {folder / 'authorized_keys'}\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n"
            f"KbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\nPidFile {folder / 'pid'}\n"
            f"MaxStartups 100\nMaxSessions 50\nAcceptEnv NOTHING\nClientAliveInterval 5\n"
            f"SetEnv HOME={folder / 'home'}\n"
        )
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def command(self) -> list[str]:
        return [SSHD, "-D", "-e", "-f", str(self._config)]

    def start(self) -> None:
        with (self.folder / "sshd.log").open("ab") as log:
            self._process = subprocess.Popen(self.command, stdout=log, stderr=log)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return
            assert self._process.poll() is None, (self.folder / "sshd.log").read_text()
            time.sleep(0.01)
        raise AssertionError("sshd does not answer")

    def stop(self, *, sessions: bool = False) -> None:
        """End the listener; with ``sessions`` also the connections that it serves, as a reboot of sshd does not."""
        if self._process is None:
            return
        if sessions:
            for pid in self.sessions():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self._process.terminate()
        self._process.wait()
        self._process = None

    def sessions(self) -> list[int]:
        """The processes of sshd, one per connection, that this listener started."""
        assert self._process is not None
        found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(self._process.pid)], capture_output=True, text=True)
        return [int(pid) for pid in found.stdout.split()]

    def known_hosts_line(self, port: int) -> str:
        kind, key = self.host_key.with_suffix(".pub").read_text().split()[:2]
        return f"[127.0.0.1]:{port} {kind} {key}\n"


class Machine(Sshd):
    """An sshd with processes, pids and a boot id of its own, which can be switched off and on again."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._boots = 0

    @property
    def command(self) -> list[str]:
        boot = self.folder / f"boot-{self._boots}"
        boot.write_text(f"00000000-0000-0000-0000-{self._boots:012d}\n")
        script = 'mount --bind "$1" /proc/sys/kernel/random/boot_id && shift && "$@"; exit'
        apart = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
        return [*apart, "bash", "-c", script, "bash", str(boot), *super().command]

    def stop(self, *, sessions: bool = False) -> None:
        """Power off: every process on it is gone at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
            self._wait_for_silence()

    def _wait_for_silence(self) -> None:
        """The kernel ends the machine's processes a moment after the first; till then the old sshd still listens."""
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", self.port)):
                return
            time.sleep(0.005)
        raise AssertionError("the machine is still on")

    def reboot(self) -> None:
        self.stop()
        self._boots += 1
        self.start()


class Proxy:
    """Forwards a port to ``target``. Can cut all links, turn them into black holes, and refuse new ones."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._lock = threading.Lock()
        self._silent = threading.Event()
        self._refusing = threading.Event()
        self.carried = 0
        """Bytes from the server to the client so far."""
        self.round_trips = 0
        """How often the direction turned from client to server."""
        self._last = ""
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._refusing.is_set():
                client.close()
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:  # nobody listens there now
                client.close()
                continue
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._pairs.append((client, server))
            threading.Thread(target=self._pump, args=(client, server), daemon=True).start()

    def _pump(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError):
            while True:
                ready, _, _ = select.select([client, server], [], [], 0.2)
                if self._silent.is_set():
                    time.sleep(0.05)  # a black hole: neither bytes nor an end of stream pass
                    continue
                for source in ready:
                    data = source.recv(1 << 16)
                    if not data:
                        return self._close(client, server)
                    (server if source is client else client).sendall(data)
                    self._count("up" if source is client else "down", len(data))
        self._close(client, server)
        return None

    def _count(self, direction: str, size: int) -> None:
        if direction == "down":
            self.carried += size
        elif self._last == "down":
            self.round_trips += 1
        self._last = direction

    def _close(self, *ends: socket.socket) -> None:
        for end in ends:
            with contextlib.suppress(OSError):
                end.close()

    def cut(self) -> None:
        """Break every link that is open now. New ones are accepted."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for client, server in pairs:
            for end in (client, server):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def black_hole(self) -> None:
        """Swallow everything, on open links and new ones, without a word."""
        self._silent.set()

    def heal(self) -> None:
        """Forward again. What a black hole held is lost with its connections."""
        self.cut()
        self._silent.clear()
        self._refusing.clear()

    def refuse(self) -> None:
        """Break every link and accept none."""
        self._refusing.set()
        self.cut()

    def close(self) -> None:
        """No thread may wait in accept() any more when the listener's number is given to the next one's."""
        self.cut()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._acceptor.join()
        self._listener.close()


@contextlib.contextmanager
def running(sshd: Sshd) -> Iterator[Sshd]:
    sshd.start()
    try:
        yield sshd
    finally:
        sshd.stop(sessions=True)
