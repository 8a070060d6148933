"""A git repository that looks like SGLang's: ``python -m sglang.launch_server`` is the fake server."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

FAKE_SERVER = Path(__file__).with_name("fake_server.py")

LAUNCH_SERVER = """\
import sys

from sglang import behaviour, fake_server

sys.exit(fake_server.main([*behaviour.ARGUMENTS, *sys.argv[1:]]))
"""

DATE = "2026-01-01T00:00:00+00:00"
IDENTITY = {
    **{
        f"GIT_{who}_{what}": value
        for who in ("AUTHOR", "COMMITTER")
        for what, value in (("NAME", "fake"), ("EMAIL", "f@f"))
    },
    "GIT_AUTHOR_DATE": DATE,
    "GIT_COMMITTER_DATE": DATE,
    "GIT_CONFIG_GLOBAL": os.devnull,
}


class FakeSglang:
    """A repository with one commit per behaviour of the server: a list of the fake server's arguments."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.git("init", "--quiet", "--initial-branch=main", str(path))
        self.git("config", "gc.auto", "0")

    def git(self, *words: str) -> str:
        where = ["-C", str(self.path)] if self.path.exists() else []
        done = subprocess.run(
            ["git", *where, *words], capture_output=True, text=True, env={**os.environ, **IDENTITY}, check=True
        )
        return done.stdout.strip()

    def commit(self, arguments: Sequence[str], *, files: Mapping[str, str] | None = None, filler: int = 0) -> str:
        """Commit a server that behaves so; ``files`` are further ones under ``python/sglang``.

        ``filler`` adds that many small modules, to give the tree a size.
        """
        package = self.path / "python" / "sglang"
        contents = {
            "__init__.py": "",
            "launch_server.py": LAUNCH_SERVER,
            "fake_server.py": FAKE_SERVER.read_text(),
            "behaviour.py": f"ARGUMENTS = {list(arguments)!r}\n",
            **{f"filler/p{number // 100}/m{number}.py": f"NUMBER = {number}\n" * 20 for number in range(filler)},
            **(files or {}),
        }
        for name, text in contents.items():
            path = package / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", " ".join(arguments) or "fake")
        return self.git("rev-parse", "HEAD")
