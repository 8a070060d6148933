"""GPUs that are not there: a ``pynvml`` that tells what a file says, in a virtual environment of its own."""

from __future__ import annotations

import json
import sys
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

GIB = 2**30

PYNVML = """\
import json
import os
from types import SimpleNamespace as _Record

class NVMLError(Exception):
    pass

class NVMLError_NotSupported(NVMLError):
    pass

def _refuse(said):
    if said:
        raise type("NVMLError_" + said.title().replace(" ", ""), (NVMLError,), {{}})(said)

def _state():
    with open({state!r}) as file:
        return json.load(file)

def _alive(pid):
    return pid == 0 or os.path.exists(f"/proc/{{pid}}")

def _processes(index):
    return [one for one in _state()["gpus"][index]["processes"] if _alive(one[0])]

def _listed(index, clients):
    gpu = _state()["gpus"][index]
    _refuse(gpu["unlisted"])
    told = [one for one in _processes(index) if (one[0] in gpu["clients"]) == clients]
    return [_Record(pid=one[-1] if one[2:] else one[0], usedGpuMemory=one[1] if gpu["told"] else None) for one in told]

def nvmlInit():
    _refuse(_state()["broken"])

def nvmlSystemGetDriverVersion():
    return _state()["driver"]

def nvmlDeviceGetCount():
    return len(_state()["gpus"])

def nvmlDeviceGetHandleByIndex(index):
    nvmlInit()
    _refuse(_state()["gpus"][index]["lost"])
    return index

def nvmlDeviceGetUUID(index):
    return _state()["gpus"][index]["uuid"].encode()  # as bindings before 11.495 do

def nvmlDeviceGetName(index):
    return "Fake RTX"

def nvmlDeviceGetMemoryInfo(index):
    gpu = _state()["gpus"][index]
    used = gpu["used"] + sum(one[1] for one in _processes(index))
    return _Record(total=gpu["total"], used=used, free=gpu["total"] - used)

def nvmlDeviceGetUtilizationRates(index):
    return _Record(gpu=_state()["gpus"][index]["util"])

def nvmlDeviceGetComputeRunningProcesses(index):
    return _listed(index, clients=False)

def nvmlDeviceGetMPSComputeRunningProcesses(index):
    return _listed(index, clients=True)
"""


@dataclass(frozen=True, slots=True)
class FakeGpu:
    """One reading: GiB used by nobody, percent busy, and (pid, GiB) of each process on it, as long as it lives.

    (pid, GiB, number) is one that NVML tells by another number, as to a container. Pid 0 stands for one outside of it.
    ``clients`` are the pids of those that compute through an MPS server. ``lost`` and ``unlisted`` are what NVML says
    instead of a handle, or of a list of processes: ``GPU is lost``, ``Not Supported``. Where the sizes of processes are
    not ``told``, nobody knows them.
    """

    used_gb: float = 0.5
    util: int = 0
    processes: Sequence[tuple[int, float] | tuple[int, float, int]] = ()
    uuid: str = ""
    total_gb: float = 96.0
    clients: Sequence[int] = ()
    lost: str = ""
    unlisted: str = ""
    told: bool = True


class FakeGpus:
    """A Python at ``python`` whose ``pynvml`` tells what was last ``set``."""

    def __init__(self, folder: Path, *gpus: FakeGpu) -> None:
        self.file = folder / "gpus.json"
        self.python = folder / "venv" / "bin" / "python"
        self.set(*gpus)
        if not self.python.exists():
            venv.create(folder / "venv", symlinks=True)
            version = f"python{sys.version_info.major}.{sys.version_info.minor}"
            site = folder / "venv" / "lib" / version / "site-packages"
            (site / "pynvml.py").write_text(PYNVML.format(state=str(self.file)))

    def set(self, *gpus: FakeGpu, driver: str = "580.1", broken: str = "") -> None:
        """What the next reading says; ``broken`` is what NVML fails with."""
        state = {
            "driver": driver,
            "broken": broken,
            "gpus": [
                {
                    "uuid": gpu.uuid or f"GPU-{index}",
                    "total": int(gpu.total_gb * GIB),
                    "used": int(gpu.used_gb * GIB),
                    "util": gpu.util,
                    "clients": list(gpu.clients),
                    "lost": gpu.lost,
                    "unlisted": gpu.unlisted,
                    "told": gpu.told,
                    "processes": [(pid, int(used * GIB), *number) for pid, used, *number in gpu.processes],
                }
                for index, gpu in enumerate(gpus)
            ],
        }
        partial = self.file.with_suffix(".tmp")
        partial.write_text(json.dumps(state))
        partial.rename(self.file)
