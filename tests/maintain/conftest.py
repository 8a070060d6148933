"""SGLang's own files, at the pin and at the release after it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from patchbisect.config import load_project
from patchbisect.model import Base
from patchbisect.patchqueue import parse_pin
from patchbisect.upstream import Mirror

ROOT = Path(__file__).resolve().parents[2]
PIN = Base(pin=parse_pin((ROOT / "patches" / "pin.toml").read_bytes(), filename="patches/pin.toml"))

Read = Callable[[str], str | None]


@pytest.fixture(scope="session")
def releases() -> Mirror:
    return Mirror(load_project(ROOT).state, source="release")


def reader(mirror: Mirror, base: Base) -> Read:
    commit = mirror.base(base).commit

    def read(path: str) -> str | None:
        data = mirror.read(commit, path)
        return None if data is None else data.decode("utf-8", "surrogateescape")

    return read


@pytest.fixture(scope="session")
def pinned(releases: Mirror) -> Read:
    """The text of a file at the pin (SGLang 0.5.9)."""
    return reader(releases, PIN)
