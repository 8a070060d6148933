"""A bisection through a Dask cluster: a real scheduler and real workers, each a process, with the fake server."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from patchbisect.journal import newest
from tests.box.lab import none_left
from tests.fake_project import GOOD, OOM, PROGRAM, FakeProject, clean_environment, fake_project, with_boxes

pytestmark = pytest.mark.ci

SLOW = ("--pace", "0.01")
HOST = socket.gethostname()
TOKEN = "hf_0123456789abcdef"


@contextmanager
def running(words: list[str], *, log: Path, cwd: Path, env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("ab") as file:
        process = subprocess.Popen(words, cwd=cwd, env=env, stdout=file, stderr=file)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def wait_until(reached: Callable[[], object], alive: subprocess.Popen[bytes], log: Path) -> None:
    while not reached():
        assert alive.poll() is None, log.read_text()
        time.sleep(0.01)


class Cluster:
    """A scheduler, and workers beside the boxes of one queue repository."""

    def __init__(self, project: FakeProject, stack: ExitStack) -> None:
        self.project = project
        self.folder = project.root.parent
        self._stack = stack
        known = self.folder / "scheduler.json"
        dask = Path(sys.executable).with_name("dask")
        words = [str(dask), "scheduler", "--host", "127.0.0.1", "--port", "0", "--dashboard-address", "127.0.0.1:0"]
        self.log = self.folder / "scheduler.log"
        self.scheduler = self._start([*words, "--scheduler-file", str(known)], self.log)
        wait_until(lambda: known.exists() and known.read_text().endswith("}"), self.scheduler, self.log)
        self.address: str = json.loads(known.read_text())["address"]

    def worker(self, box: str, **env: str) -> subprocess.Popen[bytes]:
        log = self.log_of(box)
        log.unlink(missing_ok=True)
        words = [str(PROGRAM), "box.worker", "--scheduler", self.address, "--box", box]
        worker = self._start(words, log, **env)
        wait_until(lambda: "waits for trials" in log.read_text(), worker, log)
        return worker

    def log_of(self, box: str) -> Path:
        return self.folder / f"worker-{box}.log"

    def bisecting(self, *words: str) -> subprocess.Popen[str]:
        command = [str(PROGRAM), "bisect", "--plain", "--json", *words]
        piped = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(command, cwd=self.project.root, env=self._env(), **piped)  # type: ignore[call-overload,no-any-return]

    def bisect(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.project.run("bisect", *self.through, *words, "--json", env={"HF_TOKEN": TOKEN})

    @property
    def through(self) -> tuple[str, ...]:
        return ("--engine", "dask", "--scheduler", self.address, "--fresh")

    def _start(self, words: list[str], log: Path, **env: str) -> subprocess.Popen[bytes]:
        started = running(words, log=log, cwd=self.project.root, env={**self._env(), **env})
        return self._stack.enter_context(started)

    def _env(self) -> dict[str, str]:
        return {**clean_environment(), "HF_TOKEN": TOKEN}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = fake_project(tmp_path, guilty=4, patches=6, base=(*GOOD, *SLOW), bad=(*OOM, *SLOW))
    with ExitStack() as stack:
        yield Cluster(with_boxes(made, "a", "b"), stack)
    for box in ("a", "b"):
        assert none_left(tmp_path / f"box-{box}")


def until_said(process: subprocess.Popen[str], *, words: str) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        if words in line:
            return
    raise AssertionError(f"never said {words!r}")


def places(found: dict[str, Any]) -> set[str]:
    return {trial["box"] for trial in found["trials"]}


def test_the_culprit_is_found_on_both_boxes_and_no_secret_goes_there(cluster: Cluster) -> None:
    with_profile_env(cluster.project, HF_TOKEN="***")
    workers = [cluster.worker(box) for box in ("a", "b")]
    done = cluster.bisect("--set", "env:HF_TOKEN=***")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["culprit"]["id"] == "note-4"
    assert {step["status"] for step in found["proof"].values()} == {"confirmed"}
    assert places(found) == {f"a@{HOST}", f"b@{HOST}"}
    for worker in workers:
        worker.send_signal(signal.SIGINT)
        assert worker.wait(30) == 0
    told = "".join(path.read_text() for path in cluster.folder.glob("*.log")) + done.stdout + done.stderr
    kept = b"".join(path.read_bytes() for path in (cluster.project.root / ".patchbisect").rglob("*.json*"))
    assert TOKEN not in told
    assert TOKEN.encode() not in kept
    shown = json.loads(cluster.project.run("show", found["trials"][0]["run"], "--json").stdout)
    assert "HF_TOKEN" in json.dumps(shown), "the server had it"


def test_a_scheduler_that_goes_away_is_said_in_one_line_with_the_way_on(cluster: Cluster) -> None:
    worker = cluster.worker("a")
    bisecting = cluster.bisecting(*cluster.through)
    until_said(bisecting, words="launching on port")
    cluster.scheduler.kill()
    _, said = bisecting.communicate(timeout=120)
    assert bisecting.returncode == 3
    assert "Traceback" not in said
    assert "then invoke bisect --resume --of" in said
    assert worker.wait(60) == 3
    assert none_left(cluster.folder / "box-a")


def test_a_worker_that_comes_on_the_way_takes_part_if_it_runs_the_same(tmp_path: Path) -> None:
    slower = ("--pace", "0.05")
    made = fake_project(tmp_path, guilty=4, patches=6, base=(*GOOD, *slower), bad=(*OOM, *slower))
    with ExitStack() as stack:
        late = Cluster(with_boxes(made, "a", "b", "c"), stack)
        late.worker("a")
        bisecting = late.bisecting(*late.through)
        until_said(bisecting, words="launching on port")
        settings = late.project.root / "invoke.yaml"
        before = settings.read_text()
        settings.write_text(before.replace("min-free-gb", "env: {NCCL_P2P_LEVEL: PHB}\n      min-free-gb"))
        late.worker("c")
        settings.write_text(before)
        until_said(bisecting, words="NCCL_P2P_LEVEL is 'PHB', not None; it takes no part")
        late.worker("b")
        until_said(bisecting, words=f"box b@{HOST} has come and takes part from now on")
        found = json.loads(bisecting.communicate(timeout=240)[0])
    assert found["culprit"]["id"] == "note-4"
    assert {step["status"] for step in found["proof"].values()} == {"confirmed"}
    assert places(found) == {f"a@{HOST}", f"b@{HOST}"}
    assert json.loads(late.project.run("bisect.replay", "--json").stdout)["culprit"] == found["culprit"]


def with_profile_env(project: FakeProject, **env: str) -> None:
    path = project.root / "invoke.yaml"
    document = yaml.safe_load(path.read_text())
    document["patchbisect"]["profiles"]["fake"]["env"] = {k: v for k, v in env.items() if v != "***"}
    path.write_text(yaml.safe_dump(document))


def test_a_worker_that_is_killed_loses_its_trial_only(cluster: Cluster) -> None:
    cluster.worker("a")
    doomed = cluster.worker("b")
    bisecting = cluster.bisecting(*cluster.through)
    until_said(bisecting, words="trial_1: launching")
    doomed.kill()
    doomed.wait()
    out, said = bisecting.communicate(timeout=120)
    found = json.loads(out)
    assert found["culprit"]["id"] == "note-4"
    assert f"box b@{HOST} is left out from now on: worker b@{HOST}: it is gone" in said
    assert {trial["observation"] for trial in found["trials"]} == {"good", "bad"}
    # Its server is ended by whoever uses that box next.
    cluster.worker("b")
    again = cluster.bisect("--boxes", f"b@{HOST}")
    assert again.returncode == 0, again.stderr


def test_a_bisection_that_is_killed_and_resumed_has_lost_nothing(cluster: Cluster) -> None:
    for box in ("a", "b"):
        cluster.worker(box)
    bisecting = cluster.bisecting(*cluster.through)
    until_said(bisecting, words="trial_1: launching")
    bisecting.kill()
    bisecting.communicate()
    found = json.loads(cluster.project.run("bisect", "--resume", "--json").stdout)
    assert found["culprit"]["id"] == "note-4"
    journal = newest(cluster.project.root / ".patchbisect" / "bisections")
    assert journal is not None
    intended, tried = (
        sorted(entry.data["record"] for entry in journal.entries() if entry.event == event)
        for event in ("intent", "trial")
    )
    assert intended == tried


@pytest.mark.parametrize("times", [1, 2])
def test_an_interruption_ends_the_servers_on_both_boxes(cluster: Cluster, times: int) -> None:
    for box in ("a", "b"):
        cluster.worker(box)
    bisecting = cluster.bisecting(*cluster.through)
    until_said(bisecting, words="trial_1: launching")
    for _ in range(times):
        bisecting.send_signal(signal.SIGINT)
    _, said = bisecting.communicate(timeout=60)
    assert bisecting.returncode == 130
    assert "Traceback" not in said
    assert "interrupted" in said


def test_a_worker_that_is_stopped_ends_its_trial_and_another_makes_it(cluster: Cluster) -> None:
    cluster.worker("a")
    leaving = cluster.worker("b")
    bisecting = cluster.bisecting(*cluster.through)
    until_said(bisecting, words="trial_1: launching")
    leaving.terminate()
    assert leaving.wait(60) == 0
    assert none_left(cluster.folder / "box-b")
    out, said = bisecting.communicate(timeout=120)
    assert bisecting.returncode == 0, said
    assert json.loads(out)["culprit"]["id"] == "note-4"


def test_a_worker_that_would_run_something_else_is_refused(cluster: Cluster) -> None:
    worker = cluster.worker("a", HF_TOKEN="hf_another_secret_value")
    refused = cluster.bisect("--set", "env:HF_TOKEN=***")
    assert refused.returncode == 2
    assert "it would run something else than the bisection asks for: a secret has another value there" in refused.stderr
    worker.terminate()
    worker.wait()
    with_boxes(cluster.project, "a", "b")
    settings = cluster.project.root / "invoke.yaml"
    before = settings.read_text()
    settings.write_text(before.replace("min-free-gb", "env: {NCCL_P2P_LEVEL: PHB}\n      min-free-gb"))
    cluster.worker("a")
    settings.write_text(before)
    refused = cluster.bisect()
    assert refused.returncode == 2
    assert "NCCL_P2P_LEVEL is 'PHB', not None" in refused.stderr


def test_a_cluster_without_what_is_needed_is_said_in_one_line(cluster: Cluster) -> None:
    nobody = cluster.bisect()
    assert (nobody.returncode, "no worker with a box" in nobody.stderr) == (2, True)
    cluster.worker("a")
    unknown = cluster.bisect("--boxes", "rig@nowhere")
    assert (unknown.returncode, f"known: a@{HOST}" in unknown.stderr) == (2, True)
    second = cluster.project.run("box.worker", "--scheduler", cluster.address, "--box", "a")
    assert (second.returncode, "name taken" in second.stderr) == (2, True)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--scheduler", "tcp://127.0.0.1:1"), 3, "no Dask scheduler answers at tcp://127.0.0.1:1"),
        (("--scheduler", "nonsense"), 2, "--scheduler nonsense: "),
        (("--scheduler", "tls://127.0.0.1:1"), 2, "tls:// needs Dask's own TLS settings"),
        ((), 2, "--engine dask needs a scheduler"),
    ],
)
def test_an_address_where_no_scheduler_is(project: FakeProject, words: tuple[str, ...], code: int, said: str) -> None:
    done = project.run("bisect", "--engine", "dask", *words)
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr
    assert "Traceback" not in done.stderr


def test_without_dask_the_command_that_installs_it_is_named(project: FakeProject, tmp_path: Path) -> None:
    (tmp_path / "distributed.py").write_text("raise ModuleNotFoundError(name='distributed')\n")
    done = project.run(
        *("bisect", "--engine", "dask", "--scheduler", "tcp://127.0.0.1:1"), env={"PYTHONPATH": str(tmp_path)}
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-2:] == [
        "error: the package distributed is not installed here, and Dask needs it",
        "  pip install 'patchbisect[dask]'",
    ]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> FakeProject:
    return fake_project(tmp_path_factory.mktemp("cluster"))
