"""Tiers: unmarked tests are fast; ``ci``, ``real``, ``sshd`` run in CI; ``full`` only on request.

Real servers share two cores: ``invoke test`` runs them one after the other, behind all the rest. In CI a skipped test
is a failure, whatever it lacks: it means that nobody looked. Only another Python (``other_python``) may be lacking.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

MOST_REAL_LAUNCHES_IN_CI = 40
_LAUNCHES_FILE = "PATCHBISECT_TEST_LAUNCHES"


def pytest_configure(config: pytest.Config) -> None:
    # A shell's background job is born deaf to SIGINT, and so is every program that a test of Ctrl-C starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if "PYTEST_XDIST_WORKER" not in os.environ and not config.option.collectonly:
        path = Path(config.rootpath) / ".patchbisect" / "real-launches.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
        os.environ[_LAUNCHES_FILE] = str(path)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    if report.skipped and os.environ.get("CI") and not item.get_closest_marker("other_python"):
        report.outcome = "failed"
        report.longrepr = f"skipped in CI: it must run there ({report.longrepr})"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    launches = _launches()
    if launches:
        terminalreporter.section(f"real SGLang launches: {len(launches)}")
        for line in launches:
            terminalreporter.write_line(line)
    if _too_many(config):
        terminalreporter.write_line(f"failed: CI launches {MOST_REAL_LAUNCHES_IN_CI} real servers at most", red=True)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if _too_many(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _too_many(config: pytest.Config) -> bool:
    return "not full" in config.option.markexpr and len(_launches()) > MOST_REAL_LAUNCHES_IN_CI


def _launches() -> list[str]:
    path = os.environ.get(_LAUNCHES_FILE)
    return Path(path).read_text().splitlines() if path and Path(path).exists() else []


@pytest.fixture
def count_launch(request: pytest.FixtureRequest) -> Iterator[object]:
    """Call it with what is launched, once for each real server."""

    def count(what: str) -> None:
        with Path(os.environ[_LAUNCHES_FILE]).open("a") as file:
            file.write(f"{request.node.nodeid}: {what}\n")

    yield count
