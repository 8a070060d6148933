"""The main job on whole command lines, with the fake server in SGLang's place."""

from __future__ import annotations

import gzip
import json
import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from tests.fake_project import GOOD, MUTE, OOM, PROGRAM, FakeProject, clean_environment, fake_project

pytestmark = pytest.mark.ci


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> FakeProject:
    return fake_project(tmp_path_factory.mktemp("main-job"))


@pytest.fixture(scope="module")
def found(project: FakeProject) -> dict[str, object]:
    document: dict[str, object] = project.json("bisect", "--good", "clean", "--bad", "HEAD")
    return document


def test_bisect_names_the_guilty_patch_and_proves_it(found: dict[str, object]) -> None:
    assert found["answer"] == "found"
    assert found["culprit"] == {"position": 4, "kind": "queue", "id": "note-4", "title": found["culprit"]["title"]}  # type: ignore[index]
    assert {key: step["status"] for key, step in found["proof"].items()} == {  # type: ignore[attr-defined]
        "culprit_bad": "confirmed",
        "parent_good": "confirmed",
        "without_culprit_good": "confirmed",
        "alone_bad": "confirmed",
    }
    assert found["launches"] <= 7  # type: ignore[operator]


def test_every_trial_is_a_record_that_says_what_ran(project: FakeProject, found: dict[str, object]) -> None:
    for trial in found["trials"]:  # type: ignore[attr-defined]
        record = project.json("show", "--run", trial["run"])
        assert record["provenance"]["tree"] == record["code"]["tree"]
        assert record["verdict"]["outcome"] == trial["verdict"]["outcome"]
        assert "sglang.launch_server" in record["by_hand"]


def test_the_culprit_can_be_launched_again_from_its_record(project: FakeProject, found: dict[str, object]) -> None:
    for who, code in (("culprit", 1), ("parent", 0)):
        words = found["reproduce"][who]["task"].split()  # type: ignore[index]
        assert words[0] == "invoke"
        assert project.run(*words[1:]).returncode == code


def test_launch_says_what_came_of_it_and_exits_accordingly(project: FakeProject) -> None:
    good, bad = project.run("launch", "--point", "clean"), project.run("launch", "--point", "HEAD")
    assert (good.returncode, bad.returncode) == (0, 1)
    assert "verdict  ready" in good.stdout
    assert "oom" in bad.stdout
    assert "Not enough memory" in bad.stdout
    assert "Traceback" not in bad.stderr


def test_a_kept_server_stays_is_named_to_the_next_launch_and_can_be_stopped(project: FakeProject) -> None:
    kept = project.json("launch", "--point", "clean", "--keep")
    assert kept["outcome"] == "ready"
    runs = project.root / ".patchbisect" / "box" / "runs"
    assert processes_in(runs)
    refused = project.run("launch", "--point", "clean", "--port", _port_of(kept["run"], project))
    assert refused.returncode == 3
    assert kept["run"] in refused.stdout
    assert kept["run"] in project.run("stop").stdout, "although another run is the last"
    assert processes_in(runs) == []
    assert project.run("stop", "--run", kept["run"]).returncode == 1


def test_a_reader_that_goes_away_leaves_no_server_and_no_success(project: FakeProject) -> None:
    line = f"{PROGRAM} bisect --good clean --bad HEAD --fresh 2>&1 | head -3 > {os.devnull}; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], cwd=project.root, env=clean_environment(), check=False)
    assert done.returncode == 128 + signal.SIGPIPE
    assert processes_in(project.root / ".patchbisect" / "box" / "runs") == []


def _port_of(run: str, project: FakeProject) -> str:
    command = project.json("show", "--run", run)["command"]
    return str(command[command.index("--port") + 1])


def test_a_port_that_is_taken_is_the_boxs_fault_and_no_verdict(project: FakeProject) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = project.run("launch", "--point", "clean", "--port", str(taken.getsockname()[1]), "--json")
    document = json.loads(done.stdout)
    assert done.returncode == 3
    assert (document["outcome"], document["persistence"]) == ("void", "transient")
    assert f"is held by pid {os.getpid()}" in document["why"]


def test_without_a_guilty_change_the_bad_end_is_refused(tmp_path: Path) -> None:
    innocent = fake_project(tmp_path, guilty=0, patches=3)
    document = innocent.json("bisect", "--good", "clean", "--bad", "HEAD")
    assert document["answer"] == "endpoint-failed"
    assert "the bad end does not fail: 4 of 4 launches" in document["reason"]


def test_a_baseline_that_fails_is_refused_with_the_reason(tmp_path: Path) -> None:
    broken = fake_project(tmp_path, guilty=2, patches=3, base=OOM)
    done = broken.run("bisect", "--good", "clean", "--bad", "HEAD", "--json")
    document = json.loads(done.stdout)
    assert done.returncode == 1
    assert document["answer"] == "endpoint-failed"
    assert "the baseline itself fails, the change is not in this range" in document["reason"]
    assert sum(trial["purpose"].startswith("good end") for trial in document["trials"]) == 4


@pytest.mark.parametrize(
    ("point", "target", "code"), [("clean", "", 0), ("HEAD", "", 1), ("nope", "", 129), ("HEAD", "hang/-/-/-/-/-", 125)]
)
def test_trial_speaks_the_language_of_git_bisect_run(project: FakeProject, point: str, target: str, code: int) -> None:
    words = ["--target", target] if target else []
    assert project.run("trial", point, *words).returncode == code


def test_git_bisect_run_finds_the_same_upstream_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PATCHBISECT_HOME", raising=False)
    project = fake_project(tmp_path, guilty=0, patches=1)
    upstream = project.upstream
    commits = [upstream.commit(GOOD if k < 3 else OOM, files={"step.py": f"{k}\n"}) for k in range(5)]
    upstream.git("bisect", "start", commits[-1], commits[0])
    script = tmp_path / "script"
    script.write_text(
        f'#!/bin/sh\nrev=$(git rev-parse HEAD)\ncd {project.root}\nexec {PROGRAM} trial "upstream:$rev"\n'
    )
    script.chmod(0o755)
    said = upstream.git("bisect", "run", str(script))
    assert f"{commits[3]} is the first bad commit" in said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_leaves_no_server_and_goes_on_where_it_was(tmp_path: Path, number: signal.Signals) -> None:
    slow = fake_project(tmp_path, guilty=3, patches=4, base=(*GOOD, "--pace", "0.01"))
    words = [str(PROGRAM), "bisect", "--good", "clean", "--bad", "HEAD"]
    with subprocess.Popen(words, cwd=slow.root, env=clean_environment(), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "kv-alloc" in line:
                process.send_signal(number)
                break
        said = process.stderr.read()
    assert process.returncode == 130
    assert "Traceback" not in said
    (journal,) = (slow.root / ".patchbisect" / "bisections").iterdir()
    assert said.splitlines()[-1].endswith(f"go on with invoke bisect --resume --of {journal.name}")
    assert processes_in(slow.root / ".patchbisect" / "box" / "runs") == []
    before = {run["id"] for run in slow.json("runs")["runs"]} if slow.run("runs").returncode == 0 else set()
    document = json.loads(slow.run("bisect", "--resume", "--json").stdout)
    assert document["answer"] == "found"
    assert document["culprit"]["id"] == "note-3"
    assert before <= {trial["run"] for trial in document["trials"]}


def processes_in(directory: Path) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if str((entry / "cwd").readlink()).startswith(str(directory)):
                    found.append(entry.name)
            except OSError:
                continue
    return found


def test_a_server_that_prints_nothing_is_a_hang_and_is_gone_afterwards(tmp_path: Path) -> None:
    mute = fake_project(tmp_path, guilty=1, patches=1, bad=MUTE)
    (mute.root / "invoke.yaml").write_text(
        (mute.root / "invoke.yaml").read_text() + "  silence: {import: 1.0}\n", encoding="utf-8"
    )
    document = mute.json("launch", "--point", "HEAD")
    assert document["outcome"] == "hang"
    assert processes_in(mute.root / ".patchbisect" / "box" / "runs") == []


def test_a_secret_decides_a_start_as_much_as_any_variable(tmp_path: Path) -> None:
    """Two points that differ only in a token are two points: else an innocent variable beside it would be blamed."""
    project = fake_project(tmp_path, guilty=0, patches=1)
    contents = {
        project.json("show", "--run", project.json("launch", "--point", "clean", *words)["run"])["content_id"]
        for words in ((), ("--set", "env:HF_TOKEN=hf_one-of-them"), ("--set", "env:HF_TOKEN=hf_the-other"))
    }
    assert len(contents) == 3


def test_a_hang_leaves_a_dossier_beside_its_record(tmp_path: Path) -> None:
    mute = fake_project(tmp_path, guilty=1, patches=1, bad=MUTE)
    with (mute.root / "invoke.yaml").open("a") as settings:
        settings.write("  silence: {import: 1.0}\n")
    run = mute.json("launch", "--point", "HEAD")["run"]
    dossier = json.loads((mute.root / ".patchbisect" / "runs" / run / "dossier.json").read_text())
    assert dossier["processes"]


def test_no_secret_reaches_anything_that_is_kept(tmp_path: Path) -> None:
    telling = fake_project(tmp_path, guilty=2, patches=2, base=("--show-env", "HF_TOKEN", *GOOD))
    secret = ("hf_never-to-be-seen", "sk-never-to-be-seen")
    words = ("--set", f"env:HF_TOKEN={secret[0]}", "--set", f"flag:api-key={secret[1]}")
    launched = telling.run("launch", "--point", "clean", *words)
    found = telling.run("bisect", "--good", "clean", "--bad", "HEAD", *words, "--json")
    assert json.loads(found.stdout)["answer"] == "found", found.stderr
    assert "HF_TOKEN" in telling.run("bisect", "--resume").stderr
    exported = {"HF_TOKEN": secret[0], "API_KEY": secret[1]}
    assert telling.run("bisect", "--resume", env=exported).returncode == 0
    report = tmp_path / "page.html"
    telling.run("report", "--html", str(report))
    shown = [launched.stdout, launched.stderr, found.stdout, found.stderr, telling.run("runs", "--json").stdout]
    shown += [telling.run("show", "--run", "last", "--json").stdout]
    for text in shown:
        assert "never-to-be-seen" not in text
    for path in (telling.root / ".patchbisect").rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            if path.suffix == ".gz":
                data = gzip.decompress(data)
            kept_on_the_box = path.name == "log"
            assert kept_on_the_box or b"never-to-be-seen" not in data, path
