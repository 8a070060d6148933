"""``setup``: make the embedded box, one stamped step after the other.

A step leaves a stamp, keyed by its inputs, when it has succeeded; a call that was interrupted anywhere, by SIGKILL
too, is continued by the next one. One call at a time works on a state directory.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from patchbisect.config import EmbeddedSettings
from patchbisect.embedded.commands import Run, clean_environment, run
from patchbisect.embedded.environment import (
    CONSTRAINTS,
    STANDINS,
    Embedded,
    Layout,
    complete_key,
    digest,
    find,
    layout,
)
from patchbisect.embedded.interpreters import Interpreter, usable
from patchbisect.embedded.models import MODELS, write_models
from patchbisect.embedded.pip import (
    NoWheels,
    Pip,
    Transfer,
    forget_unfinished,
    gpu_parts,
    installed,
    is_complete,
    only_from,
    pinned,
)
from patchbisect.errors import BoxError, UsageError
from patchbisect.model import EMPTY

NEEDED_GB = 2.0
"""Free disk for a fresh environment, in GiB: 1.4 GB installed (measured) and pip's unpacked downloads on the way."""

_RAW = "--progress-bar=raw"
"""Progress as lines to read: pip 24.1 and later, so not before the pinned pip is there."""

_CHECK = """
import json, sys
import torch, torchvision.transforms, transformers, triton.language, sgl_kernel.kvcacheio
assert torch.version.cuda is None, "torch is a CUDA build"
assert torch.ones(2, dtype=torch.bfloat16).sum().item() == 2
sgl_kernel.kvcacheio.transfer_kv_per_layer
print("VERSIONS", json.dumps({
    "python": "%d.%d.%d" % sys.version_info[:3],
    "torch": torch.__version__,
    "transformers": transformers.__version__,
    "triton": triton.__version__ + " (stand-in)",
}))
"""


@dataclass(frozen=True, slots=True)
class Progress:
    """What setup is doing: sizes in bytes, of one download or of a finished step; seconds since setup began."""

    step: str
    detail: str
    done_bytes: int | None = None
    total_bytes: int | None = None
    seconds: float = 0.0


Report = Callable[[Progress], None]


def setup(
    state: Path,
    *,
    settings: EmbeddedSettings,
    progress: Report,
    run: Run = run,
    pins: str | None = None,
) -> Embedded:
    """Prepare the embedded box under ``state`` and return it.

    Does nothing when it is complete, and repairs it when files of its packages are missing or cut short: unlike
    ``find``, it looks at each (0.3 s).
    Raises UsageError where no interpreter here can have it (no venv, no wheels, only a CUDA build of torch) and
    BoxError where the machine failed (network, disk). ``run`` and ``pins`` are for tests.
    """
    pins = CONSTRAINTS.read_text(encoding="utf-8") if pins is None else pins
    place = layout(state)
    if (ready := find(state, pins=pins)) and is_complete(place.venv, pins):
        return ready
    torch_source = only_from(settings.torch_index) if settings.torch_index else EMPTY
    began = time.monotonic()

    def say(step: str, what: Transfer) -> None:
        seconds = time.monotonic() - began
        progress(Progress(step, what.detail, what.done_bytes, what.total_bytes, seconds))

    with _alone(place, say) as lock:
        if (ready := find(state, pins=pins)) and is_complete(place.venv, pins):
            return ready  # the call that was waited for has done it
        _Preparation(
            place=place, settings=settings, torch_source=torch_source, pins=pins, run=run, lock=lock, say=say
        ).do()
    ready = find(state, pins=pins)
    assert ready is not None, "a finished setup is found"
    return ready


@contextmanager
def _alone(place: Layout, say: Callable[[str, Transfer], None]) -> Iterator[int]:
    """Hold the lock. pip inherits it, so a pip that outlives a killed setup keeps the next one waiting."""
    try:
        place.root.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(place.lock, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as why:
        raise BoxError(
            f"cannot write at {place.root}: {why.strerror}",
            remedy="mend that, or move the state directory with PATCHBISECT_HOME",
        ) from why
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("wait", Transfer("another setup is at work here"))
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class _Preparation:
    place: Layout
    settings: EmbeddedSettings
    torch_source: Mapping[str, str]
    pins: str
    run: Run
    lock: int
    say: Callable[[str, Transfer], None]

    def do(self) -> None:
        self.place.stamp("check").unlink(missing_ok=True)  # nobody may find the box while it is worked on
        refused: dict[str, NoWheels] = {}
        for interpreter in usable(self.settings.python, present=self.place.interpreter(), run=self.run):
            if interpreter.version in refused:
                continue
            try:
                self._environment(interpreter)
                self._packages(interpreter)
                break
            except NoWheels as why:
                shutil.rmtree(self.place.venv, ignore_errors=True)
                refused[interpreter.version] = why
        else:
            raise _unsuitable(refused)
        self._models()
        self._check()

    def _environment(self, interpreter: Interpreter) -> None:
        """A bare virtual environment with the pinned pip (older ones download a wheel to read its metadata)."""
        key = digest("venv", interpreter.real, interpreter.full, pinned(self.pins)["pip"])
        if self.place.read_stamp("venv", key=key) is not None and self.place.python.exists():
            return
        self._room()
        self.say("venv", Transfer(f"Python {interpreter.full} ({interpreter.real})"))
        # Away first, the stamps before the rest: they would vouch for packages of the environment before.
        shutil.rmtree(self.place.stamps, ignore_errors=True)
        shutil.rmtree(self.place.venv, ignore_errors=True)
        done = self.run(
            [str(interpreter.path), "-m", "venv", str(self.place.venv)],
            env=clean_environment(),
            on_line=lambda line: None,
            keep_open=(self.lock,),
        )
        if done.exit_code:
            raise BoxError(
                f"{interpreter.path} cannot make a virtual environment: {_last_line(done.output)}",
                remedy=f"on Debian and Ubuntu: apt install python{interpreter.version}-venv",
            )
        self._pip().install(f"pip=={pinned(self.pins)['pip']}", progress=lambda what: self.say("venv", what))
        self.place.write_stamp("venv", key=key, facts={"interpreter": str(interpreter.path)})

    def _packages(self, interpreter: Interpreter) -> None:
        key = digest("packages", interpreter.real, interpreter.full, self.pins)
        again = forget_unfinished(self.place.venv)
        if is_complete(self.place.venv, self.pins) and self.place.read_stamp("packages", key=key) is not None:
            return
        if again:
            self.say("packages", Transfer(f"repairing {', '.join(again)}"))
        self._torch(interpreter)
        wanted = self.place.root / "constraints.txt"
        wanted.write_text(self.pins, encoding="utf-8")
        self._pip().install(_RAW, "-r", str(wanted), progress=lambda what: self.say("packages", what))
        if extra := installed(self.place.venv) - set(pinned(self.pins)):  # pinned by an earlier release of ours
            self._pip().uninstall(*sorted(extra))
        size = _size(self.place.venv)
        self.say("packages", Transfer("installed", done_bytes=size, total_bytes=size))
        self.place.write_stamp("packages", key=key, facts={"bytes": size})

    def _torch(self, interpreter: Interpreter) -> None:
        """torch first: from where pip is configured to look, else from the index of the setting; never a CUDA build."""
        wanted = f"torch=={pinned(self.pins)['torch']}"
        self.say("torch", Transfer(f"which build pip would take for Python {interpreter.version}"))
        pip, refusal = self._pip(), _unfit(self._pip(), wanted)
        if refusal and self.torch_source:
            self.say("torch", Transfer(f"which build {self.settings.torch_index} has"))
            pip = replace(pip, source=self.torch_source)
            refusal = _unfit(pip, wanted)
        if refusal:
            raise NoWheels(
                refusal,
                remedy="set embedded.torch-index in invoke.yaml to a place that has a CPU build of "
                f"{wanted}: an index (PyTorch publishes one) or a folder of wheels",
            )
        pip.install(_RAW, wanted, progress=lambda what: self.say("torch", what))

    def _models(self) -> None:
        self.say("models", Transfer(", ".join(MODELS)))
        write_models(self.place.models)

    def _check(self) -> None:
        """Import it all once, with the stand-ins in place, and keep the versions that it reports."""
        self.say("check", Transfer("importing torch, transformers and the stand-ins"))
        done = self.run(
            [str(self.place.python), "-c", _CHECK],
            env={**clean_environment(), "PYTHONPATH": str(STANDINS)},
            on_line=lambda line: None,
            keep_open=(),
        )
        lines = done.output.splitlines()
        versions = next((line.removeprefix("VERSIONS ") for line in lines if line.startswith("VERSIONS ")), None)
        if done.exit_code or versions is None:
            raise BoxError(
                f"the embedded box was installed but does not work: {_last_line(done.output)}",
                remedy=f"remove {self.place.root} and run setup again",
            )
        self.place.write_stamp("check", key=complete_key(self.pins), facts=json.loads(versions))

    def _pip(self) -> Pip:
        return Pip(python=self.place.python, run=self.run, keep_open=(self.lock,))

    def _room(self) -> None:
        free = shutil.disk_usage(self.place.root).free / 2**30
        if free < NEEDED_GB:
            raise BoxError(
                f"the embedded box needs {NEEDED_GB:.0f} GB of disk, {free:.1f} GB are free at {self.place.root}",
                remedy="make room, or move the state directory with PATCHBISECT_HOME",
            )


def _unfit(pip: Pip, wanted: str) -> str:
    """Why this pip has no CPU build for the requirement; empty if it has one."""
    try:
        parts = gpu_parts(pip.would_take(wanted))
    except NoWheels as why:
        return why.message
    return f"pip would take a CUDA build of {wanted} ({', '.join(parts[:3])}, several GB)" if parts else ""


def _unsuitable(refused: Mapping[str, NoWheels]) -> UsageError:
    by_reason: dict[str, list[str]] = {}
    for version, why in refused.items():
        by_reason.setdefault(why.message, []).append(version)
    reasons = "; ".join(f"Python {', '.join(versions)}: {reason}" for reason, versions in by_reason.items())
    remedies = [why.remedy for why in refused.values() if why.remedy]
    return UsageError(
        f"no Python here can have the embedded box's packages: {reasons}",
        remedy=remedies[0] if remedies else "name another interpreter in the setting embedded.python",
    )


def _last_line(output: str) -> str:
    return next((line.strip() for line in reversed(output.splitlines()) if line.strip()), "no output")


def _size(folder: Path) -> int:
    return sum(file.lstat().st_size for file in folder.rglob("*") if not file.is_dir())
