"""``setup``, ``demo`` and ``test``: this machine made ready, the story shown, the project checked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import invoke

from patchbisect.tasks import bisecting
from patchbisect.tasks.face import emit, say, task
from patchbisect.tasks.lab import demo_of, prepared

_PYTEST = [sys.executable, "-m", "pytest"]
_TIERS = {
    "fast": "not ci and not real and not sshd and not full",
    "ci": "not real and not full",
    "full": "not real",
}
_REAL = {"ci": "real and not full", "full": "real"}
_WORKERS = {"fast": "2", "ci": "4", "full": "4"}
"""For two cores: unit tests keep a core each busy; the others wait for servers and links half of their time."""
_NOTHING_CHOSEN = 5
"""pytest's exit code where no test was chosen, as when ``--only`` names one of the other kind."""


@task(help={"json": "print one JSON document"})
def setup(ctx: invoke.Context, json: bool = False) -> None:
    """Prepare this machine as a box without a GPU: a CPU-only environment, stand-ins, tiny models.

    Takes about a minute and 1.5 GB under .patchbisect/cpu the first time, and nothing after that; an interrupted
    setup goes on where it was. Tasks that need it run it themselves.

    Example: invoke setup
    """
    from patchbisect.config import load_project

    ready = prepared(load_project(), repair=True)
    if json:
        emit({"python": str(ready.python), "variables": dict(ready.variables), "env": dict(ready.env)})
        return
    print(f"ready: {ready.python}")
    for name, value in ready.variables.items():
        print(f"  {{{name}}} = {value}")


@task(help={"json": "print the bisection's JSON document"})
def demo(ctx: invoke.Context, json: bool = False) -> None:
    """See it work: eight debug patches, one of which breaks the startup; which one, and the proof.

    Runs on this machine without a GPU: real SGLang code, a real server, a tiny model. About three minutes.

    Example: invoke demo
    """
    from patchbisect.bisection import Asked
    from patchbisect.config import load_project

    queue = demo_of(load_project())
    say("A queue of debug patches; with all of them the server no longer starts. Which one broke it?")
    bisecting.conducted(queue, Asked(good="clean", bad="HEAD", fresh=True), resume="", throwaway=True, json=json)
    say("\nThe same as a page: invoke report --of demo --html report.html; as a story: invoke bisect.log --of demo")


@task(
    help={
        "fast": "unit tests only, under a minute",
        "full": "everything, the long real-server lists too",
        "only": "only tests whose name matches, as pytest -k",
    }
)
def test(ctx: invoke.Context, fast: bool = False, full: bool = False, only: str = "") -> None:
    """Check this project: style, types, arrows, tests. Without a flag: what CI runs.

    With --full the result is written to docs/proof.md.

    Example: invoke test --fast
    """
    from patchbisect.config import find_root

    root = find_root(Path.cwd())
    tier = "fast" if fast else "full" if full else "ci"
    state = root / ".patchbisect"
    side_by_side, one_by_one = state / "results.xml", state / "results-real.xml"
    chosen = ["-k", only] if only else []
    runs = [
        [
            *_PYTEST,
            "-n",
            _WORKERS[tier],
            "--dist",
            "worksteal",
            "-m",
            _TIERS[tier],
            f"--junitxml={side_by_side}",
            *chosen,
        ]
    ]
    if not fast:
        # Two real servers at once on two cores are slow, and only one may have the box.
        runs.append([*_PYTEST, "-m", _REAL[tier], f"--junitxml={one_by_one}", *chosen])
    failed = [command for command in [*([] if only else _checks()), *runs] if _fails(command, root)]
    if full and not only:
        commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=True)
        launches = str(state / "real-launches.txt")
        words = ["invoke test --full", commit.stdout.strip(), str(side_by_side), os.devnull, str(one_by_one), launches]
        _fails([sys.executable, "-m", "tests.proof", *words], root)
    if failed:
        raise invoke.Exit("failed: " + "; ".join(" ".join(command[1:]) for command in failed), code=1)


def _checks() -> list[list[str]]:
    """Style, types, arrows."""
    return [
        [sys.executable, "-m", "ruff", "check", "."],
        [sys.executable, "-m", "ruff", "format", "--check", "."],
        [sys.executable, "-m", "mypy"],
        [str(Path(sys.executable).with_name("lint-imports"))],
    ]


def _fails(command: list[str], root: os.PathLike[str]) -> bool:
    say("$ " + " ".join(command))
    return subprocess.run(command, cwd=root, check=False).returncode not in (0, _NOTHING_CHOSEN)
