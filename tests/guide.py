"""The command lines of the pages, and a project in which they can be run as they are written.

The project's SGLang is the shipped fake server. It runs out of memory where the fraction is 0.0001, and where the
profile ``kimi-custom-ar`` starts it; ``main`` starts, and 20 commits before it did not; ``my-branch``, which is checked
out, carries three patches more, of which 0005 crashes.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.fake_project import GOOD, OOM, SETTINGS, UNBOUND, FakeProject, clean_environment, fake_project

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent
LINE = re.compile(r"^ {4}((?:invoke|\./patchbisect|patchbisect|git|source) .+)$", re.MULTILINE)

LAUNCH_SERVER = f"""\
import sys

from sglang import behaviour, fake_server

words = sys.argv[1:]
value = dict(zip(words, words[1:]))
starved = value.get("--mem-fraction-static") == "0.0001" or value["--model-path"] == "/custom-ar"
usual = {GOOD!r} if value["--model-path"].startswith("/k") else behaviour.ARGUMENTS
sys.exit(fake_server.main([*({OOM!r} if starved else usual), *words]))
"""

MORE_SETTINGS = """\
    big: {until: ready, flags: {model-path: /m, mem-fraction-static: "0.05"}}
    kimi-baseline: {until: ready, flags: {model-path: /kimi}}
    kimi-custom-ar: {until: ready, flags: {model-path: /custom-ar}}
"""


def commands(page: Path) -> list[str]:
    """The command lines of a page, in their order, without what explains them."""
    return [line.partition("  #")[0].strip() for line in LINE.findall(page.read_text(encoding="utf-8"))]


@dataclass(frozen=True)
class World:
    """The project, as the reader of a page has it."""

    project: FakeProject

    @classmethod
    def at(cls, place: Path) -> World:
        project = fake_project(place, patches=6, guilty=5, bad=UNBOUND, files={"launch_server.py": LAUNCH_SERVER})
        root = project.root
        settings = SETTINGS.format(clone=project.upstream.path, python=sys.executable)
        rig = f"{{python: {sys.executable}, lease-dir: {project.upstream.path}.rig, dir: {place}/rig}}"
        settings = settings.replace("boxes: {local:", f"boxes: {{rig: {rig}, local:")
        (root / "invoke.yaml").write_text(settings + MORE_SETTINGS)
        (root / "tasks.py").write_text((ROOT / "tasks.py").read_text())
        shutil.copy(ROOT / "tests" / "startup" / "cases" / "cpu" / "04-unbound.log", root / "server.log")
        later = [path.name for path in sorted((root / "patches").glob("000[456]-*.patch"))]
        kept = {name: (root / "patches" / name).read_text() for name in later}
        for name in later[:1] + later[2:]:
            (root / "patches" / name).unlink()
        project.git("add", ".")
        project.git("commit", "--quiet", "-m", "the queue as it was: 0005 breaks it")
        for number in range(19):
            project.git("commit", "--quiet", "--allow-empty", "-m", f"commit {number}")
        (root / "patches" / later[1]).unlink()
        project.git("commit", "--quiet", "--all", "-m", "0005 is taken out")
        project.git("checkout", "--quiet", "-b", "my-branch")
        for name, text in kept.items():
            (root / "patches" / name).write_text(text)
            project.git("add", ".")
            project.git("commit", "--quiet", "-m", f"add {name}")
        return cls(project)

    def run(self, line: str) -> subprocess.CompletedProcess[str]:
        """The line, in a shell, where the reader stands."""
        path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
        return subprocess.run(
            ["bash", "-c", line],
            cwd=self.project.root,
            env={**clean_environment(), "PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )

    def runs(self) -> list[str]:
        """Ids of the runs, oldest first."""
        return [row["id"] for row in self.project.json("runs")["runs"]]
