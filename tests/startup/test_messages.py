# ruff: noqa: E501  (messages stand whole)
"""The messages of released packages: each is recognised, or stands on the list of those that mean nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from patchbisect.model import Stage
from tests.startup.formats import RELEASES, Server, tiers
from tests.startup.messages import listed, of_source, of_wheel, recognised, unknown
from tests.startup.test_failures import ROWS

READ = ("0.4.0", "0.4.6", "0.5.3", "0.5.9", "0.5.14", "0.5.23")
"""Releases whose packages the list was made from: the ends, and both sides of the large changes."""

SAID = (
    "max_total_tokens=100 is larger than the profiled value 50. Use the profiled value instead.",
    "max_running_requests was reduced from the requested 64 to 32 (per dp worker) due to the available KV cache capacity.",
    "KV pool holds 100 tokens, fewer than --context-length 8192. One full-length request cannot fit, so long requests",
    "The memory capacity is unbalanced. Some GPUs may be occupied by other processes. min_per_gpu_memory=1, x=2",
    "Child process unexpectedly failed with an exit code 9. pid=411",
    "Rank 0 scheduler is dead. Please check if there are relevant logs.",
    "Subprocess scheduler (pid=4) crashed with exit code -9. Triggering SIGQUIT for cleanup...",
    "SIGQUIT received. signum=3, frame=<frame>. It usually means one child failed.",
    "Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)",
    "Initialization failed. warmup error: Traceback (most recent call last):",
    "kill_process_tree called: parent_pid=1, include_parent=True, pid=2",
    "Engine startup timings (s): load_weight=1.00, kv_cache_allocation=0.10, scheduler_e2e=3.00, cuda_graph={x}, tokenizer_e2e=4.00",
    "Load weight end. Committed real weights after CUDA graph capture in 1.00 s (capture overlap window 2.00 s)",
    "Disable prefill CUDA graph because the capture size is not set",
    "Capture cuda graph bs [1, 2, 4]",
    "Mamba Cache is allocated. max_mamba_cache_size: 40, conv_state size: 0.11GB, ssm_state size: 5.86GB ",
    "KV Cache skipped (no-op pool). Logical #tokens: 100, physical K/V size: ~1.0 KB placeholder",
    "Full KV Cache VA upper bound. dtype: torch.bfloat16, #tokens: 100, K size: 1.00 GB, V size: 1.00 GB",
    "dist_init_port at 30001 is not available in 30 seconds. address in use",
    "INFO:     Uvicorn running on http://0.0.0.0:30000 (Press CTRL+C to quit)",
    "The server is fired up and ready to roll!",
)  # fmt: skip


def test_messages_of_a_file_keep_what_is_fixed_and_mark_what_is_filled_in() -> None:
    source = 'logger.info(f"a {x:.2f} GB" "!")\nlogger.warning("b %s of %.1f", y, z)\nlogger.debug("c")\nlog.error("d" + e)\n'
    assert [(one.template, one.sample) for one in of_source(source, "f.py")] == [
        ("a {} GB!", "a 12.25 GB!"),
        ("b {} of {}", "b 7 of 12.25"),
        ("d{}", "d7"),
    ]


@pytest.mark.parametrize("message", SAID)
def test_what_the_facts_list_is_recognised(message: str) -> None:
    assert recognised(message)


@pytest.mark.parametrize("release", tiers(RELEASES))
def test_no_milestone_is_on_the_list(release: tuple[int, int, int]) -> None:
    for line in Server(release, draft=True).all().splitlines():
        assert recognised(line.split("] ", 1)[1])


def test_no_failure_is_on_the_list() -> None:
    known = listed()
    assert not [row.id for row in ROWS if row.error.split("\n")[0].partition(": ")[2] in known]
    assert not [message for message in SAID if message in known]
    assert all(row.after in Stage for row in ROWS)


def test_nothing_on_the_list_is_a_milestone_a_failure_or_a_fact() -> None:
    assert [message for message in listed() if recognised(message.replace("{}", "7"))] == []


@pytest.mark.full
@pytest.mark.parametrize("release", READ)
def test_every_message_of_a_release_is_known(release: str, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--only-binary",
        ":all:",
        "-q",
        f"sglang=={release}",
    ]
    subprocess.run([*command, "-d", str(tmp_path)], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    messages = list(of_wheel(wheel))
    print(f"{release}: {len(messages)} messages, {len(listed())} on the list")
    assert len(messages) > 100
    assert unknown(messages) == []
