"""Which heavy modules each task may import: what a task does not need must not slow it down."""

import subprocess
import sys
from pathlib import Path

import pytest

from patchbisect.journal import Journal
from patchbisect.records import Store
from tests.report import builder

pytestmark = pytest.mark.ci

HEAVY = ("git", "jinja2", "matplotlib", "numpy", "paramiko", "pydantic", "rich", "unidiff", "whatthepatch", "yaml")

# The settings are pydantic models read with yaml, and their errors name the nearest word: every task needs those.
SETTINGS = {"pydantic", "yaml"}

ALLOWED = {
    "--list": SETTINGS,
    "--help runs": SETTINGS,
    "runs": SETTINGS | {"rich"},
    "runs --json": SETTINGS,
    "show last": SETTINGS | {"rich"},
    "show last --json": SETTINGS,
    "show last --log": SETTINGS,
    "tag last x": SETTINGS,
    "gc --dry-run": SETTINGS,
    "export-run last": SETTINGS,
    "diff-runs last last": SETTINGS | {"rich"},
    "diff-runs last last --json": SETTINGS | {"rich"},
    "report --of last": SETTINGS | {"rich"},
    "report --of last --markdown": SETTINGS | {"rich"},
    "report --of last --html x.html": SETTINGS | {"rich", "jinja2"},
    "plot --run last -o x.svg": SETTINGS | {"rich", "matplotlib", "numpy"},
    "watch": SETTINGS | {"rich"},
}

PROGRAM = """
import sys
from patchbisect.program import main
try:
    main()
except SystemExit:
    pass
heavy = {name.partition(".")[0] for name in sys.modules} & set(HEAVY)
print("\\n" + "HEAVY " + " ".join(sorted(heavy)))
"""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("repository")
    (root / "patches").mkdir()
    pin = Path(__file__).parents[2] / "patches" / "pin.toml"
    (root / "patches" / "pin.toml").write_text(pin.read_text())
    store = Store(root / ".patchbisect" / "runs")
    finding = builder.bisection(store)
    Journal.create(root / ".patchbisect" / "bisections", finding["id"]).append("answer", finding=finding)
    return root


@pytest.mark.parametrize("words", ALLOWED)
def test_a_task_imports_no_heavy_module_that_it_does_not_need(repository: Path, words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"HEAVY = {HEAVY!r}\n{PROGRAM}", *words.split()],
        cwd=repository,
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stdout.rpartition("HEAVY ")[2].split())
    assert loaded <= ALLOWED[words]
