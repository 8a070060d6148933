"""How the console script and plain invoke end, and that the standard library stays what it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fake_project import FakeProject, clean_environment, fake_project

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent


def run(*words: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, cwd=cwd, env=clean_environment(), capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> FakeProject:
    return fake_project(tmp_path_factory.mktemp("program"), patches=3, guilty=2)


WHERE = "import bisect, queue; print(bisect.__file__, queue.__file__)"


def test_bisect_and_queue_are_the_standard_librarys_from_the_repository_root() -> None:
    said = run(sys.executable, "-c", WHERE).stdout
    assert str(ROOT) not in said.replace(str(BIN.parent), "")
    assert said.split()[0].endswith("/bisect.py")
    assert said.split()[1].endswith("/queue.py")


def test_bisect_and_queue_are_the_standard_librarys_in_pytest() -> None:
    import bisect
    import queue

    assert bisect.insort
    assert queue.Queue
    assert not str(bisect.__file__).startswith(str(ROOT / "bisect"))


def test_bisect_and_queue_are_the_standard_librarys_inside_a_task(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT)!r})\nfrom invoke import task\n"
        f"import runpy\nrunpy.run_path({str(ROOT / 'tasks.py')!r})\n\n"
        f"@task\ndef where(ctx):\n    {WHERE}\n"
    )
    done = run(str(BIN / "invoke"), "where", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "/bisect.py" in done.stdout
    assert str(ROOT / "bisect") not in done.stdout


def test_plain_invoke_serves_the_same_tasks() -> None:
    ours = run(str(BIN / "patchbisect"), "--list").stdout
    plain = run(str(BIN / "invoke"), "--list").stdout
    names = {line.split()[0] for line in ours.splitlines() if line.startswith("  ") and line[2] != " "}
    assert {"queue", "apply-queue", "launch", "trial", "classify", "runs", "show", "setup", "demo", "test"} <= names
    assert all(name in plain for name in names)


INTERRUPT = """
import sys

class WhenImported:
    def find_spec(self, name, path=None, target=None):
        if name == MODULE:
            raise KeyboardInterrupt

sys.meta_path.insert(0, WhenImported())
"""
WAYS_IN = {
    "patchbisect": "from patchbisect.program import main; main()",
    "invoke": "import invoke.main; sys.argv[:] = ['invoke', '--list']; invoke.main.program.run()",
}


@pytest.mark.parametrize(
    ("way", "module"),
    [
        ("patchbisect", "invoke"),
        ("patchbisect", "patchbisect.config"),
        ("patchbisect", "patchbisect.tasks.queue"),
        ("invoke", "patchbisect.tasks.queue"),
    ],
)
def test_ctrl_c_while_modules_are_imported_is_130_without_a_word(way: str, module: str) -> None:
    code = f"MODULE = {module!r}" + INTERRUPT + WAYS_IN[way]
    done = run(sys.executable, "-c", code)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_ctrl_c_while_the_command_line_is_read_is_130(monkeypatch: pytest.MonkeyPatch) -> None:
    from patchbisect.program import Face
    from patchbisect.tasks import namespace

    def interrupted(*words: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Face, "parse_core", interrupted)
    with pytest.raises(SystemExit) as end:
        Face(name="patchbisect", namespace=namespace).run(["patchbisect", "runs"])
    assert end.value.code == 130


@pytest.mark.ci
def test_plain_invoke_still_takes_another_collection_or_place(tmp_path: Path) -> None:
    here = run(str(BIN / "invoke"), "-c", "tasks", "--list")
    there = run(str(BIN / "invoke"), f"--search-root={ROOT}", "--list", cwd=tmp_path)
    assert (here.returncode, there.returncode) == (0, 0), here.stderr + there.stderr
    assert "launch" in here.stdout
    assert "launch" in there.stdout


@pytest.mark.ci
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("launhc",), "did you mean 'launch'?"),
        (("bisecct",), "did you mean 'bisect'?"),
        (("launch", "--piont", "x"), "did you mean '--point'?"),
    ],
)
def test_plain_invoke_answers_mistakes_as_the_console_script_does(words: tuple[str, ...], says: str) -> None:
    done = run(str(BIN / "invoke"), *words)
    assert done.returncode == 2
    assert says in done.stderr


@pytest.mark.ci
@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("launhc",), 2, "did you mean 'launch'?"),
        (("launch", "--piont", "x"), 2, "did you mean '--point'?"),
        (("trial", "--nope"), 129, "--"),
        (("launch", "--box", "locl"), 2, "did you mean 'local'?"),
        (("launch", "--profile", "tiy"), 2, "unknown profile 'tiy'"),
        (("launch", "--point", "HAED"), 2, "HEAD"),
        (("launch", "--until", "redy"), 2, "did you mean 'ready'?"),
        (("launch", "--set", "flag"), 2, "flag:NAME=VALUE"),
        (("show", "--run", "nope"), 2, "no run 'nope'"),
        (("classify", "/no/such.log"), 2, "/no/such.log"),
        (("classify", "invoke.yaml", "--exit-code", "x"), 2, "--exit-code"),
        (("bisect", "--bad-is", "signatur"), 2, "did you mean 'signature'?"),
        (("bisect", "--resume", "--of", "nope"), 2, "no bisection 'nope'"),
        (("bisect", "--of", "nope"), 2, "goes with --resume"),
        (("launch", "--port", "abc"), 2, "--port: 'abc' is not a whole number"),
        (("runs", "--last=x"), 2, "--last: 'x' is not a whole number"),
        (("launch", "--wait-for-box", "soon"), 2, "--wait-for-box: 'soon' is not a number"),
        (("runs", "--last", "-1"), 2, "--last: there are no -1 runs"),
        (("report", "last"), 2, "report takes it behind an option: --of, --html; patchbisect --help report"),
        (("lint", "9"), 2, "lint takes it behind an option: "),
        (("stop", "--run", "nope"), 2, "no run 'nope'"),
        (("show",), 2, "show needs RUN\n  RUN: a run's id, the beginning of it"),
        (("show",), 2, "\n  patchbisect --help show says more"),
        (("bisect.mark",), 2, "bisect.mark needs POINT and VERDICT\n  POINT: k of the timeline"),
        (("bisect.mark", "4"), 2, "bisect.mark needs VERDICT\n  VERDICT: good, bad, skip"),
        (("trial",), 129, "trial needs POINT\n"),
        (("report", "--html"), 2, "--html needs a value\n  --html: write one self-contained page to this file"),
        (("report", "--html", "--json"), 2, "\n  patchbisect --help report says more"),
        (("runs", "--last"), 2, "--last needs a value\n  --last: only the newest N"),
        (("bisect", "--plan", "--good-set"), 2, "--good-set needs a value\n"),
        (("bisect", "--set", "flag:a=1", "--set", "--plan"), 2, "--set needs a value\n"),
        (("bisect", "--good"), 2, "\n  patchbisect --help bisect says more"),
    ],
)
def test_a_mistake_is_one_clear_line_and_an_exit_code(
    project: FakeProject, words: tuple[str, ...], code: int, says: str
) -> None:
    done = project.run(*words)
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_outside_a_queue_repository_it_says_so(tmp_path: Path) -> None:
    done = run(str(BIN / "patchbisect"), "runs", cwd=tmp_path)
    assert done.returncode == 2
    assert "pin.toml" in done.stderr


def test_every_task_explains_itself_with_an_example() -> None:
    from patchbisect.tasks import namespace

    for name in namespace.task_names:
        said = namespace[name].__doc__ or ""
        assert "Example: " in said, name


def test_help_of_a_task_shows_first_what_is_needed_first() -> None:
    said = run(str(BIN / "patchbisect"), "--help", "bisect").stdout
    options = [line.split()[0].partition("=")[0] for line in said.splitlines() if line.startswith("  --")]
    assert options[:3] == ["--good", "--bad", "--profile"]
    assert options[-1] == "--json"
    assert len(options) == len(set(options))


def test_help_of_a_task_shows_its_options() -> None:
    said = run(str(BIN / "patchbisect"), "--help", "launch").stdout
    assert "--until" in said
    assert "Example: invoke launch" in said


@pytest.mark.parametrize("words", [("show", "--help"), ("show", "-h"), ("launch", "--point", "HEAD", "--help")])
def test_help_may_follow_a_task_that_asks_for_something(words: tuple[str, ...]) -> None:
    done = run(str(BIN / "patchbisect"), *words)
    assert done.returncode == 0, done.stderr
    assert f"Example: invoke {words[0]}" in done.stdout


@pytest.mark.parametrize("words", [("--list",), ("--help", "bisect"), ("queue", "--json")])
def test_a_reader_that_leaves_is_no_accident(words: tuple[str, ...]) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as nobody_reads:
        done = subprocess.run(
            [BIN / "patchbisect", *words],
            cwd=ROOT,
            env=clean_environment(),
            stdout=nobody_reads,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.ci
@pytest.mark.parametrize("limit", [5, 12, 31])
def test_where_too_few_files_may_be_open_one_line_says_so(limit: int) -> None:
    done = run("bash", "-c", f'ulimit -n {limit}; exec "$0" box.status', str(BIN / "patchbisect"))
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        f"error: only {limit} files may be open at once here, and 32 are needed",
        "  raise the hard limit (`ulimit -Hn`, limits.conf)",
    ]


@pytest.mark.ci
def test_a_soft_limit_on_open_files_is_raised_where_it_may_be() -> None:
    done = run("bash", "-c", 'ulimit -S -n 12; exec "$0" box.status', str(BIN / "patchbisect"))
    assert done.returncode == 0, done.stderr


@pytest.mark.ci
@pytest.mark.parametrize("kept", [True, False])
def test_byte_code_is_kept_unless_python_was_told_not_to(project: FakeProject, tmp_path: Path, kept: bool) -> None:
    forbidden = {} if kept else {"PYTHONDONTWRITEBYTECODE": "1"}
    done = project.run("bisect", "--plan", env={"PYTHONPYCACHEPREFIX": str(tmp_path), **forbidden})
    assert done.returncode == 0, done.stderr
    # A module that only the task imports: Invoke has its own say between the program's modules and those.
    assert bool(list(tmp_path.rglob("bisection/running.*.pyc"))) is kept
