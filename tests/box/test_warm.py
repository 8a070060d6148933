"""Launches that are forked from a warm process: what they are must not differ from what a new Python would be."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from patchbisect.box import Box, LaunchSpec
from patchbisect.box.agent import handing, noticing, warmth, zygote
from patchbisect.box.agent.processes import read_proc, wait_gone
from patchbisect.box.failures import NotWarm
from tests.box.lab import alive, children_of_our_launches, leased, listen, none_left, settings_for, until_log
from tests.box.warm_lab import LAUNCH_SERVER, THIRD_PARTY, Lab


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    with leased(settings_for(tmp_path), tmp_path) as opened:
        yield opened
    assert none_left(tmp_path), "neither a launch nor the warm process outlives the lease"


@pytest.fixture
def lab(box: Box, tmp_path: Path) -> Lab:
    return Lab(box, tmp_path)


OF_THE_LAUNCH = {"pid", "ppid", "session", "cwd", "tmp", "place", "dice", "third", "sglang", "child_pid", "files"}


def shape(told: dict[str, Any]) -> dict[str, Any]:
    """What may not depend on how a process came to be; what names this launch, with its name taken out."""
    text = json.dumps({name: value for name, value in told.items() if name not in OF_THE_LAUNCH})
    shown: dict[str, Any] = json.loads(text.replace(told["env"]["PATCHBISECT_LAUNCH"], "LAUNCH"))
    del shown["env"]["TMPDIR"]  # may be a short name for the launch's directory
    # The numbers of pipes are counted differently: the launch holds one socket more.
    shown["orig_argv"] = [word.partition("(")[0] for word in shown["orig_argv"]]
    return shown


@pytest.mark.ci
def test_a_warm_launch_is_what_a_normal_one_is(lab: Lab) -> None:
    lab.told(lab.start("--x", "1"))
    run = lab.start("--x", "1")
    told = lab.told(run)
    (process,) = lab.box.warm()
    server, child = told["server"], told["child"]
    assert server["third"] == child["third"] == process.pid, "imported once, by the warm process"
    assert (server["sglang"], child["sglang"]) == (server["pid"], child["pid"]), "the code under test: by each itself"
    assert server["session"] == server["pid"] == child["session"]
    assert child["ppid"] == server["pid"], "the launcher waits for it and can be told by it"
    assert server["cwd"] == child["cwd"] == lab.run_dir(run).path
    assert server["tmp"] == server["place"] == child["place"] == server["env"]["TMPDIR"]
    assert server["dice"] != child["dice"]
    leaked = {
        what
        for what in [*server["files"].values(), *child["files"].values()]
        if what.startswith("/") and "asked" in what
    }
    assert not leaked
    normal = lab.told(lab.start("--x", "1", warmly=False))
    assert lab.box.warm() == (), "a normal start finds no warm process beside it"
    assert shape(server) == shape(normal["server"])
    assert shape(child) == shape(normal["child"])
    assert told["exit_code"] == normal["exit_code"] == 7


@pytest.mark.ci
def test_what_takes_longest_is_imported_before_anything_was_learned(lab: Lab) -> None:
    (lab.third / "torch.py").write_text("import nowhere_to_be_found\n")
    (lab.third / "transformers.py").write_text("import os\nLOADED_BY = os.getpid()\n")
    lab.code(
        "one",
        launch_server="import transformers\n"
        + LAUNCH_SERVER.replace("**more,", '"transformers": transformers.LOADED_BY, **more,'),
    )
    told = lab.told(lab.start())
    (process,) = lab.box.warm()
    assert told["server"]["transformers"] == told["child"]["transformers"] == process.pid, "torch was passed over"
    assert told["server"]["third"] == told["server"]["pid"], "not learned yet"


@pytest.mark.ci
def test_code_and_ending_are_those_of_the_launch(lab: Lab) -> None:
    """A warm process has nothing of the code under test, so each launch runs its own; and it ends as it ends."""
    lab.told(lab.start())
    path = lab.code("two", launch_server=LAUNCH_SERVER + "\n# the second\n")
    run = lab.start("--die", "--raise", code="two")
    assert run.provenance()["sglang"] == str(path / "sglang" / "__init__.py")
    told = lab.told(run)
    assert told["server"]["path"][1] == str(path)
    assert told["server"]["exitcode"] == -signal.SIGSEGV, "known to the parent of the child"
    assert told["exit_code"] == 1
    assert "RuntimeError: as told" in told["log"]


@pytest.mark.ci
def test_a_variable_that_a_module_has_read_makes_a_new_python(lab: Lab) -> None:
    lab.told(lab.start())
    (first,) = lab.box.warm()
    harmless = lab.told(lab.start("--set=NOBODY_READ=1"))
    assert harmless["child"]["third"] == first.pid
    read = lab.told(lab.start("--set=THIRD_MODE=late"))
    assert read["server"]["mode"] == ""
    assert read["child"]["mode"] == "late", "as in a Python of its own: the variable is read as the module is imported"
    other = lab.told(lab.start(THIRD_MODE="other"))
    assert other["server"]["mode"] == other["child"]["mode"] == "other"
    assert len(lab.box.warm()) == 2, "one for each environment"
    lab.told(lab.start(THIRD_MODE="third"))
    assert first.pid not in {one.pid for one in lab.box.warm()}, "the oldest made room"


SPOILS = {
    "a thread": "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n",
    "a socket": "import socket\nKEPT = socket.socket()\n",
    "the code under test": "import sys, types\nsys.modules.setdefault('sglang.inner', types.ModuleType('inner'))\n",
    "a CUDA context": (
        "import sys, types\ntorch = types.ModuleType('torch')\n"
        "torch.cuda = types.SimpleNamespace(is_initialized=lambda: True)\nsys.modules.setdefault('torch', torch)\n"
    ),
}


@pytest.mark.ci
@pytest.mark.parametrize("spoils", SPOILS.values(), ids=list(SPOILS))
def test_what_a_fork_may_not_have_is_left_to_the_launches(lab: Lab, spoils: str) -> None:
    (lab.third / "third").mkdir()
    (lab.third / "third.py").rename(lab.third / "third" / "__init__.py")
    (lab.third / "third" / "__init__.py").write_text(THIRD_PARTY + spoils)
    (lab.third / "third" / "part.py").write_text("")
    (lab.third / "innocent.py").write_text("import os\nLOADED_BY = os.getpid()\n")
    lab.code(
        "one",
        launch_server="import third.part, innocent\n"
        + LAUNCH_SERVER.replace("**more,", '"innocent": innocent.LOADED_BY, **more,'),
    )
    lab.told(lab.start())
    told = lab.told(lab.start())
    assert "server" in told, told["log"]
    assert told["server"]["third"] == told["server"]["pid"]
    assert told["child"]["third"] == told["child"]["pid"]
    (process,) = lab.box.warm()
    assert told["server"]["innocent"] == told["child"]["innocent"] == process.pid, "what came after it is imported"
    (learned,) = [json.loads(path.read_text()) for path in (lab.box_dir / "warm").glob("*.json")]
    assert list(learned["skipped"]) == ["third"]


@pytest.mark.ci
def test_a_warm_process_that_is_gone_or_cannot_be_is_no_verdict(lab: Lab) -> None:
    lab.told(lab.start())
    (process,) = lab.box.warm()
    os.kill(process.pid, signal.SIGSTOP)
    os.kill(process.pid, signal.SIGKILL)
    while alive(process.pid):
        pass
    assert lab.told(lab.start())["exit_code"] == 7, "another one takes its place"
    with pytest.raises(NotWarm, match="its last line"):
        lab.start(LD_PRELOAD="", PYTHONHOME="/nowhere")
    spec = LaunchSpec("no-module", (sys.executable, "-c", "print()"), warm=True)
    with pytest.raises(NotWarm, match="python -m MODULE"):
        lab.box.start(spec)
    assert lab.box.launches() == ()


@pytest.mark.ci
def test_stopping_a_launch_leaves_the_warm_process_and_nothing_else(lab: Lab, tmp_path: Path) -> None:
    run = lab.start("--stay")
    listen(run, until=until_log(b"server"))
    members = {proc.pid for proc in lab.run_dir(run).members()}
    report = run.stop(0.0)
    assert report.ended
    assert not report.faults
    assert members <= set(report.killed)
    assert not any(map(alive, members))
    (process,) = lab.box.warm()
    assert process.pid not in members
    left = [line.split()[0] for line in children_of_our_launches(tmp_path) if "patchbisect_agent.main" not in line]
    assert str(process.pid) in left
    assert read_proc(process.pid) is not None


@pytest.mark.ci
def test_a_warm_process_without_a_lease_is_swept(tmp_path: Path) -> None:
    with leased(settings_for(tmp_path), tmp_path) as box:
        lab = Lab(box, tmp_path)
        lab.told(lab.start())
        (process,) = box.warm()
        (state,) = (tmp_path / "box" / "warm").glob("*/state.json")
        state.write_text(json.dumps({**json.loads(state.read_text()), "fence": 0}))
        clean = box.prove_clean()
        assert clean.clean
        assert clean.swept == ("1 warm processes had been left running: ended",)
        assert not alive(process.pid)
    assert none_left(tmp_path)


@pytest.mark.ci
def test_a_warm_process_that_nobody_wants_ends_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warmth, "IDLE_S", 0.0)
    one = warmth.WarmProcess(str(tmp_path), "key-1")
    one.begin(sys.executable, dict(os.environ), fence=1)
    begun = one.process()
    assert begun is not None
    assert wait_gone([begun], 30.0) == []
    assert "nobody wants it" in one.last_words()
    assert not one.end()


# .. its parts


def test_only_variables_that_were_asked_for_by_name_count_as_read() -> None:
    reads = noticing.Reads()
    with reads.noticed():
        os.environ.get("ASKED")
        dict(os.environ)
        os.environ.copy()
        "ALSO_ASKED" in os.environ  # noqa: B015
    assert {"ASKED", "ALSO_ASKED"} <= reads.names
    assert "PATH" not in reads.names
    os.environ.get("AFTERWARDS")
    assert "AFTERWARDS" not in reads.names


def test_what_c_reads_counts_as_read_and_what_names_the_launch_does_not() -> None:
    before = {"OMP_NUM_THREADS": "1", "TMPDIR": "/a", "PYTHONPATH": "/a", "FREE": "1"}
    after = {"OMP_NUM_THREADS": "2", "TMPDIR": "/b", "PYTHONPATH": "/b", "FREE": "2"}
    assert noticing.Reads().touched_by(before, after) == ["OMP_NUM_THREADS"]


@pytest.mark.parametrize(
    ("ours", "theirs", "extra"), [("/a:/b", "/code:/a:/b", ["/code"]), ("", "/code", ["/code"]), ("/a", "/a", [])]
)
def test_the_launchs_own_entries_of_the_path(ours: str, theirs: str, extra: list[str]) -> None:
    assert zygote.in_front_of(ours, theirs) == extra


def test_another_path_is_refused() -> None:
    with pytest.raises(ValueError, match="another PYTHONPATH"):
        zygote.in_front_of("/a:/b", "/code:/b:/a")


def test_messages_and_open_files_go_over_a_socket() -> None:
    one, two = socket.socketpair()
    with one, two, Path(os.devnull).open() as file:
        message = {"text": "x" * 300_000}
        sender = threading.Thread(target=handing.send, args=(one, message, [file.fileno()]))
        sender.start()
        received = handing.receive(two)
        sender.join()
        assert received is not None
        assert received[0] == message
        (handle,) = received[1]
        assert os.path.samestat(os.fstat(handle), os.fstat(file.fileno()))
        os.close(handle)
        one.close()
        assert handing.receive(two) is None


def test_only_a_spawned_child_of_this_very_python_is_forked() -> None:
    spawner = zygote.Spawner(socket.socket(), env={}, reads=noticing.Reads())
    flags = spawner._flags
    words = [sys.executable, *flags, "-c", "from multiprocessing…", "--multiprocessing-fork"]
    assert spawner._code(sys.executable, words) == "from multiprocessing…"
    assert spawner._code("/tmp/numactl.sh", words) == ""
    assert spawner._code(sys.executable, [sys.executable, "-O", *words[1:]]) == ""
    assert spawner._code(sys.executable, [*words[:-1], "--other"]) == ""
    spawner._zygote.close()
