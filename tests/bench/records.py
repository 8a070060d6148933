"""How long looking at 1,000 records takes, interpreter start included.

    python -m tests.bench.records [RECORDS]

Beside each task, in the same run: what the interpreter and `--list` need by themselves. Records are of real size: the
packages of a real environment, a real log. Wall clock and CPU times are printed, nothing is asserted; where other work
shares the machine, the CPU time is the one to look at.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from patchbisect.records import Store
from tests.report import builder

TIMES = 7
ROOT = Path(__file__).parents[2]


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="records-") as scratch:
        folder = Path(scratch)
        count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
        _world(folder, count)
        size = sum(path.stat().st_size for path in folder.rglob("record.json")) / count / 1000
        print(f"{count} records of {size:.1f} kB; {platform.platform()}, load {os.getloadavg()[0]:.1f}")
        program = str(Path(sys.executable).with_name("patchbisect"))
        _timed("the interpreter alone", [sys.executable, "-c", ""], folder)
        _timed("--list", [program, "--list"], folder)
        for words in (
            "runs",
            "runs --json",
            "runs --outcome oom --since 3d",
            "show last",
            "diff-runs a b",
            "tag last x",
            "gc --dry-run",
            "report --of last --markdown",
        ):
            _timed(words, [program, *words.split()], folder)


def _world(folder: Path, count: int) -> None:
    (folder / "patches").mkdir()
    (folder / "patches" / "pin.toml").write_text((ROOT / "patches" / "pin.toml").read_text())
    store = Store(folder / ".patchbisect" / "runs")
    versions = {each.name: each.version for each in importlib.metadata.distributions()}
    logs = {True: builder.case("cpu/03b-patch-good-memlow"), False: builder.case("cpu/03-patch-good")}
    for number in range(count):
        failed = number % 3 == 0
        made = builder.record(
            f"20261129-{number // 3600:02d}{number // 60 % 60:02d}{number % 60:02d}-bcdf",
            patches=builder.queue(number % 8),
            verdict=builder.OOM if failed else builder.READY,
            versions=versions,
            tags={count - 2: ("a",), count - 1: ("b",)}.get(number, ()),
        )
        builder.save(store, made, log=logs[failed])


def _timed(name: str, command: list[str], folder: Path) -> None:
    # Somebody's own state directory would be measured instead.
    env = {name: value for name, value in os.environ.items() if not name.startswith("PATCHBISECT_")}
    wall, cpu = [], []
    for _ in range(TIMES):
        before, begun = _children_cpu(), time.perf_counter()
        subprocess.run(command, cwd=folder, env=env, capture_output=True, check=True)
        wall.append(time.perf_counter() - begun)
        cpu.append(_children_cpu() - before)
    print(f"{name:32} {statistics.median(wall):.3f} s wall (best {min(wall):.3f}), {statistics.median(cpu):.3f} s CPU")


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
