"""A new queue in somebody's own repository: pin, settings, tasks, and what looks after it in pull requests."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata, resources
from pathlib import Path
from urllib.parse import unquote, urlsplit

from patchbisect.config import PIN_FILE
from patchbisect.errors import UsageError
from patchbisect.maintain.transaction import Disk
from patchbisect.model import Pin
from patchbisect.patchqueue import format_pin
from patchbisect.upstream import Git

SGLANG = Pin(
    upstream="https://github.com/sgl-project/sglang.git",
    tag="v0.5.9",
    commit="bbe9c7eeb520b0a67e92d133dfc137a3688dc7f2",
    release="0.5.9",
    wheel_sha256="8a936c4d25fea605f44254e533cff2144c73ceffbc1f8738aba393461bbb64d1",
)
"""The newest pin that this project's own queue was proven on."""

_TASKS = '''\
"""The tasks of patchbisect, for plain invoke. Without the last line they can be taken in beside your own."""

from patchbisect.program import instead_of_invoke
from patchbisect.tasks import namespace

__all__ = ["namespace"]

instead_of_invoke(namespace)
'''

_TEMPLATES = {
    "invoke.yaml": "invoke.yaml",
    ".pre-commit-config.yaml": "pre-commit-config.yaml",
    ".github/CODEOWNERS": "CODEOWNERS",
    ".github/pull_request_template.md": "pull_request_template.md",
    ".github/workflows/queue.yml": "queue.yml",
}
_IGNORED = ".patchbisect/\n"
_FROM_THE_INDEX = "patchbisect[lint]"


@dataclass(frozen=True, slots=True)
class Started:
    """What was written, what was there already and stays, and what its owner still has to see to."""

    written: tuple[str, ...]
    kept: tuple[str, ...]
    notes: tuple[str, ...]


def start_queue(folder: Path, *, pin: Pin, install: str = "", disk: Disk | None = None) -> Started:
    """Write what a queue needs; files that are there stay as they are.

    ``install`` is what the workflow gives to pip; empty: the commit of the repository that this was installed from.
    Raises UsageError where there is a queue already, or no folder can be.
    """
    disk = disk or Disk()
    if (folder / PIN_FILE).exists():
        raise UsageError(f"{folder} has a queue already ({PIN_FILE})", remedy="invoke queue shows it.")
    requirement = install or installed_from() or _FROM_THE_INDEX
    files = _files(requirement)
    kept = sorted(name for name in files if (folder / name).exists())
    try:
        for name, text in files.items():
            if name not in kept:
                disk.write(folder / name, text.encode())
        ignored = _ignore(folder, disk)
        # Last, for it is what makes the folder a queue: an init that was cut short can be run again.
        disk.write(folder / PIN_FILE, format_pin(pin))
    except (FileExistsError, NotADirectoryError, PermissionError) as error:
        raise UsageError(f"{folder} cannot hold a queue: {error.strerror}: {error.filename}") from error
    written = sorted([*(name for name in files if name not in kept), *ignored, str(PIN_FILE)])
    return Started(written=tuple(written), kept=tuple(kept), notes=tuple(_notes(folder, requirement)))


def installed_from() -> str:
    """A requirement for the very commit that runs here, ``""`` where its repository is not on a network."""
    told = json.loads(metadata.distribution("patchbisect").read_text("direct_url.json") or "{}")
    url, commit = str(told.get("url", "")), str(told.get("vcs_info", {}).get("commit_id", ""))
    if url.startswith("file:"):
        clone = Git(Path(unquote(urlsplit(url).path)), worktree=True)
        url, commit = clone.run("remote", "get-url", "origin").text, clone.run("rev-parse", "HEAD").text
    address = _address(url)
    return f"{_FROM_THE_INDEX} @ git+{address}@{commit}" if address and commit else ""


def _address(url: str) -> str:
    """``https://HOST/PATH`` of a repository, without a user's name or token; ``""`` for one on this machine."""
    over_ssh = re.fullmatch(r"(?:ssh://)?(?:[\w.-]+@)?([\w.-]+\.[\w-]+)(?::\d+(?=/))?[:/]([^\s]+)", url)
    if over_ssh and not url.startswith(("http:", "https:", "/", ".")):
        return f"https://{over_ssh[1]}/{over_ssh[2].lstrip('/')}"
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname:
        return ""
    return f"https://{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}"


def _files(requirement: str) -> Mapping[str, str]:
    folder = resources.files("patchbisect").joinpath("maintain", "started")
    texts = {name: folder.joinpath(source).read_text(encoding="utf-8") for name, source in _TEMPLATES.items()}
    # JSON's strings are YAML's.
    workflow = ".github/workflows/queue.yml"
    return {**texts, workflow: texts[workflow].replace("{requirement}", json.dumps(requirement)), "tasks.py": _TASKS}


def _ignore(folder: Path, disk: Disk) -> list[str]:
    path = folder / ".gitignore"
    known = path.read_text(encoding="utf-8") if path.exists() else ""
    if _IGNORED in known:
        return []
    disk.write(path, (known + ("\n" if known and not known.endswith("\n") else "") + _IGNORED).encode())
    return [path.name]


def _notes(folder: Path, requirement: str) -> list[str]:
    notes = []
    top = Git(folder, worktree=True).run("rev-parse", "--show-toplevel")
    if top.status:
        notes.append(f"git init {folder}, and commit what is there: points such as HEAD are read from git")
    elif Path(top.text).resolve() != folder.resolve():
        notes.append(f".github is only read at the root of a repository: move it to {top.text}")
    if requirement == _FROM_THE_INDEX:
        notes.append("queue.yml takes patchbisect from the package index: if yours is elsewhere, say so in PATCHBISECT")
    return notes
