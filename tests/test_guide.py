"""The commands of the pages, run in their order as they are written, and what they are said to show."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fake_project import clean_environment
from tests.guide import BIN, ROOT, World, commands

PAGES = ["README.md", "CONTRIBUTING.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]

NEEDS_A_SERVER = "needs the real server: tests/sglang"
NEEDS_SGLANG = "needs SGLang's own commits or releases: tests/upstream, tests/maintain"
NEEDS_A_CLUSTER = "needs a Dask cluster: tests/tasks/test_cluster.py"
ELSEWHERE = {
    "./patchbisect demo": NEEDS_A_SERVER,
    "invoke setup": "builds an environment: tests/embedded",
    "./patchbisect test": "is what runs this",
    "./patchbisect test --fast": "is what runs this",
    "./patchbisect test --full": "is what runs this",
    "invoke bisect --good upstream:v0.5.9 --bad upstream:main --carry 1,4": NEEDS_SGLANG,
    "invoke bisect --bad-set package:transformers=5.3.0": NEEDS_SGLANG,
    "invoke bisect --boxes a,b,c": "needs several boxes: tests/bisection",
    "invoke box.worker --scheduler tcp://10.0.0.1:8786 --box rig": NEEDS_A_CLUSTER,
    "invoke bisect --engine dask --scheduler tcp://10.0.0.1:8786": NEEDS_A_CLUSTER,
    "invoke rebase-queue --onto v0.5.10 --dry-run": NEEDS_SGLANG,
    "invoke rebase-queue --onto v0.5.10": NEEDS_SGLANG,
    "invoke rebase-queue --continue": NEEDS_SGLANG,
    "invoke where-applies --among release:0.5.9,release:0.5.10": NEEDS_SGLANG,
    "invoke where-applies --range v0.5.9..main": NEEDS_SGLANG,
    "invoke import their.patch": "names a file of the reader's",
    "invoke import A..B --clone ../sglang": "names a clone of the reader's",
    "invoke launch --point run:20261129-191946-kmzb": "stands in the shown answer",
    "invoke launch --point run:20261129-191933-sdjp": "stands in the shown answer",
}
"""Commands that are not run here, and why not."""


@dataclass(frozen=True)
class Shown:
    """What a command says, on either stream, and how it ends. ``after`` is done first, as the prose around it does."""

    says: str
    code: int = 0
    after: str = ""


BISECTED = "necessary, and sufficient alone"
SHOWN = {
    "invoke queue": Shown("0001-note-1"),
    "invoke launch --point clean": Shown("verdict  ready"),
    "invoke launch --point HEAD": Shown("verdict  ready"),
    "invoke diff-runs ONE OTHER": Shown("what differs in cause"),
    "invoke launch --profile big --set flag:mem-fraction-static=0.0001": Shown("verdict  oom at kv-profile", 1),
    "invoke bisect --profile big --bad-set flag:mem-fraction-static=0.0001": Shown(
        "culprit  mem-fraction-static: 0.05 -> 0.0001"
    ),
    "invoke report --html report.html": Shown("report.html: "),
    "invoke runs": Shown("verdict"),
    "invoke runs --outcome oom --since 3d": Shown("oom/kv-profile"),
    "invoke show last": Shown("by hand, on the box"),
    "invoke show last --log": Shown("The server is fired up and ready to roll!"),
    "invoke tag last baseline": Shown("is named baseline"),
    "invoke gc --older-than 30d --dry-run": Shown("would remove 0 runs"),
    "invoke diff-runs baseline last": Shown("mem-fraction-static", after="invoke launch --profile big --point clean"),
    "invoke report": Shown("proof"),
    "invoke report --markdown": Shown("## Culprit found"),
    "invoke report --of last --json": Shown('"answer": "found"'),
    "invoke report --of demo --html report.html": Shown("report.html: "),
    "invoke plot --run baseline --run last -o memory.png": Shown("memory.png: "),
    "invoke watch": Shown("nothing runs"),
    "invoke watch --once": Shown("nothing runs"),
    "invoke export-run last --out run.zip": Shown("Look into it before you publish it"),
    "invoke adopt server.log --as by-hand": Shown("by-hand: crash (unbound-name) at kv-profile"),
    "source <(patchbisect --print-completion-script bash)": Shown(""),
    "invoke bisect --good clean --bad HEAD": Shown(BISECTED),
    "invoke bisect --bad-set flag:mem-fraction-static=0.9 --bad-set env:NCCL_P2P_LEVEL=PHB": Shown(BISECTED),
    "invoke bisect --good HEAD@kimi-baseline --bad HEAD@kimi-custom-ar": Shown("/kimi -> /custom-ar"),
    "invoke bisect --good main --bad my-branch": Shown("add 0005-note-5"),
    'invoke bisect --bad-when "kv_tokens < 900000"': Shown("endpoint-failed", 1),
    "invoke bisect --fix --bad main~20 --good main": Shown("fix      remove 0005-note-5"),
    "invoke bisect --resume": Shown(BISECTED, after="invoke bisect --good clean --bad HEAD"),
    "invoke bisect.log": Shown("asked"),
    "invoke bisect.why RUN": Shown("purpose"),
    "invoke bisect.replay": Shown(BISECTED),
    "invoke bisect.undo": Shown("undone: "),
    "invoke bisect.mark 4 good": Shown("is marked good"),
    "git bisect start BAD GOOD": Shown("Bisecting: ", after="invoke bisect --export-branch line > line.txt"),
    "git bisect run patchbisect trial worktree": Shown("is the first bad commit"),
    "invoke doctor --box rig": Shown("no torch", 1),
    "invoke apply-queue --box rig": Shown("box rig now runs HEAD"),
    "invoke launch --box rig --profile kimi-baseline": Shown("verdict  ready"),
    "invoke bisect --box rig --good clean --bad HEAD": Shown("add 0005-note-5"),
    "invoke lint": Shown("changes-code", 1),
    "invoke lint --rules": Shown("anchor"),
    "invoke lint --json": Shown('"wrong"', 1),
    "invoke review --base main": Shown("0005-note-5"),
    "invoke review --base main --markdown": Shown("| `0005-note-5` Note 5 | added |"),
    "invoke export q/ --quilt": Shown("q"),
    "invoke import q/ --instead": Shown("nothing to change"),
    "invoke export queue.mbox --mbox": Shown("queue.mbox"),
    "invoke export --branch mine --to ../sglang-mine": Shown("sglang-mine"),
    "invoke import --branch mine": Shown("nothing to change"),
}

BROKEN = {"README.md", "docs/bisection.md", "docs/queue.md"}
"""Pages whose reader has a queue that does not start."""


def test_every_command_of_the_pages_is_run_here_or_elsewhere() -> None:
    written = {line for page in PAGES for line in commands(ROOT / page)}
    assert written - set(SHOWN) - set(ELSEWHERE) == set()
    assert (set(SHOWN) | set(ELSEWHERE)) - written == set(), "no page says that any more"


@pytest.mark.ci
@pytest.mark.parametrize("page", [page for page in PAGES if any(line in SHOWN for line in commands(ROOT / page))])
def test_the_commands_of_a_page_do_what_it_says(page: str, tmp_path: Path) -> None:
    world = World.at(tmp_path)
    if page not in BROKEN:
        world.project.git("checkout", "--quiet", "main")
    _as_found(page, world)
    for line in commands(ROOT / page):
        if line not in SHOWN:
            continue
        shown = SHOWN[line]
        if shown.after:
            world.run(shown.after)
        done = world.run(_filled(line, world))
        assert (done.returncode, line) == (shown.code, line), done.stdout + done.stderr
        assert shown.says in done.stdout + done.stderr, line


def _as_found(page: str, world: World) -> None:
    """What the reader has done before: seen the demo, or launched and bisected something."""
    if page == "docs/first-quarter-hour.md":
        state = world.project.root / ".patchbisect"
        assert world.run("git checkout -q my-branch; invoke bisect --good clean --bad HEAD").returncode == 0
        (state / "demo").mkdir()
        for kept in ("runs", "bisections"):
            (state / kept).rename(state / "demo" / kept)
        world.project.git("checkout", "--quiet", "main")
    if page == "docs/records.md":
        world.run("invoke bisect --profile big --bad-set flag:mem-fraction-static=0.0001")
        world.run("invoke launch --point clean")


def _filled(line: str, world: World) -> str:
    """The line with the reader's own names in it."""
    if "ONE OTHER" in line:
        return line.replace("ONE OTHER", " ".join(world.runs()[-2:]))
    if "BAD GOOD" in line:
        return (world.project.root / "line.txt").read_text().splitlines()[1]
    return line.replace(" RUN", f" {world.runs()[-1]}") if " RUN" in line else line


REAL = {
    **SHOWN,
    "./patchbisect demo": Shown("0006-log-rest-memory"),
    "invoke queue": Shown("0001-"),
    "invoke bisect --profile big --bad-set flag:mem-fraction-static=0.0001": Shown("-> 0.0001"),
}


@pytest.mark.real
@pytest.mark.full
def test_the_first_quarter_of_an_hour_goes_as_it_is_told(tmp_path: Path) -> None:
    """With the real server, in a state of its own that shares the environment and the mirror."""
    for shared in ("cpu", "mirror.git", "wheels"):
        if (ROOT / ".patchbisect" / shared).exists():
            (tmp_path / shared).symlink_to(ROOT / ".patchbisect" / shared)
    env = {**clean_environment(), "PATCHBISECT_HOME": str(tmp_path), "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    env.pop("PYTHONDONTWRITEBYTECODE", None)

    def run(line: str) -> subprocess.CompletedProcess[str]:
        line = line.replace("report.html", str(tmp_path / "report.html"))
        if "ONE OTHER" in line:
            line = line.replace("ONE OTHER", " ".join(sorted(run.name for run in (tmp_path / "runs").iterdir())[-2:]))
        return subprocess.run(["bash", "-c", line], cwd=ROOT, env=env, capture_output=True, text=True, check=False)

    for line in commands(ROOT / "docs" / "first-quarter-hour.md"):
        done = run(line)
        assert (done.returncode, line) == (REAL[line].code, line), done.stdout + done.stderr
        assert REAL[line].says in done.stdout + done.stderr, line
