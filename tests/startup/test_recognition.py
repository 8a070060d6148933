"""What can be a server's log, down to a single line of it, and what cannot."""

from pathlib import Path

import pytest

from patchbisect.startup.recognition import Recognition
from tests.startup.handed import ALL, OWN, Case

ROOT = Path(__file__).parents[2]


def doubt(*chunks: bytes) -> str:
    reader = Recognition()
    for chunk in chunks:
        reader.feed(chunk)
    reader.close()
    return reader.doubt


@pytest.mark.parametrize("case", [*ALL, *OWN], ids=lambda case: case.id)
def test_every_handed_log_is_one_also_without_its_beginning_or_its_end(case: Case) -> None:
    lines = case.text.encode().splitlines(keepends=True)
    half = max(len(lines) // 2, 2)
    assert doubt(*lines[:half]) == ""
    assert doubt(*lines[-half:]) == ""
    assert doubt(case.text.encode()) == ""


@pytest.mark.parametrize(
    "line",
    [
        "[2026-11-29 16:23:11] Something that nobody has seen before",
        "worker-3> [2026-11-29 16:23:11 TP0] the same behind a prefix",
        '{"log":"[2026-11-29 16:23:11] the same in JSON\\n","stream":"stderr"}',
        "INFO:     Started server process [1234]",
        "2026-11-29 16:23:11,123 - __main__ - INFO - a wrapper's logger",
        "WARNING 11-29 16:23:11 [init.py:12] of another engine",
        "$ SGLANG_USE_CPU_ENGINE=1 python3 -m sglang.launch_server --model-path /m",
        "/usr/bin/python3: No module named sglang",
        "ModuleNotFoundError: No module named 'torch'",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "/opt/venv/lib/python3.11/site-packages/torch/cuda/__init__.py:61: FutureWarning: pynvml is deprecated",
        '  File "/opt/sglang/srt/server_args.py", line 12',
        "NCCL version 2.27.5+cuda12.9",
        "host:812:812 [0] NCCL INFO Bootstrap: Using eth0",
        "[rank0]:[W1129 16:23:11.1 ProcessGroupNCCL.cpp:1] Warning",
        "[Gloo] Rank 0 is connected to 0 peer ranks.",
        "Loading safetensors checkpoint shards:  50% Completed | 1/2 [00:01<00:01,  1.20s/it]",
        "Killed",
        "bash: line 1: python3: command not found",
        "Segmentation fault (core dumped)",
        "Decode batch, #running-req: 1",
    ],
)
def test_one_line_is_enough(line: str) -> None:
    assert doubt(line.encode()) == ""
    assert doubt(b"\n" + line[:9].encode(), line[9:].encode() + b"\n") == ""


@pytest.mark.parametrize("name", ["README.md", "ARCHITECTURE.md", "docs/causes.md", "pyproject.toml", "LICENSE"])
def test_what_tells_about_servers_is_no_log(name: str) -> None:
    assert doubt((ROOT / name).read_bytes()) == "no line of it is one that SGLang, its launcher, Python or CUDA writes"


def test_a_page_that_quotes_a_log_is_none() -> None:
    page = b"\n<!doctype html>\n<pre>\n[2026-11-29 16:23:11] Received sigquit from a child process\n</pre>\n"
    assert doubt(page) == "it is a web page"


@pytest.mark.parametrize("text", [b"", b" \n\n\t\n"])
def test_nothing_is_no_log(text: bytes) -> None:
    assert doubt(text) == "it is empty"
