"""What makes this machine this machine."""

from __future__ import annotations

import contextlib
import os
import platform

from .base import GIB, Json, boot_id, free_gb
from .git import git
from .gpus import Gpus
from .processes import owner


def hello(directory: str, *, gpus: Gpus) -> Json:
    """The fingerprint of the machine. Sizes in GiB."""
    about = platform.uname()
    return {
        "hostname": about.node,
        "boot_id": boot_id(),
        "kernel": about.release,
        "system": system_name(),
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "ram_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB, 2),
        "gpus": [{"index": g.number, "uuid": g.uuid, "name": g.name, "total_gb": g.total_gb} for g in gpus.read()],
        "gpu_source": gpus.source,
        "gpu_why": gpus.why,
        "driver": gpus.driver,
        "python": platform.python_version(),
        "git": git("--version").split()[2],
        "user": owner(os.getpid()),
        "directory": directory,
        "free_gb": round(free_gb(directory), 2),
    }


def system_name() -> str:
    with contextlib.suppress(OSError), open("/etc/os-release", encoding="utf-8") as file:
        for line in file:
            if line.startswith("PRETTY_NAME="):
                return line.partition("=")[2].strip().strip('"')
    return platform.system()


def cpu_model() -> str:
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()
