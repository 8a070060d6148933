"""Reservations of boxes that this project holds: leases that outlast a command, by box name."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from patchbisect.box.box import Box


@dataclass(frozen=True, slots=True)
class Reservations:
    """Kept under ``state/reservations``, one small file a box."""

    state: Path

    def keep(self, box: str, fence: int) -> None:
        path = self._path(box)
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps({"fence": fence}), encoding="utf-8")
        fresh.replace(path)

    def forget(self, box: str) -> None:
        self._path(box).unlink(missing_ok=True)

    def fence(self, box: Box) -> int:
        """The number of our reservation of that box; 0 where there is none, or where it is over."""
        path = self._path(box.name)
        if not path.exists():
            return 0
        fence = int(json.loads(path.read_text(encoding="utf-8"))["fence"])
        if any(held.fence == fence and held.expires_in_s > 0 for held in box.leases()):
            return fence
        self.forget(box.name)
        return 0

    def _path(self, box: str) -> Path:
        return self.state / "reservations" / f"{box.encode().hex()}.json"
