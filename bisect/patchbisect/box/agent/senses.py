"""What a supervisor can tell of its server from outside: the port, the log, GPUs, network, the kernel's words."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Collection, Sequence

from .base import Json
from .gpus import Gpu, Gpus, device_files
from .processes import describe, hides_others, on_gpu, pids_of_our_own, program

SMI_EVERY_S = 5.0


class Health:
    """Asks the server whether it is ready, in a thread of its own: /health may take 20 s to answer."""

    def __init__(self, port: int, *, changed: Callable[[], None]) -> None:
        self._port = port
        self._host = "127.0.0.1"
        self._owned = threading.Event()
        self._changed = changed
        self.ready = False
        if port:
            threading.Thread(target=self._ask, daemon=True).start()

    def owned(self, address: str) -> None:
        """The port is bound by a process of this launch, at this address (hex, as in /proc/net/tcp)."""
        self._host = loopback_for(address)
        self._owned.set()

    def lost(self) -> None:
        self._owned.clear()
        self.ready = False

    def _ask(self) -> None:
        while True:
            self._owned.wait()
            before, self.ready = self.ready, self._answers() and self._owned.is_set()
            if self.ready != before:
                self._changed()
            time.sleep(5.0 if self.ready else 1.0)

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=25)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


def loopback_for(address: str) -> str:
    """Where to reach a socket bound to ``address`` (hex): itself, or loopback for the wildcard."""
    words = [bytes.fromhex(address[at : at + 8])[::-1] for at in range(0, len(address), 8)]
    raw = b"".join(words)
    if not any(raw):
        return "127.0.0.1"
    return socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw)


class LogWatch:
    """How long the log has been silent. Lines that our own health question made do not count."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._size = 0
        self._last = time.monotonic()

    def silent_for_s(self) -> float:
        now = time.monotonic()
        with contextlib.suppress(OSError):
            size = os.stat(self._path).st_size
            if size != self._size:
                if size - self._size > 4096 or not self._only_health(size):
                    self._last = now
                self._size = size
        return now - self._last

    def _only_health(self, size: int) -> bool:
        with open(self._path, "rb") as file:
            file.seek(self._size)
            lines = file.read(size - self._size).splitlines()
        return all(b'"GET /health HTTP/' in line for line in lines if line.strip())


class GpuWatch:
    """The GPUs while a server runs. What befalls them by somebody else's doing is told to ``note``."""

    def __init__(
        self, wanted: Sequence[int] | None, *, residents: Collection[str], note: Callable[[str], None]
    ) -> None:
        self._gpus = Gpus(wanted)
        self._residents = residents
        self._note = note
        self.expected = {gpu.uuid for gpu in self._gpus.read()}
        """Those that were there when the server began."""
        unread = wanted is not None and device_files() and not self.expected
        if self._gpus.incomplete or unread:
            note(f"not all GPUs could be read when the launch began ({self._gpus.why})")
        self._unseen: set[int] = set()
        """Numbers on the GPUs at the last look that belong to no process which can be seen."""
        self._readings: tuple[float, list[Gpu]] = (0.0, [])
        self._missing: set[str] = set()
        """Those that the last reading lacked: one that two in a row lack has fallen off."""

    @property
    def about(self) -> Json:
        return {"gpus": sorted(self.expected), "driver": self._gpus.driver, "gpu_source": self._gpus.source}

    def read(self, now: float) -> list[Gpu]:
        """NVML answers in a millisecond; nvidia-smi takes a good part of a second, so it is asked seldom."""
        if self._gpus.source == "nvml" or now - self._readings[0] > SMI_EVERY_S:
            self._readings = (now, self._gpus.read())
            self._look_for_missing()
        return self._readings[1]

    def _look_for_missing(self) -> None:
        missing = self.expected - {gpu.uuid for gpu in self._readings[1]}
        gone = sorted(missing & self._missing)
        if gone:
            self._note(f"GPU {', '.join(gone)} fell off ({self._gpus.why})")
        self._missing = missing

    def look_for_foreigners(self, mine: Collection[int]) -> None:
        """Processes on a GPU that are not ``mine``; nvidia-smi is not asked, which is slow.

        One that cannot be seen in a container may be ours under the host's number: the stop will tell, when ours are
        gone. Where /proc hides strangers it is one of them, or one that ended just now: the next look will tell.
        """
        unseen: set[int] = set()
        hiding = hides_others() and not pids_of_our_own()
        for one in self._gpus.processes() if self._gpus.source == "nvml" else ():
            pid = on_gpu(one.pid)
            if pid is None and one.pid not in mine and hiding:
                unseen.add(one.pid)
            hidden = one.pid in unseen & self._unseen
            stranger = pid is not None and pid not in mine and program(pid) not in self._residents
            if stranger or hidden:
                self._note(f"{describe(pid or one.pid)} came to GPU {one.number} during the trial")
        self._unseen = unseen


def received_bytes() -> int:
    """Bytes received by all interfaces but loopback."""
    total = 0
    with contextlib.suppress(OSError), open("/proc/net/dev", encoding="ascii") as file:
        for line in file.read().splitlines()[2:]:
            name, _, numbers = line.partition(":")
            if name.strip() != "lo":
                total += int(numbers.split()[0])
    return total


def open_kernel_log() -> int:
    """The kernel's log from now on, -1 where this user may not read it: an older line may be about another process."""
    try:
        handle = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return -1
    os.lseek(handle, 0, os.SEEK_END)
    return handle


def kernel_kills(log: int, pids: set[int]) -> list[str]:
    """The kernel's lines in ``log`` about killing or faulting one of ``pids``."""
    found = []
    try:
        while log >= 0:
            try:
                record = os.read(log, 8192).decode("utf-8", "replace")
            except BrokenPipeError:  # overwritten while we read: go on with the next
                continue
            if not record:
                break
            text = record.split(";", 1)[-1].splitlines()[0]
            wanted = "Killed process" in text or "segfault at" in text or "oom-kill:" in text
            if wanted and any(re.search(rf"\b{pid}\b", text) for pid in pids):
                found.append(text)
    except BlockingIOError:
        pass
    return found
