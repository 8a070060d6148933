"""pip in the embedded box's environment: what it would take, what it takes, and what it left unfinished."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from patchbisect.embedded.commands import Finished, Run, clean_environment
from patchbisect.errors import BoxError, PatchbisectError, UsageError
from patchbisect.model import EMPTY

_GPU_PARTS = ("nvidia-", "cuda-", "triton", "pytorch-triton", "rocm", "intel-")
_QUIET = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore"}
_UNREACHABLE = ("connection broken by", "Failed to establish a new connection", "Temporary failure in name resolution")


class NoWheels(PatchbisectError):
    """This interpreter cannot have what the embedded box needs; another may."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Transfer:
    """A line of pip's as data: what it is doing, and how far a download is, in bytes."""

    detail: str
    done_bytes: int | None = None
    total_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Pip:
    """pip of one interpreter. ``source`` is more environment that says where packages come from; ``keep_open`` are
    descriptors that it inherits.
    """

    python: Path
    run: Run
    source: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    keep_open: tuple[int, ...] = ()

    def install(self, *arguments: str, progress: Callable[[Transfer], None]) -> None:
        """``pip install --no-deps`` of wheels only. Raises NoWheels or BoxError."""
        reader = _Reader(progress)
        command = ["install", "--no-deps", "--no-input", "--only-binary=:all:", *arguments]
        done = self._call(command, on_line=reader.line)
        if done.exit_code:
            raise _failure(done)

    def uninstall(self, *names: str) -> None:
        """Raises BoxError."""
        done = self._call(["uninstall", "--yes", *names], on_line=lambda line: None)
        if done.exit_code:
            raise _failure(done)

    def would_take(self, *arguments: str) -> Mapping[str, Any]:
        """pip's installation report for one requirement, without installing it. Raises NoWheels or BoxError."""
        command = ["install", "--dry-run", "--ignore-installed", "--no-deps", "--no-input", "--only-binary=:all:"]
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.json"
            done = self._call([*command, f"--report={report}", *arguments], on_line=lambda line: None)
            if done.exit_code:
                raise _failure(done)
            found: Mapping[str, Any] = json.loads(report.read_text(encoding="utf-8"))
            return found

    def _call(self, command: Sequence[str], *, on_line: Callable[[str], None]) -> Finished:
        return self.run(
            [str(self.python), "-m", "pip", *command],
            env={**clean_environment(), **_QUIET, **self.source},
            on_line=on_line,
            keep_open=self.keep_open,
        )


class _Reader:
    """pip's lines → Transfer. With ``--progress-bar raw`` (pip 24.1) a download prints ``Progress 123 of 456``."""

    def __init__(self, progress: Callable[[Transfer], None]) -> None:
        self._progress = progress
        self._file = ""

    def line(self, text: str) -> None:
        if found := re.match(r"Progress (\d+) of (\d+)", text):
            done, total = map(int, found.groups())
            self._progress(Transfer(self._file, done_bytes=done, total_bytes=total))
        elif found := re.match(r"\s*(?:Downloading|Using cached|Processing) (?:.*/)?(\S+\.whl)(?: |$)", text):
            self._file = found[1]
            self._progress(Transfer(self._file))
        elif text.startswith("Installing collected packages"):
            self._progress(Transfer(f"unpacking {text.count(',') + 1} packages"))


def only_from(torch_index: str) -> Mapping[str, str]:
    """The ``source`` for the setting ``embedded.torch-index``: a folder of wheels, or an index (URL or folder), alone.

    In variables, not arguments: they replace the places that pip's configuration names, arguments would add to them,
    and a misspelt setting would go unnoticed. Raises UsageError for a folder that is not there.
    """
    if "://" in torch_index:
        index = torch_index
    else:
        folder = Path(torch_index).expanduser().absolute()
        if not folder.is_dir():
            raise UsageError(
                f"embedded.torch-index: {torch_index} is neither a URL nor a folder that exists",
                remedy="give the URL of a package index, or a folder of wheels, that has a CPU build of torch",
            )
        index = folder.as_uri()  # a path may hold spaces, at which pip would cut the variable
        if any(folder.glob("*.whl")):
            return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": index}
    return {"PIP_INDEX_URL": index, "PIP_EXTRA_INDEX_URL": index, "PIP_FIND_LINKS": os.devnull}


def gpu_parts(report: Mapping[str, Any]) -> tuple[str, ...]:
    """What in pip's report for torch belongs to a GPU build: local version, dependencies. Empty: a CPU build."""
    parts: list[str] = []
    for item in report["install"]:
        metadata = item["metadata"]
        local = Version(metadata["version"]).local or "cpu"
        if not local.startswith("cpu"):
            parts.append(f"+{local}")
        for line in metadata.get("requires_dist", ()):
            needed = Requirement(line)
            wanted = needed.marker is None or needed.marker.evaluate({**report["environment"], "extra": ""})
            if wanted and needed.name.lower().startswith(_GPU_PARTS):
                parts.append(needed.name)
    return tuple(parts)


def is_whole(info: Path) -> bool:
    """Whether the package of a ``.dist-info`` folder is there in full: pip can be killed, disks fill, files go.

    pip writes INSTALLER after all files, and RECORD lists each with its size and itself last; without this check pip
    takes a package with a METADATA file for installed.
    """
    try:
        with (info / "RECORD").open(newline="", encoding="utf-8") as lines:
            rows = list(csv.reader(lines))
        files = {name: size for name, _, size in rows}
    except (OSError, ValueError, csv.Error):
        return False
    if f"{info.name}/RECORD" not in files or not (info / "INSTALLER").exists():
        return False
    return all(_has_size(info.parent / name, int(size)) for name, size in files.items() if size)


def _has_size(file: Path, size: int) -> bool:
    return file.exists() and file.stat().st_size == size


def installed(venv: Path) -> set[str]:
    """Names of the packages that are there, normalised."""
    found = venv.glob("lib/python*/site-packages/*.dist-info")
    return {canonicalize_name(info.name.removesuffix(".dist-info").rpartition("-")[0]) for info in found}


def is_complete(venv: Path, pins: str) -> bool:
    """Whether what is installed is what the pins name, each package in full."""
    infos = list(venv.glob("lib/python*/site-packages/*.dist-info"))
    return installed(venv) == set(pinned(pins)) and all(is_whole(info) for info in infos)


def forget_unfinished(venv: Path) -> list[str]:
    """Make pip install again what is not there in full; returns names with versions."""
    for leftover in venv.glob("lib/python*/site-packages/~*"):  # pip moves aside what it is replacing
        shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
    broken = [info for info in sorted(venv.glob("lib/python*/site-packages/*.dist-info")) if not is_whole(info)]
    for info in broken:
        shutil.rmtree(info)
    return [info.name.removesuffix(".dist-info") for info in broken]


def pinned(pins: str) -> dict[str, str]:
    """``name==version`` lines as a mapping."""
    wanted = [Requirement(line) for line in pins.splitlines() if line.strip() and not line.startswith("#")]
    return {canonicalize_name(item.name): str(item.specifier).removeprefix("==") for item in wanted}


def _failure(done: Finished) -> PatchbisectError:
    errors = [line.removeprefix("ERROR: ") for line in done.output.splitlines() if line.startswith("ERROR: ")]
    missing = next((line for line in errors if line.startswith("No matching distribution found")), None)
    reason = missing or (errors[0] if errors else f"exit code {done.exit_code}: {done.output.strip()}")[:200]
    if any(sign in done.output for sign in _UNREACHABLE):
        return BoxError(
            f"pip cannot reach its package index: {reason}",
            remedy="check the network and pip's configuration (pip config list), then run setup again: it goes on here",
        )
    if missing:
        return NoWheels(missing)
    if "No space left on device" in done.output:
        return BoxError("the disk is full", remedy="free about 2 GB below the state directory, then run setup again")
    return BoxError(f"pip failed: {reason}", remedy="run setup again: it goes on where it stopped")
