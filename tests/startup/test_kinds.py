# ruff: noqa: E501  (lines stand as logs have them)
"""Kinds of logs that reports show and no handed case has: one short example each."""

from __future__ import annotations

import json

import pytest

from patchbisect.model import Outcome, Role, Signals, Stage, Verdict
from patchbisect.startup import Classifier, What, classify
from patchbisect.startup.causes import Grade
from tests.startup.formats import Server, frame, raised

DEAD = Signals(exit_code=137, alive=False)
SERVER = Server((0, 5, 9), tp=2)
LOADED = SERVER.until(Stage.WEIGHT_LOAD)
POOLED = SERVER.until(Stage.KV_ALLOC)
CAPTURING = POOLED + SERVER.graphs(done=False)
READY = SERVER.all()
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


def root(error: str, *frames: str) -> str:
    lines = "".join(f'  File "/x/sglang/{one}\n    code()\n' for one in frames)
    return f"Traceback (most recent call last):\n{lines}{error}\n"


def short(verdict: Verdict) -> tuple[Outcome, Stage | None, str | None]:
    return verdict.outcome, verdict.stage, verdict.cause


KINDS = {
    # who speaks
    "the launcher in C++ words": (
        CAPTURING + "terminate called after throwing an instance of 'c10::Error'\n  what():  CUDA error: an illegal memory access was encountered\nException raised from c10_cuda_check at x.cpp:43 (most recent call first):\nFatal Python error: Aborted\n",
        DEAD, ("crash", "graph-capture", "cuda-error")),
    "a segfault with Python's last frames": (
        SERVER.args() + SERVER.dist(done=False) + "Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f4858f86740 (most recent call first):\n  File \"/x/sglang/srt/distributed/device_communicators/pynccl_wrapper.py\", line 351 in ncclCommInitRank\n",
        Signals(exit_code=1, alive=False), ("crash", "dist-init", "segfault")),
    "a bus error": (SERVER.args() + SERVER.dist(done=False) + "Fatal Python error: Bus error\n", Signals(alive=True), ("crash", "dist-init", "bus-error")),
    "a GPU off the bus": (CAPTURING + "NVRM: Xid (PCI:0000:c1:00): 79, pid=4411, GPU has fallen off the bus.\n", DEAD, ("crash", "graph-capture", "gpu-fault")),
    "NCCL's out of memory as a warning": (
        SERVER.args() + SERVER.dist(done=False) + "box:77:310 [1] include/alloc.h:228 NCCL WARN Cuda failure 2 'out of memory'\n"
        + raised(SERVER, "RuntimeError: NCCL error: unhandled cuda error (run with NCCL_DEBUG=INFO for details)", frame("distributed/parallel_state.py", "initialize_model_parallel")),
        DEAD, ("crash", "dist-init", "nccl-error")),
    "DeepEP's own check": (
        POOLED + raised(SERVER, "RuntimeError: Failed: CUDA error /DeepEP/csrc/deep_ep.cpp:66 'out of memory'", frame("layers/moe/token_dispatcher/deepep.py", "get_deepep_buffer")),
        DEAD, ("oom", "kernel-warmup", "comm-buffer")),
    "the piecewise graph's error line alone": (
        CAPTURING + SERVER.said("Piecewise CUDA Graph failed with error: CUDA out of memory. Tried to allocate 1.00 GiB.", 40, label=" TP0") + SERVER.said("Received sigquit from a child process. It usually means the child failed.", 40),
        DEAD, ("oom", "graph-capture", "graph-capture")),
    # killed
    "the kernel killed a rank and the launcher waits": (
        LOADED + "[Thu Sep  4 12:12:40 2026] Out of memory: Killed process 28112 (sglang::schedul) total-vm:214748364kB, anon-rss:109182004kB\n",
        Signals(alive=True, silent_for_s=40.0), ("oom", "kv-profile", "host-ram")),
    "Kubernetes says so": (LOADED + "Last State: Terminated Reason: OOMKilled Exit Code: 137\n", DEAD, ("oom", "kv-profile", "host-ram")),
    "a shell says Killed": (LOADED + "run.sh: line 3:  4411 Killed                  python -m sglang.launch_server\n", DEAD, ("crash", "kv-profile", "killed")),
    "terminated": (LOADED, Signals(exit_code=143, alive=False), ("crash", "kv-profile", "terminated")),
    "a rank is gone": (LOADED, Signals(alive=True, rank_exit={"1": -9}), ("crash", "kv-profile", "killed")),
    "nothing but the exit code": ("", Signals(exit_code=1, alive=False), ("crash", "import", "exited")),
    "killed after it was ready": (READY, DEAD, ("crash", "serving", "killed")),
    "stopped after it was ready": (READY + SERVER.said("SIGTERM received. signum=None frame=None. Draining requests and shutting down...", 90), DEAD, ("ready", "serving", None)),
    "ended by itself after it was ready": (READY, Signals(exit_code=0, alive=False), ("ready", "serving", None)),
    "an exception of somebody's own": (LOADED + raised(SERVER, "PoolMisfit: 3 != 4", frame("model_executor/model_runner.py", "init_memory_pool")), DEAD, ("crash", "kv-alloc", "exception")),
    # only consequences
    "the other node died": (
        LOADED + raised(SERVER, "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.2.0.4]:40112", frame("model_executor/model_runner.py", "load_model")),
        DEAD, ("crash", "weight-load", "peer-lost")),
    "the launcher was told, nobody says why": (LOADED + SERVER.said("Received sigquit from a child process. It usually means the child failed.", 50), DEAD, ("crash", "kv-profile", "killed")),
    "a lost peer and, later in the log, the reason": (
        LOADED + raised(SERVER, "RuntimeError: [gloo] Connection closed by peer [10.2.0.4]:40112", at=41, label=" TP0")
        + raised(SERVER, OOM, frame("model_executor/model_runner.py", "load_model"), at=42, label=" TP1"),
        DEAD, ("oom", "weight-load", "weight-load")),
    # never came to SGLang
    "no such module": ("/usr/bin/python3: No module named sglang.launch_server\n", Signals(exit_code=1, alive=False), ("crash", "import", "import-error")),
    "no such command": ("bash: line 1: sglang: command not found\n", Signals(exit_code=127, alive=False), ("crash", "import", "import-error")),
    "a logging file that is not there": (
        root("Exception: Setting SGLANG_LOGGING_CONFIG_PATH from env with /nope.json but it does not exist!", 'srt/utils/common.py", line 9, in configure_logger'),
        Signals(exit_code=1, alive=False), ("crash", "import", "bad-setting")),
    "a library of another CUDA": (root("ImportError: libcudart.so.12: cannot open shared object file: No such file or directory", 'srt/x.py", line 9, in <module>'), Signals(exit_code=1, alive=False), ("crash", "import", "import-error")),
    "a hub that is down": (
        root("requests.exceptions.ConnectionError: (MaxRetryError(\"HTTPSConnectionPool(host='huggingface.co', port=443): Max retries exceeded\"))", 'srt/utils/hf.py", line 9, in get_config'),
        Signals(exit_code=1, alive=False), ("crash", "import", "download-failed")),
    # handled
    "a traceback that was only logged": (SERVER.args() + SERVER.said("Failed to import deep_ep: Traceback (most recent call last):", 1) + '  File "/x/a.py", line 1, in f\nImportError: libnvshmem.so\n\n' + READY, Signals(alive=True), ("ready", "serving", None)),
    "a traceback that the server outlived": (SERVER.args() + root("ModuleNotFoundError: No module named 'triton'") + CAPTURING.partition("\n")[2] + raised(SERVER, OOM, frame("model_executor/cuda_graph_runner.py", "capture")), DEAD, ("oom", "graph-capture", "graph-capture")),
    "an error in one request": (READY + SERVER.said("ERROR:    Exception in ASGI application", 99) + root("ValueError: bad request"), Signals(alive=True), ("ready", "serving", None)),
    "an allocator's warning": (SERVER.until(Stage.KV_ALLOC) + SERVER.said("WARNING: CUDA out of memory while tuning, falling back", 30, label=" TP0") + READY.partition("\n")[2], Signals(alive=True), ("ready", "serving", None)),
    "a traceback in a request to a living server": (READY + root("ValueError: what the user sent"), Signals(alive=True), ("ready", "serving", None)),
    "a traceback, and the server is gone": (READY + root("ValueError: what ended it"), Signals(alive=False, exit_code=1), ("crash", "serving", "value-error")),
    "unbalanced GPUs as a warning": (SERVER.args() + SERVER.dist() + SERVER.said("The memory capacity is unbalanced. Some GPUs may be occupied by other processes. a=1, b=2", 3, label=" TP0") + READY.partition("\n")[2], Signals(alive=True), ("ready", "serving", None)),
    "slots that ran out and were taken back": (READY + SERVER.said("Decode out of memory happened. #retracted_reqs: 3, #new_token_ratio: 0.5 -> 0.6", 99, label=" TP0"), Signals(alive=True), ("ready", "serving", None)),
    "memory that a probe ran out of": (READY + SERVER.said("Multimodal preprocessing ran out of GPU memory on 0; retrying on CPU", 99, label=" TP0"), Signals(alive=True), ("ready", "serving", None)),
    # ready
    "another HTTP server": (READY.replace("INFO:     Uvicorn running on http://0.0.0.0:30000 (Press CTRL+C to quit)", "Starting embedded Granian HTTP/2 server on 0.0.0.0:30000"), Signals(alive=True), ("ready", "serving", None)),
    "no HTTP line, but the port answers": (READY.replace("INFO:     Uvicorn running on http", "x"), Signals(alive=True, http_ready=True), ("ready", "serving", None)),
    "no HTTP line and nothing known": (READY.replace("INFO:     Uvicorn running on http", "x"), Signals(alive=True), ("kv-allocated", "warmup", None)),
    # Ray folds equal lines of several workers into one
    "Ray": (
        "".join(f"(SGLangEngine pid=23902) {line[:-1]} [repeated 2x across cluster]\n" for line in (CAPTURING + raised(SERVER, "RuntimeError: Ninja build failed", frame("model_executor/cuda_graph_runner.py", "capture"))).splitlines(True)),
        DEAD, ("crash", "graph-capture", "jit-compile")),
    "two nodes that do not find each other": (
        SERVER.args() + SERVER.dist(done=False) + "[rank1]:[E421 02:05:38.764490322 ProcessGroupGloo.cpp:143] Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error\n"
        + raised(SERVER, "RuntimeError: Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error", frame("distributed/parallel_state.py", "__init__")),
        DEAD, ("crash", "dist-init", "rendezvous-failed")),
    "a peer that stopped answering": (
        LOADED + raised(SERVER, "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:538] Read error [10.0.0.1]:29500: Connection timed out", frame("utils/common.py", "broadcast_pyobj")),
        DEAD, ("crash", "kv-profile", "peer-lost")),
    "a torch watchdog that met a CUDA error": (CAPTURING + "[E ProcessGroupNCCL.cpp:916] [Rank 1] NCCL watchdog thread terminated with exception: CUDA error: unknown error\n", DEAD, ("crash", "graph-capture", "cuda-error")),
    "numactl that may not bind": (SERVER.args() + "set_mempolicy: Operation not permitted\n" + SERVER.said("Rank 0 scheduler is dead. Please check if there are relevant logs.", 9), Signals(exit_code=1, alive=False), ("crash", "import", "permission")),
    "a warm-up that the dying server cut": (
        SERVER.all().removesuffix(SERVER.fired_up()) + raised(SERVER, "RuntimeError: CUDA error: device-side assert triggered", frame("managers/scheduler.py", "event_loop_overlap"))
        + SERVER.said("Initialization failed. warmup error: Traceback (most recent call last):", 41) + "requests.exceptions.ConnectionError: ('Connection aborted.', RemoteDisconnected('Remote end closed connection without response'))\n\n",
        DEAD, ("crash", "warmup", "cuda-error")),
    "a ROCm fault": (CAPTURING + "Memory access fault by GPU node-2 (Agent handle: 0x55) on address 0x7f. Reason: Unknown.\n", DEAD, ("crash", "graph-capture", "cuda-error")),
    "JIT without a word of compiling": (CAPTURING + "2025-06-25 11:25:59,453 - INFO - flashinfer.jit: Loading JIT ops: batch_prefill\n", Signals(alive=True, silent_for_s=900), ("kv-allocated", "graph-capture", None)),
    # silence
    "spinning in the capture": (CAPTURING, Signals(alive=True, silent_for_s=900, gpu_util=100.0, cpu_busy=True), ("hang", "graph-capture", "stuck-graph-capture")),
    "compiling in the capture": (CAPTURING + "DeepGEMM warmup:   3%|3  | 521/16384 [00:30<15:21, 17.22it/s]\n", Signals(alive=True, silent_for_s=900, cpu_busy=True), ("kv-allocated", "graph-capture", None)),
    "slow disk": (SERVER.args() + SERVER.dist() + SERVER.load(done=False), Signals(alive=True, silent_for_s=1200, cpu_busy=True), ("void", "weight-load", "unfinished")),
    "slow network": (SERVER.args() + SERVER.dist() + SERVER.load(done=False) + "model-00001.safetensors:  1%|  | 52.4M/4.96G [00:09<14:20, 5.70MB/s]\n", Signals(alive=True, silent_for_s=1200, net_rx_kbps=5000.0), ("void", "weight-load", "unfinished")),
    "an idle server": (READY, Signals(alive=True, silent_for_s=90000.0), ("ready", "serving", None)),
    "a first request that never ends": (SERVER.all().removesuffix(SERVER.fired_up()), Signals(alive=True, silent_for_s=800.0), ("hang", "warmup", "stuck-warmup")),
    "a short silence": (SERVER.args() + SERVER.dist(done=False), Signals(alive=True, silent_for_s=60.0), ("void", "dist-init", "unfinished")),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_kind(kind: str) -> None:
    text, signals, expected = KINDS[kind]
    assert short(classify(text, signals)) == expected


def test_json_records_of_a_collector() -> None:
    text = raised(SERVER, OOM, frame("model_executor/model_runner.py", "load_model"))
    lines = (SERVER.until(Stage.DIST_INIT) + text).splitlines(keepends=True)
    records = "".join(
        json.dumps({"log": line, "stream": "stderr", "time": "2026-01-01T10:00:00Z"}) + "\n" for line in lines
    )
    assert short(classify(records, DEAD)) == (Outcome.OOM, Stage.WEIGHT_LOAD, "weight-load")


def test_an_unknown_prefix_is_learned() -> None:
    text = "".join(
        f"rig7 sgl> {line}"
        for line in (
            POOLED
            + raised(
                SERVER,
                "UnboundLocalError: cannot access local variable 'a'",
                frame("managers/scheduler.py", "event_loop_normal"),
            )
        ).splitlines(True)
    )
    verdict = classify(text, DEAD)
    assert (verdict.cause, verdict.signature and verdict.signature.frame) == (
        "unbound-name",
        "scheduler.py:event_loop_normal",
    )


def test_two_messages_in_one_line() -> None:
    text = (
        CAPTURING.rstrip("\n")
        + "Capturing batches (bs=8 avail_mem=4.00 GB):   0%|    | 0/4 [00:00<?, ?it/s]"
        + raised(SERVER, OOM, frame("model_executor/cuda_graph_runner.py", "capture"))
    )
    verdict = classify(text, DEAD)
    assert short(verdict) == (Outcome.OOM, Stage.GRAPH_CAPTURE, "graph-capture")
    assert verdict.deciding is not None and verdict.deciding.rank == "TP1"


def test_two_tracebacks_that_cut_each_other() -> None:
    head = "Scheduler hit an exception: Traceback (most recent call last):"
    lines = [
        SERVER.said(head, 41, label=" TP0"), '  File "/x/sglang/srt/managers/scheduler.py", line 1, in __init__\n',
        SERVER.said(head, 41, label=" TP1"), '  File "/x/sglang/srt/managers/scheduler.py", line 1, in __init__\n',
        "RuntimeError: second\n", "\n", '  File "/x/sglang/srt/managers/scheduler.py", line 2, in run\n', "NameError: name 'x' is not defined\n", "\n",
    ]  # fmt: skip
    verdict = classify(LOADED + "".join(lines), DEAD)
    assert verdict.deciding is not None
    assert (verdict.cause, verdict.deciding.rank) == ("name-error", "TP0")


def test_a_chain_tells_the_reason_behind_a_wrapper() -> None:
    error = (
        "torch.OutOfMemoryError: CUDA out of memory.\n\nThe above exception was the direct cause of the following exception:\n\nTraceback (most recent call last):\n"
        + '  File "/x/sglang/srt/managers/scheduler.py", line 2, in run\n'
        + "RuntimeError: the model runner could not start"
    )
    verdict = classify(POOLED + raised(SERVER, error, frame("model_executor/cuda_graph_runner.py", "capture")), DEAD)
    assert short(verdict) == (Outcome.OOM, Stage.GRAPH_CAPTURE, "graph-capture")


@pytest.mark.parametrize(
    "error",
    [
        "SyntaxError: invalid syntax",
        "UnboundLocalError: cannot access local variable 'a'",
        "NameError: name 'a' is not defined",
        "ImportError: cannot import name 'a' from 'sglang.srt.b'",
    ],
)
def test_a_failure_in_a_touched_file_names_the_patch(error: str) -> None:
    text = LOADED + raised(
        SERVER, error, frame("managers/scheduler.py", "run"), frame("model_executor/kv.py", "profile")
    )
    assert (
        classify(text, DEAD, patched_files={"sglang/srt/model_executor/kv.py": "0007-kv-probe"}).patch
        == "0007-kv-probe"
    )
    assert classify(text, DEAD, patched_files={"sglang/srt/other.py": "0007-kv-probe"}).patch == ""


@pytest.mark.parametrize(
    ("error", "named"),
    [
        ("TypeError: unsupported format string passed to NoneType.__format__", "0008-of-the-line"),
        ("UnboundLocalError: cannot access local variable 'a'", "0008-of-the-line"),
        ("torch.OutOfMemoryError: CUDA out of memory.", ""),
    ],
)
def test_the_patch_that_wrote_the_line_of_a_crash_is_named_before_others_of_its_file(error: str, named: str) -> None:
    text = LOADED + raised(
        SERVER, error, frame("managers/scheduler.py", "run"), frame("model_executor/kv.py", "profile", 7)
    )
    touched = {"sglang/srt/model_executor/kv.py": "0007-kv-probe, 0008-of-the-line"}
    reader = Classifier(
        patched_files=touched,
        line_owner=lambda path, line: "0008-of-the-line" if (path, line) == (next(iter(touched)), 7) else "",
    )
    reader.feed(text)
    reader.close()
    assert reader.verdict(DEAD).patch == named


def test_an_import_from_a_touched_module_names_the_patch() -> None:
    text = root(
        "ImportError: cannot import name 'a' from 'sglang.srt.b' (/x/python/sglang/srt/b.py)",
        'srt/a.py", line 1, in <module>',
    )
    assert classify(text, DEAD, patched_files={"sglang/srt/b.py": "0003-b"}).patch == "0003-b"


def test_a_signature_is_the_same_on_another_day() -> None:
    one = LOADED + raised(
        SERVER, "RuntimeError: size 17 at 0x7f01 on port 30000", frame("managers/scheduler.py", "run", 10)
    )
    other = (
        one.replace("line 10", "line 99")
        .replace("30000", "31111")
        .replace("0x7f01", "0x9999")
        .replace("/usr/lib/python3.12", "/opt/venv")
    )
    assert classify(one, DEAD).signature == classify(other, DEAD).signature


def test_probes_are_facts_and_silence_is_told() -> None:
    lines = (
        SERVER.said("PROBE kv-sizing rest=-0.1 tokens=12 why='no room'", 9, label=" TP0")
        + "PROBE loose n=3\n"
        + "[KVDBG] rest=1\n"
    )
    verdict = classify(
        POOLED + lines + SERVER.graphs(done=False),
        Signals(alive=True),
        promised_probes={
            "kv-sizing": ("0001-kv", Stage.KV_PROFILE),
            "free": ("0002-free", Stage.KV_ALLOC),
            "late": ("0003-late", Stage.SERVING),
        },
    )
    assert verdict.facts["probes"]["kv-sizing"]["TP0"] == {"rest": -0.1, "tokens": 12, "why": "no room"}
    assert verdict.facts["probes"]["loose"][""] == {"n": 3}
    assert verdict.facts["silent_probes"] == {"free": "0002-free"}
    assert "probe free of 0002-free never fired" in verdict.why


def test_events_show_what_a_line_said() -> None:
    events = Classifier().feed(READY)
    first_pool = next(event for event in events if event.what is What.POOL)
    assert (first_pool.rank, first_pool.role, first_pool.stage) == ("TP0", Role.TARGET, Stage.KV_ALLOC)
    assert first_pool.values["tokens"] == "100000"
    assert events[0].what is What.LIFE
    assert [event.what for event in events][-2:] == [What.HTTP, What.READY]


def test_three_lives() -> None:
    failed = LOADED + raised(
        SERVER,
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
        frame("model_executor/model_runner.py", "init_memory_pool"),
    )
    killed = POOLED
    verdict = classify(failed + killed.replace(" 10:0", " 11:0") + READY.replace(" 10:0", " 12:0"), Signals(alive=True))
    assert verdict.outcome is Outcome.READY
    assert [life.split(":")[0] for life in verdict.lives] == ["life 1 (line 1)", "life 2 (line 16)"]
    assert "Not enough memory" in verdict.lives[0] and "killed" in verdict.lives[1]


def test_two_nodes_in_one_log_are_one_life() -> None:
    one = "node-a | " + Server((0, 5, 9), tp=2).args().replace("dp_size=1", "dp_size=1, nnodes=2, node_rank=0")
    other = "node-b | " + Server((0, 5, 9), tp=2).args().replace("dp_size=1", "dp_size=1, nnodes=2, node_rank=1")
    verdict = classify(one + other + SERVER.dist(), Signals(alive=True))
    assert verdict.lives == ()
    assert verdict.facts["nnodes"] == 2


def test_a_restart_that_dies_before_its_arguments_is_a_life_of_its_own() -> None:
    stopped = READY + SERVER.said(
        "SIGTERM received. signum=None frame=None. Draining requests and shutting down...", 90
    )
    broken = root("SyntaxError: invalid syntax", 'launch_server.py", line 1, in <module>').replace(
        "last):\n", 'last):\n  File "<frozen runpy>", line 198, in _run_module_as_main\n'
    )
    for text, cause in (
        (broken, "syntax-error"),
        ("usage: launch_server.py\nlaunch_server.py: error: unrecognized arguments: --x\n", "bad-flag"),
    ):
        verdict = classify(stopped + text, Signals(exit_code=1, alive=False))
        assert (verdict.cause, verdict.stage, verdict.reached_ready) == (cause, Stage.IMPORT, False)
        assert len(verdict.lives) == 1 and "ready" in verdict.lives[0]


def test_the_launchers_last_words_are_no_life_of_their_own() -> None:
    last = 'Traceback (most recent call last):\n  File "<frozen runpy>", line 198, in _run_module_as_main\n  File "/x/sglang/launch_server.py", line 9, in <module>\n    run_server(server_args)\n  File "/x/sglang/srt/entrypoints/engine.py", line 9, in _launch_subprocesses\nKeyError: 1\n'
    verdict = classify(LOADED + raised(SERVER, OOM, frame("model_executor/model_runner.py", "load_model")) + last, DEAD)
    assert (verdict.cause, verdict.lives) == ("weight-load", ())


def test_what_follows_an_uncaught_exception_is_not_its_message() -> None:
    text = (
        LOADED
        + root("ValueError: something")
        + "[rank1]:[E101 10:00:09.302211 ProcessGroupNCCL.cpp:629] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12)\n"
    )
    reader = Classifier()
    reader.feed(text)
    assert len(reader.life.signs[Grade.FATAL]) == 2


def test_a_rank_that_is_not_among_the_living() -> None:
    verdict = classify(LOADED, Signals(alive=True, alive_ranks=(0,)))
    assert (verdict.outcome, verdict.cause, verdict.facts["failed_rank"]) == (Outcome.CRASH, "killed", 1)


def test_a_traceback_that_nobody_announced_is_not_final_at_once() -> None:
    reader = Classifier()
    reader.feed(SERVER.args() + root("ModuleNotFoundError: No module named 'x'") + "\n")
    assert not reader.verdict(Signals(alive=True, silent_for_s=5.0)).final
    assert reader.verdict(Signals(alive=True, silent_for_s=90.0)).final
    assert reader.verdict(Signals(alive=False, exit_code=1)).final


def test_an_announced_traceback_is_final_as_soon_as_it_is_complete() -> None:
    reader = Classifier()
    *head, blank, told = (
        LOADED + raised(SERVER, OOM, frame("model_executor/model_runner.py", "load_model"))
    ).splitlines(True)
    for line in head:
        reader.feed(line)
        assert not reader.verdict(Signals(alive=True)).final
    reader.feed(blank)
    assert not reader.verdict(Signals(alive=True)).final
    assert reader.verdict(Signals(alive=True, silent_for_s=0.3)).final
    reader.feed(told)
    assert reader.verdict(Signals(alive=True)).final


def test_a_scheduler_that_fails_between_its_imports_and_the_others() -> None:
    """``SGLANG_CPU_OMP_THREADS_BIND='0|1'`` with one rank: an assertion before the first milestone."""
    text = SERVER.args() + raised(
        SERVER,
        "AssertionError: SGLANG_CPU_OMP_THREADS_BIND setting must be aligned with TP size parameter (1).",
        frame("managers/scheduler.py", "run_scheduler_process"),
        frame("model_executor/model_runner.py", "init_threads_binding"),
    )
    assert short(classify(text, DEAD))[:2] == (Outcome.CRASH, Stage.DIST_INIT)


def test_a_bare_exit_code_of_a_rank_is_taken() -> None:
    assert classify(LOADED, Signals(alive=False, exit_code=1, rank_exit=-9)).cause == "killed"  # type: ignore[arg-type]


def test_the_deciding_line_of_a_pool_shows_its_text() -> None:
    verdict = classify(POOLED, Signals(alive=True))
    assert verdict.deciding is not None
    assert verdict.deciding.text.startswith("Memory pool end") and verdict.deciding.rank == "TP1"
