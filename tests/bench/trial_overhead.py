"""How fast a verdict is, how fast a server is gone, and what the tool adds to a launch. On the real server.

    python -m tests.bench.trial_overhead --repeats 3

For each kind of end: seconds from the deciding line standing in the server's log file to the verdict (wanted: under
0.5), until the process tree is proven gone (under 2), and the whole trial less the server's own time (under 2).
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path

from patchbisect import embedded
from patchbisect.config import load_project
from patchbisect.model import Stage
from patchbisect.points import PointResolver
from patchbisect.startup import Event
from patchbisect.tasks.lab import story
from patchbisect.trial import open_rig, prepare, run_trial
from patchbisect.upstream import Mirror

ROOT = Path(__file__).parents[2]
LOOK_S = 0.002


@dataclass(frozen=True)
class Kind:
    """One way to end: which point, and the text whose arrival decides."""

    name: str
    point: str
    deciding: bytes
    queue: str = ""
    settings: tuple[str, ...] = ()
    until: Stage = Stage.SERVING


KINDS = (
    Kind("ready", "clean", b"The server is fired up and ready to roll!"),
    Kind("kv-allocated", "clean", b"Memory pool end.", until=Stage.KV_ALLOC),
    Kind("crash, unbound name", "HEAD", b"UnboundLocalError:", queue="observer-effect"),
    Kind("bad flag", "clean", b"error: unrecognized arguments", settings=("flag:no-such-flag=1",)),
)


class Stopwatch:
    """When the deciding text stood in the log file, and when the trial began to stop the server."""

    def __init__(self, runs: Path, deciding: bytes) -> None:
        self.runs = runs
        self.deciding = deciding
        self.launched = self.written = self.decided = 0.0
        self._known = set(runs.glob("*/log"))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def _look(self) -> None:
        while not self._over.wait(LOOK_S):
            fresh = [path for path in self.runs.glob("*/log") if path not in self._known]
            if fresh and self.deciding in fresh[0].read_bytes():
                self.written = time.monotonic()
                return

    def step(self, text: str) -> None:
        if text.startswith("launching"):
            self.launched = time.monotonic()
            self._thread.start()
        elif text == "stopping":
            self.decided = time.monotonic()

    def event(self, event: Event, elapsed_s: float) -> None:
        pass

    def end(self) -> None:
        self._over.set()
        self._thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    project = load_project(ROOT)
    mirror = Mirror.of(project)
    box = embedded.find(project.state)
    if box is None:
        raise SystemExit("invoke setup first")
    print(f"{'end':22}{'line -> verdict':>18}{'gone after':>14}{'tool per trial':>18}   (seconds, median of {repeats})")
    with open_rig(project, mirror=mirror, box="local", embedded=box, reason="tests", wait_s=600) as rig:
        for kind in KINDS:
            home = story(project, kind.queue) if kind.queue else project
            point = PointResolver.of(home, mirror=mirror).resolve(kind.point, settings=kind.settings).point
            rows = []
            for _ in range(repeats):
                watch = Stopwatch(project.state / "box" / "runs", kind.deciding)
                begun = time.monotonic()
                here = replace(rig, project=home)
                trial = run_trial(here, prepare(here, point), until=kind.until, watcher=watch)
                total = time.monotonic() - begun
                watch.end()
                stop = rig.store.load(trial.record).stop
                rows.append((watch.decided - watch.written, stop["gone_s"], total - (watch.written - watch.launched)))
            latency, gone, tool = (statistics.median(column) for column in zip(*rows, strict=True))
            print(f"{kind.name:22}{latency:18.3f}{gone:14.3f}{tool:18.3f}")


if __name__ == "__main__":
    main()
