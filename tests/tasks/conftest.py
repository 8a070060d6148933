"""A queue repository with two runs, and the real program run in this process."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from patchbisect.program import Face
from patchbisect.records import Store
from patchbisect.tasks import namespace
from tests.report import builder

ROOT = Path(__file__).parents[2]
A, B = "20261129-180000-aaaa", "20261129-190000-bbbb"


class Said:
    """What a task printed, and its exit code."""

    def __init__(self, out: str, err: str, code: int) -> None:
        self.out, self.err, self.code = out, err, code

    @property
    def json(self) -> object:
        return json.loads(self.out)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A queue repository with two runs: one out of memory, one ready."""
    (tmp_path / "patches").mkdir()
    (tmp_path / "patches" / "pin.toml").write_text((ROOT / "patches" / "pin.toml").read_text())
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PATCHBISECT_HOME", raising=False)
    store = Store(tmp_path / ".patchbisect" / "runs")
    low = {"mem-fraction-static": "0.02"}
    builder.save(
        store,
        builder.record(A, verdict=builder.OOM, flags=low, point="clean"),
        log=builder.case("cpu/03b-patch-good-memlow"),
    )
    builder.save(store, builder.record(B, patches=["0001-kv-probe"]), log=builder.case("cpu/03-patch-good"))
    return tmp_path


@pytest.fixture
def invoke(repository: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """Runs one task of the real program in this process."""

    def run(*words: str) -> Said:
        program = Face(name="patchbisect", binary="patchbisect", version="0", namespace=namespace)
        code = 0
        try:
            program.run(["patchbisect", *words])
        except SystemExit as end:
            code = int(end.code or 0)
        captured = capsys.readouterr()
        return Said(captured.out, captured.err, code)

    return run
