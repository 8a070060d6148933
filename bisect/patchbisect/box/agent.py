"""What runs on the box: one file, Python >= 3.9, standard library alone (and ``pynvml`` where it is there).

The client starts it through a link and talks to it over stdin and stdout: one JSON line per request, its
``payload`` bytes after it; one or more JSON lines as the answer, the bytes of a log chunk after theirs.
Nothing that a user chose reaches a command line of a shell, and secrets are in requests only.

A second copy, the *supervisor*, is started once per launch and outlives the link. It is the parent and child
subreaper of the server, keeps the list of its processes, writes samples and the exit cause. Layout on the box:

    DIR/agent-HASH.py                 this file
    DIR/code.git                      bare repository that bundles are unpacked into
    DIR/trees/TREE/python/sglang/     code by content; never modified once it is there
    DIR/applied/                      what ``apply-queue`` put there for the user to look at
    DIR/runs/LAUNCH/                  working directory and TMPDIR of one launch: log, known.json, signals.json, …
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import http.client
import json
import os
import platform
import pwd
import random
import re
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple, Optional

Json = dict[str, Any]

GIB = float(2**30)
SAMPLE_EVERY_S = 0.5
LOG_POLL_S = 0.02
CHUNK_BYTES = 1 << 18
TICK_EVERY_S = 2.0
SILENT_CLIENT_S = 90.0
"""A follower that hears nothing from its client for this long ends: behind a black hole nobody closes it."""
ORPHANS_SETTLE_S = 0.5
"""SGLang's children die of their launcher's death: give them this long before the exit is told."""
KILL_BUDGET_S = 30.0
EXIT_RECORD_BYTES = 4096
"""Reserved when the launch starts, so that a full disk cannot swallow the exit cause."""
LONGEST_TMPDIR = 70
"""ZeroMQ's ipc sockets live in TMPDIR, and a socket's path has 107 bytes."""
KEEP_TREES = 24
KEEP_RUNS = 60

CLEAN_ENV = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|LANG|LC_\w+|TZ|LD_LIBRARY_PATH|CUDA_HOME|CUDA_PATH|NVIDIA_\w+|XDG_RUNTIME_DIR"
    r"|(?:http|https|no|HTTP|HTTPS|NO)_(?:proxy|PROXY)|SSL_CERT_(?:FILE|DIR)"
)
"""What a server inherits from the login. All else comes from the profile, so that two trials see the same."""


class Refused(Exception):
    """A request that was understood and not carried out; ``kind`` picks the exception on the client."""

    def __init__(self, kind: str, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.remedy = remedy


# ---------------------------------------------------------------------------------------------------- files


def read_json(path: str) -> Optional[Json]:
    """The object in ``path``, or None where there is none (a half-written one cannot exist: see write_json)."""
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def write_json(path: str, value: Json) -> None:
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(value, file)
        os.rename(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def free_gb(path: str) -> float:
    about = os.statvfs(path)
    return about.f_bavail * about.f_frsize / GIB


def boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def since_boot() -> float:
    """Seconds since boot. Decisions use this clock alone: nobody can set it, and it runs on in suspend."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


# ------------------------------------------------------------------------------------------------ processes


class Proc(NamedTuple):
    """One line of the process table. ``start`` (ticks since boot) makes a reused pid another process."""

    pid: int
    ppid: int
    session: int
    start: int
    state: str
    ticks: int

    @property
    def alive(self) -> bool:
        """A zombie holds neither memory nor a port: it is gone."""
        return self.state not in "ZX"


def read_proc(pid: int) -> Optional[Proc]:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            raw = file.read()
    except OSError:
        return None
    fields = raw[raw.rindex(b")") + 2 :].split()
    return Proc(
        pid=pid,
        ppid=int(fields[1]),
        session=int(fields[3]),
        start=int(fields[19]),
        state=fields[0].decode(),
        ticks=int(fields[11]) + int(fields[12]),
    )


def process_table() -> dict[int, Proc]:
    found = (read_proc(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return {proc.pid: proc for proc in found if proc is not None}


def descendants(roots: Iterable[int], table: dict[int, Proc]) -> list[Proc]:
    """Everything below ``roots``, without the roots themselves."""
    children: dict[int, list[Proc]] = {}
    for proc in table.values():
        children.setdefault(proc.ppid, []).append(proc)
    found: dict[int, Proc] = {}
    open_pids = list(roots)
    while open_pids:
        for child in children.get(open_pids.pop(), ()):
            if child.pid not in found:
                found[child.pid] = child
                open_pids.append(child.pid)
    return list(found.values())


def title(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read().rstrip(b"\0").split(b"\0")
    except OSError:
        return ""
    return " ".join(word.decode("utf-8", "replace") for word in words)


def owner(pid: int) -> str:
    try:
        uid = os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return "?"
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def describe(pid: int) -> str:
    """``pid 4242 (alice: python -m sglang.launch_server)``. The first words only: the rest may hold secrets."""
    words = title(pid).split(" ")[:3]
    command = " ".join(words)[:80]
    return f"pid {pid} ({owner(pid)}: {command or 'not visible from here'})"


def send_signal(proc: Proc, number: int) -> Optional[str]:
    """Signal exactly that process, never a successor of its pid. Returns what went wrong, if anything did."""
    open_pidfd = getattr(os, "pidfd_open", None)
    try:
        handle = open_pidfd(proc.pid) if open_pidfd else -1
    except OSError:
        handle = -1
    try:
        now = read_proc(proc.pid)
        if now is None or now.start != proc.start:
            return None
        if handle >= 0:
            signal.pidfd_send_signal(handle, number)
        else:
            os.kill(proc.pid, number)
    except ProcessLookupError:
        return None
    except PermissionError:
        return f"{describe(proc.pid)} may not be signalled by {owner(os.getpid())}"
    finally:
        if handle >= 0:
            os.close(handle)
    return None


def still_alive(procs: Iterable[Proc]) -> list[Proc]:
    found = []
    for proc in procs:
        now = read_proc(proc.pid)
        if now is not None and now.start == proc.start and now.alive:
            found.append(now)
    return found


def wait_gone(procs: Sequence[Proc], timeout_s: float) -> list[Proc]:
    """Those of ``procs`` that are still there after ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    left = still_alive(procs)
    pause = 0.001
    while left and time.monotonic() < deadline:
        time.sleep(pause)
        pause = min(pause * 2, 0.02)
        left = still_alive(left)
    return left


def listeners(port: int) -> dict[str, str]:
    """Inode of each TCP socket that listens on ``port`` → the address it is bound to (hex, as in /proc/net)."""
    found = {}
    wanted = f"{port:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table, encoding="ascii") as file:
                lines = file.read().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            address, _, number = fields[1].rpartition(":")
            if number == wanted and fields[3] == "0A":
                found[fields[9]] = address
    return found


def socket_inodes(pid: int) -> set[str]:
    found = set()
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                target = os.readlink(f"/proc/{pid}/fd/{name}")
                if target.startswith("socket:["):
                    found.add(target[8:-1])
    return found


def port_holder(port: int) -> Optional[str]:
    """Who listens on ``port``, in words; None when it is free."""
    inodes = listeners(port)
    if not inodes:
        return None
    for name in os.listdir("/proc"):
        if name.isdigit() and socket_inodes(int(name)) & inodes.keys():
            return describe(int(name))
    return "a process that is not visible from here"


# ------------------------------------------------------------------------------------------------------ GPUs


class Gpu(NamedTuple):
    """One reading. ``util`` is percent; sizes are GiB."""

    index: int
    uuid: str
    name: str
    total_gb: float
    used_gb: float
    util: float


class GpuProcess(NamedTuple):
    index: int
    pid: int
    used_gb: float


class Gpus:
    """The GPUs of this box that ``wanted`` names (none named: all), through NVML, nvidia-smi, or not at all."""

    def __init__(self, wanted: Sequence[int] = ()) -> None:
        self._wanted = frozenset(wanted)
        self.why = ""
        self._nvml = self._open_nvml()
        self.source = "nvml" if self._nvml else "nvidia-smi" if self._open_smi() else "none"

    def _open_nvml(self) -> Any:
        try:
            import pynvml  # type: ignore[import-untyped,unused-ignore]

            pynvml.nvmlInit()
        except ImportError:
            self.why = "pynvml is not installed for this Python"
            return None
        except Exception as problem:  # pynvml's errors share no base that exists without the module
            self.why = f"NVML: {problem}"
            return None
        return pynvml

    def _open_smi(self) -> bool:
        if shutil.which("nvidia-smi") is None:
            self.why += "; nvidia-smi is not on PATH"
            return False
        return bool(self._smi("--query-gpu=index"))

    def _smi(self, query: str) -> list[list[str]]:
        command = ["nvidia-smi", query, "--format=csv,noheader,nounits"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
        except (OSError, subprocess.TimeoutExpired) as problem:
            self.why = f"nvidia-smi: {problem}"
            return []
        if done.returncode:
            self.why = f"nvidia-smi: {done.stdout.strip() or done.stderr.strip()}"
            return []
        return [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines() if line.strip()]

    @property
    def driver(self) -> str:
        if self._nvml:
            found = self._nvml.nvmlSystemGetDriverVersion()
            return found.decode() if isinstance(found, bytes) else str(found)
        rows = self._smi("--query-gpu=driver_version") if self.source == "nvidia-smi" else []
        return rows[0][0] if rows else ""

    def _handles(self) -> Iterator[tuple[int, Any]]:
        for index in range(self._nvml.nvmlDeviceGetCount()):
            if not self._wanted or index in self._wanted:
                yield index, self._nvml.nvmlDeviceGetHandleByIndex(index)

    def read(self) -> list[Gpu]:
        """One reading of each GPU. A GPU that fell off the bus is missing from it, and ``why`` says so."""
        if self.source == "nvidia-smi":
            return self._read_smi()
        found = []
        if self._nvml:
            try:
                for index, handle in self._handles():
                    memory = self._nvml.nvmlDeviceGetMemoryInfo(handle)
                    names = (self._nvml.nvmlDeviceGetUUID(handle), self._nvml.nvmlDeviceGetName(handle))
                    uuid, name = (text.decode() if isinstance(text, bytes) else str(text) for text in names)
                    util = float(self._nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
                    found.append(Gpu(index, uuid, name, memory.total / GIB, memory.used / GIB, util))
            except Exception as problem:
                self.why = f"NVML: {problem}"
        return found

    def _read_smi(self) -> list[Gpu]:
        rows = self._smi("--query-gpu=index,uuid,name,memory.total,memory.used,utilization.gpu")
        found = []
        for index, uuid, name, total, used, util in (row for row in rows if len(row) == 6):
            if not self._wanted or int(index) in self._wanted:
                load = float(util) if util.replace(".", "").isdigit() else 0.0
                found.append(Gpu(int(index), uuid, name, float(total) / 1024, float(used) / 1024, load))
        return found

    def processes(self) -> list[GpuProcess]:
        """Who computes on them now. Inside a container the pids may be those of the host."""
        found = []
        if self._nvml:
            try:
                for index, handle in self._handles():
                    for one in self._nvml.nvmlDeviceGetComputeRunningProcesses(handle):
                        found.append(GpuProcess(index, int(one.pid), (one.usedGpuMemory or 0) / GIB))
            except Exception as problem:
                self.why = f"NVML: {problem}"
        elif self.source == "nvidia-smi":
            uuids = {gpu.uuid: gpu.index for gpu in self._read_smi()}
            for row in self._smi("--query-compute-apps=gpu_uuid,pid,used_memory"):
                if len(row) == 3 and row[0] in uuids and row[1].isdigit():
                    used = float(row[2]) / 1024 if row[2].isdigit() else 0.0
                    found.append(GpuProcess(uuids[row[0]], int(row[1]), used))
        return found


# ------------------------------------------------------------------------------------------------------ code

GIT_ENV = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "LC_ALL": "C",
}
"""No smudge filter, hook path or line-ending setting of the user may change a byte of the code."""


def git(*words: str, repo: str = "", env: Optional[dict[str, str]] = None, stdin: Optional[BinaryIO] = None) -> str:
    """The output of one git command. Raises Refused with git's own words."""
    command = ["git", *(["--git-dir", repo] if repo else []), *words]
    merged = {**{k: v for k, v in os.environ.items() if not k.startswith("GIT_")}, **GIT_ENV, **(env or {})}
    try:
        done = subprocess.run(command, stdin=stdin or subprocess.DEVNULL, capture_output=True, env=merged, check=False)
    except FileNotFoundError:
        raise Refused("no-git", "there is no git on the box", "install git on the box") from None
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip()
        if "No space left" in said:
            raise Refused("disk-full", f"the disk of the box is full: {said}", "free some space on the box")
        raise Refused("git", f"git {words[0]} on the box: {said}")
    return done.stdout.decode("utf-8", "surrogateescape")


def blob_mtime(blob: str) -> int:
    """A time stamp that says what is in the file.

    Python trusts ``x.pyc`` while source size and time are those it was made from. With a time taken from the
    content, it is trusted exactly when the content is the same, however quickly code is switched, and may be
    linked from one tree to another. 31 bits, so that every file system can hold it.
    """
    return int(blob[:8], 16) & 0x7FFFFFFF


def blob_id(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def tree_id(root: str, *, ignore: frozenset[str] = frozenset(), _below: str = "") -> str:
    """The git tree id of what is on disk under ``root``, byte-code and the paths in ``ignore`` left out."""
    entries = []
    for entry in os.scandir(root):
        path = f"{_below}{entry.name}"
        if entry.name == "__pycache__" or path in ignore:
            continue
        name = os.fsencode(entry.name)
        if entry.is_symlink():
            entries.append((name, b"120000", blob_id(os.fsencode(os.readlink(entry.path)))))
        elif entry.is_dir():
            found = tree_id(entry.path, ignore=ignore, _below=f"{path}/")
            if found != EMPTY_TREE:
                entries.append((name + b"/", b"40000", found))
        else:
            with open(entry.path, "rb", buffering=0) as file:
                data = file.read()
                executable = os.fstat(file.fileno()).st_mode & stat.S_IXUSR
            entries.append((name, b"100755" if executable else b"100644", blob_id(data)))
    body = b"".join(b"%s %s\0%s" % (mode, name.rstrip(b"/"), bytes.fromhex(id_)) for name, mode, id_ in sorted(entries))
    return hashlib.sha1(b"tree %d\0" % len(body) + body).hexdigest()


EMPTY_TREE = hashlib.sha1(b"tree 0\0").hexdigest()


class CodeStore:
    """Trees of code by content. One that is there is never changed; one that was changed by hand is set aside."""

    def __init__(self, directory: str) -> None:
        self.repo = f"{directory}/code.git"
        self._trees = f"{directory}/trees"

    def ensure(self, checkout: str) -> None:
        """The bare repository; it borrows the objects of ``checkout``, so that only what is new travels."""
        if not os.path.isdir(f"{self.repo}/objects"):
            git("init", "--quiet", "--bare", self.repo)
            os.makedirs(self._trees, exist_ok=True)
        if checkout:
            objects = borrowable_objects(checkout)
            alternates = f"{self.repo}/objects/info/alternates"
            if objects and not os.path.exists(alternates):
                with open(alternates, "w", encoding="utf-8") as file:
                    file.write(objects + "\n")

    def tips(self, checkout: str) -> list[str]:
        """Commits that need not travel, with all that they reach."""
        repos = [self.repo, *([f"{checkout}/.git"] if checkout and borrowable_objects(checkout) else [])]
        names = (
            git("for-each-ref", "--format=%(objecttype) %(objectname) %(*objectname)", repo=repo) for repo in repos
        )
        found = {line.split()[-1] for text in names for line in text.splitlines() if "commit" in line or "tag" in line}
        return sorted(found)

    def has(self, commit: str) -> bool:
        try:
            git("cat-file", "-e", f"{commit}^{{tree}}", repo=self.repo)
        except Refused as refused:
            if refused.kind == "git":
                return False
            raise
        return True

    def unbundle(self, bundle: str, commit: str) -> None:
        git("bundle", "unbundle", bundle, repo=self.repo)
        git("update-ref", f"refs/patchbisect/{commit}", commit, repo=self.repo)

    def path(self, tree: str) -> str:
        return f"{self._trees}/{tree}/python"

    def proven(self, tree: str) -> str:
        """The tree id of the files as they are on disk now; empty when they are not there."""
        about = read_json(f"{self._trees}/{tree}/tree.json")
        if about is None:
            return ""
        return tree_id(f"{self.path(tree)}/sglang", ignore=frozenset(about["linked"]))

    def place(self, commit: str, tree: str) -> tuple[bool, str]:
        """Put ``tree`` on disk if it is not there. Returns whether anything was written, and a note."""
        note = ""
        home = f"{self._trees}/{tree}"
        if os.path.isdir(home):
            if self.proven(tree) == tree:
                os.utime(f"{home}/tree.json")
                return False, ""
            aside = f"{home}.changed-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
            os.rename(home, aside)
            note = f"the code in {home} had been changed there; it was set aside as {aside}"
        self._check_out(commit, tree, home)
        if self.proven(tree) != tree:
            raise Refused("wrong-code", f"the files written to {home} do not have the tree id {tree}")
        self._collect(keep=tree)
        return True, note

    def _check_out(self, commit: str, tree: str, home: str) -> None:
        partial = f"{self._trees}/.{tree}.{os.getpid()}"
        target = f"{partial}/python/sglang"
        index = {"GIT_INDEX_FILE": f"{partial}/index"}
        os.makedirs(target)
        try:
            git("read-tree", tree, repo=self.repo, env=index)
            git("--work-tree", target, "checkout-index", "--all", f"--prefix={target}/", repo=self.repo, env=index)
            listing = git("ls-files", "--stage", "-z", repo=self.repo, env=index)
            os.unlink(f"{partial}/index")
            for line in filter(None, listing.split("\0")):
                about, _, name = line.partition("\t")
                stamp = blob_mtime(about.split()[1])
                os.utime(f"{target}/{name}", (stamp, stamp), follow_symlinks=False)
            for other in self._newest(3):
                link_bytecode(f"{self.path(other)}/sglang", target)
            write_json(f"{partial}/tree.json", {"commit": commit, "linked": []})
            os.rename(partial, home)
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def _newest(self, count: int) -> list[str]:
        return sorted(self._all(), key=lambda tree: -self._used(tree))[:count]

    def _all(self) -> list[str]:
        return [name for name in os.listdir(self._trees) if len(name) == 40]

    def _used(self, tree: str) -> float:
        try:
            return os.stat(f"{self._trees}/{tree}/tree.json").st_mtime
        except OSError:
            return 0.0

    def _collect(self, keep: str) -> None:
        """Drop the trees that were not used for longest. A server has its own open for as long as it runs."""
        busy = {run.state().get("tree") for run in unfinished_runs(os.path.dirname(self._trees))}
        for tree in sorted(self._all(), key=self._used)[:-KEEP_TREES]:
            if tree != keep and tree not in busy:
                shutil.rmtree(f"{self._trees}/{tree}", ignore_errors=True)


def borrowable_objects(checkout: str) -> str:
    """The object directory of the user's checkout, or nothing where it is a partial clone (it lacks objects)."""
    try:
        common = git("-C", checkout, "rev-parse", "--path-format=absolute", "--git-common-dir").strip()
        promisor = git("-C", checkout, "config", "--get-regexp", r"^(extensions\.partialclone|remote\..*\.promisor)$")
    except Refused as refused:
        if refused.kind != "git" or "not a git repository" in refused.message:
            return ""
        promisor = ""
    return "" if promisor or not os.path.isdir(f"{common}/objects") else f"{common}/objects"


def link_bytecode(source: str, target: str) -> None:
    """Hard-link the byte-code of every module that is the same in both trees.

    Python replaces a ``.pyc`` by renaming, so a link is never written through.
    """
    for folder, subfolders, files in os.walk(target):
        if "__pycache__" in subfolders:
            subfolders.remove("__pycache__")
        other = source + folder[len(target) :]
        try:
            compiled = os.listdir(f"{other}/__pycache__")
        except OSError:
            continue
        modules = {
            name[:-3] for name in files if name.endswith(".py") and same_stamp(f"{folder}/{name}", f"{other}/{name}")
        }
        os.makedirs(f"{folder}/__pycache__", exist_ok=True)
        for name in compiled:
            if name.split(".")[0] in modules and name.endswith(".pyc"):
                with contextlib.suppress(FileExistsError):
                    os.link(f"{other}/__pycache__/{name}", f"{folder}/__pycache__/{name}")


def same_stamp(one: str, other: str) -> bool:
    try:
        first, second = os.stat(one), os.stat(other)
    except OSError:
        return False
    return (first.st_mtime, first.st_size) == (second.st_mtime, second.st_size)


# ----------------------------------------------------------------------------------------------------- lease


class LeaseBook:
    """Who may use the machine, or some of its GPUs, now. One small file that all users of the box share.

    Every lease gets a higher *fencing number* than all before it. A command that carries an older one is
    refused, so a client that slept through its expiry cannot disturb its successor.
    """

    def __init__(self, directory: str) -> None:
        self._path = f"{directory}/lease.json"
        self._lock = f"{directory}/lock"
        previous = os.umask(0)
        try:
            os.makedirs(directory, mode=0o777, exist_ok=True)
            with contextlib.suppress(OSError):
                os.close(os.open(self._lock, os.O_RDWR | os.O_CREAT, 0o666))
        finally:
            os.umask(previous)

    @contextlib.contextmanager
    def _open(self) -> Iterator[Json]:
        """The book, locked; what is changed in it is written back."""
        with open(self._lock, "r+b") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            book = read_json(self._path) or {"fence": 0, "leases": []}
            before = json.dumps(book)
            book["leases"] = [lease for lease in book["leases"] if lease["boot"] == boot_id()]
            yield book
            if json.dumps(book) != before:
                write_json(self._path, book)
                with contextlib.suppress(OSError):
                    os.chmod(self._path, 0o666)

    @staticmethod
    def _shown(lease: Json) -> Json:
        now = since_boot()
        return {
            "fence": lease["fence"],
            "owner": lease["owner"],
            "host": lease["host"],
            "reason": lease["reason"],
            "gpus": lease["gpus"],
            "held_s": now - lease["since"],
            "expires_in_s": lease["until"] - now,
        }

    def acquire(
        self, *, token: str, owner: str, host: str, reason: str, ttl_s: float, gpus: list[int], steal: bool
    ) -> Json:
        """``{"fence": N, "replaced": [...]}``, or ``{"busy": lease}`` while somebody else holds it.

        ``token`` is the client's own: a request repeated after its answer was lost is not its own rival.
        """
        with self._open() as book:
            now = since_boot()
            rivals = [lease for lease in book["leases"] if overlap(lease["gpus"], gpus)]
            living = [lease for lease in rivals if lease["until"] > now and lease["token"] != token]
            if living and not steal:
                return {"busy": self._shown(living[0])}
            book["fence"] += 1
            lease = {"fence": book["fence"], "owner": owner, "host": host, "reason": reason, "gpus": gpus}
            lease.update({"token": token, "boot": boot_id(), "since": now, "until": now + ttl_s})
            book["leases"] = [one for one in book["leases"] if one not in rivals] + [lease]
            return {"fence": lease["fence"], "replaced": [self._shown(rival) for rival in rivals]}

    def renew(self, *, fence: int, ttl_s: float) -> Json:
        """Also after expiry, as long as nobody else has taken it. Raises Refused(lease-lost) otherwise."""
        with self._open() as book:
            for lease in book["leases"]:
                if lease["fence"] == fence:
                    lease["until"] = since_boot() + ttl_s
                    return self._shown(lease)
            raise self._lost(fence, book)

    def release(self, *, fence: int) -> Json:
        with self._open() as book:
            kept = [lease for lease in book["leases"] if lease["fence"] != fence]
            released = len(kept) < len(book["leases"])
            book["leases"] = kept
            return {"released": released}

    def status(self) -> Json:
        with self._open() as book:
            return {"leases": [self._shown(lease) for lease in book["leases"]], "fence": book["fence"]}

    def check(self, fence: int) -> None:
        """Raises Refused(lease-lost) unless ``fence`` is that of a lease which nobody has replaced."""
        with self._open() as book:
            if not any(lease["fence"] == fence for lease in book["leases"]):
                raise self._lost(fence, book)

    def _lost(self, fence: int, book: Json) -> Refused:
        if not fence:
            return Refused("lease-lost", "this needs the lease of the box", "take the lease first")
        holders = [f"{one['owner']} on {one['host']} ({one['reason']})" for one in book["leases"]]
        whom = "; it is now held by " + " and ".join(holders) if holders else "; nobody holds it now"
        return Refused("lease-lost", f"lease {fence} of the box was taken away or released{whom}", "start again")


def overlap(one: list[int], other: list[int]) -> bool:
    """No GPUs named means the whole machine."""
    return not one or not other or bool(set(one) & set(other))


# ------------------------------------------------------------------------------------------------ a run's dir


class RunDir:
    """The files of one launch. ``state.json`` is written by the supervisor alone."""

    def __init__(self, directory: str, launch_id: str) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,80}", launch_id):
            raise Refused("usage", f"not a launch id: {launch_id!r}")
        self.id = launch_id
        self.path = f"{directory}/runs/{launch_id}"
        self.log = f"{self.path}/log"

    def file(self, name: str) -> str:
        return f"{self.path}/{name}"

    @property
    def exists(self) -> bool:
        return os.path.exists(self.file("state.json"))

    def state(self) -> Json:
        return read_json(self.file("state.json")) or {}

    def exit(self) -> Optional[Json]:
        return read_json(self.file("exit.json"))

    @property
    def ended(self) -> bool:
        """Nothing of it is left, and that was proven."""
        return os.path.exists(self.file("ended.json"))

    def supervisor(self) -> Optional[Proc]:
        state = self.state()
        found = read_proc(state.get("supervisor", 0)) if state.get("boot") == boot_id() else None
        return found if found and found.alive and found.start == state["supervisor_start"] else None

    def known(self) -> set[tuple[int, int]]:
        listed = (read_json(self.file("known.json")) or {}).get("processes", [])
        return {(entry["pid"], entry["start"]) for entry in listed}

    def members(self) -> list[Proc]:
        """Every living process of this launch, however it was re-parented.

        Below the supervisor; or on the kept list; or in the server's session; or in the run directory with its
        log open for writing (a colleague's shell in there, or a ``tail -f``, is none of ours). And their children.
        """
        state = self.state()
        if state.get("boot") != boot_id():
            return []
        table = process_table()
        supervisor = self.supervisor()
        known = self.known()
        leader = table.get(state.get("server", 0))
        session = state.get("server", -1) if leader is None or leader.start == state.get("server_start") else -1
        roots = {proc.pid for proc in table.values() if (proc.pid, proc.start) in known or proc.session == session}
        roots |= {pid for pid in table if self._writes_log(pid)}
        found = {proc.pid: proc for proc in descendants(roots | ({supervisor.pid} if supervisor else set()), table)}
        found.update({pid: table[pid] for pid in roots})
        spared = {os.getpid(), supervisor.pid if supervisor else 0}
        return [proc for proc in found.values() if proc.alive and proc.pid not in spared]

    def _writes_log(self, pid: int) -> bool:
        try:
            if os.readlink(f"/proc/{pid}/cwd") != os.path.realpath(self.path):
                return False
            for number in os.listdir(f"/proc/{pid}/fd"):
                if os.readlink(f"/proc/{pid}/fd/{number}") == os.path.realpath(self.log):
                    with open(f"/proc/{pid}/fdinfo/{number}", encoding="ascii") as file:
                        flags = next(line for line in file if line.startswith("flags:")).split()[1]
                    return bool(int(flags, 8) & (os.O_WRONLY | os.O_RDWR))
        except OSError:
            pass
        return False


def unfinished_runs(directory: str) -> list[RunDir]:
    try:
        names = os.listdir(f"{directory}/runs")
    except OSError:
        return []
    runs = [RunDir(directory, name) for name in sorted(names)]
    return [run for run in runs if run.exists and not run.ended]


# ------------------------------------------------------------------------------------------------ supervisor

RANK = re.compile(r"sglang::scheduler(?:_(?:DP\d+|PP\d+|ATTN_CP\d+|MOE_DP\d+))*(?:_TP(\d+))?")
"""The process title of a scheduler (0.5.9, srt/managers/scheduler.py); without ``_TPn`` it is the only rank."""

PROVENANCE_PROBE = r"""
import importlib.metadata, importlib.util, json, sys
spec = importlib.util.find_spec("sglang")
places = list(spec.submodule_search_locations or []) if spec else []
packages = {d.metadata["Name"]: d.version for d in importlib.metadata.distributions() if d.metadata["Name"]}
print(json.dumps({"sglang": (spec.origin or (places or [""])[0]) if spec else "", "python": sys.version.split()[0],
                  "executable": sys.executable, "packages": packages}))
"""


class Health:
    """Asks the server whether it is ready, in a thread of its own: /health may take 20 s to answer."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._host = "127.0.0.1"
        self._owned = threading.Event()
        self.ready: Optional[bool] = None if port else False
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
            self.ready = self._answers() and self._owned.is_set()
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


class Supervisor:
    """Parent and subreaper of one server: knows its processes, samples them, and writes down how it ended."""

    def __init__(self, run: RunDir, order: Json) -> None:
        self._run = run
        self._order = order
        self._gpus = Gpus(order["gpus"])
        self._health = Health(order["port"])
        self._log = LogWatch(run.log)
        self._known: dict[tuple[int, int], str] = {}
        self._server: Optional[subprocess.Popen[bytes]] = None
        self._probe: Optional[subprocess.Popen[bytes]] = None
        self._code: Optional[int] = None
        self._died_at = 0.0
        self._told = False
        self._rank_exit: dict[str, int] = {}
        self._changed: dict[str, None] = {}
        self._cpu = (time.monotonic(), 0)
        self._net = (time.monotonic(), received_bytes())
        self._boot_gpus = {gpu.uuid for gpu in self._gpus.read()}

    def start(self) -> None:
        """Raises OSError when the program is not there."""
        ctypes.CDLL(None, use_errno=True).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
        env = self._order["env"]
        reserve(self._run.file("exit.pending"))
        log = os.open(self._run.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._server = subprocess.Popen(
            self._order["argv"],
            cwd=self._run.path,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        os.close(log)
        self._save_state()
        if self._order["python"]:
            self._start_probe(env)

    def _start_probe(self, env: dict[str, str]) -> None:
        with open(self._run.file("provenance.tmp"), "wb") as out, open(self._run.file("provenance.err"), "wb") as err:
            with contextlib.suppress(OSError):
                self._probe = subprocess.Popen(
                    [self._order["python"], "-c", PROVENANCE_PROBE],
                    cwd=self._run.path,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                )

    def _save_state(self) -> None:
        assert self._server is not None
        me, server = read_proc(os.getpid()), read_proc(self._server.pid)
        write_json(
            self._run.file("state.json"),
            {
                "launch_id": self._run.id,
                "boot": boot_id(),
                "supervisor": os.getpid(),
                "supervisor_start": me.start if me else 0,
                "server": self._server.pid,
                "server_start": server.start if server else 0,
                "started": time.time(),
                "port": self._order["port"],
                "tree": self._order["tree"],
                "keep": self._order["keep"],
                "fence": self._order["fence"],
                "gpus": sorted(self._boot_gpus),
                "driver": self._gpus.driver,
                "gpu_source": self._gpus.source,
            },
        )

    def watch(self) -> None:
        """Until the server and everything that it started is gone."""
        wake, wake_in = os.pipe()
        os.set_blocking(wake_in, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_in, warn_on_full_buffer=False)
        next_sample = time.monotonic()
        while True:
            ready, _, _ = select.select([wake], [], [], max(0.0, min(next_sample - time.monotonic(), self._patience())))
            if ready:
                os.read(wake, 4096)
            self._reap()
            kin = [proc for proc in descendants([os.getpid()], process_table()) if proc.alive]
            self._remember(kin)
            if time.monotonic() >= next_sample:
                self._sample(kin)
                next_sample = time.monotonic() + SAMPLE_EVERY_S
            if self._code is not None and not self._told and (not kin or self._patience() <= 0):
                self._tell_exit(kin)
            if self._told and not kin:
                return

    def _patience(self) -> float:
        """Seconds until the exit is told although processes are left."""
        if self._code is None or self._told:
            return SAMPLE_EVERY_S
        return self._died_at + ORPHANS_SETTLE_S - time.monotonic()

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            if self._server and pid == self._server.pid:
                self._code, self._died_at = code, time.monotonic()
            elif self._probe and pid == self._probe.pid:
                os.rename(self._run.file("provenance.tmp"), self._run.file("provenance.json"))
            else:
                rank = next((rank_of(name) for (known, _), name in self._known.items() if known == pid), None)
                if rank is not None:
                    self._rank_exit[rank] = code

    def _remember(self, kin: list[Proc]) -> None:
        grown = False
        for proc in kin:
            key = (proc.pid, proc.start)
            if self._probe and proc.pid == self._probe.pid:
                continue
            if rank_of(self._known.get(key, "")) is None:
                grown = grown or key not in self._known
                self._known[key] = title(proc.pid)[:200]
        if grown:
            listed = [{"pid": pid, "start": start} for pid, start in self._known]
            self._try_write("known.json", {"processes": listed})

    def _try_write(self, name: str, value: Json) -> None:
        try:
            write_json(self._run.file(name), value)
        except OSError as problem:
            self._changed[f"{self._run.path} cannot be written: {problem.strerror}"] = None

    def _sample(self, kin: list[Proc]) -> None:
        now = time.monotonic()
        self._look_at_port(kin)
        ticks = sum(proc.ticks for proc in kin)
        cpu = max(0, ticks - self._cpu[1]) / os.sysconf("SC_CLK_TCK") / max(now - self._cpu[0], 1e-3) * 100
        received = received_bytes()
        net = max(0, received - self._net[1]) * 8 / 1000 / max(now - self._net[0], 1e-3)
        self._cpu, self._net = (now, ticks), (now, received)
        gpus = self._gpus.read()
        self._look_at_gpus(gpus, kin)
        ranks = {rank_of(self._known.get((proc.pid, proc.start), "")) for proc in kin} - {None}
        signals = {
            "alive": self._code is None,
            "exit_code": self._code,
            "http_ready": self._health.ready,
            "silent_for_s": round(self._log.silent_for_s(), 3),
            "cpu_util": round(cpu, 1),
            "cpu_busy": cpu > 20.0,
            "net_rx_kbps": round(net, 1),
            "alive_ranks": sorted(int(rank) for rank in ranks if rank is not None),
            "rank_exit": self._rank_exit,
        }
        if gpus:
            signals["gpu_util"] = max(gpu.util for gpu in gpus)
            signals["gpu_used_gb"] = round(max(gpu.used_gb for gpu in gpus), 3)
        self._try_write("signals.json", signals)
        line = {**signals, "t": round(time.time(), 3), "gpus": [[g.index, round(g.used_gb, 3), g.util] for g in gpus]}
        with contextlib.suppress(OSError), open(self._run.file("samples.jsonl"), "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def _look_at_port(self, kin: list[Proc]) -> None:
        bound = listeners(self._order["port"]) if self._order["port"] else {}
        ours = {inode for proc in kin for inode in socket_inodes(proc.pid)} & bound.keys() if bound else set()
        if ours:
            self._health.owned(bound[ours.pop()])
        else:
            self._health.lost()

    def _look_at_gpus(self, gpus: list[Gpu], kin: list[Proc]) -> None:
        for uuid in self._boot_gpus - {gpu.uuid for gpu in gpus}:
            self._changed[f"GPU {uuid} fell off ({self._gpus.why})"] = None
        if self._gpus.source == "nvml":
            mine = {pid for pid, _ in self._known} | {proc.pid for proc in kin}
            for one in self._gpus.processes():
                if one.pid not in mine and os.path.exists(f"/proc/{one.pid}"):
                    self._changed[f"{describe(one.pid)} came to GPU {one.index} during the trial"] = None

    def _tell_exit(self, kin: list[Proc]) -> None:
        self._told = True
        self._sample(kin)
        record = {
            "exit_code": self._code,
            "rank_exit": self._rank_exit,
            "left": [proc.pid for proc in kin][:50],
            "changed": list(self._changed)[:10],
            "kernel": kernel_kills({pid for pid, _ in self._known})[:5],
        }
        with open(self._run.file("exit.pending"), "r+b") as file:
            file.write(json.dumps(record).encode()[:EXIT_RECORD_BYTES])
        os.rename(self._run.file("exit.pending"), self._run.file("exit.json"))

    def changed(self) -> list[str]:
        return list(self._changed)


def reserve(path: str) -> None:
    with open(path, "wb") as file:
        file.write(b" " * EXIT_RECORD_BYTES)


def rank_of(name: str) -> Optional[str]:
    found = RANK.match(name)
    return (found.group(1) or "0") if found else None


def received_bytes() -> int:
    """Bytes received by all interfaces but loopback."""
    total = 0
    with contextlib.suppress(OSError), open("/proc/net/dev", encoding="ascii") as file:
        for line in file.read().splitlines()[2:]:
            name, _, numbers = line.partition(":")
            if name.strip() != "lo":
                total += int(numbers.split()[0])
    return total


def kernel_kills(pids: set[int]) -> list[str]:
    """The kernel's lines about killing or faulting one of ``pids``, where this user may read them."""
    found = []
    try:
        handle = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return []
    try:
        while True:
            try:
                line = os.read(handle, 8192).decode("utf-8", "replace")
            except BrokenPipeError:  # overwritten while we read: go on with the next
                continue
            text = line.split(";", 1)[-1].splitlines()[0]
            wanted = "Killed process" in text or "segfault at" in text or "oom-kill:" in text
            if wanted and any(re.search(rf"\b{pid}\b", text) for pid in pids):
                found.append(text)
    except OSError:
        pass
    finally:
        os.close(handle)
    return found


def supervise(directory: str, launch_id: str) -> int:
    """The supervisor's main program: the order comes on stdin, one line about the start goes to stdout."""
    order = json.loads(sys.stdin.buffer.read())
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    supervisor = Supervisor(RunDir(directory, launch_id), order)
    try:
        supervisor.start()
    except OSError as problem:
        print(json.dumps({"error": f"{problem.strerror}: {problem.filename}"}), flush=True)
        return 1
    print(json.dumps({"ok": True}), flush=True)
    silent = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(silent, number)
    supervisor.watch()
    return 0


# ------------------------------------------------------------------------------------------------- the verbs


class Agent:
    """One conversation with a client. Every public method is a verb; its keyword arguments come from the request."""

    def __init__(self, directory: str) -> None:
        self._dir = directory
        self._wire = Wire()
        self._children: list[subprocess.Popen[bytes]] = []
        self._working = False
        self._fence = 0
        self._box: Json = {}

    # .. the conversation

    def serve(self) -> None:
        self._wire.send({"agent": self._dir})
        threading.Thread(target=self._tick, daemon=True).start()
        while True:
            request = self._wire.receive(timeout_s=3600.0)
            if request is None:
                return
            self._answer(request)

    def _tick(self) -> None:
        """Tell the client that a long request is being worked on, so that silence means a lost link."""
        while True:
            time.sleep(TICK_EVERY_S)
            if self._working:
                with contextlib.suppress(OSError):
                    self._wire.send({"tick": 1})

    def _answer(self, request: Json) -> None:
        self._working = True
        try:
            self._carry_out(request)
        finally:
            self._working = False

    def _carry_out(self, request: Json) -> None:
        self._fence = request.get("fence", 0)
        self._box = request.get("box", {})
        try:
            verb: Callable[..., Json] = getattr(self, "do_" + request["verb"])
            answer = verb(**request.get("args", {}))
        except Refused as refused:
            error = {"kind": refused.kind, "message": refused.message, "remedy": refused.remedy}
            self._wire.send({"error": error})
        except OSError as problem:
            if problem.errno == 28:
                self._wire.send({"error": {"kind": "disk-full", "message": f"the disk of the box is full: {problem}"}})
            elif isinstance(problem, BrokenPipeError):
                raise
            else:
                self._wire.send({"error": {"kind": "os", "message": f"{request['verb']} on the box: {problem}"}})
        except Exception:
            said = traceback.format_exc().strip().splitlines()
            message = f"the agent failed at {request['verb']}: {said[-1]} ({said[-3].strip()})"
            self._wire.send({"error": {"kind": "internal", "message": message, "remedy": "please report this"}})
        else:
            self._wire.send({"ok": answer})
        finally:
            self._wire.skip_payload()
            self._children = [child for child in self._children if child.poll() is None]

    def _leases(self) -> LeaseBook:
        return LeaseBook(os.path.expanduser(self._box["lease_dir"]))

    def _runs(self, launch_id: str) -> RunDir:
        run = RunDir(self._dir, launch_id)
        if not run.exists:
            raise Refused("no-run", f"the box knows no launch {launch_id}")
        return run

    # .. facts

    def do_hello(self) -> Json:
        """What makes this machine this machine. Sizes in GiB."""
        gpus = Gpus(self._box["gpus"])
        about = platform.uname()
        return {
            "hostname": about.node,
            "boot_id": boot_id(),
            "kernel": about.release,
            "system": system_name(),
            "cpu": cpu_model(),
            "cores": len(os.sched_getaffinity(0)),
            "ram_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB, 2),
            "gpus": [{"index": g.index, "uuid": g.uuid, "name": g.name, "total_gb": g.total_gb} for g in gpus.read()],
            "gpu_source": gpus.source,
            "gpu_why": gpus.why,
            "driver": gpus.driver,
            "python": platform.python_version(),
            "git": git("--version").split()[2],
            "user": owner(os.getpid()),
            "directory": self._dir,
            "free_gb": round(free_gb(self._dir), 2),
        }

    def do_free_port(self) -> Json:
        """A port that nobody listens on, below the range from which connections take theirs."""
        for _ in range(200):
            port = random.SystemRandom().randrange(20000, 32000)
            if not listeners(port):
                with contextlib.suppress(OSError), socket.socket() as probe:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind(("0.0.0.0", port))
                    return {"port": port}
        raise Refused("no-port", "no free port between 20000 and 32000")

    # .. the lease

    def do_lease_acquire(self, **wanted: Any) -> Json:
        return self._leases().acquire(gpus=self._box["gpus"], **wanted)

    def do_lease_renew(self, ttl_s: float) -> Json:
        return self._leases().renew(fence=self._fence, ttl_s=ttl_s)

    def do_lease_release(self) -> Json:
        return self._leases().release(fence=self._fence)

    def do_lease_status(self) -> Json:
        return self._leases().status()

    # .. code

    def do_place(self, commit: str, tree: str) -> Json:
        """Code on disk, from what the box has; else ``missing`` and the commits that it has."""
        store = CodeStore(self._dir)
        checkout = os.path.expanduser(self._box["checkout"])
        store.ensure(checkout)
        if not os.path.isdir(os.path.dirname(store.path(tree))) and not store.has(commit):
            return {"missing": True, "tips": store.tips(checkout)}
        written, note = store.place(commit, tree)
        return {"path": store.path(tree), "tree": tree, "placed": written, "note": note}

    def do_receive(self, commit: str, tree: str) -> Json:
        """The payload is a bundle with what the box lacks of ``commit``."""
        store = CodeStore(self._dir)
        bundle = f"{self._dir}/code.git/incoming.{os.getpid()}"
        try:
            with open(bundle, "wb") as file:
                for part in self._wire.payload():
                    file.write(part)
            store.unbundle(bundle, commit)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(bundle)
        found = git("rev-parse", f"{commit}:python/sglang", repo=store.repo).strip()
        if found != tree:
            raise Refused("wrong-code", f"commit {commit} has the tree {found} on the box, not {tree}")
        return self.do_place(commit, tree)

    # .. clean

    def do_prove_clean(self, port: int) -> Json:
        """Sweep what earlier launches of this tool left; name everything else that would disturb a trial."""
        self._leases().check(self._fence)
        began = time.monotonic()
        swept, faults = [], []
        for run in unfinished_runs(self._dir):
            if run.state().get("keep") and run.members():
                faults.append(f"launch {run.id} was kept running on purpose (port {run.state()['port']})")
                continue
            was_running = bool(run.members())
            report = self._end(run, grace_s=0.0)
            faults += report["faults"]
            if was_running:
                swept.append(f"launch {run.id} had been left running: {len(report['killed'])} processes ended")
        self._drop_old_runs()
        holder = port_holder(port) if port else None
        if holder:
            faults.append(f"port {port} is held by {holder}")
        faults += self._gpu_faults(wait_s=0.0)
        free = free_gb(self._dir)
        if free < self._box["min_free_gb"]:
            faults.append(f"only {free:.2f} GiB are free in {self._dir} ({self._box['min_free_gb']} wanted)")
        return {"clean": not faults, "faults": faults, "swept": swept, "seconds": time.monotonic() - began}

    def _drop_old_runs(self) -> None:
        with contextlib.suppress(OSError):
            names = sorted(os.listdir(f"{self._dir}/runs"), key=lambda n: os.stat(f"{self._dir}/runs/{n}").st_mtime)
            for name in names[:-KEEP_RUNS]:
                if RunDir(self._dir, name).ended:
                    shutil.rmtree(f"{self._dir}/runs/{name}", ignore_errors=True)

    def _gpu_faults(self, *, wait_s: float) -> list[str]:
        """Foreign processes on the GPUs, and memory above the baseline after ``wait_s`` to let it fall."""
        gpus = Gpus(self._box["gpus"])
        if gpus.source == "none":
            return []
        deadline = time.monotonic() + wait_s
        while True:
            faults = self._gpu_faults_now(gpus)
            if not faults or time.monotonic() >= deadline:
                return faults
            time.sleep(0.1)

    def _gpu_faults_now(self, gpus: Gpus) -> list[str]:
        busy = gpus.processes()
        if busy:
            return [f"{describe(one.pid)} holds {one.used_gb:.1f} GiB of GPU {one.index}" for one in busy]
        book = f"{self._dir}/baseline.json"
        kept = read_json(book) or {}
        same = kept.get("boot") == boot_id() and kept.get("driver") == gpus.driver
        baseline = dict(kept["used_gb"]) if same else {}
        faults = []
        for gpu in gpus.read():
            usual = baseline.get(gpu.uuid, self._box["gpu_idle_gb"])
            if gpu.used_gb > usual + self._box["gpu_slack_gb"]:
                faults.append(f"GPU {gpu.index} holds {gpu.used_gb:.1f} GiB that no process owns (idle: {usual:.1f})")
            else:
                baseline[gpu.uuid] = min(gpu.used_gb, baseline.get(gpu.uuid, gpu.used_gb))
        if not faults:
            write_json(book, {"boot": boot_id(), "driver": gpus.driver, "used_gb": baseline})
        return faults

    # .. run

    def do_start(self, spec: Json) -> Json:
        """Start a server. The same launch id twice is the same launch: a repeated request changes nothing."""
        self._leases().check(self._fence)
        run = RunDir(self._dir, spec["launch_id"])
        if run.exists:
            return {"path": run.path, "tree": run.state()["tree"]}
        store = CodeStore(self._dir)
        if spec["tree"]:
            proven = store.proven(spec["tree"])
            if proven != spec["tree"]:
                raise Refused("wrong-code", f"the code in {store.path(spec['tree'])} has the tree id {proven}")
        os.makedirs(run.path, mode=0o700, exist_ok=True)
        write_json(run.file("spec.json"), spec["shown"])
        order = {
            "argv": spec["argv"],
            "env": self._server_env(spec, run),
            "port": spec["port"],
            "python": spec["python"],
            "tree": spec["tree"],
            "keep": spec["keep"],
            "gpus": self._box["gpus"],
            "fence": self._fence,
        }
        self._start_supervisor(run, order)
        return {"path": run.path, "tree": spec["tree"]}

    def _server_env(self, spec: Json, run: RunDir) -> dict[str, str]:
        env = {name: value for name, value in os.environ.items() if CLEAN_ENV.fullmatch(name)}
        env.update(spec["env"])
        env["PYTHONPATH"] = ":".join(spec["pythonpath"])
        env["TMPDIR"] = short_tmpdir(run)
        env["PATCHBISECT_LAUNCH"] = run.id
        return env

    def _start_supervisor(self, run: RunDir, order: Json) -> None:
        child = subprocess.Popen(
            [
                sys.executable,
                "-I",
                "-c",
                LOADER,
                os.path.dirname(__file__),
                module_name(),
                "supervise",
                self._dir,
                run.id,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=run.path,
            start_new_session=True,
        )
        self._children.append(child)
        assert child.stdin is not None and child.stdout is not None
        with child.stdin as stdin, child.stdout as stdout:
            stdin.write(json.dumps(order).encode())
            stdin.close()
            answer = stdout.readline()
        said = json.loads(answer) if answer else {"error": "the supervisor did not start"}
        if "error" in said:
            shutil.rmtree(run.path, ignore_errors=True)
            raise Refused("no-program", f"the server could not be started on the box: {said['error']}")

    def do_follow(self, launch_id: str, offset: int) -> Json:
        """Stream log chunks and signals until the server has exited and its log is drained."""
        run = self._runs(launch_id)
        heard = sampled = time.monotonic()
        stamp = 0
        with open(run.log, "rb", buffering=0) as log:
            log.seek(offset)
            while True:
                exited = run.exit() or self._lost_exit(run)
                data = log.read(CHUNK_BYTES)
                if data:
                    self._wire.send({"chunk": offset, "size": len(data)}, data)
                    offset += len(data)
                now = time.monotonic()
                if exited and not data:
                    return {"exited": exited, "offset": offset}
                if now - sampled >= SAMPLE_EVERY_S or (now - sampled >= 0.1 and stamp != changed_at(run)):
                    stamp, sampled = changed_at(run), now
                    self._wire.send({"signals": read_json(run.file("signals.json")) or {}})
                if not data:
                    said = self._wire.heartbeat(LOG_POLL_S)
                    if said is None or now - heard > SILENT_CLIENT_S:
                        raise BrokenPipeError
                    heard = now if said else heard

    def _lost_exit(self, run: RunDir) -> Optional[Json]:
        """The exit of a server whose supervisor was killed: nobody could wait for it, so its code is not known."""
        if run.supervisor() is not None:
            return None
        if run.members():
            return None
        return run.exit() or {"exit_code": None, "rank_exit": {}, "left": [], "changed": [], "kernel": []}

    def do_provenance(self, launch_id: str) -> Json:
        """What the server's own Python sees; waits for the probe that was started beside the server."""
        run = self._runs(launch_id)
        deadline = time.monotonic() + 60.0
        while time.monotonic() < deadline:
            found = read_json(run.file("provenance.json"))
            if found is not None:
                return {**found, "tree": run.state()["tree"]}
            if run.supervisor() is None or os.path.exists(run.file("provenance.json")):
                break
            time.sleep(0.02)
        found = read_json(run.file("provenance.json"))
        if found is not None:
            return {**found, "tree": run.state()["tree"]}
        try:
            with open(run.file("provenance.err"), encoding="utf-8", errors="replace") as file:
                said = file.read().strip().splitlines()[-1:]
        except OSError:
            said = []
        raise Refused("no-provenance", f"the server's Python could not tell its packages: {' '.join(said)}")

    def do_launch_state(self, launch_id: str) -> Json:
        run = self._runs(launch_id)
        return {"path": run.path, "exited": run.exit(), "ended": run.ended, "port": run.state()["port"]}

    def do_stop(self, launch_id: str, grace_s: float) -> Json:
        run = self._runs(launch_id)
        return self._end(run, grace_s=grace_s)

    def _end(self, run: RunDir, *, grace_s: float) -> Json:
        """End everything of one launch and prove it. ``faults`` is empty when the proof holds."""
        began = time.monotonic()
        killed, refusals = end_processes(run, grace_s=grace_s)
        faults = list(refusals)
        left = run.members()
        faults += [f"{describe(proc.pid)} of launch {run.id} does not die (state {proc.state})" for proc in left]
        state = run.state()
        if not left:
            end_supervisor(run)
        gone_s = time.monotonic() - began
        holder = port_holder(state["port"]) if state["port"] else None
        if holder:
            faults.append(f"port {state['port']} is still held by {holder}")
        faults += self._gpu_faults(wait_s=self._box["gpu_budget_s"])
        changed = self._changed(run, state)
        exit_ = run.exit() or {}
        if not left:
            remove_tmpdir(run)
            write_json(run.file("ended.json"), {"killed": killed})
        return {
            "ended": not left,
            "killed": killed,
            "gone_s": gone_s,
            "seconds": time.monotonic() - began,
            "faults": faults,
            "changed": changed,
            "exit_code": exit_.get("exit_code"),
            "kernel": exit_.get("kernel", []),
        }

    def _changed(self, run: RunDir, state: Json) -> list[str]:
        """How the box is another one than when the launch began."""
        found = list((run.exit() or {}).get("changed", []))
        if state["boot"] != boot_id():
            found.append("the box was rebooted")
        gpus = Gpus(self._box["gpus"]) if state["gpu_source"] != "none" else None
        if gpus is not None:
            if gpus.driver != state["driver"]:
                found.append(f"the driver was {state['driver']} and is now {gpus.driver or 'gone'}")
            missing = set(state["gpus"]) - {gpu.uuid for gpu in gpus.read()}
            found += [f"GPU {uuid} fell off ({gpus.why})" for uuid in sorted(missing)]
        if free_gb(run.path) < 1 / 1024:
            found.append(f"the disk of {run.path} is full")
        return sorted(set(found))


def end_processes(run: RunDir, *, grace_s: float) -> tuple[list[int], list[str]]:
    """SIGTERM and ``grace_s`` seconds, then SIGKILL until nothing is left. Returns pids and refusals."""
    touched: dict[int, None] = {}
    refusals: dict[str, None] = {}
    if grace_s > 0:
        members = run.members()
        for proc in members:
            touched[proc.pid] = None
            send_signal(proc, signal.SIGTERM)
        wait_gone(members, grace_s)
    deadline = time.monotonic() + KILL_BUDGET_S
    while time.monotonic() < deadline:
        members = run.members()
        if not members:
            break
        for proc in members:
            touched[proc.pid] = None
            problem = send_signal(proc, signal.SIGKILL)
            if problem:
                refusals[problem] = None
        if refusals:
            break
        wait_gone(members, min(1.0, deadline - time.monotonic()))
    return list(touched), list(refusals)


def end_supervisor(run: RunDir) -> None:
    """It ends by itself once its last child is gone; one that does not is ours to end."""
    supervisor = run.supervisor()
    if supervisor and wait_gone([supervisor], 2.0):
        send_signal(supervisor, signal.SIGKILL)
        wait_gone([supervisor], 2.0)


def short_tmpdir(run: RunDir) -> str:
    """The run directory, or a short link to it where its path is too long for a socket in it."""
    if len(run.path) <= LONGEST_TMPDIR:
        return run.path
    link = tmp_link(run)
    with contextlib.suppress(FileExistsError):
        os.symlink(run.path, link)
    return link


def tmp_link(run: RunDir) -> str:
    return f"/tmp/pb-{hashlib.sha1(run.path.encode()).hexdigest()[:12]}"


def remove_tmpdir(run: RunDir) -> None:
    """Sockets and empty files that killed servers leave; the log and our own files stay."""
    with contextlib.suppress(OSError):
        if os.path.islink(tmp_link(run)) and os.readlink(tmp_link(run)) == run.path:
            os.unlink(tmp_link(run))
    ours = {"log", "spec.json", "state.json", "known.json", "signals.json", "samples.jsonl", "exit.json"}
    ours |= {"ended.json", "provenance.json", "provenance.err", "dossier.json"}
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(run.path)):
            if entry.name in ours:
                continue
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                with contextlib.suppress(OSError):
                    os.unlink(entry.path)


def changed_at(run: RunDir) -> int:
    try:
        return os.stat(run.file("signals.json")).st_mtime_ns
    except OSError:
        return 0


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


# ------------------------------------------------------------------------------------------------------ wire


class Wire:
    """Requests in on stdin, answers out on the stdout that we were given; stray prints go to stderr."""

    def __init__(self) -> None:
        self._out = os.dup(1)
        os.dup2(2, 1)
        self._buffer = b""
        self._payload = 0
        self._sending = threading.Lock()

    def send(self, header: Json, data: bytes = b"") -> None:
        rest = memoryview(json.dumps(header).encode() + b"\n" + data)
        with self._sending:
            while rest:
                rest = rest[os.write(self._out, rest) :]

    def _more(self, timeout_s: float) -> Optional[bool]:
        """True when bytes came, False when none did in time, None at the end of the stream."""
        ready, _, _ = select.select([0], [], [], timeout_s)
        if not ready:
            return False
        data = os.read(0, 1 << 16)
        self._buffer += data
        return True if data else None

    def receive(self, timeout_s: float) -> Optional[Json]:
        """The next request; None when the client has gone. Empty lines are heartbeats."""
        while True:
            line, newline, rest = self._buffer.partition(b"\n")
            if not newline:
                if not self._more(timeout_s):
                    return None
                continue
            self._buffer = rest
            if line.strip():
                request: Json = json.loads(line)
                self._payload = request.get("payload", 0)
                return request

    def payload(self) -> Iterator[bytes]:
        while self._payload:
            if not self._buffer and not self._more(60.0):
                raise BrokenPipeError
            part, self._buffer = self._buffer[: self._payload], self._buffer[self._payload :]
            self._payload -= len(part)
            yield part

    def skip_payload(self) -> None:
        for _ in self.payload():
            pass

    def heartbeat(self, timeout_s: float) -> Optional[bool]:
        """Whether the client said it is there; None when it has gone."""
        said = self._more(timeout_s)
        if said:
            self._buffer = b""
        return said


LOADER = "import sys,importlib\nsys.path.insert(0,sys.argv[1])\nm=importlib.import_module(sys.argv[2])\nsys.exit(m.main(sys.argv[3:]))"
"""Imported, not run as a script, so that Python keeps its byte-code."""


def module_name() -> str:
    return os.path.basename(__file__)[: -len(".py")]


def main(words: Sequence[str]) -> int:
    """``serve DIR`` or ``supervise DIR LAUNCH``."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if words[0] == "supervise":
        return supervise(words[1], words[2])
    try:
        Agent(words[1]).serve()
    except BrokenPipeError:
        pass
    return 0
