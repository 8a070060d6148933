"""One conversation with the agent on the box: start it there, ask, read answers and streams."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from patchbisect.box.failures import KINDS, LinkLost, Unreachable
from patchbisect.box.link import Channel, Link
from patchbisect.command import path_word
from patchbisect.errors import BoxError

FILES = {path.name: path.read_text(encoding="utf-8") for path in Path(__file__).with_name("agent").glob("*.py")}
AGENT = json.dumps(FILES, sort_keys=True).encode()
AGENT_ID = hashlib.sha256(AGENT).hexdigest()[:12]
HEARTBEAT_S = 5.0
SILENT_LOGIN = "if it stays so: does a start-up file of the shell there wait for something, or is its disk very slow?"
NO_SHELL = "if it stays so: may this user run commands there (login shell, start-up files), and is the prefix right?"
OTHER_PYTHON = "set `python` or `agent-python` of the box to a Python 3.9 or newer"
MORE_FILES = "allow more on the box (ulimit -n, limits.conf, docker run --ulimit nofile=65535)"
REMEDIES = {
    "cannot be written": "set `dir` of the box to a place that is yours and has room",
    "files may be open": MORE_FILES,
}
"""By what the first program on the box says."""
NOISE_LIMIT = 1 << 16
"""Bytes of a login's own chatter on standard output that are skipped before the agent's first line."""

BOOT = """\
import hashlib,importlib,json,os,resource,shutil,sys
d=os.path.realpath(os.path.expanduser(sys.argv[1]));h=sys.argv[2]
home=os.path.join(d,"agent-"+h);p=os.path.join(home,"patchbisect_agent")
def there():
    try: f={n:open(os.path.join(p,n),encoding="utf-8").read() for n in os.listdir(p) if n.endswith(".py")}
    except OSError: return False
    return hashlib.sha256(json.dumps(f,sort_keys=True).encode()).hexdigest()[:12]==h
if sys.version_info<(3,9):
    sys.exit("patchbisect: Python "+sys.version.split()[0]+" is too old for the agent, which needs 3.9")
files=resource.getrlimit(resource.RLIMIT_NOFILE)[0]
if 0<=files<32:
    sys.exit("patchbisect: only %d files may be open at once, and 32 are needed"%files)
if not there():
    print("\\npatchbisect need agent",flush=True)
    f=json.loads(sys.stdin.buffer.read(int(sys.argv[3])))
    t=home+".%d"%os.getpid()
    try:
        os.makedirs(os.path.join(t,"patchbisect_agent"),mode=0o700)
        for n in f:
            with open(os.path.join(t,"patchbisect_agent",n),"w",encoding="utf-8") as o: o.write(f[n])
        if not there():
            shutil.rmtree(home,ignore_errors=True)
            os.rename(t,home)
    except OSError as e:
        if not there(): sys.exit("patchbisect: %s cannot be written: %s"%(d,e.strerror))
    finally: shutil.rmtree(t,ignore_errors=True)
sys.path.insert(0,home)
sys.exit(importlib.import_module("patchbisect_agent.main").main(["serve",d]))
"""
"""Starts the agent; where it is not there yet, or was damaged, asks for it first."""


def is_greeting(line: bytes) -> bool:
    """Whether this is the agent's first line, and not something that a login printed."""
    try:
        found = json.loads(line)
    except ValueError:
        return False
    return isinstance(found, dict) and found.keys() == {"agent"}


class Conversation:
    """The agent at the other end of one channel. Not shared between threads."""

    def __init__(self, link: Link, *, name: str, python: str, directory: str, timeout_s: float) -> None:
        self._name = name
        self._timeout_s = timeout_s
        self._buffer = b""
        self._channel: Channel = link.open()
        try:
            self._start_agent(python, directory)
        except BaseException:
            self._channel.close()
            raise

    def _start_agent(self, python: str, directory: str) -> None:
        words = ["-I", "-c", BOOT, directory, AGENT_ID, str(len(AGENT))]
        with contextlib.suppress(LinkLost):  # a login that has ended already says why when it is read
            self._channel.write(f"exec {path_word(python)} {' '.join(map(shlex.quote, words))}\n".encode())
        if self._first_line(python) == "need":
            self._channel.write(AGENT)
            self._first_line(python)

    def _first_line(self, python: str) -> str:
        skipped, line = 0, b""
        while skipped < NOISE_LIMIT:
            try:
                line = self._line()
            except LinkLost as lost:
                raise self._unfit(python, lost, printed=self._buffer or line) from None
            if line == b"patchbisect need agent":
                return "need"
            if is_greeting(line):
                return "ready"
            skipped += len(line)
        raise Unreachable(f"box {self._name}: the login prints without end", remedy="make its shell start-up quiet")

    def _unfit(self, python: str, lost: LinkLost, *, printed: bytes) -> BoxError:
        """Say what stopped the agent from starting, from what ``sh`` and Python said, or the login ``printed`` last."""
        said = self._channel.complaint()
        where = f"box {self._name}"
        if "patchbisect: " in said:
            told = said.rpartition("patchbisect: ")[2].partition(" (exit")[0]
            remedy = next((remedy for words, remedy in REMEDIES.items() if words in told), OTHER_PYTHON)
            return Unreachable(f"{where}: {told}", remedy=remedy)
        if "Too many open files" in said:
            return Unreachable(f"{where}: {python} cannot start there: too many open files", remedy=MORE_FILES)
        if "not found" in said and Path(python).name in said:
            return Unreachable(f"{where}: there is no {python} there", remedy=OTHER_PYTHON)
        if said.endswith("(exit code 126)") and Path(python).name in said:  # the shell's: it is there, and no program
            why = said.rpartition(" (exit")[0].rpartition(": ")[2]
            return Unreachable(f"{where}: {python} cannot be run there: {why}", remedy=OTHER_PYTHON)
        if said:
            words = [*printed.decode("utf-8", "replace")[-300:].split(), *said.split()]
            return LinkLost(f"{where}: no agent came of the login: {' '.join(words)}", remedy=NO_SHELL)
        return LinkLost(lost.message, remedy=SILENT_LOGIN)

    def _line(self) -> bytes:
        while b"\n" not in self._buffer:
            self._fill()
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _fill(self) -> None:
        data = self._channel.read(self._timeout_s)
        if not data:
            said = self._channel.complaint()
            raise LinkLost(f"box {self._name}: the link was closed at the other end{': ' if said else ''}{said}")
        self._buffer += data

    def _exactly(self, size: int) -> bytes:
        parts = [self._buffer[:size]]
        self._buffer = self._buffer[size:]
        missing = size - len(parts[0])
        while missing:
            self._fill()
            parts.append(self._buffer[:missing])
            self._buffer = self._buffer[missing:]
            missing -= len(parts[-1])
        return b"".join(parts)

    def frames(
        self, request: Mapping[str, Any], payload: Iterable[bytes] = ()
    ) -> Iterator[tuple[dict[str, Any], bytes]]:
        """Send a request; give its answer frames with their bytes. The last one has ``ok``.

        Raises LinkLost, or what the agent refused with.
        """
        self._channel.write(json.dumps(request).encode() + b"\n")
        for part in payload:
            self._channel.write(part)
        while True:
            frame = self._frame()
            if "error" in frame:
                raise self._refusal(frame["error"])
            data = self._exactly(frame["size"]) if "size" in frame else b""
            if "tick" not in frame:
                yield frame, data
            if "ok" in frame:
                return

    def _frame(self) -> dict[str, Any]:
        line = self._line()
        try:
            frame: dict[str, Any] = json.loads(line)
        except ValueError:
            raise LinkLost(f"box {self._name}: something else than the agent answered: {line[:80]!r}") from None
        return frame

    def ask(self, request: Mapping[str, Any], payload: Iterable[bytes] = ()) -> dict[str, Any]:
        """Send a request; return its one answer."""
        for frame, _ in self.frames(request, payload):
            if "ok" in frame:
                answer: dict[str, Any] = frame["ok"]
                return answer
        raise LinkLost(f"box {self._name}: no answer")

    def heartbeat(self) -> None:
        """Tell a streaming agent that somebody still reads."""
        self._channel.write(b"\n")

    def _refusal(self, error: Mapping[str, str]) -> Exception:
        kind = KINDS.get(error["kind"], BoxError)
        return kind(f"box {self._name}: {error['message']}", remedy=error.get("remedy", ""))

    def close(self) -> None:
        self._channel.close()
