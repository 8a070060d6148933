"""The warm processes of this box, seen from outside: begun, asked to fork, ended."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator

from . import HOME
from .base import Json, Refused, boot_id, locked, read_json, since_boot, write_json
from .handing import receive, send
from .noticing import PER_LAUNCH
from .processes import Proc, read_proc, send_signal, wait_gone
from .warm import command

IDLE_S = 900.0
"""A warm process that serves no launch and is asked for none for so long ends by itself."""
PATIENCE_S = 180.0
"""How long one may take to have imported all that it knows."""
MOST = 2
"""Of one lease: each holds as much memory as a launcher does, and another environment needs another one."""
KEEP_KNOWN = 40


class WarmProcess:
    """One warm process: for one Python, and for launches whose environment is the same but for ``PER_LAUNCH``.

    Its name is the key of those, and the fencing number of the lease that it serves.
    """

    def __init__(self, directory: str, name: str) -> None:
        self.place = f"{directory}/warm/{name}"
        self.known = f"{directory}/warm/{name.partition('-')[0]}.json"
        """What it has learned; outlives it."""

    @property
    def state(self) -> Json:
        return read_json(f"{self.place}/state.json") or {}

    def process(self) -> Proc | None:
        state = self.state
        found = read_proc(state.get("pid", 0)) if state.get("boot") == boot_id() else None
        return found if found and found.alive and found.start == state["start"] else None

    def begin(self, python: str, env: dict[str, str], *, fence: int) -> None:
        shutil.rmtree(self.place, ignore_errors=True)
        os.makedirs(self.place, mode=0o700)
        write_json(f"{self.place}/order.json", {"known": self.known, "idle_s": IDLE_S})
        with socket.socket(socket.AF_UNIX) as listener, open(f"{self.place}/log", "ab") as log:
            with short_path(self.place) as path:
                listener.bind(f"{path}/asked")
            listener.listen(8)
            before = signal.signal(signal.SIGINT, lambda *_: None)  # a server may not inherit that it is ignored
            try:
                begun = subprocess.Popen(
                    command(python, self.place, listener.fileno()),
                    cwd=self.place,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(listener.fileno(),),
                    start_new_session=True,
                )
            finally:
                signal.signal(signal.SIGINT, before)
        about = read_proc(begun.pid)
        start = about.start if about else 0
        since = {"boot": boot_id(), "since_boot": since_boot(), "fence": fence, "python": python}
        write_json(f"{self.place}/state.json", {"pid": begun.pid, "start": start, **since})

    def fork(self, words: list[str], *, cwd: str, fds: tuple[int, int]) -> Json:
        """Have it fork a supervisor, started by ``words`` with ``fds`` as stdin and stdout, above a server to be."""
        request = {"argv": words, "cwd": cwd, "env": dict(os.environ)}
        try:
            with socket.socket(socket.AF_UNIX) as link:
                link.settimeout(PATIENCE_S)
                with short_path(self.place) as path:
                    link.connect(f"{path}/asked")
                send(link, request, fds)
                answer = receive(link)
        except OSError as problem:
            said = self.last_words()
            raise Refused("not-warm", f"the warm process does not answer ({problem}); its last line: {said}") from None
        if answer is None:
            raise Refused("not-warm", f"the warm process ended: {self.last_words()}")
        if "error" in answer[0]:
            raise Refused("not-warm", f"the warm process is not fit for a launch: {answer[0]['error']}")
        told: Json = answer[0]["ok"]
        return told

    def last_words(self) -> str:
        with contextlib.suppress(OSError), open(f"{self.place}/log", encoding="utf-8", errors="replace") as file:
            return (file.read().strip().splitlines() or ["it said nothing"])[-1]
        return "it said nothing"

    def end(self) -> bool:
        """End it, and nothing that it forked. False where it was gone already."""
        process = self.process()
        if process:
            send_signal(process, signal.SIGKILL)
            wait_gone([process], 5.0)
        shutil.rmtree(self.place, ignore_errors=True)
        return process is not None


class Warmth:
    """All warm processes in one directory."""

    def __init__(self, directory: str, *, fence: int) -> None:
        self._dir = directory
        self._fence = fence

    def all(self) -> list[WarmProcess]:
        with contextlib.suppress(OSError):
            names = sorted(os.listdir(f"{self._dir}/warm"))
            return [WarmProcess(self._dir, name) for name in names if os.path.isdir(f"{self._dir}/warm/{name}")]
        return []

    def fork(
        self, words: list[str], *, python: str, env: dict[str, str], in_front: int, cwd: str, fds: tuple[int, int]
    ) -> Json:
        """Fork from the warm process for that Python and environment, which is begun where there is none.

        The first ``in_front`` entries of PYTHONPATH are the launch's own. Raises Refused ``not-warm``.
        """
        path = env["PYTHONPATH"].split(":")[in_front:]
        shared = {name: value for name, value in env.items() if name not in PER_LAUNCH}
        if path:
            shared["PYTHONPATH"] = ":".join(path)
        key = hashlib.sha256(json.dumps([python, shared, HOME], sort_keys=True).encode()).hexdigest()[:16]
        one = WarmProcess(self._dir, f"{key}-{self._fence}")
        os.makedirs(f"{self._dir}/warm", mode=0o700, exist_ok=True)
        with locked(f"{self._dir}/warm/lock"):
            if one.process() is None:
                self._make_room()
                try:
                    one.begin(python, {**shared, "TMPDIR": one.place}, fence=self._fence)
                except OSError as problem:
                    raise Refused("not-warm", f"no warm process could be begun: {problem}") from None
        return one.fork(words, cwd=cwd, fds=fds)

    def _make_room(self) -> None:
        ours = sorted(self.of(self._fence), key=lambda one: float(one.state.get("since_boot", 0.0)))
        for one in ours[: max(len(ours) - MOST + 1, 0)]:
            one.end()
        known = [f"{self._dir}/warm/{name}" for name in os.listdir(f"{self._dir}/warm") if name.endswith(".json")]
        for path in sorted(known, key=os.path.getmtime)[:-KEEP_KNOWN]:
            os.unlink(path)

    def of(self, fence: int) -> list[WarmProcess]:
        return [one for one in self.all() if one.state.get("fence") == fence]

    def end_ours(self) -> int:
        """End those of this lease; returns how many there were."""
        return sum(one.end() for one in self.of(self._fence))

    def sweep(self, *, leased: set[int]) -> int:
        """End those whose lease is over; returns how many there were."""
        return sum(one.end() for one in self.all() if one.state.get("fence") not in leased)

    def status(self) -> list[Json]:
        """Those that are alive."""
        found = []
        for one in self.all():
            process, state = one.process(), one.state
            if process and state:
                age = {"pid": process.pid, "python": state["python"], "age_s": since_boot() - state["since_boot"]}
                found.append({**age, "modules": len((read_json(one.known) or {}).get("names", []))})
        return found


@contextlib.contextmanager
def short_path(directory: str) -> Iterator[str]:
    """A name of the directory that is short enough for a socket in it, which has 107 bytes."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{handle}"
    finally:
        os.close(handle)
