"""The directory of one launch, and which processes belong to it."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import os
import re
import shutil

from .base import Json, Refused, boot_id, read_json
from .processes import Proc, descendants, life_id, process_table, read_proc, shared_memory

LAUNCH_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,80}")
REBOOTED = "the box was rebooted"
LONGEST_TMPDIR = 70
"""ZeroMQ's ipc sockets live in TMPDIR, and a socket's path has 107 bytes."""


class RunDir:
    """The files of one launch. ``state.json`` is written by the supervisor alone."""

    def __init__(self, directory: str, launch_id: str) -> None:
        if not LAUNCH_ID.fullmatch(launch_id):
            raise Refused("usage", f"not a launch id: {launch_id!r}")
        self.id = launch_id
        self.path = f"{directory}/runs/{launch_id}"
        self.log = f"{self.path}/log"

    def file(self, name: str) -> str:
        return f"{self.path}/{name}"

    @property
    def exists(self) -> bool:
        """A state that cannot be read was cut off with the machine's power: nothing of that launch lives."""
        return bool(self.state())

    def state(self) -> Json:
        return read_json(self.file("state.json")) or {}

    @property
    def of_this_boot(self) -> bool:
        return self.state().get("boot") in (life_id(), boot_id())  # an older agent of ours wrote the latter

    def exit(self) -> Json | None:
        """How the server ended; None while it runs. A reboot ends everything, and leaves nobody to write it down."""
        told = read_json(self.file("exit.json"))
        if told is None and self.exists and not self.of_this_boot:
            return {"exit_code": None, "rank_exit": {}, "left": [], "changed": [REBOOTED], "kernel": []}
        return told

    @property
    def ended(self) -> bool:
        """Nothing of it is left, and that was proven."""
        return os.path.exists(self.file("ended.json"))

    @property
    def gone(self) -> bool:
        """Nothing of it is left. From then on its session's number may become that of a stranger."""
        return self.ended or os.path.exists(self.file("gone"))

    @property
    def warm(self) -> bool:
        """Whether its server was forked from a warm process."""
        return os.path.exists(self.file("warm.json"))

    def supervisor(self) -> Proc | None:
        state = self.state()
        found = read_proc(state["supervisor"]) if self.of_this_boot else None
        return found if found and found.alive and found.start == state["supervisor_start"] else None

    def known(self) -> set[tuple[int, int]]:
        listed = (read_json(self.file("known.json")) or {}).get("processes", [])
        return {(entry["pid"], entry["start"]) for entry in listed}

    def note_follower(self) -> None:
        """Somebody reads along: the server is not abandoned."""
        with contextlib.suppress(OSError):
            os.utime(self.file("followed"))

    def shared_memory(self) -> set[str]:
        """Files in /dev/shm that processes of this launch were seen to use, and that were not there before it."""
        seen = set((read_json(self.file("known.json")) or {}).get("shm", []))
        seen |= {path for proc in self.members() for path in shared_memory(proc.pid)}
        before = self.state().get("shm")
        return set() if before is None else seen - set(before)  # an older agent of ours did not look

    def members(self) -> list[Proc]:
        """Every living process of this launch, however it was re-parented.

        Below the supervisor; or on the kept list; or in the server's session; or in the run directory with its
        log open for writing (a colleague's shell in there, or a ``tail -f``, is none of ours). And their children.
        """
        state = self.state()
        if self.gone or not self.of_this_boot:
            return []
        table = process_table()
        supervisor = self.supervisor()
        known = self.known()
        session = self._session(state, table)
        roots = {proc.pid for proc in table.values() if (proc.pid, proc.start) in known or proc.session == session}
        roots |= {pid for pid in table if self._writes_log(pid)}
        found = {proc.pid: proc for proc in descendants(roots | ({supervisor.pid} if supervisor else set()), table)}
        found.update({pid: table[pid] for pid in roots})
        spared = {os.getpid(), supervisor.pid if supervisor else 0}
        return [proc for proc in found.values() if proc.alive and proc.pid not in spared]

    @staticmethod
    def _session(state: Json, table: dict[int, Proc]) -> int:
        """The server's session; -1 before it has one, or once its pid belongs to somebody else."""
        server = int(state["server"])
        leader = table.get(server)
        reused = leader is not None and leader.start != state["server_start"]
        return -1 if server <= 1 or reused else server

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


# An hour of them, at two a second: what a picture of a start needs, and little enough for one answer.
MOST_SAMPLES = 7200


def samples_of(run: RunDir) -> list[Json]:
    """What was measured while the server ran, oldest first; of a long life the newest."""
    try:
        with open(run.file("samples.jsonl"), encoding="utf-8") as file:
            lines = file.read().splitlines()[-MOST_SAMPLES:]
    except OSError:
        return []
    return list(filter(None, map(sample_of, lines)))


def sample_of(line: str) -> Json | None:
    """None for a line that was cut off: the supervisor may be in the middle of it, or the disk was full."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


OUR_FILES = frozenset(
    {
        "log",
        "spec.json",
        "state.json",
        "known.json",
        "signals.json",
        "samples.jsonl",
        "exit.json",
        "gone",
        "ended.json",
        "swept.json",
        "followed",
        "supervised",
        "supervisor.err",
        "starting",
        "ending",
        "provenance.json",
        "provenance.err",
        "dossier.json",
        "warm.json",
    }
)


def all_runs(directory: str) -> list[RunDir]:
    """Every launch; what else somebody put beside them is passed over."""
    try:
        names = os.listdir(f"{directory}/runs")
    except OSError:
        return []
    runs = [RunDir(directory, name) for name in sorted(names) if LAUNCH_ID.fullmatch(name)]
    return [run for run in runs if os.path.exists(run.file("state.json"))]


def unfinished_runs(directory: str) -> list[RunDir]:
    return [run for run in all_runs(directory) if not run.ended and run.exists]


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


def remove_dead_links(directory: str) -> None:
    """Short TMPDIRs of launches below ``directory`` whose own directory is gone."""
    for link in glob.glob("/tmp/pb-*"):
        with contextlib.suppress(OSError):
            if os.readlink(link).startswith(f"{directory}/runs/") and not os.path.exists(link):
                os.unlink(link)


def remove_tmpdir(run: RunDir) -> None:
    """Sockets and empty files that killed servers leave; the log and our own files stay."""
    with contextlib.suppress(OSError):
        if os.path.islink(tmp_link(run)) and os.readlink(tmp_link(run)) == run.path:
            os.unlink(tmp_link(run))
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(run.path)):
            if entry.name in OUR_FILES:
                continue
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                with contextlib.suppress(OSError):
                    os.unlink(entry.path)
