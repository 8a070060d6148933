"""What every part of the agent uses: JSON files, clocks, and the refusal that a client is told."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import time
from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]


GIB = float(2**30)


class Refused(Exception):
    """A request that was understood and not carried out; ``kind`` picks the exception on the client."""

    def __init__(self, kind: str, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.remedy = remedy


def shortage(problem: OSError) -> Json | None:
    """What the box has too little of; None where that is not what was wrong."""
    if problem.errno in (errno.ENOSPC, errno.EDQUOT):
        remedy = "make room on the box, or set `dir` of the box to another disk"
        return {"kind": "disk-full", "message": f"the disk of the box is full: {problem}", "remedy": remedy}
    if problem.errno in (errno.EMFILE, errno.ENFILE):
        remedy = "allow more there (ulimit -n, limits.conf, docker run --ulimit nofile=65535)"
        return {"kind": "os", "message": f"too many files are open on the box: {problem}", "remedy": remedy}
    return None


def read_json(path: str) -> Json | None:
    """The object in ``path``, or None where there is none (a half-written one cannot exist: see write_json)."""
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def create(path: str) -> int:
    """A new file, never one that a link leads to: anybody may write to the directory of the lease book."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)


def write_json(path: str, value: Json) -> None:
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(create(temporary), "w", encoding="utf-8") as file:
            json.dump(value, file)
        os.rename(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


SPARE_BYTES = 8192


def reserve(path: str) -> None:
    """Set disk space aside beside ``path``, so that ``write_reserved`` succeeds on a full disk."""
    partial = f"{path}.{os.getpid()}.tmp"
    try:
        with open(create(partial), "wb") as file:
            file.write(b" " * SPARE_BYTES)
        os.rename(partial, f"{path}.spare")
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(partial)
        raise


def write_reserved(path: str, value: Json, *, durable: bool = False) -> None:
    """Write ``path`` whole, in space that was set aside, and set some aside again if there is any.

    What is ``durable`` is on the disk before it has its name: a power cut leaves the old content or the new.
    """
    data = json.dumps(value).encode()
    if not os.path.exists(f"{path}.spare") or len(data) > SPARE_BYTES:
        write_json(path, value)
    else:
        with open(os.open(f"{path}.spare", os.O_RDWR | os.O_NOFOLLOW), "r+b") as file:
            file.write(data.ljust(SPARE_BYTES))
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.rename(f"{path}.spare", path)
    with contextlib.suppress(OSError):
        reserve(path)


@contextlib.contextmanager
def locked(path: str) -> Iterator[None]:
    """One at a time: a request that is repeated after a lost link waits for the agent that still works on it."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def free_gb(path: str) -> float:
    about = os.statvfs(path)
    return about.f_bavail * about.f_frsize / GIB


def boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def since_boot() -> float:
    """Seconds since boot. Decisions use this clock alone: nobody can set it, and it runs on in suspend."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
