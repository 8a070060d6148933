"""A small queue on a tiny upstream, in a repository of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from patchbisect.config import Project, Settings
from patchbisect.maintain.shop import Shop
from patchbisect.maintain.transaction import Disk
from patchbisect.model import Base, Patch
from patchbisect.patchqueue import format_patch, format_pin
from patchbisect.upstream import Mirror
from tests.tiny_upstream import ENGINE, LOADER, Upstream, replaced

__all__ = ["ENGINE", "LOADER", "Lab"]


class Lab:
    """Four patches: 1 and 3 change the engine (3 next to 1's line), 2 the loader, 4 both."""

    def __init__(self, folder: Path, *, patches: Sequence[Patch] | None = None) -> None:
        self.upstream = Upstream(folder / "lab")
        self.upstream.own()
        self.root = folder / "queue"
        (self.root / "patches").mkdir(parents=True)
        (self.root / "patches" / "pin.toml").write_bytes(format_pin(self.upstream.pin()))
        for patch in self.usual() if patches is None else patches:
            (self.root / "patches" / f"{patch.name}.patch").write_bytes(format_patch(patch))
        self.project = Project(root=self.root, state=self.root / ".patchbisect", settings=Settings())

    def usual(self) -> list[Patch]:
        make = self.upstream.patch
        return [
            make(1, "one", {ENGINE: [replaced("engine_10 = 10")]}),
            make(2, "two", {LOADER: [replaced("loader_20 = 20")]}),
            make(3, "three", {ENGINE: [replaced("engine_12 = 12")]}),
            make(4, "four", {ENGINE: [replaced("engine_50 = 50")], LOADER: [replaced("loader_35 = 35")]}),
        ]

    def shop(self, disk: Disk | None = None) -> Shop:
        mirror = Mirror(self.project.state, source="git")
        return Shop(self.project, mirror=mirror, disk=disk)

    def names(self) -> list[str]:
        return sorted(path.name for path in (self.root / "patches").glob("*.patch"))

    def files(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in sorted((self.root / "patches").iterdir())}

    def result(self, path: str = ENGINE) -> str:
        """A file with the whole queue applied, which must be exact."""
        shop = self.shop()
        commit = shop.mirror.materialize(Base(pin=shop.pin), shop.queue().enabled, exact=True).commit
        data = shop.mirror.read(commit, path)
        assert data is not None
        return data.decode()
