"""A range of 40 commits on top of the pin, cut from the real difference between two releases, one of them guilty.

Each real commit brings one file, that the CPU path imports, from 0.5.9 to 0.5.10; the files were chosen so that each
can be changed without the others (nothing goes away, no signature changes). One commit prints a name that only hybrid
models bind; one moves a line that the carried patch stands on, and three commits later it is moved back.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from patchbisect.model import Base, Pin
from patchbisect.upstream import Mirror

CHANGED_ALONE = [
    "configs/internvl",
    "elastic_ep/elastic_ep",
    "layers/quantization/compressed_tensors/compressed_tensors",
    "models/qwen2_5_vl",
    "models/step3p5",
    "batch_overlap/operations",
    "connector/__init__",
    "constants",
    "layers/attention/mamba/mamba",
    "layers/quantization/compressed_tensors/schemes/compressed_tensors_wNa16_moe",
    "layers/quantization/marlin_utils",
    "models/deepseek_common/attention_forward_methods/forward_methods",
    "models/nemotron_h_mtp",
    "models/phi4mm",
    "configs/load_config",
    "configs/deepseek_ocr",
    "configs/device_config",
    "connector/remote_instance",
    "entrypoints/context",
    "hardware_backend/npu/quantization/linear_method_npu",
    "layers/quantization/compressed_tensors/schemes/compressed_tensors_w4a4_nvfp4_moe",
    "models/deepseek_vl2",
    "models/gemma3_mm",
    "configs/deepseekvl2",
    "mem_cache/common",
    "mem_cache/multimodal_cache",
    "configs/mamba_utils",
    "layers/attention/nsa/utils",
    "models/bailing_moe_linear",
    "models/mimo_v2_flash",
    "layers/dp_attention",
    "layers/communicator_nsa_cp",
    "models/glm4v_moe",
    "models/ministral3",
    "function_call/gigachat3_detector",
    "configs/janus_pro",
    "configs/jet_nemotron",
]
SIZING = "python/sglang/srt/model_executor/model_runner_kv_cache_mixin.py"
RUNNER = "python/sglang/srt/model_executor/model_runner.py"
GUILTY_LINE = "        return int(rest_memory * (1 << 30)) // cell_size\n"
PRINT = '        logger.info(f"sizing {rest_memory=:.3f} {cell_size=} {effective_layer_ids=}")\n'
MOVED = "        self.num_effective_layers = self.end_layer - self.start_layer\n"
BY_NAME = '        setattr(self, "num_effective_layers", self.end_layer - self.start_layer)\n'
"""What the patch beside it prints is gone there, as far as one can see: it is not placed."""
GUILTY, MOVES, MOVES_BACK = 28, 20, 23
COMMITS = 40


@dataclass(frozen=True)
class Range:
    """``commits[0]`` is the pin, ``commits[k]`` the k-th commit on top of it."""

    path: Path
    pin: Pin
    commits: tuple[str, ...]

    def base(self, k: int) -> Base:
        return Base(pin=self.pin, rev=self.commits[k] if k else "")


def build_range(folder: Path, mirror: Mirror, pin: Pin) -> Range:
    """The repository, made from the releases of the pin and of 0.5.10 as the mirror has them."""
    old = mirror.base(Base(pin=pin)).commit
    new = mirror.base(Base(pin=pin, rev="release:0.5.10")).commit
    path = folder / "sglang"
    path.mkdir(parents=True)
    _git(path, "init", "--quiet", "--initial-branch=main")
    _git(
        path,
        "fetch",
        "--quiet",
        "--update-shallow",
        str(mirror.path),
        f"{old}:refs/heads/main",
        f"{new}:refs/heads/new",
        "--update-head-ok",
    )
    _git(path, "checkout", "--quiet", "main")
    commits = [_git(path, "rev-parse", "HEAD")]
    files = iter(CHANGED_ALONE)
    for k in range(1, COMMITS + 1):
        if k == GUILTY:
            subject = "Log what the KV cache is sized from"
            _replace(path / SIZING, GUILTY_LINE, PRINT + GUILTY_LINE)
        elif k == MOVES:
            subject = "Compute the number of layers in one place"
            _replace(
                path / RUNNER,
                MOVED,
                BY_NAME,
            )
        elif k == MOVES_BACK:
            subject = "Revert the above"
            _replace(
                path / RUNNER,
                BY_NAME,
                MOVED,
            )
        else:
            name = f"python/sglang/srt/{next(files)}.py"
            subject = f"{Path(name).stem}: as in 0.5.10"
            _git(path, "checkout", "--quiet", "new", "--", name)
        _git(path, "add", "--all")
        _git(path, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "-m", subject)
        commits.append(_git(path, "rev-parse", "HEAD"))
    return Range(path=path, pin=Pin(upstream=path.as_uri(), commit=commits[0], tag=""), commits=tuple(commits))


def _replace(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert text.count(old) == 1, (file, old)
    file.write_text(text.replace(old, new))


def _git(where: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(where), *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"git {' '.join(words)}: {done.stderr}"
    return done.stdout.strip()


BUMP, BROKEN, WITH_NEEDS = 5, 9, 12
"""In a range of ``WITH_NEEDS`` commits: the one that moves a dependency, and the culprit after it."""
CONSTANTS = "python/sglang/srt/constants.py"
PROJECT = "python/pyproject.toml"
OLD_PIN, NEW_PIN = "einops==0.8.2", "einops==0.8.1"


def build_range_with_needs(folder: Path, mirror: Mirror, pin: Pin, *, needs: Sequence[str]) -> Range:
    """A range whose pyproject asks for what the release of the pin does, ``OLD_PIN`` among it, and after ``BUMP`` for
    ``NEW_PIN``. Each commit refuses to start with another einops than it asks for.
    """
    old = mirror.base(Base(pin=pin)).commit
    path = folder / "needing"
    path.mkdir(parents=True)
    _git(path, "init", "--quiet", "--initial-branch=main")
    fetch = ["fetch", "--quiet", "--update-shallow", "--update-head-ok"]
    _git(path, *fetch, str(mirror.path), f"{old}:refs/heads/main")
    _git(path, "checkout", "--quiet", "main")
    commits = []
    for k in range(WITH_NEEDS + 1):
        if k in (0, BUMP):
            einops = NEW_PIN if k else OLD_PIN
            lines = [einops if need.partition("=")[0] == "einops" else need for need in needs]
            (path / PROJECT).write_text(f'[project]\nname = "sglang"\ndependencies = {json.dumps(lines)}\n')
        if k == 0:
            (path / CONSTANTS).write_text((path / CONSTANTS).read_text() + _asserting(OLD_PIN))
        elif k == BUMP:
            _replace(path / CONSTANTS, _asserting(OLD_PIN), _asserting(NEW_PIN))
        elif k == BROKEN:
            _replace(path / SIZING, GUILTY_LINE, PRINT + GUILTY_LINE)
        else:
            name = path / f"python/sglang/srt/{CHANGED_ALONE[k]}.py"
            name.write_text(name.read_text() + f"\n# {k}\n")
        subject = {0: "Say what is needed", BUMP: f"Move to {NEW_PIN}", BROKEN: "Log the sizing"}.get(k, f"Note {k}")
        _git(path, "add", "--all")
        _git(path, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "-m", subject)
        commits.append(_git(path, "rev-parse", "HEAD"))
    return Range(path=path, pin=Pin(upstream=path.as_uri(), commit=commits[0], tag=""), commits=tuple(commits))


def _asserting(requirement: str) -> str:
    version = requirement.partition("==")[2]
    return f'\nimport importlib.metadata\n\nassert importlib.metadata.version("einops") == "{version}"\n'
