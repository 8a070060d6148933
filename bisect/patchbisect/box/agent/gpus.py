"""What the GPUs say: through NVML, nvidia-smi, or not at all."""

from __future__ import annotations

import glob
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from .base import GIB


class Gpu(NamedTuple):
    """One reading. ``util`` is percent, None where it cannot be told (a GPU cut up by MIG); sizes are GiB."""

    number: int
    uuid: str
    name: str
    total_gb: float
    used_gb: float
    util: float | None


class GpuProcess(NamedTuple):
    """``used_gb`` is None where the driver does not tell it (the open one to a container, MIG)."""

    number: int
    pid: int
    used_gb: float | None


ANSWER_S = 30.0
"""How long a driver may take to answer. One whose GPU fell off may never do so, and must not take us with it."""
FIRST_ANSWER_S = 120.0
"""The first answer takes seconds a GPU where persistence mode is off: the driver starts each of them anew."""


class InTime:
    """Asks in a thread of its own, and no more before the last question was answered."""

    def __init__(self) -> None:
        self._thread = threading.Thread()

    def __call__(self, ask: Callable[[], Any], *, within_s: float | None = None) -> Any:
        """What ``ask`` returns or raises. Raises TimeoutError after ``within_s`` (None: ``ANSWER_S``)."""
        patience_s = within_s or ANSWER_S
        said: list[Any] = []

        def work() -> None:
            try:
                said.append((ask(), None))
            except Exception as problem:
                said.append((None, problem))

        if not self._thread.is_alive():
            self._thread = threading.Thread(target=work, daemon=True)
            self._thread.start()
            self._thread.join(patience_s)
        if not said:
            raise TimeoutError(f"the driver has not answered for {patience_s:.0f} s")
        value, problem = said[0]
        if problem is not None:
            raise problem
        return value


KILLED_S = 5.0
"""How long nvidia-smi may take to die."""

NO_LIST = frozenset({"NVMLError_NotSupported"})
NO_SUCH_QUESTION = frozenset({"AttributeError", "NVMLError_FunctionNotFound", "NVMLLibraryMismatchError"})
"""Names of exceptions, some of which older bindings lack: of the binding's or the driver's ignorance."""


def device_files() -> list[str]:
    """What the driver put into /dev for the GPUs of this machine; readable or not, they are there."""
    return sorted(glob.glob("/dev/nvidia[0-9]*"))


class Gpus:
    """The GPUs of this box that ``wanted`` names (none named: all), through NVML, nvidia-smi, or not at all.

    ``wanted`` is None for a box that uses none: then the driver is not even asked.
    """

    def __init__(self, wanted: Sequence[int] | None = ()) -> None:
        self._wanted = frozenset(wanted or ())
        self._in_time = InTime()
        self.why = ""
        self.lacks_pynvml = False
        self.incomplete = False
        """Whether the last reading was not whole: then a GPU that is missing from it may be there, and full."""
        self.unlisted = False
        """Whether the last list of processes was not whole: then somebody may be missing from it."""
        self.absent: list[int] = []
        """Those of ``wanted`` that the last reading, which was whole, did not have."""
        self.opened_s = 0.0
        """How long the driver took to begin."""
        self._nvml: Any = None
        self.source = "none"
        if wanted is None:
            self.why = "this box uses no GPU"
        else:
            self._open()

    def _open(self) -> None:
        began = time.monotonic()
        self._nvml = self._open_nvml()
        self.source = "nvml" if self._nvml else "nvidia-smi" if self._open_smi() else "none"
        self.opened_s = time.monotonic() - began

    def _open_nvml(self) -> Any:
        try:
            import pynvml  # type: ignore[import-untyped,unused-ignore]

            self._in_time(pynvml.nvmlInit, within_s=FIRST_ANSWER_S)
        except ImportError:
            self.lacks_pynvml = True
            self.why = "pynvml is not installed for this Python"
            return None
        except Exception as problem:  # pynvml's errors share no base that exists without the module
            self.why = f"NVML: {problem}"
            return None
        return pynvml

    def _open_smi(self) -> bool:
        if shutil.which("nvidia-smi") is None:
            self.why += "; nvidia-smi is not on PATH"
            return False
        return bool(self._smi("--query-gpu=index", within_s=FIRST_ANSWER_S))

    def _smi(self, query: str, *, within_s: float | None = None) -> list[list[str]] | None:
        """Rows of cells; None where it failed, and ``why`` says how."""
        command = ["nvidia-smi", query, "--format=csv,noheader,nounits"]
        patience_s = within_s or ANSWER_S
        try:
            done = self._in_time(
                lambda: subprocess.run(command, capture_output=True, text=True, timeout=patience_s),
                within_s=patience_s + KILLED_S,
            )
        except (OSError, subprocess.TimeoutExpired) as problem:
            self.why = f"nvidia-smi: {problem}"
            return None
        if done.returncode:
            self.why = f"nvidia-smi: {' '.join((done.stdout.strip() or done.stderr.strip()).split())}"
            return None
        return [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines() if line.strip()]

    @property
    def driver(self) -> str:
        """Its version; empty where nobody can tell."""
        if self._nvml:
            try:
                return text_of(self._in_time(self._nvml.nvmlSystemGetDriverVersion))
            except Exception as problem:
                self.why = f"NVML: {problem}"
                return ""
        rows = self._smi("--query-gpu=driver_version") if self.source == "nvidia-smi" else None
        return rows[0][0] if rows else ""

    def read(self) -> list[Gpu]:
        """One reading of each GPU. A GPU that fell off the bus is missing from it, and ``why`` says so."""
        found = self._read_smi() if self.source == "nvidia-smi" else self._read_nvml()
        known = self.source != "none" and not self.incomplete
        self.absent = sorted(self._wanted - {gpu.number for gpu in found}) if known else []
        if self.absent:
            self.incomplete = True
            self.why = f"this machine has no GPU {', '.join(map(str, self.absent))}, which `gpus` of the box names"
        elif known and not found:
            self.why = "the driver shows none"
        return found

    def processes(self) -> list[GpuProcess]:
        """Who computes on them now. Inside a container the pids may be those of the host."""
        return self._processes_smi() if self.source == "nvidia-smi" else self._processes_nvml()

    # .. through NVML

    def _of_each(self, ask: Callable[[int, Any], Iterable[Any]]) -> tuple[list[Any], str]:
        """What ``ask`` tells by number and handle, and why not of some: one GPU that is lost hides no other."""
        found: list[Any] = []
        failed: dict[str, list[int]] = {}

        def ask_each() -> None:
            for number in range(self._nvml.nvmlDeviceGetCount()):
                if not self._wanted or number in self._wanted:
                    try:
                        found.extend(ask(number, self._nvml.nvmlDeviceGetHandleByIndex(number)))
                    except Exception as problem:
                        failed.setdefault(str(problem), []).append(number)

        whole = ""
        try:
            self._in_time(ask_each)
        except Exception as problem:
            whole = str(problem)
        parts = [f"GPU {', '.join(map(str, numbers))}: {said}" for said, numbers in failed.items()]
        return list(found), "; ".join([*parts, whole] if whole else parts)

    def _read_nvml(self) -> list[Gpu]:
        found, problem = self._of_each(self._reading) if self._nvml else ([], "")
        self.incomplete = bool(problem)
        if problem:
            self.why = f"NVML: {problem}"
        return found

    def _reading(self, number: int, handle: Any) -> list[Gpu]:
        memory = self._nvml.nvmlDeviceGetMemoryInfo(handle)
        uuid, name = (text_of(ask(handle)) for ask in (self._nvml.nvmlDeviceGetUUID, self._nvml.nvmlDeviceGetName))
        return [Gpu(number, uuid, name, memory.total / GIB, memory.used / GIB, self._util(handle))]

    def _util(self, handle: Any) -> float | None:
        """Not known of a GPU that is cut up by MIG: no reason to lose the reading of its memory."""
        try:
            return float(self._nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
        except self._nvml.NVMLError_NotSupported:
            return None

    def _processes_nvml(self) -> list[GpuProcess]:
        found, problem = self._of_each(self._listed) if self._nvml else ([], "")
        self.unlisted = bool(problem)
        if problem:
            self.why = f"NVML: processes of {problem}"
        return found

    def _listed(self, number: int, handle: Any) -> Iterator[GpuProcess]:
        """A GPU without such a list is judged by its memory alone. Where an MPS server computes, its clients do too."""
        by_pid: dict[int, GpuProcess] = {}
        for ask, unknown in (
            ("nvmlDeviceGetComputeRunningProcesses", NO_LIST),
            ("nvmlDeviceGetMPSComputeRunningProcesses", NO_LIST | NO_SUCH_QUESTION),
        ):
            for one in self._asked(ask, handle, unknown=unknown):
                if one.pid not in by_pid:
                    used = None if one.usedGpuMemory is None else one.usedGpuMemory / GIB
                    by_pid[one.pid] = GpuProcess(number, int(one.pid), used)
                    yield by_pid[one.pid]
            if not by_pid:
                return

    def _asked(self, question: str, handle: Any, *, unknown: frozenset[str]) -> Sequence[Any]:
        try:
            told: Sequence[Any] = getattr(self._nvml, question)(handle)
        except Exception as problem:
            if type(problem).__name__ in unknown:
                return ()
            raise
        return told

    # .. through nvidia-smi

    def _read_smi(self) -> list[Gpu]:
        rows = self._smi("--query-gpu=index,uuid,name,memory.total,memory.used,utilization.gpu")
        found = []
        self.incomplete = rows is None
        for index, uuid, name, total, used, util in (row for row in rows or () if len(row) == 6):
            if self._wanted and index.isdigit() and int(index) not in self._wanted:
                continue
            if index.isdigit() and is_number(total) and is_number(used):
                load = float(util) if is_number(util) else None
                found.append(Gpu(int(index), uuid, name, float(total) / 1024, float(used) / 1024, load))
            else:  # [N/A], [Insufficient Permissions], [GPU is lost]: without memory of its own, cut up by MIG, gone
                self.incomplete = True
                self.why = f"nvidia-smi: memory of GPU {index}: {used}"
        return found

    def _processes_smi(self) -> list[GpuProcess]:
        numbers = {gpu.uuid: gpu.number for gpu in self._read_smi()}
        rows = self._smi("--query-compute-apps=gpu_uuid,pid,used_memory")
        self.unlisted = rows is None or self.incomplete
        found = []
        for uuid, pid, used in (row for row in rows or () if len(row) == 3):
            if uuid in numbers and pid.isdigit():
                found.append(GpuProcess(numbers[uuid], int(pid), float(used) / 1024 if is_number(used) else None))
        return found


def is_number(cell: str) -> bool:
    """Whether nvidia-smi could tell."""
    return cell.replace(".", "", 1).isdigit()


def text_of(said: Any) -> str:
    """Older bindings answer in bytes."""
    return said.decode() if isinstance(said, bytes) else str(said)
