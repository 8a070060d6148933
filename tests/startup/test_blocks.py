"""Tracebacks: which line of an exception names the cause."""

from __future__ import annotations

import pytest

from patchbisect.model import Signals, Stage
from patchbisect.startup import classify
from patchbisect.startup.blocks import Frame
from tests.startup.formats import Server, frame, raised

DEAD = Signals(exit_code=-9, alive=False)
SERVER = Server((0, 5, 9))
GCC = "/usr/bin/x86_64-linux-gnu-g++-12 -O3 -fPIC -c main.cpp -o main.o"

TELLING = {
    "raised by a compiler's backend": (
        "torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:",
        "RuntimeError: Failed to find C compiler. Please specify via CC environment variable.",
    ),
    "wrapped": (
        "Exception: Capture cuda graph failed: backend='inductor' raised:",
        "AssertionError: Failed to trace",
        "Possible solutions:",
        "1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)",
    ),
    "a command": (
        f"RuntimeError: Error building extension 'x': [1/2] {GCC}",
        "FAILED: main.o",
        GCC,
        "In file included from main.cpp:1:",
        "main.cpp:3:10: fatal error: cuda_runtime.h: No such file or directory",
        "compilation terminated.",
        "ninja: build stopped: subcommand failed.",
    ),
    "a shell": (
        "RuntimeError: Ninja build failed. Ninja output:",
        "[1/4] nvcc -c x.cu",
        "/bin/sh: 1: nvcc: not found",
        "ninja: build stopped: subcommand failed.",
    ),
    "a checkpoint": (
        "RuntimeError: Error(s) in loading state_dict for LlamaForCausalLM:",
        "size mismatch for lm_head.weight: copying a param with shape torch.Size([8, 4])",
    ),
}
ANSWER = {"raised by a compiler's backend": 1, "wrapped": 1, "a command": 4, "a shell": 2, "a checkpoint": 1}


def lines(*message: str, before: str = "") -> list[str]:
    place = frame("model_executor/cuda_graph_runner.py", "capture")
    return (SERVER.until(Stage.KV_ALLOC) + before + raised(SERVER, "\n".join(message), place)).split("\n")


@pytest.mark.parametrize("kind", TELLING)
def test_the_deciding_line_names_the_cause(kind: str) -> None:
    log = lines(*TELLING[kind])
    verdict = classify("\n".join(log), DEAD)
    assert verdict.deciding is not None
    assert verdict.deciding.text == TELLING[kind][ANSWER[kind]] == log[verdict.deciding.line - 1]
    assert verdict.deciding.text in verdict.why
    first = TELLING[kind][0]
    assert verdict.signature is not None and verdict.signature.exception == first.split(":")[0].rpartition(".")[2]


def test_a_compiler_that_printed_before_its_traceback() -> None:
    said = "/tmp/tmpab/main.c:5:10: fatal error: Python.h: No such file or directory"
    error = "subprocess.CalledProcessError: Command '['/usr/bin/gcc', '/tmp/tmpab/main.c', '-O3', '-shared']' returned non-zero exit status 1."  # noqa: E501
    log = lines(error, before=f"{said}\n    5 | #include <Python.h>\ncompilation terminated.\n")
    verdict = classify("\n".join(log), DEAD)
    assert verdict.deciding is not None and verdict.cause == "jit-compile"
    assert verdict.deciding.text == said == log[verdict.deciding.line - 1]
    assert classify("\n".join(lines(error)), DEAD).deciding.text == error  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "message",
    [
        ("RuntimeError: shapes do not fit", "Error: something else"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "fatal error: no"),
        ("RuntimeError: Error building extension 'x':",),
        ("Exception: Capture cuda graph failed:", "Possible solutions:", "1. error: none"),
    ],
)
def test_a_message_that_says_it_itself_stays(message: tuple[str, ...]) -> None:
    verdict = classify("\n".join(lines(*message)), DEAD)
    assert verdict.deciding is not None and verdict.deciding.text == message[0]


@pytest.mark.parametrize(
    ("path", "own"),
    [
        ("/box/trees/ab/python/sglang/srt/engine.py", "srt/engine.py"),
        ("/usr/lib/python3.12/site-packages/sglang/srt/engine.py", "srt/engine.py"),
        ("sglang/srt/engine.py", "srt/engine.py"),
        ("/box/sglang/venv/lib/python3.12/site-packages/torch/nn.py", ""),
        ("/box/python/sglang/sgl_kernel/gemm.py", ""),
        ("/box/python/sglang/srt/kernel.so", ""),
        ("/usr/lib/python3.12/json/decoder.py", ""),
    ],
)
def test_which_frames_are_of_sglangs_own_code(path: str, own: str) -> None:
    assert Frame(path, 1, "f").own == own
