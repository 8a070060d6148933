"""A queue repository whose SGLang is the shipped fake server: whole command lines in a second instead of minutes.

Each patch is one line of ``notes.py``; the guilty one also makes the server print the log of a real failed start.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from patchbisect.testing.fake_sglang import FakeSglang

LOGS = Path(__file__).parent / "startup" / "cases" / "cpu"
GOOD = ("--log", str(LOGS / "01b-success-warm.log"), "--end", "serve")
OOM = ("--log", str(LOGS / "02-mem-too-low.log"), "--end", "signal:9")
UNBOUND = ("--log", str(LOGS / "04-unbound.log"), "--end", "signal:9")
MUTE = ("--end", "hang")

PROGRAM = Path(sys.executable).with_name("patchbisect")

SETTINGS = """\
patchbisect:
  box: local
  profile: fake
  upstream: {{source: git, clone: {clone}}}
  boxes: {{local: {{python: {python}, lease-dir: {clone}.lease}}}}
  profiles:
    fake: {{until: ready, flags: {{model-path: /m}}}}
    other: {{until: ready, flags: {{model-path: /m, tp-size: 2}}}}
"""

MESSAGE = "{subject}\n\nWhy: to see it.\n\nKind: {kind}\nForwarded: no\n"


@dataclass(frozen=True)
class FakeProject:
    """The repository at ``root``, and its upstream."""

    root: Path
    upstream: FakeSglang

    def run(
        self, *words: str, cwd: Path | None = None, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """The console script, as a user would call it."""
        return subprocess.run(
            [str(PROGRAM), *words],
            cwd=cwd or self.root,
            env={**clean_environment(), **(env or {})},
            capture_output=True,
            text=True,
            check=False,
        )

    def json(self, *words: str) -> Any:
        """The one JSON document that a task prints."""
        return json.loads(self.run(*words, "--json").stdout)

    def git(self, *words: str) -> str:
        done = subprocess.run(["git", "-C", str(self.root), *words], capture_output=True, text=True, check=True)
        return done.stdout.strip()


def clean_environment() -> dict[str, str]:
    """Without what somebody set for another repository, or against byte-code, which saves a fifth of each call."""
    others = ("PATCHBISECT_", "GIT_", "PYTHONDONTWRITEBYTECODE")
    return {name: value for name, value in os.environ.items() if not name.startswith(others)}


def fake_project(
    place: Path,
    *,
    guilty: int = 4,
    patches: int = 6,
    base: Sequence[str] = GOOD,
    bad: Sequence[str] = OOM,
    files: Mapping[str, str] | None = None,
) -> FakeProject:
    """A queue of ``patches`` patches of which number ``guilty`` makes the server behave as ``bad``; 0: none does.

    ``files`` are further ones of its SGLang.
    """
    upstream = FakeSglang(place / "upstream")
    pin = upstream.commit(base, files={"notes.py": _notes(0, patches), **(files or {})})
    root = place / "queue"
    (root / "patches").mkdir(parents=True)
    for number in range(1, patches + 1):
        behaviour = bad if number == guilty else None
        _write_patch(upstream, root, number=number, patches=patches, behaviour=behaviour)
    upstream.git("reset", "--quiet", "--hard", pin)
    (root / "patches" / "pin.toml").write_text(f'upstream = "https://example.org/sglang.git"\ncommit = "{pin}"\n')
    (root / "invoke.yaml").write_text(SETTINGS.format(clone=upstream.path, python=sys.executable))
    (root / ".gitignore").write_text(".patchbisect/\n")
    project = FakeProject(root=root, upstream=upstream)
    project.git("init", "--quiet", "--initial-branch=main")
    project.git("config", "user.name", "Ada")
    project.git("config", "user.email", "ada@example.org")
    project.git("add", ".")
    project.git("commit", "--quiet", "-m", "the queue")
    return project


def with_boxes(project: FakeProject, *names: str, **settings: str) -> FakeProject:
    """The project with boxes of these names in its settings, each with a directory and a lease book of its own.

    ``settings`` are further keys, with underscores; ``{box}`` in a value is the box's name.
    """
    path = project.root / "invoke.yaml"
    document = yaml.safe_load(path.read_text())
    place = project.root.parent
    more = {"min-free-gb": 0.01, "link-patience-s": 3.0}
    document["patchbisect"]["box"] = names[0]
    document["patchbisect"]["boxes"] = {
        name: {
            "python": sys.executable,
            "dir": str(place / f"box-{name}"),
            "lease-dir": str(place / f"lease-{name}"),
            **more,
            **{key.replace("_", "-"): value.format(box=name) for key, value in settings.items()},
        }
        for name in names
    }
    path.write_text(yaml.safe_dump(document))
    return project


def _notes(done: int, patches: int) -> str:
    """One block a patch, far enough apart that every patch applies without the others."""
    return "".join(f"NOTE_{n} = {n <= done}\n" + f"# {n}\n" * 8 for n in range(1, patches + 1))


def _write_patch(
    upstream: FakeSglang, root: Path, *, number: int, patches: int, behaviour: Sequence[str] | None
) -> None:
    package = upstream.path / "python" / "sglang"
    (package / "notes.py").write_text(_notes(number, patches))
    if behaviour is not None:
        (package / "behaviour.py").write_text(f"ARGUMENTS = {list(behaviour)!r}\n")
    kind = "fix" if behaviour else "instrumentation"
    upstream.git("commit", "--quiet", "--all", "--message", MESSAGE.format(subject=f"Note {number}", kind=kind))
    text = upstream.git(
        *("format-patch", "-1", "--stdout", "--zero-commit", "--full-index", "--no-signature", "--no-stat")
    )
    (root / "patches" / f"{number:04d}-note-{number}.patch").write_text(text + "\n")
