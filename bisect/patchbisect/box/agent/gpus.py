"""What the GPUs say: through NVML, nvidia-smi, or not at all."""

from __future__ import annotations

import glob
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
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
    number: int
    pid: int
    used_gb: float


ANSWER_S = 30.0
"""How long a driver may take to answer. One whose GPU fell off may never do so, and must not take us with it."""


class InTime:
    """Asks in a thread of its own, and no more before the last question was answered."""

    def __init__(self) -> None:
        self._thread = threading.Thread()

    def __call__(self, ask: Callable[[], Any]) -> Any:
        """What ``ask`` returns or raises. Raises TimeoutError after ``ANSWER_S``."""
        said: list[Any] = []

        def work() -> None:
            try:
                said.append((ask(), None))
            except Exception as problem:
                said.append((None, problem))

        if not self._thread.is_alive():
            self._thread = threading.Thread(target=work, daemon=True)
            self._thread.start()
            self._thread.join(ANSWER_S)
        if not said:
            raise TimeoutError(f"the driver has not answered for {ANSWER_S:.0f} s")
        value, problem = said[0]
        if problem is not None:
            raise problem
        return value


def device_files() -> list[str]:
    """What the driver put into /dev for the GPUs of this machine; readable or not, they are there."""
    return sorted(glob.glob("/dev/nvidia[0-9]*"))


class Gpus:
    """The GPUs of this box that ``wanted`` names (none named: all), through NVML, nvidia-smi, or not at all."""

    def __init__(self, wanted: Sequence[int] = ()) -> None:
        self._wanted = frozenset(wanted)
        self._in_time = InTime()
        self.why = ""
        self.lacks_pynvml = False
        self.incomplete = False
        """Whether the last reading broke off: then a GPU that is missing from it may be there, and full."""
        self.absent: list[int] = []
        """Those of ``wanted`` that the last reading, which was whole, did not have."""
        self._nvml = self._open_nvml()
        self.source = "nvml" if self._nvml else "nvidia-smi" if self._open_smi() else "none"

    def _open_nvml(self) -> Any:
        try:
            import pynvml  # type: ignore[import-untyped,unused-ignore]

            self._in_time(pynvml.nvmlInit)
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
        return bool(self._smi("--query-gpu=index"))

    def _smi(self, query: str) -> list[list[str]]:
        command = ["nvidia-smi", query, "--format=csv,noheader,nounits"]
        try:
            done = self._in_time(lambda: subprocess.run(command, capture_output=True, text=True, timeout=20))
        except (OSError, subprocess.TimeoutExpired) as problem:
            self.why = f"nvidia-smi: {problem}"
            return []
        if done.returncode:
            self.why = f"nvidia-smi: {done.stdout.strip() or done.stderr.strip()}"
            return []
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
        rows = self._smi("--query-gpu=driver_version") if self.source == "nvidia-smi" else []
        return rows[0][0] if rows else ""

    def _handles(self) -> Iterator[tuple[int, Any]]:
        for index in range(self._nvml.nvmlDeviceGetCount()):
            if not self._wanted or index in self._wanted:
                yield index, self._nvml.nvmlDeviceGetHandleByIndex(index)

    def read(self) -> list[Gpu]:
        """One reading of each GPU. A GPU that fell off the bus is missing from it, and ``why`` says so."""
        found = self._read_smi() if self.source == "nvidia-smi" else self._read_through_nvml()
        known = self.source != "none" and not self.incomplete
        self.absent = sorted(self._wanted - {gpu.number for gpu in found}) if known else []
        if self.absent:
            self.incomplete = True
            self.why = f"this machine has no GPU {', '.join(map(str, self.absent))}, which `gpus` of the box names"
        return found

    def _read_through_nvml(self) -> list[Gpu]:
        found: list[Gpu] = []
        self.incomplete = False
        if self._nvml:
            try:
                self._in_time(lambda: found.extend(self._read_nvml()))
            except Exception as problem:
                self.incomplete = True
                self.why = f"NVML: {problem}"
        return found

    def _read_nvml(self) -> Iterator[Gpu]:
        for index, handle in self._handles():
            memory = self._nvml.nvmlDeviceGetMemoryInfo(handle)
            uuid, name = (text_of(ask(handle)) for ask in (self._nvml.nvmlDeviceGetUUID, self._nvml.nvmlDeviceGetName))
            yield Gpu(index, uuid, name, memory.total / GIB, memory.used / GIB, self._util(handle))

    def _util(self, handle: Any) -> float | None:
        """Not known of a GPU that is cut up by MIG: no reason to lose the reading of its memory."""
        try:
            return float(self._nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
        except self._nvml.NVMLError_NotSupported:
            return None

    def _read_smi(self) -> list[Gpu]:
        rows = self._smi("--query-gpu=index,uuid,name,memory.total,memory.used,utilization.gpu")
        found = []
        self.incomplete = False
        for index, uuid, name, total, used, util in (row for row in rows if len(row) == 6):
            if self._wanted and int(index) not in self._wanted:
                continue
            if is_number(total) and is_number(used):
                load = float(util) if is_number(util) else None
                found.append(Gpu(int(index), uuid, name, float(total) / 1024, float(used) / 1024, load))
            else:  # [N/A], [Insufficient Permissions]: a GPU cut up by MIG, or one without memory of its own
                self.incomplete = True
                self.why = f"nvidia-smi: memory of GPU {index}: {used}"
        return found

    def processes(self) -> list[GpuProcess]:
        """Who computes on them now. Inside a container the pids may be those of the host."""
        found: list[GpuProcess] = []
        if self._nvml:
            try:
                self._in_time(lambda: found.extend(self._processes_nvml()))
            except Exception as problem:
                self.why = f"NVML: {problem}"
        elif self.source == "nvidia-smi":
            uuids = {gpu.uuid: gpu.number for gpu in self._read_smi()}
            for row in self._smi("--query-compute-apps=gpu_uuid,pid,used_memory"):
                if len(row) == 3 and row[0] in uuids and row[1].isdigit():
                    used = float(row[2]) / 1024 if row[2].isdigit() else 0.0
                    found.append(GpuProcess(uuids[row[0]], int(row[1]), used))
        return found

    def _processes_nvml(self) -> Iterator[GpuProcess]:
        for index, handle in self._handles():
            for one in self._nvml.nvmlDeviceGetComputeRunningProcesses(handle):
                yield GpuProcess(index, int(one.pid), (one.usedGpuMemory or 0) / GIB)


def is_number(cell: str) -> bool:
    """Whether nvidia-smi could tell."""
    return cell.replace(".", "", 1).isdigit()


def text_of(said: Any) -> str:
    """Older bindings answer in bytes."""
    return said.decode() if isinstance(said, bytes) else str(said)
