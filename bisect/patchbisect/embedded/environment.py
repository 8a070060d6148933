"""What a prepared embedded box is, where it lies, and how to tell that it is complete."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from patchbisect.embedded.models import MODELS, memory_fractions

PACKAGE = Path(__file__).parent
CONSTRAINTS = PACKAGE / "constraints.txt"
STANDINS = PACKAGE / "standins"

SERVER_ENV: Mapping[str, str] = MappingProxyType(
    {
        "SGLANG_USE_CPU_ENGINE": "1",  # else RotaryEmbedding asks for vllm
        "HF_HUB_OFFLINE": "1",
        "TORCHDYNAMO_DISABLE": "1",  # else the first start needs g++ and some 13 s more
    }
)


@dataclass(frozen=True, slots=True)
class Embedded:
    """A prepared embedded box.

    A server runs as ``python -m sglang.launch_server …`` with PYTHONPATH = the point's ``python`` folder, then
    ``pythonpath``, and with ``env``. ``variables`` are what a profile may name in braces.
    """

    python: Path
    pythonpath: tuple[Path, ...]
    env: Mapping[str, str]
    variables: Mapping[str, str]
    versions: Mapping[str, str]
    """``python``, ``torch``, ``transformers`` …, as reported by the environment itself when it was prepared."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths below ``<state>/cpu``."""

    root: Path

    @property
    def venv(self) -> Path:
        return self.root / "venv"

    @property
    def python(self) -> Path:
        return self.venv / "bin" / "python"

    @property
    def models(self) -> Path:
        return self.root / "models"

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    @property
    def stamps(self) -> Path:
        return self.root / "stamps"

    def stamp(self, step: str) -> Path:
        return self.stamps / f"{step}.json"

    def read_stamp(self, step: str, *, key: str) -> Mapping[str, Any] | None:
        """What the step noted when it succeeded with these inputs; None if it has to be done (again)."""
        try:
            stamp = json.loads(self.stamp(step).read_text(encoding="utf-8"))
        except (OSError, ValueError):  # then the step is done again, which says what is wrong
            return None
        return stamp["facts"] if isinstance(stamp, dict) and stamp.get("key") == key else None

    def interpreter(self) -> Path | None:
        """The interpreter that the environment was made with, where there is one."""
        try:
            return Path(json.loads(self.stamp("venv").read_text(encoding="utf-8"))["facts"]["interpreter"])
        except (OSError, ValueError, LookupError, TypeError):
            return None

    def write_stamp(self, step: str, *, key: str, facts: Mapping[str, Any]) -> None:
        target = self.stamp(step)
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = target.with_suffix(".new")
        fresh.write_text(json.dumps({"key": key, "facts": dict(facts)}, indent=2) + "\n", encoding="utf-8")
        fresh.replace(target)


def layout(state: Path) -> Layout:
    # Absolute but not resolved: venv/bin/python must stay the link that makes it a virtual environment.
    return Layout(Path(os.path.abspath(state)) / "cpu")  # noqa: PTH100


def digest(*parts: object) -> str:
    """One key for the inputs of a step."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def complete_key(pins: str) -> str:
    """Changes whenever something that the finished box consists of changes."""
    standins = {
        str(file.relative_to(STANDINS)): file.read_text(encoding="utf-8") for file in sorted(STANDINS.rglob("*.py"))
    }
    return digest(pins, standins, MODELS)


def find(state: Path, *, pins: str | None = None) -> Embedded | None:
    """The embedded box under this state directory, or None where it is missing, unfinished or out of date.

    Reads a few small files and starts nothing. ``pins`` is for tests.
    """
    place = layout(state)
    key = complete_key(CONSTRAINTS.read_text(encoding="utf-8") if pins is None else pins)
    versions = place.read_stamp("check", key=key)
    models = {name: place.models / name for name in MODELS}
    # exists() follows the link: an interpreter that was uninstalled since makes the environment useless.
    if versions is None or not place.python.exists() or not all((m / "config.json").exists() for m in models.values()):
        return None
    enough, too_low = memory_fractions(memory_gb_per_node())
    return Embedded(
        python=place.python,
        pythonpath=(STANDINS,),
        env=SERVER_ENV,
        variables=MappingProxyType(
            {
                **{f"{name}-model": str(folder) for name, folder in models.items()},
                "fraction-enough": str(enough),
                "fraction-too-low": str(too_low),
            }
        ),
        versions=MappingProxyType(dict(versions)),
    )


def memory_gb_per_node() -> float:
    """RAM in GiB per NUMA node, as SGLang 0.5.9 counts it (``get_available_gpu_memory``, srt/utils/common.py)."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    nodes = sum(1 for _ in Path("/sys/devices/system/node").glob("node[0-9]*"))
    return total / max(nodes, 1)
