"""The commands of the page about records, one after the other, as a reader would type them."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

from patchbisect.journal import Journal
from patchbisect.records import Store
from tests.report import builder
from tests.tasks.conftest import ROOT, Said


def commands(page: Path) -> list[list[str]]:
    lines = re.findall(r"^ {4}invoke (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return [shlex.split(line, comments=True) for line in lines]


def test_every_command_of_the_page_works(invoke: Callable[..., Said], repository: Path) -> None:
    store = Store(repository / ".patchbisect" / "runs")
    finding = builder.bisection(store)
    Journal.create(repository / ".patchbisect" / "bisections", finding["id"]).append("answer", finding=finding)
    (repository / "server.log").write_bytes(builder.case("cpu/04-unbound"))
    page = commands(ROOT / "docs" / "records.md")
    assert len(page) > 10
    for words in page:
        said = invoke(*words)
        assert said.code == 0, f"invoke {shlex.join(words)}: {said.err}"
    assert {path.name for path in repository.iterdir()} >= {"report.html", "memory.png", "run.zip"}
