"""A tiny stand-in for SGLang's repository and releases, and patches made against it by real git."""

from __future__ import annotations

import atexit
import base64
import functools
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from patchbisect.model import Patch, Pin
from patchbisect.patchqueue import parse_patch

ENGINE = "python/sglang/engine.py"
LOADER = "python/sglang/loader.py"
FILES: Mapping[str, str] = {
    "python/sglang/__init__.py": "",
    ENGINE: "".join(f"engine_{n} = {n}\n" for n in range(1, 61)),
    LOADER: "".join(f"loader_{n} = {n}\n" for n in range(1, 41)),
}

_ENV = {
    **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
    "GIT_AUTHOR_DATE": "1700000000 +0100",
    "GIT_COMMITTER_DATE": "1700000000 +0100",
}


def git(where: Path, *arguments: str, stdin: str = "") -> str:
    done = subprocess.run(
        ["git", "-C", str(where), *arguments], env=_ENV, input=stdin, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"git {' '.join(arguments)}: {done.stderr}"
    return done.stdout.strip()


def write(where: Path, files: Mapping[str, str | None]) -> None:
    """Write files; None deletes."""
    for name, text in files.items():
        path = where / name
        if text is None:
            path.unlink()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, newline="")


_SHARED: set[Path] = set()


def commit(where: Path, files: Mapping[str, str | None], message: str = "change") -> str:
    assert where not in _SHARED, "all tests share this repository: say own() first"
    write(where, files)
    git(where, "add", "-A")
    git(where, "commit", "-q", "--allow-empty", "-m", message)
    return git(where, "rev-parse", "HEAD")


def repository(where: Path, files: Mapping[str, str] = FILES) -> Path:
    """A repository with one commit."""
    where.mkdir(parents=True)
    git(where, "init", "-q", "--template=", "-b", "main")
    commit(where, files, "first")
    return where


@functools.cache
def _made_once() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="tiny-upstream-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = repository(folder / "upstream")
    git(path, "tag", "v0.1.0")
    (folder / "first").write_text(git(path, "rev-parse", "HEAD"))
    (folder / "second").write_text(commit(path, {ENGINE: "import os\n" + FILES[ENGINE]}, "second"))
    git(path, "tag", "v0.2.0")
    git(folder, "clone", "-q", "--template=", "upstream", "bench")
    git(folder / "bench", "checkout", "-q", "-b", "bench", "v0.1.0")
    _SHARED.add(path)
    return folder


class Upstream:
    """A repository with ``v0.1.0`` (the pin) and, on top, ``v0.2.0``, in which a line was put before all others.

    All tests share it: one that changes it says ``own`` first. Patches are made in a work tree of each test's own.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = _made_once() / "upstream"
        self.first = (_made_once() / "first").read_text()
        self.second = (_made_once() / "second").read_text()

    def own(self) -> Path:
        """A copy that this test may change."""
        self.path = Path(shutil.copytree(self.path, self.folder / "upstream"))
        return self.path

    @functools.cached_property
    def bench(self) -> Path:
        return Path(shutil.copytree(_made_once() / "bench", self.folder / "bench"))

    def pin(self, **changes: str) -> Pin:
        return Pin(**{"upstream": str(self.path), "commit": self.first, "tag": "v0.1.0", **changes})

    def patch(
        self, number: int, slug: str, edits: Mapping[str, Sequence[tuple[str, str]]], *, trailers: str = ""
    ) -> Patch:
        """A patch of whole-line edits ``(old, new)`` on top of the patches made before it."""
        files: dict[str, str | None] = {}
        for name, pairs in edits.items():
            text = (self.bench / name).read_text()
            for old, new in pairs:
                assert text.count(f"{old}\n") == 1, old
                text = text.replace(f"{old}\n", f"{new}\n")
            files[name] = text
        return self.patch_of(number, slug, files, trailers=trailers)

    def patch_of(self, number: int, slug: str, files: Mapping[str, str | None], *, trailers: str = "") -> Patch:
        """A patch that leaves these contents, on top of the patches made before it."""
        lines = f"Kind: experiment\nForwarded: no\n{trailers}".strip()
        commit(self.bench, files, f"Change {slug}\n\nBecause the test says so.\n\n{lines}")
        text = git(self.bench, "format-patch", "-1", "--stdout") + "\n"
        return parse_patch(text.encode(), filename=f"{number:04d}-{slug}.patch")

    def back(self) -> None:
        """The next patch is made on the pin again."""
        git(self.bench, "checkout", "-q", "-B", "bench", "v0.1.0")


def replaced(line: str) -> tuple[str, str]:
    """An edit of one line of FILES."""
    return line, f"{line} + 100"


def wheel(folder: Path, version: str, files: Mapping[str, str]) -> tuple[Path, str]:
    """A wheel of ``sglang`` with these files (names under ``sglang/``), and its sha256."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"sglang-{version}-py3-none-any.whl"
    info = f"sglang-{version}.dist-info"
    content = {f"sglang/{name}": text for name, text in files.items()}
    content[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: sglang\nVersion: {version}\n"
    content[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    record = "".join(f"{name},sha256={_digest(text)},{len(text)}\n" for name, text in content.items())
    content[f"{info}/RECORD"] = record + f"{info}/RECORD,,\n"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in content.items():
            archive.writestr(zipfile.ZipInfo(name, date_time=(2026, 1, 1, 0, 0, 0)), text)
    return path, hashlib.sha256(path.read_bytes()).hexdigest()


def package_files(files: Mapping[str, str] = FILES) -> dict[str, str]:
    """FILES as they are named inside a wheel's ``sglang/``, with the file that setuptools-scm generates."""
    inside = {re.sub("^python/sglang/", "", name): text for name, text in files.items()}
    return {**inside, "_version.py": "__version__ = 'generated'\n"}


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
