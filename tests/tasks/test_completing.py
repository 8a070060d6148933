import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from patchbisect.records import Store
from patchbisect.tasks import namespace
from patchbisect.tasks.completing import values
from tests.report import builder

ROOT = Path(__file__).parents[2]
RUN = "20261129-180000-aaaa"

SETTINGS = """
patchbisect:
  boxes: {local: {embedded: true}, rig: {host: rig.example}}
  profiles: {tiny: {}, kimi-eagle3: {}}
"""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "patches").mkdir()
    (tmp_path / "patches" / "pin.toml").write_text((ROOT / "patches" / "pin.toml").read_text())
    (tmp_path / "patches" / "0007-slug.patch").write_text("")
    (tmp_path / "invoke.yaml").write_text(SETTINGS)
    subprocess.run(["git", "init", "-q", "-b", "trunk", tmp_path], check=True)
    subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "x"],
        cwd=tmp_path,
        check=True,
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PATCHBISECT_HOME", raising=False)
    store = Store(tmp_path / ".patchbisect" / "runs")
    builder.save(store, builder.record(RUN, tags=("baseline",)))
    return tmp_path


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("runs --box", {"local", "rig"}),
        ("runs --box r", {"local", "rig"}),
        ("runs --profile", {"tiny", "kimi-eagle3"}),
        ("runs --outcome o", {"ready", "kv-allocated", "oom", "crash", "hang", "void"}),
        ("show", {"last", "baseline", RUN}),
        ("show 2026", {"last", "baseline", RUN}),
        ("diff-runs last b", {"last", "baseline", RUN}),
        ("plot --run last --run", {"last", "baseline", RUN}),
        ("report --of", {"last", "baseline", RUN}),
        ("launch --point", {"clean", "HEAD", "worktree", "0007", "trunk"}),
        ("bisect --good clean --bad", {"clean", "HEAD", "worktree", "0007", "trunk"}),
    ],
)
def test_values_are_completed(repository: Path, line: str, found: set[str]) -> None:
    assert set(values(line, namespace)) == found


@pytest.mark.parametrize("line", ["", "run", "show --lo", "show last --log", "runs --last", "runs --since 3"])
def test_what_has_no_known_values_is_left_to_invoke_and_the_shell(repository: Path, line: str) -> None:
    assert values(line, namespace) == []


def test_an_open_quote_is_no_accident(repository: Path) -> None:
    assert RUN in values("show '2026", namespace)


def test_outside_of_a_repository_nothing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert values("runs --box", namespace) == []


@pytest.mark.ci
@pytest.mark.skipif(not shutil.which("bash"), reason="no bash")
@pytest.mark.parametrize(
    ("words", "replies"),
    [
        ("runs --box r", ["rig"]),
        ("sho", ["show"]),
        ("show base", ["baseline"]),
        ("runs --outc", ["--outcome"]),
    ],
)
def test_a_real_shell_completes(repository: Path, words: str, replies: list[str]) -> None:
    program = Path(sys.executable).with_name("patchbisect")
    script = f"""
        patchbisect() {{ {program} "$@"; }}
        eval "$(patchbisect --print-completion-script bash)"
        COMP_WORDS=(patchbisect {words})
        _complete_patchbisect patchbisect {words.split()[-1]}
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == replies
