"""A wall clock that somebody sets: a Python whose ``time.time`` and file stamps are off by what a file says."""

from __future__ import annotations

import sys
import venv
from pathlib import Path

SITE = """\
import os, time

def _off():
    with open({state!r}) as file:
        return float(file.read())

_time, _utime = time.time, os.utime
time.time = lambda: _time() + _off()
time.time_ns = lambda: int(time.time() * 1e9)

def utime(path, times=None, **more):
    ns = () if times or "ns" in more else (time.time_ns(),) * 2
    return _utime(path, **({{"ns": ns}} if ns else {{"times": times}} if times else {{}}), **more)

os.utime = utime
"""


class FakeClock:
    """A Python at ``python`` that runs ahead of the real clock by what was last ``set`` (seconds)."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "clock"
        home = folder / "clock-venv"
        self.python = home / "bin" / "python"
        if not home.exists():
            self.set(0.0)
            venv.create(home, symlinks=True)
            version = f"python{sys.version_info.major}.{sys.version_info.minor}"
            site = home / "lib" / version / "site-packages" / "sitecustomize.py"
            site.write_text(SITE.format(state=str(self.file)))

    @property
    def ahead_s(self) -> float:
        return float(self.file.read_text())

    def set(self, ahead_s: float) -> None:
        partial = self.file.with_suffix(".tmp")
        partial.write_text(str(ahead_s))
        partial.rename(self.file)
