"""The job that posts the review: its steps as they are written, by GitHub's own client, to an API on loopback."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.maintain.conftest import ROOT

pytestmark = [
    pytest.mark.ci,
    pytest.mark.skipif(shutil.which("gh") is None, reason="gh is not installed: .ci/run does it"),
]

WORKFLOWS = [ROOT / ".github/workflows/queue.yml", ROOT / "bisect/patchbisect/maintain/started/queue.yml"]
MARK = "<!-- review of the patch queue -->\n"
PAGE = 100
"""Comments to a page, as GitHub gives them."""


class Api(ThreadingHTTPServer):
    """GitHub's comments of one pull request, and every request that was made. ``gh`` reaches it as its proxy."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.comments: list[dict[str, Any]] = []
        self.requests: list[tuple[str, str, str]] = []

    def comment(self, body: str, *, login: str = "github-actions[bot]") -> int:
        identifier = 1000 + len(self.comments)
        self.comments.append({"id": identifier, "user": {"login": login}, "body": body})
        return identifier

    @property
    def bodies(self) -> list[str]:
        return [comment["body"] for comment in self.comments]

    @property
    def environment(self) -> dict[str, str]:
        proxy = f"http://127.0.0.1:{self.server_port}"
        return {"GH_HOST": "github.localhost", "HTTP_PROXY": proxy, "http_proxy": proxy}


class _Handler(BaseHTTPRequestHandler):
    server: Api

    def do_GET(self) -> None:
        self._note()
        number = int((re.search(r"[?&]page=(\d+)", self.path) or ["", "1"])[1])
        shown = self.server.comments[(number - 1) * PAGE : number * PAGE]
        more = len(self.server.comments) > number * PAGE
        url = f"{self.path.partition('?')[0]}?per_page={PAGE}&page={number + 1}"
        self._answer(200, shown, link=f'<{url}>; rel="next"' if more else "")

    def do_POST(self) -> None:
        self._note()
        self.server.comment(self._body())
        self._answer(201, {})

    def do_PATCH(self) -> None:
        self._note()
        identifier = int(self.path.rpartition("/")[2])
        [comment] = [comment for comment in self.server.comments if comment["id"] == identifier]
        comment["body"] = self._body()
        self._answer(200, {})

    def _note(self) -> None:
        path = self.path.partition("?")[0].removeprefix("http://api.github.localhost")
        self.server.requests.append((self.command, path, self.headers.get("Authorization", "")))

    def _body(self) -> str:
        content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert set(content) == {"body"}
        return str(content["body"])

    def _answer(self, status: int, document: Any, *, link: str = "") -> None:
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if link:
            self.send_header("Link", link)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def api() -> Iterator[Api]:
    with Api() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def post(api: Api, folder: Path, review: str | None, *, workflow: Path = WORKFLOWS[0]) -> str:
    """Run the job's shell steps where the artifact was put down; gives what they printed."""
    folder.mkdir(exist_ok=True)
    if review is not None:
        (folder / "review.md").write_text(review, encoding="utf-8")
    told = {"github.token": "the-token", "github.repository": "ada/queue", "github.event.pull_request.number": "7"}
    [step] = [s for s in yaml.safe_load(workflow.read_text())["jobs"]["comment"]["steps"] if "run" in s]
    given = {name: told[value.strip("${} ")] for name, value in step["env"].items()}
    env = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "GH_"))},
        **{"GH_CONFIG_DIR": str(folder / "config"), **api.environment, **given},
    }
    # What GitHub runs a step with that names no shell.
    (folder / "step.sh").write_text(step["run"])
    shell = ["bash", "-e", "step.sh"]
    done = subprocess.run(shell, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=["ours", "started"])
def test_the_review_is_posted_once_and_then_written_over(api: Api, tmp_path: Path, workflow: Path) -> None:
    post(api, tmp_path / "one", "first\n", workflow=workflow)
    assert api.bodies == [f"{MARK}first\n"]
    assert api.requests[-1] == ("POST", "/repos/ada/queue/issues/7/comments", "token the-token")
    post(api, tmp_path / "two", "second\n", workflow=workflow)
    assert api.bodies == [f"{MARK}second\n"]
    assert api.requests[-1][:2] == ("PATCH", "/repos/ada/queue/issues/comments/1000")


def test_only_its_own_comment_is_written_over(api: Api, tmp_path: Path) -> None:
    api.comment("another workflow's comment")
    api.comment(f"{MARK}quoted by a person", login="ada")
    for number in range(2 * PAGE):
        api.comment(f"talk {number}", login="bob")
    own = api.comment(f"{MARK}the review before")
    before = api.bodies[:-1]
    post(api, tmp_path / "job", "now\n")
    assert api.requests[-1][:2] == ("PATCH", f"/repos/ada/queue/issues/comments/{own}")
    assert api.bodies == [*before, f"{MARK}now\n"]


def test_what_a_patch_says_is_posted_as_it_is_and_run_by_nobody(api: Api, tmp_path: Path) -> None:
    hostile = "`touch pwned` $(touch pwned) ${{ github.token }} @everyone '\"; touch pwned; #\n@review.md\n\x7f\u202e\n"
    post(api, tmp_path / "job", hostile)
    assert api.bodies == [MARK + hostile]
    assert not (tmp_path / "job" / "pwned").exists()


@pytest.mark.parametrize("review", ["", None], ids=["empty", "missing"])
def test_no_review_is_no_comment(api: Api, tmp_path: Path, review: str | None) -> None:
    assert "no review was written" in post(api, tmp_path / "job", review)
    assert api.requests == []


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=["ours", "started"])
def test_the_job_is_for_branches_of_this_repository_only(workflow: Path) -> None:
    """A fork's pull request, one whose fork was deleted, and a run that was cancelled: nothing is posted."""
    condition = yaml.safe_load(workflow.read_text())["jobs"]["comment"]["if"]
    assert _holds(condition, head="ada/queue")
    assert not _holds(condition, head="eve/queue")
    assert not _holds(condition, head="")
    assert not _holds(condition, head="ada/queue", cancelled=True)


def _holds(condition: str, *, head: str, cancelled: bool = False) -> bool:
    """A condition of `!cancelled()` and equalities, joined by `&&`, as GitHub evaluates it."""
    told = {"github.event.pull_request.head.repo.full_name": head, "github.repository": "ada/queue"}
    terms = condition.removeprefix("${{").removesuffix("}}").strip().split(" && ")
    assert len(terms) == 2
    results = []
    for term in terms:
        left, equals, right = term.partition(" == ")
        results.append(told[left] == told[right] if equals else {"!cancelled()": not cancelled}[term])
    return all(results)
