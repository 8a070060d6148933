"""NVIDIA's own binding of NVML over a driver library of ours (``driver.c``), which tells what a file says."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pynvml  # type: ignore[import-untyped]

from patchbisect.testing.fake_gpus import GIB, FakeGpu

CODES = {
    "": pynvml.NVML_SUCCESS,
    "GPU is lost": pynvml.NVML_ERROR_GPU_IS_LOST,
    "GPU requires restart": pynvml.NVML_ERROR_RESET_REQUIRED,
    "Insufficient Permissions": pynvml.NVML_ERROR_NO_PERMISSION,
    "Not Supported": pynvml.NVML_ERROR_NOT_SUPPORTED,
    "RM has detected an NVML/RM version mismatch.": pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    "Unknown Error": pynvml.NVML_ERROR_UNKNOWN,
}
"""The codes for what the binding says then."""


class Driver:
    """What ``FakeGpus`` is, but for the binding, which is the real one: a Python at ``python``, and ``set``."""

    def __init__(self, folder: Path, *gpus: FakeGpu) -> None:
        folder.mkdir(exist_ok=True)
        self.file = folder / "driver.txt"
        self.python = folder / "venv" / "bin" / "python"
        self.set(*gpus)
        library = folder / "libnvidia-ml.so.1"
        source = Path(__file__).with_suffix(".c")
        named = [f'-DSTATE="{self.file}"', f"-Wl,-soname,{library.name}"]
        subprocess.run(["cc", "-shared", "-fPIC", *named, str(source), "-o", str(library)], check=True)
        venv.create(folder / "venv", symlinks=True)
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        site = folder / "venv" / "lib" / version / "site-packages"
        shutil.copy(pynvml.__file__, site)
        # A library that is loaded already answers to its name, wherever it lies.
        (site / "driver.pth").write_text(f"import ctypes; ctypes.CDLL({str(library)!r})\n")

    def set(self, *gpus: FakeGpu, driver: str = "580.1", broken: str = "") -> None:
        """What the next reading says; ``broken`` is what NVML fails with."""
        lines = [f"driver {driver} {CODES[broken]}"]
        for index, gpu in enumerate(gpus):
            sizes = f"{int(gpu.total_gb * GIB)} {int(gpu.used_gb * GIB)} {gpu.util}"
            refused = f"{CODES[gpu.lost]} {CODES[gpu.unlisted]} {int(gpu.told)}"
            lines.append(f"gpu {gpu.uuid or f'GPU-{index}'} {sizes} {refused}")
            for pid, used, *number in gpu.processes:
                told_as = number[0] if number else pid
                lines.append(f"process {index} {pid} {int(used * GIB)} {told_as} {int(pid in gpu.clients)}")
        partial = self.file.with_suffix(".tmp")
        partial.write_text("\n".join(lines) + "\n")
        partial.rename(self.file)
