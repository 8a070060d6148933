"""What tests over SSH share: a repository whose boxes run a real SGLang, and knowing when a lost link was noticed."""

from __future__ import annotations

import logging
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import yaml

from patchbisect import embedded
from patchbisect.config import load_project
from patchbisect.tasks.lab import SetupLines

ROOT = Path(__file__).parents[2]


class OnceNoticed(logging.Handler):
    """Does something as soon as the client has noticed that its link is lost."""

    def __init__(self, action: Callable[[], None]) -> None:
        super().__init__(level=logging.WARNING)
        self._action = action
        self.seen = 0

    def emit(self, record: logging.LogRecord) -> None:
        if "connecting again" in record.getMessage():
            self.seen += 1
            self._action()


@contextmanager
def once_noticed(action: Callable[[], None]) -> Iterator[OnceNoticed]:
    handler = OnceNoticed(action)
    logger = logging.getLogger("patchbisect.box")
    logger.addHandler(handler)
    try:
        yield handler
    finally:
        logger.removeHandler(handler)


def story_repository(folder: Path, hosts: Sequence[str], *, doomed: str = "") -> Path:
    """A repository of the user's own: the queue of the demo, and boxes over SSH, by host, that can run SGLang.

    The ``doomed`` one is given up soon after its link is lost.
    """
    ours = load_project(ROOT)
    here = embedded.find(ours.state) or embedded.setup(
        ours.state, settings=ours.settings.embedded, progress=SetupLines()
    )
    root = folder / "queue"
    shutil.copytree(ROOT / "tests" / "queues" / "observer-effect", root / "patches")
    shutil.copy(ROOT / "patches" / "pin.toml", root / "patches")
    boxes = {
        host: {
            "host": host,
            "dir": str(folder / f"box-{host}"),
            "lease-dir": str(folder / f"lease-{host}"),
            "python": str(here.python),
            "pythonpath": [str(path) for path in here.pythonpath],
            "env": dict(here.env),
            **({"link-patience-s": 5.0} if host == doomed else {}),
        }
        for host in hosts
    }
    flags = {
        "model-path": here.variables["tiny-model"],
        "load-format": "dummy",
        "device": "cpu",
        "attention-backend": "torch_native",
        "skip-tokenizer-init": True,
        "mem-fraction-static": "0.05",
        "max-total-tokens": 4096,
    }
    settings = {
        "box": hosts[0],
        "profile": "tiny",
        "upstream": {"source": "release"},
        "boxes": boxes,
        "profiles": {"tiny": {"until": "ready", "flags": flags}},
    }
    (root / "invoke.yaml").write_text(yaml.safe_dump({"patchbisect": settings}))
    (root / ".patchbisect").mkdir()
    (ours.state / "wheels").mkdir(parents=True, exist_ok=True)
    (root / ".patchbisect" / "wheels").symlink_to(ours.state / "wheels")
    (root / ".gitignore").write_text(".patchbisect/\n")
    for words in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "queue"],
    ):
        subprocess.run(["git", "-C", str(root), *words], check=True)
    return root
