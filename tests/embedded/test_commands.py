from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from patchbisect.embedded.commands import clean_environment, run

SLOW = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"


def call(script: str, **more: object) -> tuple[int, str, list[str]]:
    lines: list[str] = []
    done = run([sys.executable, "-c", script], env=clean_environment(), on_line=lines.append, keep_open=())
    return done.exit_code, done.output, lines


def test_both_streams_line_by_line_and_the_exit_code() -> None:
    script = "import sys; print('a', flush=True); print('b', file=sys.stderr); sys.exit(3)"
    assert call(script) == (3, "a\nb\n", ["a", "b"])


def test_output_that_is_no_utf8_is_survived() -> None:
    assert call("import os; os.write(1, b'\\xff\\n')")[1] == "\ufffd\n"


def test_an_interruption_ends_the_child() -> None:
    pids: list[int] = []

    def interrupt(line: str) -> None:
        pids.append(int(line))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run([sys.executable, "-c", SLOW], env=clean_environment(), on_line=interrupt, keep_open=())
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


def test_the_child_holds_what_is_kept_open(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    try:
        script = f"import os; print(os.path.samefile({descriptor}, {str(tmp_path)!r}))"
        command = [sys.executable, "-c", script]
        assert run(command, env=clean_environment(), on_line=len, keep_open=(descriptor,)).output == "True\n"
        assert run(command, env=clean_environment(), on_line=len, keep_open=()).exit_code != 0
    finally:
        os.close(descriptor)


def test_pip_and_python_are_not_sent_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PIP_TARGET", "PIP_USER", "VIRTUAL_ENV"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "/wheels")
    kept = clean_environment()
    assert not {"PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PIP_TARGET", "PIP_USER", "VIRTUAL_ENV"} & set(kept)
    assert kept["PIP_FIND_LINKS"] == "/wheels"
