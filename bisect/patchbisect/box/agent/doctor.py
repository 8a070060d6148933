"""Whether this machine has what a trial needs. Each check says what it found, and what to do where it is not right."""

from __future__ import annotations

import contextlib
import glob
import os
import pwd
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator

from .base import Json, Refused, free_gb
from .dossier import py_spy
from .git import borrowable_objects, checkout_of, git
from .gpus import Gpus, device_files
from .lease import LeaseBook, lease_dir, whose
from .processes import hides_others
from .warmth import Warmth

OLDEST_GIT = (2, 25)
FEWEST_FILES = 1024
SLOW_DRIVER_S = 5.0
NETWORK_FILE_SYSTEMS = frozenset({"nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "lustre", "9p"})
PACKAGES = ("torch", "sglang-kernel", "sgl-kernel", "flashinfer-python", "transformers")
GPU_REMEDIES = {
    "ersion mismatch": "the driver was upgraded: reboot, or unload the old one (rmmod nvidia_uvm nvidia)",
    "GPU is lost": "reboot, or switch the machine off and on: dmesg says more (Xid)",
    "GPU requires re": "reboot, or end all that uses it, then nvidia-smi -pm 0 && nvidia-smi --gpu-reset",
    "Unknown Error": "restart the container (a `systemctl daemon-reload` outside takes its GPUs away), or reboot",
    "Insufficient Permissions": "use root, or a GPU that MIG does not cut up",
    "Not Supported": "this GPU does not tell its memory: use another box",
}
"""By what the driver says. NVIDIA's binding has words of its own: restart for reset."""
VERSIONS = (
    "import importlib.metadata as m, sys\n"
    "print('Python', sys.version.split()[0])\n"
    f"for name in {PACKAGES!r}:\n"
    "    try: print(name, m.version(name))\n"
    "    except m.PackageNotFoundError: pass\n"
)


def examine(directory: str, box: Json) -> list[Json]:
    """All checks, in the order in which they are worth mending."""
    found = []
    for check in CHECKS:
        try:
            found += list(check(directory, box))
        except (Refused, OSError) as problem:
            remedy = problem.remedy if isinstance(problem, Refused) else ""
            found.append(_fault(check.__name__.strip("_").replace("_", " "), str(problem), remedy))
    return found


def _right(name: str, detail: str) -> Json:
    return {"check": name, "ok": True, "detail": detail, "remedy": ""}


def _fault(name: str, detail: str, remedy: str) -> Json:
    return {"check": name, "ok": False, "detail": detail, "remedy": remedy}


def _git(directory: str, box: Json) -> Iterator[Json]:
    version = git("--version").split()[2]
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if numbers < OLDEST_GIT:
        yield _fault("git", f"{version} is older than 2.25", "install a newer git on the box")
    else:
        yield _right("git", version)


def _server_python(directory: str, box: Json) -> Iterator[Json]:
    python = box["python"]
    remedy = "set `python` of the box to the Python that has torch and what SGLang needs"
    try:
        done = subprocess.run([python, "-c", VERSIONS], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as problem:
        yield _fault("server's Python", f"{python}: {problem}", remedy)
        return
    said = ", ".join(done.stdout.splitlines())
    if done.returncode:
        yield _fault("server's Python", f"{python}: {done.stderr.strip()[-300:]}", remedy)
    elif "torch" not in said:
        yield _fault("server's Python", f"{python} has no torch ({said})", remedy)
    else:
        yield _right("server's Python", said)


def _directory(directory: str, box: Json) -> Iterator[Json]:
    free = free_gb(directory)
    kind = file_system(directory)
    if free < box["min_free_gb"]:
        yield _fault("directory", f"{free:.2f} GiB free in {directory}", "free some space, or set `dir` of the box")
    elif kind in NETWORK_FILE_SYSTEMS:
        yield _fault("directory", f"{directory} is on {kind}", "set `dir` of the box to a local disk")
    else:
        yield _right("directory", f"{directory}, {free:.0f} GiB free, {kind}")


def file_system(path: str) -> str:
    """The type of the file system that holds ``path``."""
    best, kind = "", "?"
    with open("/proc/self/mounts", encoding="utf-8") as file:
        for line in file:
            _, where, what = line.split()[:3]
            inside = where == "/" or path == where or path.startswith(where + "/")
            if inside and len(where) >= len(best):
                best, kind = where, what
    return kind


def _lease(directory: str, box: Json) -> Iterator[Json]:
    where = lease_dir(directory, box)
    book = LeaseBook(where)
    book.prove_writable()
    held = book.status()["leases"]
    holders = ", ".join(map(whose, held))
    yield _right("lease", f"{where}: {holders or 'free'}")


def _warm(directory: str, box: Json) -> Iterator[Json]:
    found = Warmth(directory, fence=0).status()
    told = (f"pid {one['pid']}, {one['age_s']:.0f} s old, {one['modules']} modules of {one['python']}" for one in found)
    yield _right("warm processes", "; ".join(told) or "none")


def _gpus(directory: str, box: Json) -> Iterator[Json]:
    gpus = Gpus(box["gpus"])
    found = gpus.read()
    if box["gpus"] is None:
        yield _right("GPUs", gpus.why)
    elif gpus.absent:
        yield _fault("GPUs", gpus.why, "correct `gpus` of the box; has one fallen off (dmesg)?")
    elif not device_files() and not found and box["gpus"]:
        remedy = "leave `gpus` of the box out, or start the container with GPUs"
        yield _fault("GPUs", f"none on this machine, and the box names {', '.join(map(str, box['gpus']))}", remedy)
    elif not device_files() and not found:
        yield _right("GPUs", "none on this machine")
    elif gpus.source == "none" or gpus.incomplete or not found:
        other = "pip install nvidia-ml-py there" if gpus.lacks_pynvml else "look at what `nvidia-smi -q` says there"
        remedy = next((remedy for said, remedy in GPU_REMEDIES.items() if said in gpus.why), other)
        yield _fault("GPUs", f"there are some, but they cannot be read: {gpus.why}", remedy)
    elif gpus.source == "nvidia-smi":
        yield _fault(
            "GPUs", f"read through nvidia-smi every 5 s ({gpus.why})", "pip install nvidia-ml-py for the agent's Python"
        )
    else:
        slow = f" (slow to begin, {gpus.opened_s:.0f} s: nvidia-smi -pm 1)" if gpus.opened_s > SLOW_DRIVER_S else ""
        yield _right("GPUs", f"{len(found)} x {found[0].name} through NVML, driver {gpus.driver}{slow}")


def _sees_processes(directory: str, box: Json) -> Iterator[Json]:
    if hides_others():
        yield _fault(
            "processes",
            "/proc hides those of other users: a colleague's server on the GPUs cannot be named",
            "mount /proc without hidepid, or join the group that it spares",
        )
    else:
        yield _right("processes", "those of all users are visible")


def _survives_logout(directory: str, box: Json) -> Iterator[Json]:
    user = pwd.getpwuid(os.getuid()).pw_name
    if not kills_user_processes() or os.path.exists(f"/var/lib/systemd/linger/{user}"):
        yield _right("logout", "processes outlive it")
    else:
        yield _fault(
            "logout", "KillUserProcesses=yes: a server would end with the link", f"loginctl enable-linger {user}"
        )


def kills_user_processes() -> bool:
    """Whether systemd-logind ends what a session started. The last setting wins; its default is no."""
    paths = ["/etc/systemd/logind.conf", *sorted(glob.glob("/etc/systemd/logind.conf.d/*.conf"))]
    found = False
    for path in paths:
        with contextlib.suppress(OSError), open(path, encoding="utf-8") as file:
            for line in file:
                name, _, value = line.partition("=")
                if name.strip() == "KillUserProcesses":
                    found = value.strip().lower() in ("yes", "true", "1", "on")
    return found


def _open_files(directory: str, box: Json) -> Iterator[Json]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= hard < FEWEST_FILES:
        yield _fault(
            "open files",
            f"at most {hard} at once in a process: a server of several ranks needs more",
            "raise nofile in /etc/security/limits.conf, or docker run --ulimit nofile=65535",
        )
    else:
        yield _right("open files", f"{soft} at once in a process")


def _checkout(directory: str, box: Json) -> Iterator[Json]:
    checkout = checkout_of(box)
    if not checkout:
        return
    if not borrowable_objects(checkout):
        yield _fault(
            "checkout",
            f"{checkout} is no full clone: its objects cannot be used, all code travels",
            f"git -C {checkout} fetch --refetch --filter= origin, or leave `checkout` out",
        )
    else:
        yield _right("checkout", f"{checkout} at {git('-C', checkout, 'rev-parse', '--short', 'HEAD').strip()}")


def _py_spy(directory: str, box: Json) -> Iterator[Json]:
    program = py_spy(box["python"])
    yield _right("py-spy", program or "not there: the dossier of a hang will have no stacks (pip install py-spy)")


def _kernel_log(directory: str, box: Json) -> Iterator[Json]:
    try:
        os.close(os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK))
    except OSError:
        yield _right("kernel log", "not readable: a kill by the kernel's OOM killer shows as SIGKILL only")
    else:
        yield _right("kernel log", "readable")


CHECKS = (
    _git,
    _server_python,
    _directory,
    _lease,
    _warm,
    _gpus,
    _sees_processes,
    _survives_logout,
    _open_files,
    _checkout,
    _py_spy,
    _kernel_log,
)


def agent_about() -> Json:
    """The agent's own Python, as the first line of the table."""
    where = shutil.which(sys.executable) or sys.executable
    return _right("agent's Python", f"{sys.version.split()[0]} ({where})")
