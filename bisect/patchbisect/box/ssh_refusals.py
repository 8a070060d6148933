"""Why a login over SSH failed: what Paramiko raises, in words, with what to do next."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import paramiko

from patchbisect.box.failures import LinkLost, Unreachable
from patchbisect.box.ssh_config import HostSettings
from patchbisect.box.ssh_proxy import ProxyCommand
from patchbisect.errors import BoxError

BROKEN = (OSError, EOFError, paramiko.SSHException)
"""What Paramiko lets out when a connection breaks, depending on where it was."""
KEPT_BYTES = 300
TURNED_AWAY = {
    "Exceeded MaxStartups": "too many logins there have not finished: raise MaxStartups in its sshd_config",
    "Not allowed at this time": "its sshd bars this address after failed logins (PerSourcePenalties): wait",
}
"""What OpenSSH says instead of its banner (sshd.c), and what that means."""


class Heard:
    """A socket, or what stands for one, that keeps the first bytes of the other side; ``proxy`` may be behind it."""

    def __init__(self, way: Any, proxy: ProxyCommand | None = None) -> None:
        self._way = way
        self.proxy = proxy
        self._first = b""

    def recv(self, size: int) -> bytes:
        data: bytes = self._way.recv(size)
        self._first += data[: KEPT_BYTES - len(self._first)]
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._way, name)

    @property
    def lines(self) -> list[str]:
        return self._first.decode("utf-8", "replace").splitlines()

    @property
    def is_ssh(self) -> bool:
        """A server may say something else before its banner (RFC 4253, 4.2)."""
        return any(line.startswith("SSH-") for line in self.lines)

    def close(self) -> None:
        self._way.close()
        self.complaint()

    def complaint(self) -> str:
        """What the ProxyCommand said on standard error, which ends it."""
        return self.proxy.end() if self.proxy else ""


def hung_up(where: str, host: HostSettings) -> LinkLost:
    """Of a connection that is closed before the other side said anything: sshd itself never does so by its own will."""
    return LinkLost(
        f"{where}: {host.who} took the connection and closed it before a word of SSH",
        remedy="if it stays so: is it the right port, and if it is forwarded, does an sshd listen at its end? does it "
        "bar this address (fail2ban, hosts.deny), or are too many logins pending (MaxStartups)? "
        f"try it by hand: {host.by_hand}",
    )


@dataclass(frozen=True, slots=True)
class Login:
    """One try to log in to ``host``. Where a way has ``worked`` before, what fails is more likely lost than wrong."""

    where: str
    host: HostSettings
    heard: Heard
    timeout_s: float
    worked: bool
    began: float = field(default_factory=time.monotonic)

    @property
    def who(self) -> str:
        return self.host.who

    @property
    def _try_it(self) -> str:
        return f"try it by hand: {self.host.by_hand}"

    def failure(self, problem: Exception) -> BoxError:
        """``problem`` as the person is told it."""
        told = self._no_banner() or self._refusal(problem) or self._breakage(problem)
        said = self.heard.complaint()
        return type(told)(f"{told.message}; its ProxyCommand says: {said}", remedy=told.remedy) if said else told

    def _no_banner(self) -> BoxError | None:
        """Of something that spoke, and not as an SSH server does."""
        lines = [line for line in self.heard.lines if line.strip()]
        if not lines or self.heard.is_ssh:
            return None
        for words, remedy in TURNED_AWAY.items():
            if words in lines[0]:
                return self._lost(f"{self.who}: sshd turned us away: {words}", f"if it stays so: {remedy}")
        return self._failed(
            f"{self.who} is no SSH server: it says {lines[0][:80]!r}",
            "correct `port` of the box (or Port in ~/.ssh/config): another program listens there",
        )

    def _refusal(self, problem: Exception) -> BoxError | None:
        """Of an SSH server that answered; None where the connection came to nothing before."""
        host, try_it = self.host, self._try_it
        match problem:
            case paramiko.BadHostKeyException():
                return self._wrong(
                    f"the host key of {host.known_as} has changed: it is now {problem.key.fingerprint}, "
                    f"known_hosts has {problem.expected_key.fingerprint}",
                    f"when you know why it changed: ssh-keygen -R '{host.known_as}' && {host.by_hand}",
                )
            case paramiko.PasswordRequiredException():
                return self._wrong(
                    f"the key for {self.who} is locked with a passphrase", f"ssh-add {host.first_identity}"
                )
            case paramiko.AuthenticationException():
                if "saw EOF" in str(problem) or "timeout" in str(problem).lower():  # Paramiko's words for a lost link
                    return self._lost(f"{self.who}: the connection broke during the login", f"if it stays so, {try_it}")
                tried = ", ".join(map(str, host.identities)) or "the agent and the default keys"
                return self._wrong(
                    f"{self.who} accepts none of our keys ({tried}): a wrong key, or no such user",
                    f"{try_it}; a key is installed with ssh-copy-id",
                )
            case paramiko.SSHException() if "not found in known_hosts" in str(problem):
                return self._wrong(f"the host key of {host.known_as} is not known here", host.to_accept)
            case paramiko.SSHException() if "No authentication methods" in str(problem):
                return self._wrong(
                    f"we have no key for {self.who}: none in ~/.ssh, and no agent with one",
                    f"ssh-keygen makes one, ssh-copy-id installs it; then {try_it}",
                )
            case paramiko.SSHException() if "banner" not in str(problem) and "No existing session" not in str(problem):
                return self._failed(f"{self.who}: {problem}", try_it)
        return None

    def _breakage(self, problem: Exception) -> BoxError:
        """Of a connection that was made, and broke before it could be used."""
        if isinstance(problem, paramiko.SSHException) and time.monotonic() - self.began >= self.timeout_s * 0.9:
            said = f"took the connection, but no SSH server answered in {self.timeout_s:.0f} s"
            return self._failed(f"{self.who}: {said}", self._try_it)
        if self.heard.is_ssh:
            why = f" ({problem})" if isinstance(problem, OSError) else ""
            return self._lost(
                f"{self.who}: the connection broke while it was made{why}", f"if it stays so, {self._try_it}"
            )
        if self.heard.proxy:
            return self._lost(f"the ProxyCommand to {self.who} ended before a word of SSH", self._try_it)
        return hung_up(self.where, self.host)

    def _wrong(self, message: str, remedy: str) -> Unreachable:
        return Unreachable(f"{self.where}: {message}", remedy=remedy)

    def _lost(self, message: str, remedy: str = "") -> LinkLost:
        return LinkLost(f"{self.where}: {message}", remedy=remedy)

    def _failed(self, message: str, remedy: str) -> BoxError:
        """A way that once worked is lost for a while; one that never did is wrong."""
        return self._lost(message, remedy) if self.worked else self._wrong(message, remedy)
