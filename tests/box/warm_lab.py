"""A package named sglang, one that it imports, and launches of it that tell all about themselves."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from patchbisect.box import Box, LaunchSpec, Run
from patchbisect.box.agent.rundir import RunDir
from tests.box.lab import listen

THIRD_PARTY = """\
import os, tempfile
LOADED_BY = os.getpid()
MODE = os.environ.get("THIRD_MODE", "")
EVERYTHING = dict(os.environ)
PLACE = tempfile.gettempdir()
os.environ["MADE_BY_THIRD"] = "1"
"""

LAUNCH_SERVER = """\
import json, multiprocessing, os, random, resource, sys, tempfile, time
import third, sglang
sys.path.append(os.environ["LATE_PATH"])


def about(**more):
    return {
        "pid": os.getpid(), "ppid": os.getppid(), "session": os.getsid(0), "cwd": os.getcwd(), "argv": sys.argv,
        "orig_argv": sys.orig_argv[1:], "path": sys.path, "env": dict(os.environ), "main": __name__,
        "tmp": tempfile.gettempdir(), "dice": random.random(), "third": third.LOADED_BY, "mode": third.MODE,
        "place": third.PLACE, "open_files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "method": multiprocessing.get_start_method(), "sglang": sglang.LOADED_BY, "files": files(), **more,
    }


def files():
    found = {}
    for number in os.listdir("/proc/self/fd"):
        try:
            found[number] = os.readlink("/proc/self/fd/" + number)
        except OSError:
            pass
    return found


def child(pipe):
    pipe.send(about(child=True))
    if "--die" in sys.argv:
        os.kill(os.getpid(), 11)
    pipe.close()


if __name__ == "__main__":
    multiprocessing.set_start_method("spawn", force=True)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    for word in sys.argv[1:]:
        if word.startswith("--set="):
            name, _, value = word[6:].partition("=")
            os.environ[name] = value
    here, there = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.Process(target=child, args=(there,))
    process.start()
    there.close()
    told = here.recv()
    process.join()
    sys.stdout.flush()
    print(json.dumps({"server": about(exitcode=process.exitcode, child_pid=process.pid), "child": told}), flush=True)
    if "--stay" in sys.argv:
        time.sleep(600)
    if "--raise" in sys.argv:
        raise RuntimeError("as told")
    sys.exit(7)
"""


class Lab:
    """A package named sglang, one that it imports, and launches of it."""

    def __init__(self, box: Box, folder: Path) -> None:
        self.box = box
        self.folder = folder
        self.box_dir = folder / "box"
        self.launched = 0
        self.third = folder / "third"
        self.third.mkdir()
        (self.third / "third.py").write_text(THIRD_PARTY)
        self.code("one")

    def code(self, name: str, **files: str) -> Path:
        package = self.folder / name / "python" / "sglang"
        package.mkdir(parents=True, exist_ok=True)
        contents = {"__init__": "import os\nLOADED_BY = os.getpid()\n", "launch_server": LAUNCH_SERVER, **files}
        for module, text in contents.items():
            (package / f"{module}.py").write_text(text)
        return package.parent

    def start(self, *words: str, warmly: bool = True, code: str = "one", **env: str) -> Run:
        self.launched += 1
        spec = LaunchSpec(
            launch_id=f"launch-{self.launched}",
            argv=(sys.executable, "-m", "sglang.launch_server", *words),
            env={"LATE_PATH": "/late", **env},
            pythonpath=(str(self.folder / code / "python"), str(self.third)),
            warm=warmly,
        )
        return self.box.start(spec)

    def told(self, run: Run) -> dict[str, Any]:
        """What the launch said of itself, and how it ended; the launch is over and gone then."""
        story = listen(run)
        assert story.exited is not None
        report = run.stop(0.0)
        assert not report.faults
        line = next((line for line in story.log.splitlines() if line.startswith(b"{")), b"{}")
        return {**json.loads(line), "log": story.log.decode(), "exit_code": story.exited.exit_code}

    def run_dir(self, run: Run) -> RunDir:
        return RunDir(str(self.box_dir), run.launch_id)
