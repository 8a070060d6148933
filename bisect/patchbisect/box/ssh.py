"""A link over SSH: a kept, checked connection with keep-alive, and a channel of it for each conversation.

Where sshd grants a connection fewer sessions than there are conversations, there are further connections.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Sequence

import paramiko

from patchbisect.box.failures import LinkLost, Unreachable
from patchbisect.box.known_hosts import Known
from patchbisect.box.ssh_config import HostSettings, hops_to, lookup
from patchbisect.box.ssh_proxy import ProxyCommand
from patchbisect.box.ssh_refusals import BROKEN, Heard, Login, hung_up
from patchbisect.errors import NO_FILES, BoxError

KEEPALIVE_S = 5
LOG_CHANNEL = "patchbisect.paramiko"
logging.getLogger(LOG_CHANNEL).addHandler(logging.NullHandler())
logging.getLogger(LOG_CHANNEL).propagate = False  # it logs tracebacks of what is told as a BoxError


class Connection:
    """A way to the box: the clients of the jump hosts, if there are any, and last that of the box itself."""

    def __init__(self) -> None:
        self._clients: list[paramiko.SSHClient] = []
        self.transport: paramiko.Transport
        """That of the last."""

    def lead_on(self, client: paramiko.SSHClient) -> None:
        transport = client.get_transport()
        assert transport is not None
        transport.set_keepalive(KEEPALIVE_S)
        self.transport = transport
        self._clients.append(client)

    def close(self) -> None:
        for client in reversed(self._clients):
            client.close()


class SshChannel:
    """``sh`` behind a channel of an SSH connection."""

    def __init__(self, channel: paramiko.Channel, link: SshLink, connection: Connection) -> None:
        self._channel = channel
        self._link = link
        self._connection = connection
        self._said = b""

    def write(self, data: bytes) -> None:
        try:
            self._channel.settimeout(self._link.timeout_s)
            self._channel.sendall(data)
        except BROKEN as problem:
            raise self._lost(problem) from None

    def read(self, timeout_s: float) -> bytes:
        try:
            self._channel.settimeout(timeout_s)
            return self._channel.recv(1 << 20)
        except BROKEN as problem:
            raise self._lost(problem) from None

    def _lost(self, problem: Exception) -> LinkLost:
        """A silent connection is as lost as a closed one: the next channel gets a new one."""
        self._link.drop(self._connection)
        silent = isinstance(problem, TimeoutError)
        return LinkLost(f"{self._link.where}: {'the link is silent' if silent else f'the link broke ({problem})'}")

    def complaint(self) -> str:
        channel = self._channel
        deadline = time.monotonic() + 1.0
        with contextlib.suppress(*BROKEN):
            channel.settimeout(1.0)
            while len(self._said) < 4000 and time.monotonic() < deadline and (part := channel.recv_stderr(4096)):
                self._said += part
        text = self._said.decode("utf-8", "replace").strip()
        code = channel.recv_exit_status() if channel.exit_status_ready() else 0
        return f"{text} (exit code {code})" if code > 0 else text

    def close(self) -> None:
        with contextlib.suppress(*BROKEN):
            self._channel.close()


class SshLink:
    """The connections to ``[user@]host[:port]``, made when first needed and again after it was lost.

    Honours ssh's configuration; checks the host key against known_hosts and never learns one; uses keys and the agent,
    never a password.
    """

    def __init__(self, target: str, *, name: str, timeout_s: float) -> None:
        self._target = target
        self._lock = threading.Lock()
        self._connections: list[Connection] = []
        self._connected_before = False
        self.timeout_s = timeout_s
        self.where = f"box {name}"

    @property
    def proven(self) -> bool:
        return self._connected_before

    def open(self) -> SshChannel:
        """Raises Unreachable, or LinkLost where an earlier connection shows that the way is right."""
        full: list[Connection] = []
        while True:
            connection, new = self._connection(full)
            channel = self._channel(connection)
            if channel is not None:
                return channel
            if new:
                self.drop(connection)
                raise self._failure("sshd there starts no session", "is MaxSessions 0 in its sshd_config?")
            full.append(connection)

    def _connection(self, full: Sequence[Connection]) -> tuple[Connection, bool]:
        """One that is not known to be ``full``, and whether it was made just now."""
        with self._lock:
            for one in self._connections:
                if one.transport.is_active() and one not in full:
                    return one, False
            connection = self._connect_along(lookup(self._target))
            self._connected_before = True
            self._connections.append(connection)
            return connection, True

    def _channel(self, connection: Connection) -> SshChannel | None:
        """A channel of that connection; None when sshd grants no more of them on one (``MaxSessions``)."""
        try:
            channel = connection.transport.open_session(timeout=self.timeout_s)
            channel.exec_command("sh")
        except paramiko.ChannelException:
            return None
        except BROKEN as problem:
            self.drop(connection)
            raise LinkLost(f"{self.where}: no channel could be opened ({problem})") from None
        return SshChannel(channel, self, connection)

    def _connect_along(self, host: HostSettings) -> Connection:
        """Connect through the jump hosts of ``host``, if it has any, each checked like the last."""
        way = Connection()
        hops = [*hops_to(host), host]
        try:
            way.lead_on(self._connect(hops[0], None))
            for hop in hops[1:]:
                way.lead_on(self._connect(hop, self._tunnel(way.transport, hop)))
        except BaseException:
            way.close()
            raise
        return way

    def _tunnel(self, transport: paramiko.Transport, to: HostSettings) -> paramiko.Channel:
        try:
            return transport.open_channel(
                "direct-tcpip", (to.hostname, to.port), ("127.0.0.1", 0), timeout=self.timeout_s
            )
        except BROKEN as problem:
            message = f"the jump host cannot reach {to.hostname}:{to.port} ({problem})"
            raise self._failure(message, "is sshd running there, on this port?") from None

    def _connect(self, host: HostSettings, tunnel: paramiko.Channel | None) -> paramiko.SSHClient:
        client = paramiko.SSHClient()
        client.set_log_channel(LOG_CHANNEL)
        known = Known(host.known_hosts, known_as=host.known_as, name=host.key_name)
        client.set_missing_host_key_policy(known)
        heard = Heard(tunnel) if tunnel else self._way(host)
        login = Login(self.where, host, heard, timeout_s=self.timeout_s, worked=self._connected_before)
        try:
            client.connect(
                host.key_name,
                port=host.key_port,
                username=host.user,
                key_filename=[str(path) for path in host.identities] or None,  # type: ignore[arg-type]
                allow_agent=not host.identities_only,
                look_for_keys=not host.identities,
                sock=heard,  # type: ignore[arg-type]
                timeout=self.timeout_s,
                banner_timeout=self.timeout_s,
                auth_timeout=self.timeout_s,
                transport_factory=known.transport,
            )
        except BaseException as problem:
            client.close()
            heard.close()
            ours = isinstance(problem, OSError) and problem.errno in NO_FILES
            if isinstance(problem, BROKEN) and not ours:
                raise login.failure(problem) from None
            raise
        return client

    def _way(self, host: HostSettings) -> Heard:
        if host.proxy_command:
            proxy = ProxyCommand(host.proxy_command)
            return Heard(proxy.socket, proxy)
        return Heard(self._socket(host))

    def _socket(self, host: HostSettings) -> socket.socket:
        where = f"{host.hostname}:{host.port}"
        try:
            return socket.create_connection((host.hostname, host.port), timeout=self.timeout_s)
        except socket.gaierror as problem:
            raise self._failure(
                f"no address for {host.hostname} ({problem.strerror})",
                f"correct `host` of the box; if {host.by_hand} knows it all the same: `prefix: [ssh, …]` instead",
            ) from None
        except TimeoutError:
            remedy = "is the machine up, and the network or VPN?"
            raise self._failure(f"{where} did not answer within {self.timeout_s:.0f} s", remedy) from None
        except ConnectionRefusedError:
            raise self._failure(f"{where} refused the connection", "is sshd running there, on this port?") from None
        except ConnectionResetError:
            raise hung_up(self.where, host) from None
        except OSError as problem:
            if problem.errno in NO_FILES:
                raise
            raise self._failure(f"{where} cannot be reached ({problem.strerror})", "check the network") from None

    def _failure(self, message: str, remedy: str) -> BoxError:
        """A way that once worked is lost for a while; one that never did is wrong."""
        kind = LinkLost if self._connected_before else Unreachable
        return kind(f"{self.where}: {message}", remedy=remedy)

    def drop(self, connection: Connection) -> None:
        """Give a connection up, and those that have broken; the next channel makes a new one."""
        with self._lock:
            for one in [one for one in self._connections if one is connection or not one.transport.is_active()]:
                self._connections.remove(one)
                one.close()

    def close(self) -> None:
        with self._lock:
            while self._connections:
                self._connections.pop().close()
