"""Setup with the real interpreter and the real pip: first with wheels of a few files, then the box itself."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from patchbisect.config import EmbeddedSettings
from patchbisect.embedded import Progress, find, setup
from patchbisect.embedded.environment import CONSTRAINTS
from patchbisect.embedded.pip import is_whole, pinned

pytestmark = pytest.mark.ci

ROOT = Path(__file__).parents[2]
MANY = 6000
"""Files of the slow package: enough for pip to be caught in the middle of it."""

TORCH = """
__version__ = "2.13.0+cpu"
bfloat16 = None
class version:
    cuda = None
class ones:
    def __init__(self, n, dtype):
        self.n = n
    def sum(self):
        return self
    def item(self):
        return self.n
"""
PIP = f"pip=={pinned(CONSTRAINTS.read_text())['pip']}"
PINS = f"# small\n{PIP}\nslow==1.0\ntorch==2.13.0\ntransformers==4.57.1\n"

CALL = """
import os, sys
from pathlib import Path
from patchbisect.config import EmbeddedSettings
from patchbisect.embedded import setup
os.setpgid(0, 0)
setup(Path(sys.argv[1]), settings=EmbeddedSettings(), progress=lambda p: None, pins=sys.argv[2])
"""


def make_wheel(folder: Path, name: str, version: str, files: dict[str, str]) -> None:
    info = f"{name}-{version}.dist-info"
    content = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = []
    for path, text in content.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        rows.append(f"{path},sha256={digest},{len(text.encode())}\n")
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, text in content.items():
            wheel.writestr(path, text)
        wheel.writestr(f"{info}/RECORD", "".join(rows) + f"{info}/RECORD,,\n")


@pytest.fixture
def only_small_wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "wheels"
    folder.mkdir()
    make_wheel(folder, "torch", "2.13.0+cpu", {"torch.py": TORCH})
    make_wheel(folder, "transformers", "4.57.1", {"transformers.py": "__version__ = '4.57.1'\n"})
    make_wheel(folder, "slow", "1.0", {f"slow/{n}.txt": "x" for n in range(MANY)})
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder), PIP], check=True)
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))


def start(state: Path) -> subprocess.Popen[bytes]:
    """``setup`` in a process group of its own."""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "bisect")}
    return subprocess.Popen([sys.executable, "-c", CALL, str(state), PINS], env=env)


def wait_until_pip_is_in_the_middle(state: Path, child: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 300
    while not any(state.glob("cpu/venv/lib/python*/site-packages/slow/*.txt")):
        assert child.poll() is None, "setup ended before it could be caught"
        assert time.monotonic() < deadline
        time.sleep(0.002)


def finish(state: Path) -> list[Progress]:
    said: list[Progress] = []
    made = setup(state, settings=EmbeddedSettings(), progress=said.append, pins=PINS)
    site = next(state.glob("cpu/venv/lib/python*/site-packages"))
    assert len(list(site.glob("slow/*.txt"))) == MANY
    assert all(is_whole(info) for info in site.glob("*.dist-info"))
    assert made.versions["torch"] == "2.13.0+cpu"
    return said


@pytest.mark.usefixtures("only_small_wheels")
def test_killed_with_pip_in_the_middle_of_a_package(tmp_path: Path) -> None:
    child = start(tmp_path)
    wait_until_pip_is_in_the_middle(tmp_path, child)
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    site = next(tmp_path.glob("cpu/venv/lib/python*/site-packages"))
    assert len(list(site.glob("slow/*.txt"))) < MANY
    said = finish(tmp_path)
    assert "venv" not in [p.step for p in said], "the environment itself was done"


@pytest.mark.usefixtures("only_small_wheels")
def test_a_pip_that_outlives_a_killed_setup_is_waited_for(tmp_path: Path) -> None:
    child = start(tmp_path)
    wait_until_pip_is_in_the_middle(tmp_path, child)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    said = finish(tmp_path)
    assert said[0].step == "wait"


def test_the_box_itself() -> None:
    """The real packages, complete and consistent; a second call finds them without running anything."""
    state = Path(os.environ.get("PATCHBISECT_HOME") or ROOT / ".patchbisect")
    made = setup(state, settings=EmbeddedSettings(), progress=lambda p: None)

    def run_nothing(*args: object, **kwargs: object) -> None:
        raise AssertionError("a finished box needs no command")

    again = setup(state, settings=EmbeddedSettings(), progress=lambda p: None, run=run_nothing)  # type: ignore[arg-type]
    assert made == again == find(state)

    pip = [str(made.python), "-m", "pip", "--disable-pip-version-check"]
    assert subprocess.run([*pip, "check"], stdout=subprocess.PIPE, check=True)
    listed = subprocess.run([*pip, "list", "--format=json"], stdout=subprocess.PIPE, check=True).stdout
    versions = {item["name"].lower().replace("_", "-"): item["version"].split("+")[0] for item in json.loads(listed)}
    assert versions == pinned(CONSTRAINTS.read_text())
    assert made.versions["torch"].removesuffix("+cpu") == "2.13.0"
