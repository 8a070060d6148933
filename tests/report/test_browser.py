"""The page in a real browser: nothing is refused or fails, pictures have a size, and no script of a log runs."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from patchbisect.records import Store
from patchbisect.report import html, page
from tests.report import builder
from tests.report.test_html import hostile

pytestmark = [
    pytest.mark.ci,
    pytest.mark.skipif(not (shutil.which("chromium") or shutil.which("google-chrome")), reason="no Chromium here"),
]

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
)  # fmt: skip


class Seen:
    """The page as the browser had it in the end, and what it wrote on its console."""

    def __init__(self, path: Path, scratch: Path, *more: str) -> None:
        browser = shutil.which("chromium") or shutil.which("google-chrome") or ""
        command = [browser, *FLAGS, f"--user-data-dir={scratch}", "--enable-logging=stderr", "--v=0", *more]
        done = subprocess.run([*command, path.as_uri()], capture_output=True, text=True, check=True, timeout=120)
        self.dom = done.stdout
        self.console = re.findall(r"CONSOLE[^\n]*", done.stderr)

    @property
    def title(self) -> str:
        found = re.search(r"<title>(.*?)</title>", self.dom)
        return found[1] if found else ""


@pytest.fixture
def finding(store: Store) -> dict[str, Any]:
    return builder.bisection(store)


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "page.html"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_page_loads_without_a_complaint(finding: dict[str, Any], store: Store, tmp_path: Path) -> None:
    path = written(tmp_path, html.rendered(page.of_finding(finding, store)))
    seen = Seen(path, tmp_path / "profile", "--dump-dom")
    assert seen.console == []
    assert seen.title == "Bisection 20261129-190000-b15e: Culprit found"
    assert seen.dom.count("<svg") == path.read_text().count("<svg")


def test_no_script_of_a_log_or_patch_runs(finding: dict[str, Any], store: Store, tmp_path: Path) -> None:
    text = html.rendered(page.of_finding(hostile(finding, store), store))
    seen = Seen(written(tmp_path, text), tmp_path / "profile", "--dump-dom")
    assert "owned" not in seen.title
    assert seen.console == []


def test_a_script_that_got_into_the_page_all_the_same_would_not_run(
    finding: dict[str, Any], store: Store, tmp_path: Path
) -> None:
    attack = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
    text = html.rendered(page.of_finding(finding, store)).replace('<main id="main">', f'<main id="main">{attack}')
    seen = Seen(written(tmp_path, text), tmp_path / "profile", "--dump-dom")
    assert "<script>" in seen.dom
    assert seen.title.endswith("Culprit found")
    assert any("Content Security Policy" in line for line in seen.console)


@pytest.mark.parametrize("width", [1280, 500])
def test_it_is_drawn_in_full_at_every_width(finding: dict[str, Any], store: Store, tmp_path: Path, width: int) -> None:
    path = written(tmp_path, html.rendered(page.of_finding(finding, store)))
    picture = tmp_path / "page.png"
    Seen(path, tmp_path / "profile", f"--window-size={width},1600", f"--screenshot={picture}")
    header = picture.read_bytes()[:24]
    assert header.startswith(b"\x89PNG")
    assert int.from_bytes(header[16:20], "big") == width
    # A page that stayed blank compresses to a few kilobytes.
    assert picture.stat().st_size > 40_000
