"""Environments of our own over the server's: what a base needs otherwise, and nothing of the user's is touched.

One is a virtual environment that sees everything of the server's environment through a ``.pth`` file, with the
distributions that differ in front. Its name is its content, so it is never changed once it is whole.
"""

from __future__ import annotations

import contextlib
import csv
import fcntl
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence

from .base import GIB, Json, Refused, free_gb, locked, read_json, write_json
from .rundir import unfinished_runs

STAMP = "environment.json"
"""Written last: an environment without it was never finished."""
FRESH_S = 600.0
"""One that was asked for so recently is about to be launched with."""
PROGRESS_EVERY_S = 0.5
OLDEST_PIP = (22, 2)
"""The first with an installation report."""
RAW_PROGRESS_PIP = (24, 1)

INSTALLED = r"""
import importlib.metadata, json, os, platform, sys
packages = {}
for found in importlib.metadata.distributions():
    if found.metadata["Name"]:
        packages.setdefault(found.metadata["Name"], found.version)
places = [p for p in sys.path if os.path.basename(p) in ("site-packages", "dist-packages") and os.path.isdir(p)]
info = sys.implementation.version
full = "%d.%d.%d" % info[:3] + ("" if info.releaselevel == "final" else info.releaselevel[0] + str(info.serial))
print(json.dumps({
    "executable": sys.executable, "prefix": sys.prefix, "places": places, "packages": packages,
    "markers": {
        "implementation_name": sys.implementation.name, "implementation_version": full, "os_name": os.name,
        "platform_machine": platform.machine(), "platform_release": platform.release(),
        "platform_system": platform.system(), "platform_version": platform.version(),
        "python_full_version": platform.python_version(),
        "platform_python_implementation": platform.python_implementation(),
        "python_version": ".".join(platform.python_version_tuple()[:2]), "sys_platform": sys.platform,
    },
}))
"""

DIE_WITH_PARENT = (
    "import ctypes, os, sys; p = int(sys.argv[1]); ctypes.CDLL(None).prctl(1, 9, 0, 0, 0); "
    "sys.exit(1) if os.getppid() != p else os.execv(sys.argv[2], sys.argv[2:])"
)
"""pip ends with us (PR_SET_PDEATHSIG, SIGKILL): one that outlived a killed agent would write behind its successor."""

NOT_INHERITED = re.compile(r"PYTHON.*|VIRTUAL_ENV|PIP_(?:TARGET|PREFIX|USER|REQUIRE_VIRTUALENV|REQUIREMENT|PYTHON)")
UNREACHABLE = ("connection broken by", "Failed to establish a new connection", "Temporary failure in name resolution")

Progress = Callable[[Json], None]


def installed(python: str) -> Json:
    """What ``python`` has, as it sees it: of two distributions of one name the first on its path is imported."""
    try:
        done = subprocess.run(
            [python, "-c", INSTALLED],
            cwd="/",
            env=plain_env(),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise Refused("no-program", f"{python}: {problem}", "set `python` of the box") from problem
    if done.returncode:
        raise Refused("no-program", f"{python} cannot tell its packages: {last_line(done.stderr)}")
    found: Json = json.loads(done.stdout)
    return found


class Environments:
    """All of them, below ``directory``; together they take at most ``limit_gb`` GiB."""

    def __init__(self, directory: str, *, limit_gb: float) -> None:
        self._dir = directory
        self._home = f"{directory}/environments"
        self._limit_gb = limit_gb
        os.makedirs(self._home, mode=0o700, exist_ok=True)

    def all(self) -> list[Json]:
        """Those that are whole, the one used last first. ``size_gb`` is GiB, times are seconds."""
        found, busy = [], self._busy()
        for key in self._keys():
            about = read_json(f"{self._home}/{key}/{STAMP}")
            if about:
                found.append({"key": key, "used": self._used(key), "busy": key in busy, **about})
        return sorted(found, key=lambda one: -one["used"])

    def ensure(self, order: Json, progress: Progress) -> Json:
        """The environment of that key, built where it is not there or no longer whole.

        ``order``: ``key``, ``python`` (the server's), ``sought`` (names of what the server's own lacks), ``wanted`` and
        ``held`` (requirements: to have, to keep as they are), ``without`` (packages that the box lives without),
        ``pip_args``, ``min_free_gb``. What a build that was killed had downloaded is not downloaded again.
        """
        key = order["key"]
        if not re.fullmatch(r"[0-9a-f]{16}", key):
            raise Refused("usage", f"not the key of an environment: {key!r}")
        home = f"{self._home}/{key}"
        with waiting(f"{home}.lock", progress):
            about = read_json(f"{home}/{STAMP}")
            built = about is None or not all(whole(f"{about['site']}/{info}") for info in about["infos"])
            if built:
                about = _Build(home, order, progress).do()
            os.utime(f"{home}/{STAMP}")
        self.collect(keep=key)
        assert about is not None
        return {**about, "built": built}

    def collect(self, *, keep: str = "", limit_gb: float | None = None) -> list[str]:
        """Drop the ones not used for longest until the rest is within the limit; none that is in use.

        Returns the keys that were dropped. What a killed build left behind goes too.
        """
        limit = self._limit_gb if limit_gb is None else limit_gb
        dropped = []
        room = limit - sum(one["size_gb"] for one in self.all() if one["key"] == keep)
        for one in self.all():
            if one["key"] == keep:
                continue
            room -= one["size_gb"]
            fresh = time.time() - one["used"] < FRESH_S and limit > 0
            if (room < 0 or limit <= 0) and not one["busy"] and not fresh and self._drop(one["key"]):
                dropped.append(one["key"])
                room += one["size_gb"]
        for key in self._keys():
            if key != keep and not os.path.exists(f"{self._home}/{key}/{STAMP}"):
                self._drop(key)
        return dropped

    def _drop(self, key: str) -> bool:
        """Whether it was dropped: not while somebody builds it."""
        home = f"{self._home}/{key}"
        lock = os.open(f"{home}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if not try_lock(lock):
                return False
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{home}/{STAMP}")  # first: half an environment must not pass for a whole one
            shutil.rmtree(home, ignore_errors=True)
            shutil.rmtree(f"{home}.wheels", ignore_errors=True)
            return True
        finally:
            os.close(lock)

    def _keys(self) -> list[str]:
        return sorted({name[:16] for name in os.listdir(self._home) if re.match(r"[0-9a-f]{16}(\.wheels)?$", name)})

    def _used(self, key: str) -> float:
        try:
            return os.stat(f"{self._home}/{key}/{STAMP}").st_mtime
        except OSError:
            return 0.0

    def _busy(self) -> set[str]:
        pythons = (run.state().get("python") or "" for run in unfinished_runs(self._dir))
        return {python.split("/")[-3] for python in pythons if python.startswith(f"{self._home}/")}


class _Build:
    """One environment, from nothing or from what a killed build had downloaded."""

    def __init__(self, home: str, order: Json, progress: Progress) -> None:
        self._home = home
        self._order = order
        self._progress = progress
        self._python = f"{home}/bin/python"
        self._wheels = f"{home}.wheels"
        self._began = time.monotonic()
        self._pip_version = (0, 0)

    def do(self) -> Json:
        free = free_gb(os.path.dirname(self._home))
        if free < self._order["min_free_gb"]:
            raise Refused("disk-full", f"{free:.2f} GiB are free at {self._home}", "free some, or set `dir` of the box")
        shutil.rmtree(self._home, ignore_errors=True)
        os.makedirs(self._wheels, exist_ok=True)
        base = installed(self._order["python"])
        self._say("a virtual environment over that of the server")
        self._run([self._order["python"], "-m", "venv", "--without-pip", self._home], what="venv")
        site = installed(self._python)["places"][0]
        self._link_base(site, base["places"])
        self._find_pip()
        taken = self._resolve({plain_name(name) for name in base["packages"]})
        if taken:
            self._download(taken)
            self._install(taken)
        about = self._proven(site, taken)
        write_json(f"{self._home}/{STAMP}", about)
        shutil.rmtree(self._wheels, ignore_errors=True)
        return about

    @staticmethod
    def _link_base(site: str, places: Sequence[str]) -> None:
        """Everything of the server's environment, behind what is installed here; its own ``.pth`` files count too."""
        lines = [f"import site; site.addsitedir({place!r})\n" for place in places]
        with open(f"{site}/zz-patchbisect-base.pth", "w", encoding="utf-8") as file:
            file.writelines(lines)

    def _find_pip(self) -> None:
        """pip of the server's environment works here too; where it has none (as with uv), Python brings one."""
        try:
            said = self._run([self._python, "-m", "pip", "--version"], what="pip")
        except Refused:
            try:
                self._run([self._python, "-m", "ensurepip"], what="ensurepip")
                said = self._run([self._python, "-m", "pip", "--version"], what="pip")
            except Refused as refused:
                remedy = f"install pip for {self._order['python']} on the box"
                raise Refused("no-wheels", "there is no pip on the box to get them with", remedy) from refused
        numbers = [int(part) for part in re.findall(r"\d+", said.split()[1])]
        self._pip_version = (numbers[0], numbers[1])
        if self._pip_version < OLDEST_PIP:
            remedy = f"{self._order['python']} -m pip install --upgrade pip"
            raise Refused("no-wheels", f"pip {said.split()[1]} on the box is older than 22.2", remedy)

    def _resolve(self, there: set[str]) -> list[tuple[str, str]]:
        """Name and version of what pip would install beside what is ``there``, as far as it comes of what is sought.

        A server's environment may lack what its own distributions ask for; it has lived without, and so does ours.
        """
        self._say("what pip would take")
        held, report = f"{self._home}/held.txt", f"{self._home}/report.json"
        with open(held, "w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in self._order["held"])
        self._pip("install", "--dry-run", "--report", report, "--constraint", held, *self._order["wanted"])
        with open(report, encoding="utf-8") as file:
            items = json.load(file)["install"]
        every = {plain_name(item["metadata"]["name"]): item["metadata"] for item in items}
        found = {name: about for name, about in every.items() if name not in self._order["without"]}
        names = reached(found, {*self._order["sought"], *there})
        return [(found[name]["name"], found[name]["version"]) for name in sorted(names)]

    def _download(self, taken: Sequence[tuple[str, str]]) -> None:
        for k, (name, version) in enumerate(taken, start=1):
            mark = f"{self._wheels}/{plain_name(name)}-{version}.done"
            if not os.path.exists(mark):
                self._say(f"{name} {version}", done=k, of=len(taken))
                self._pip("download", "--no-deps", "--dest", self._wheels, f"{name}=={version}")
                with open(mark, "wb"):
                    pass

    def _install(self, taken: Sequence[tuple[str, str]]) -> None:
        self._say(f"unpacking {len(taken)} distributions")
        names = [f"{name}=={version}" for name, version in taken]
        words = ("install", "--no-deps", "--ignore-installed", "--no-index", "--find-links", self._wheels)
        self._pip(*words, *names, own_sources=False)

    def _proven(self, site: str, taken: Sequence[tuple[str, str]]) -> Json:
        """What was made, once its own Python sees exactly what was asked for and every file of it is there."""
        seen = {plain_name(name): version for name, version in installed(self._python)["packages"].items()}
        wrong = [f"{name} {version}" for name, version in taken if seen.get(plain_name(name)) != version]
        infos = [name for name in sorted(os.listdir(site)) if name.endswith(".dist-info")]
        cut = [info for info in infos if not whole(f"{site}/{info}")]
        if wrong or cut:
            raise Refused(
                "environment", f"the environment {self._home} did not become what was asked for: {wrong + cut}"
            )
        return {
            "python": self._python,
            "site": site,
            "infos": infos,
            "added": dict(taken),
            "wanted": self._order["wanted"],
            "base": self._order["python"],
            "seconds": round(time.monotonic() - self._began, 1),
            "size_gb": round(size_of(self._home) / GIB, 6),
        }

    def _pip(self, *words: str, own_sources: bool = True) -> str:
        common = ["--no-input", "--disable-pip-version-check", "--only-binary", ":all:"]
        if self._pip_version >= RAW_PROGRESS_PIP:
            common.append("--progress-bar=raw")
        sources = self._order["pip_args"] if own_sources else []
        return self._run([self._python, "-m", "pip", words[0], *common, *sources, *words[1:]], what=f"pip {words[0]}")

    def _run(self, words: Sequence[str], *, what: str) -> str:
        """All that it printed. Raises Refused in words that a user can act on; whatever ends us ends it too."""
        wrapped = [self._order["python"], "-c", DIE_WITH_PARENT, str(os.getpid()), shutil.which(words[0]) or words[0]]
        lines = []
        with subprocess.Popen(
            [*wrapped, *words[1:]],
            cwd="/",
            env={**plain_env(), "PIP_ROOT_USER_ACTION": "ignore"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
        ) as child:
            assert child.stdout is not None
            try:
                for line in child.stdout:
                    lines.append(line)
                    self._hear(line)
            finally:
                if child.poll() is None:
                    child.kill()
        if child.returncode:
            raise failure(what, "".join(lines))
        return "".join(lines)

    def _hear(self, line: str) -> None:
        found = re.match(r"Progress (\d+) of (\d+)", line)
        if found:
            self._progress({"bytes": int(found[1]), "of_bytes": int(found[2])})

    def _say(self, detail: str, **counts: int) -> None:
        self._progress({"detail": detail, **counts})


def reached(found: Json, seeds: set[str]) -> set[str]:
    """Those of ``found`` (metadata by plain name) that are seeds, or are asked for by one of these."""
    names: set[str] = set()
    ahead = [name for name in found if name in seeds]
    while ahead:
        name = ahead.pop()
        if name not in names:
            names.add(name)
            asked = (re.match(r"[A-Za-z0-9._-]+", line) for line in found[name].get("requires_dist", ()))
            ahead += [one for one in (plain_name(match[0]) for match in asked if match) if one in found]
    return names


def failure(what: str, output: str) -> Refused:
    """What went wrong, from what pip said."""
    errors = [line[len("ERROR: ") :] for line in output.splitlines() if line.startswith("ERROR: ")]
    missing = [line for line in errors if line.startswith("No matching distribution found for ")]
    if "No space left on device" in output:
        return Refused("disk-full", "the disk of the box is full", "free some space, or set `dir` of the box")
    if any(sign in output for sign in UNREACHABLE):
        remedy = "check its network, or name a folder of wheels: `pip-args: [--find-links, DIR]` of the box"
        return Refused("no-wheels", "pip on the box reaches no package index", remedy)
    if missing:
        wanted = missing[0][len("No matching distribution found for ") :].partition(" (from")[0]
        remedy = "another interpreter may have it (`python` of the box), or another index (`pip-args`)"
        return Refused("no-wheels", f"there is no wheel of {wanted} for this interpreter where pip looks", remedy)
    said = " ".join((errors or [last_line(output)])[0].split())[:300]
    if "conflict" in output.lower() and what == "pip install":
        return Refused("no-wheels", f"they cannot be had together: {said}", "see `pip install --dry-run` on the box")
    return Refused("no-wheels", f"{what} on the box failed: {said}", "mend that there, then try again")


@contextlib.contextmanager
def waiting(path: str, progress: Progress) -> Iterator[None]:
    """Hold the lock of one environment; somebody else who builds it is waited for, and that is said."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    free = try_lock(handle)
    os.close(handle)
    if not free:
        progress({"detail": "somebody else is building this environment: waiting"})
    with locked(path):
        yield


def try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def plain_env() -> dict[str, str]:
    """Ours, less what would send Python or pip elsewhere; pip's own configuration stays in force."""
    kept = {name: value for name, value in os.environ.items() if not NOT_INHERITED.fullmatch(name)}
    return {**kept, "LC_ALL": "C.UTF-8"}


def plain_name(name: str) -> str:
    """A distribution's one spelling (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def whole(info: str) -> bool:
    """Whether a distribution is there in full, by the sizes that its RECORD lists.

    Byte-code does not count: a wheel may bring some (numpy 2.3.5), and pip compiles it anew.
    """
    try:
        with open(f"{info}/RECORD", newline="", encoding="utf-8") as lines:
            rows = [row for row in csv.reader(lines) if row]
        site = os.path.dirname(info)
        sizes = {name: int(size) for name, _, size in rows if size and not name.endswith(".pyc")}
        return bool(sizes) and all(os.stat(f"{site}/{name}").st_size == size for name, size in sizes.items())
    except (OSError, ValueError, csv.Error):
        return False


def size_of(folder: str) -> int:
    """Bytes of all files."""
    total = 0
    for where, _, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(where, name)).st_size
    return total


def last_line(output: str) -> str:
    return next((line.strip() for line in reversed(output.splitlines()) if line.strip()), "no output")
