"""The code of points as folders, and the embedded environment to run pieces of it in."""

from __future__ import annotations

import io
import json
import os
import subprocess
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import pytest

from patchbisect import embedded
from patchbisect.config import load_project
from patchbisect.model import Base, Patch
from patchbisect.patchqueue import Queue, parse_pin
from patchbisect.upstream import Mirror

ROOT = Path(__file__).resolve().parents[2]
BODIES = Path(__file__).parent / "bodies"
PIN = Base(pin=parse_pin((ROOT / "patches" / "pin.toml").read_bytes(), filename="patches/pin.toml"))


def read_queue(folder: Path) -> Queue:
    files = {file.name: file.read_bytes() for file in folder.glob("*.patch")}
    return Queue.read(files, where=str(folder.relative_to(ROOT)))


QUEUE = read_queue(ROOT / "patches")


def without(slug: str) -> tuple[Patch, ...]:
    return tuple(patch for patch in QUEUE.patches if patch.slug != slug)


class Body(Protocol):
    """Run ``bodies/NAME.py`` against the code of a point; its last line of output is JSON."""

    def __call__(self, name: str, patches: Sequence[Patch], **env: str) -> Any: ...


@pytest.fixture(scope="session")
def mirror() -> Mirror:
    return Mirror.of(load_project(ROOT))


@pytest.fixture(scope="session")
def code(mirror: Mirror, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Sequence[Patch]], Path]:
    """Patches → a folder that holds ``python/sglang`` with them, for PYTHONPATH. One folder for each commit."""
    folders: dict[str, Path] = {}

    def checkout(patches: Sequence[Patch]) -> Path:
        commit = mirror.materialize(PIN, patches).commit
        if commit not in folders:
            archive = ["git", "--git-dir", str(mirror.path), "archive", commit, "python"]
            tree = subprocess.run(archive, check=True, capture_output=True).stdout
            folders[commit] = tmp_path_factory.mktemp(f"code-{commit[:12]}")
            with tarfile.open(fileobj=io.BytesIO(tree)) as tar:
                tar.extractall(folders[commit], filter="data")
        return folders[commit] / "python"

    return checkout


@pytest.fixture(scope="session")
def box() -> embedded.Embedded:
    project = load_project(ROOT)
    return embedded.setup(project.state, settings=project.settings.embedded, progress=lambda progress: None)


@pytest.fixture(scope="session")
def body(code: Callable[[Sequence[Patch]], Path], box: embedded.Embedded) -> Body:
    def run(name: str, patches: Sequence[Patch], **env: str) -> Any:
        path = os.pathsep.join(str(entry) for entry in (code(patches), *box.pythonpath))
        server: Mapping[str, str] = {**os.environ, **box.env, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **env}
        command = [str(box.python), str(BODIES / f"{name}.py")]
        done = subprocess.run(command, env=server, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, f"{name} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        return json.loads(done.stdout.splitlines()[-1])

    return run
