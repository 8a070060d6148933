"""Wheels of a few lines each, in a folder that pip can be pointed at."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Sequence
from pathlib import Path


def tiny_wheel(folder: Path, name: str, version: str, *, requires: Sequence[str] = ()) -> Path:
    """A pure wheel whose one module says its version in ``VERSION``."""
    folder.mkdir(parents=True, exist_ok=True)
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"]
    metadata += [f"Requires-Dist: {one}\n" for one in requires]
    content = {
        f"{module}/__init__.py": f"VERSION = {version!r}\n",
        f"{info}/METADATA": "".join(metadata),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,{len(text)}\n" for path, text in content.items())
    content[f"{info}/RECORD"] = record + f"{info}/RECORD,,\n"
    path = folder / f"{module}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in content.items():
            archive.writestr(file, text)
    return path


def interpreter_with(folder: Path, *wheels: Path) -> Path:
    """A virtual environment that has these wheels besides all that this Python has; its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    site = next(folder.glob("lib/python*/site-packages"))
    (site / "more.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
    return folder / "bin" / "python"
