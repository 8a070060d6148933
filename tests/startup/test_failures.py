# ruff: noqa: E501  (messages stand whole)
"""Every failure message of SGLang, in the releases that print it, and the kinds that reports show."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from patchbisect.model import Outcome, Role, Signals, Stage
from patchbisect.startup import classify
from tests.startup.formats import RELEASES, Release, Server, between, frame, name, raised, tiers

DEAD = Signals(exit_code=-9, alive=False)

SIZING = frame("model_executor/model_runner.py", "init_memory_pool")
LOADING = frame("model_executor/model_runner.py", "load_model")
CAPTURE = frame("model_executor/cuda_graph_runner.py", "capture_one_batch_size")
BALANCE = "min_per_gpu_memory=70.1, local_gpu_memory=90.2, local_gpu_memory * 0.9=81.18"
TORCH_OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 94.97 GiB"
    " of which 1.25 GiB is free. Including non-PyTorch memory, this process has 93.70 GiB memory in use."
)
OLD_OOM = TORCH_OOM.replace("torch.", "torch.cuda.")


@dataclass(frozen=True)
class Row:
    """An error after the target has ended ``after``, in the releases from ``low`` to ``high``."""

    id: str
    after: Stage
    error: str
    outcome: str
    stage: str
    cause: str
    low: str = "0.4.0"
    high: str = "0.5.23"
    frames: tuple[str, ...] = ()
    facts: dict[str, object] = field(default_factory=dict)
    says: str = ""
    """The deciding line, where it is another than the first of ``error``."""


NO_MEMORY = "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."
SOLUTIONS = "\nPossible solutions:\n1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)\n2. set --cuda-graph-max-bs to a smaller value (e.g., 16)\nOpen an issue on GitHub https://github.com/sgl-project/sglang/issues/new/choose "
K, P, A, W = Stage.KV_ALLOC, Stage.KV_PROFILE, Stage.WEIGHT_LOAD, Stage.DIST_INIT

ROWS = (
    # --- KV sizing
    Row("no memory, plain", A, NO_MEMORY, "oom", "kv-profile", "kv-profile", high="0.5.2", frames=(SIZING,)),
    Row("no memory, literal", A, NO_MEMORY + " Current value: self.server_args.mem_fraction_static=0.85", "oom",
        "kv-profile", "kv-profile", "0.5.3", "0.5.9", (SIZING,)),
    Row("no memory, value", A, NO_MEMORY + " Current value: mem_fraction_static=0.85", "oom", "kv-profile", "kv-profile",
        "0.5.10", frames=(SIZING,)),
    Row("weights leave nothing", A, "ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.85."
        " Raise --mem-fraction-static above 0.912 (minimum viable = 1 - available/pre = 0.9115). If using speculative decoding,"
        " draft weights are now counted.", "oom", "kv-profile", "kv-profile", "0.5.14"),
    Row("mamba states", A, "RuntimeError: Not enough GPU memory for hybrid (mamba/linear-attention) state cache. Computed"
        " max_mamba_cache_size=0 (max_mamba_cache_size)", "oom", "kv-profile", "kv-profile", "0.5.13"),
    Row("mamba too small", A, "RuntimeError: Hybrid (mamba/linear-attention) state cache is too small to serve any requests.",
        "oom", "kv-profile", "kv-profile", "0.5.13"),
    Row("swa cap", A, "RuntimeError: SWA pool cap (8192 tokens, 1.25 GiB) leaves no room for the full KV pool within the available"
        " 1.10 GiB.", "oom", "kv-profile", "kv-profile", "0.5.14"),
    Row("swa one request", A, "ValueError: SWA pool (64 tokens) cannot hold even one request: 4096", "oom", "kv-profile", "kv-profile", "0.5.16"),
    Row("pool too small", K, "AssertionError: Memory pool size is too small", "crash", "kv-alloc", "pool-too-small"),
    Row("no requests", K, "AssertionError: max_running_request is zero", "crash", "kv-alloc", "pool-too-small", "0.4.6"),
    Row("context too long", Stage.IMPORT, "ValueError: User-specified context_length (100000) is greater than the derived context_length"
        " (8192). This may lead to incorrect model outputs or CUDA errors. To allow overriding this maximum, set the env var"
        " SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1", "crash", "import", "context-length",
        frames=(frame("server_args.py", "__post_init__"),)),
    # --- unbalanced
    Row("unbalanced, short", Stage.IMPORT, "ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes.",
        "crash", "dist-init", "memory-unbalanced", high="0.4.3"),
    Row("unbalanced, numbers", Stage.IMPORT, f"ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes. {BALANCE}",
        "crash", "dist-init", "memory-unbalanced", "0.4.4", "0.5.6"),
    Row("unbalanced, RuntimeError", Stage.IMPORT, f"RuntimeError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes. {BALANCE}",
        "crash", "dist-init", "memory-unbalanced", "0.5.7"),
    # --- weights
    Row("load barrier", A, "ValueError: TP rank 0 could finish the model loading, but there are other ranks that didn't finish loading."
        " It is likely due to unexpected failures (e.g., OOM) or a slow node.", "hang", "weight-load", "load-barrier-timeout", "0.4.4", frames=(LOADING,)),
    Row("no weights", W, "RuntimeError: Cannot find any model weights with `/m`", "crash", "weight-load", "missing-model", frames=(LOADING,)),
    Row("shards missing", W, "RuntimeError: model.safetensors.index.json references 3 shard file(s) missing from /m (incomplete download?):"
        " ['model-00001-of-00003.safetensors']", "crash", "weight-load", "missing-model", "0.5.17", frames=(LOADING,)),
    Row("weights OOM, old torch", W, OLD_OOM, "oom", "weight-load", "weight-load", high="0.4.6", frames=(LOADING,)),
    Row("weights OOM", W, TORCH_OOM, "oom", "weight-load", "weight-load", "0.4.6", frames=(LOADING,)),
    Row("weights OOM on AMD", W, "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 1.00 GiB.", "oom", "weight-load",
        "weight-load", frames=(LOADING,)),
    Row("weight sizes", W, "RuntimeError: Error(s) in loading state_dict for LlamaForCausalLM: size mismatch for model.embed_tokens.weight",
        "crash", "weight-load", "weight-mismatch", frames=(LOADING,)),
    Row("unknown weight", W, "KeyError: 'model.layers.0.mlp.experts.w13_weight_scale'", "crash", "weight-load", "weight-mismatch", frames=(LOADING,)),
    Row("truncated shard", W, "safetensors_rust.SafetensorError: Error while deserializing header: MetadataIncompleteBuffer", "crash",
        "weight-load", "weight-mismatch", frames=(LOADING,)),
    Row("unknown architecture", W, "ValueError: Model architectures ['FooForCausalLM'] are not supported for now. Supported architectures: dict_keys(['Llama'])",
        "crash", "weight-load", "unsupported-model", frames=(LOADING,)),
    # --- pools and graphs
    Row("pool OOM", P, TORCH_OOM, "oom", "kv-alloc", "kv-alloc", frames=(frame("mem_cache/memory_pool.py", "_create_buffers"),)),
    Row("pool OOM without frames", A, TORCH_OOM, "oom", "kv-alloc", "kv-alloc"),
    Row("graph OOM", K, "Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate 448.00 MiB." + SOLUTIONS, "oom",
        "graph-capture", "graph-capture", high="0.5.13", frames=(frame("model_executor/cuda_graph_runner.py", "__init__"),)),
    Row("graph OOM, CUDA's words", K, "Exception: Capture cuda graph failed: CUDA error: out of memory" + SOLUTIONS, "oom", "graph-capture",
        "graph-capture", frames=(frame("model_executor/cuda_graph_runner.py", "__init__"),)),
    Row("prefill graph OOM", K, "RuntimeError: Capture prefill CUDA graph failed: CUDA out of memory. Tried to allocate 448.00 MiB." + SOLUTIONS,
        "oom", "graph-capture", "graph-capture", "0.5.14", frames=(frame("model_executor/runner/prefill_cuda_graph_runner.py", "__init__"),)),
    Row("graph, bad access", K, "Exception: Capture cuda graph failed: Triton Error [CUDA]: an illegal memory access was encountered" + SOLUTIONS,
        "crash", "graph-capture", "cuda-error", frames=(frame("model_executor/cuda_graph_runner.py", "__init__"),)),
    Row("graph, shared memory", K, "Exception: Capture cuda graph failed: out of resource: shared memory, Required: 196608, Hardware limit: 101376."
        " Reducing block sizes or `num_stages` may help." + SOLUTIONS, "crash", "graph-capture", "triton-shared-memory",
        frames=(frame("model_executor/cuda_graph_runner.py", "__init__"),)),
    Row("graph, a bug", K, "AttributeError: 'NoneType' object has no attribute 'shape'", "crash", "graph-capture", "attribute-error", frames=(CAPTURE,)),
    Row("no kernel", K, "RuntimeError: CUDA error: no kernel image is available for execution on the device", "crash", "graph-capture",
        "unsupported-arch", frames=(CAPTURE,)),
    Row("warm-up OOM", K, TORCH_OOM, "oom", "kernel-warmup", "warmup", frames=(frame("model_executor/model_runner.py", "kernel_warmup"),)),
    Row("workspace OOM", K, "RuntimeError: CUDA driver error: out of memory", "oom", "kernel-warmup", "comm-buffer",
        frames=(frame("model_executor/model_runner.py", "kernel_warmup"), frame("distributed/device_communicators/torch_symm_mem.py", "__init__"))),
    Row("NCCL OOM", Stage.IMPORT, "torch.distributed.DistBackendError: NCCL error in: /pytorch/ProcessGroupNCCL.cpp:3690, unhandled cuda error,"
        " NCCL version 2.27.7\nncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 2 'out of memory'", "oom",
        "dist-init", "comm-buffer", frames=(frame("distributed/parallel_state.py", "initialize_model_parallel"),)),
    # --- waiting
    Row("rendezvous", Stage.IMPORT, "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined.", "hang",
        "dist-init", "rendezvous-timeout", frames=(frame("distributed/parallel_state.py", "init_distributed_environment"),)),
    Row("store key", Stage.IMPORT, "torch.distributed.DistBackendError: [1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d"
        " key-value store by key '0', but store->get('0') got error: wait timeout after 600000ms, keys: /default_pg/0//cuda//0", "hang",
        "dist-init", "rendezvous-timeout", frames=(frame("distributed/parallel_state.py", "initialize_model_parallel"),)),
    Row("gloo", A, "RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation"
        " to complete", "hang", "kv-profile", "collective-timeout", frames=(SIZING.replace("init_memory_pool", "profile_max_num_token"),)),
    # --- code, packages, machine
    Row("unbound", A, "UnboundLocalError: cannot access local variable 'ratio' where it is not associated with a value", "crash", "kv-profile",
        "unbound-name", frames=(SIZING.replace("init_memory_pool", "profile_max_num_token"),)),
    Row("unbound, old Python", A, "UnboundLocalError: local variable 'ratio' referenced before assignment", "crash", "kv-alloc", "unbound-name", frames=(SIZING,)),
    Row("name", A, "NameError: name 'effective_layer_ids' is not defined", "crash", "kv-alloc", "name-error", frames=(SIZING,)),
    Row("module", W, "ModuleNotFoundError: No module named 'nope_pkg'", "crash", "weight-load", "import-error", frames=(LOADING,)),
    Row("driver", Stage.IMPORT, "RuntimeError: The NVIDIA driver on your system is too old (found version 12020).", "crash", "dist-init", "cuda-init",
        frames=(frame("model_executor/model_runner.py", "init_torch_distributed"),)),
    Row("no GPU", Stage.IMPORT, "RuntimeError: No CUDA GPUs are available", "crash", "dist-init", "cuda-init",
        frames=(frame("model_executor/model_runner.py", "init_torch_distributed"),)),
    Row("NCCL", Stage.IMPORT, "RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)", "crash", "dist-init",
        "nccl-error", frames=(frame("distributed/parallel_state.py", "initialize_model_parallel"),)),
    Row("NCCL port", Stage.IMPORT, "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. The server"
        " socket has failed to bind to [::]:28642 (errno: 98 - Address already in use).", "crash", "dist-init", "port-in-use",
        frames=(frame("distributed/parallel_state.py", "init_distributed_environment"),)),
    Row("host pool", K, "ValueError: Not enough host memory available. Requesting 64.00 GB but only have 31.20 GB free. Please reduce the size of"
        " the hierarchical cache.", "oom", "kv-alloc", "host-ram", frames=(frame("mem_cache/memory_pool_host.py", "__init__"),)),
    Row("host malloc", W, "RuntimeError: [enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to"
        " allocate 939524096 bytes. Error code 12 (Cannot allocate memory)", "oom", "weight-load", "host-ram", frames=(LOADING,)),
    Row("MemoryError", W, "MemoryError", "oom", "weight-load", "host-ram", frames=(LOADING,)),
    Row("disk", W, "OSError: [Errno 28] No space left on device: '/root/.cache/huggingface'", "crash", "weight-load", "disk-full", frames=(LOADING,)),
    Row("hub", W, "huggingface_hub.errors.LocalEntryNotFoundError: Cannot find the requested files in the disk cache and outgoing traffic has been"
        " disabled.", "crash", "weight-load", "missing-model", frames=(LOADING,)),
    Row("gated", W, "huggingface_hub.errors.GatedRepoError: 401 Client Error. Access to model org/m is restricted.", "crash", "weight-load",
        "missing-model", frames=(LOADING,)),
    Row("flashinfer JIT", K, "RuntimeError: Ninja build failed. Ninja output:\nninja: Entering directory\nFAILED: x.cuda.o\nnvcc fatal   : Unsupported"
        " gpu architecture 'compute_120a'\nninja: build stopped: subcommand failed.", "crash", "graph-capture", "jit-compile", frames=(CAPTURE,),
        says="nvcc fatal   : Unsupported gpu architecture 'compute_120a'"),
    Row("ptxas", K, "triton.runtime.errors.PTXASError: PTXAS error: Internal Triton PTX codegen error\n`ptxas` stderr:\nptxas fatal   : Value 'sm_121a'"
        " is not defined for option 'gpu-name'", "crash", "graph-capture", "jit-compile", frames=(CAPTURE,)),
    Row("inductor", K, "torch._inductor.exc.InductorError: SubprocException: An exception occurred in a subprocess", "crash", "graph-capture",
        "torch-compile", frames=(CAPTURE,)),
    Row("FA3", K, "AssertionError: FlashAttention v3 Backend requires SM>=80 and SM<=90. Please use `--attention-backend flashinfer`.", "crash",
        "kernel-warmup", "unsupported-arch", frames=(frame("model_executor/model_runner.py", "init_attention_backend"),)),
    Row("symm mem capability", Stage.IMPORT, "KeyError: 12", "crash", "dist-init", "unsupported-arch",
        frames=(frame("model_executor/model_runner.py", "init_torch_distributed"), frame("distributed/device_communicators/torch_symm_mem.py", "__init__"))),
)  # fmt: skip


def _cases() -> list[object]:
    """Each row in all its releases; the first, the last and those at breakpoints are in the fast tier."""
    out = []
    for row in ROWS:
        releases = between(row.low, row.high)
        fast = {releases[0], releases[-1], (0, 5, 9)}
        for release in releases:
            marks = () if release in fast else pytest.mark.ci
            out.append(pytest.param(row, release, id=f"{row.id} {name(release)}", marks=marks))
    return out


@pytest.mark.parametrize(("row", "release"), _cases())
def test_scheduler_exception(row: Row, release: Release) -> None:
    server = Server(release, tp=2)
    text = server.until(row.after)
    if row.stage == "dist-init":
        text += server.dist(done=False)
    text += raised(server, row.error, *row.frames)
    verdict = classify(text, DEAD)
    assert (verdict.outcome, verdict.stage, verdict.cause) == (row.outcome, row.stage, row.cause)
    assert verdict.deciding is not None and verdict.deciding.text == (row.says or row.error.split("\n")[0])
    assert verdict.deciding.rank == "TP1"
    assert not verdict.reached_ready
    assert verdict.final and verdict.why


each_release = pytest.mark.parametrize("release", tiers(RELEASES))


@each_release
def test_exit_137_alone_is_a_kill_and_no_oom(release: Release) -> None:
    verdict = classify(Server(release, tp=2).until(Stage.KV_ALLOC), Signals(exit_code=137, alive=False))
    assert (verdict.outcome, verdict.cause, verdict.stage) == (Outcome.CRASH, "killed", Stage.KERNEL_WARMUP)


@pytest.mark.parametrize(
    ("release", "line", "code", "cause"),
    [
        *((r, "Rank 0 scheduler is dead. Please check if there are relevant logs.", -9, "killed") for r in between("0.4.2", "0.5.9")),
        *((r, "Rank 0 scheduler is dead. Please check if there are relevant logs.", -11, "segfault") for r in between("0.4.2", "0.5.9")),
        *((r, "", -9, "killed") for r in between("0.5.10")),
        *((r, "", -6, "abort") for r in between("0.5.10")),
    ],
)  # fmt: skip
def test_a_rank_that_died_without_a_word(release: Release, line: str, code: int, cause: str) -> None:
    server = Server(release, tp=2)
    text = server.until(Stage.WEIGHT_LOAD)
    if line:
        text += server.said(line, 50) + server.said(f"Exit code: {code}", 51)
        text += 'Traceback (most recent call last):\n  File "/x/sglang/srt/entrypoints/engine.py", line 894, in _wait\nEOFError\n'
    else:
        text += (
            "Traceback (most recent call last):\n  File \"/x/sglang/srt/entrypoints/engine.py\", line 1385, in _wait\n"
            f"RuntimeError: Rank 0 scheduler died during initialization (exit code: {code}). If exit code is -9 (SIGKILL), a common"
            " cause is the OS OOM killer. Run `dmesg -T | grep -i oom` to check.\n"
        )  # fmt: skip
    verdict = classify(text, Signals(exit_code=1, alive=False))
    assert (verdict.outcome, verdict.stage, verdict.cause) == (Outcome.CRASH, Stage.KV_PROFILE, cause)


@pytest.mark.parametrize("release", tiers(between("0.4.4", "0.4.9")))
def test_sigchld_of_a_killed_scheduler(release: Release) -> None:
    server = Server(release, tp=2)
    told = "an exit code 9. pid=411" if release <= (0, 4, 6) else "exitcode=9. pid=411"
    text = server.until(Stage.WEIGHT_LOAD) + server.said(f"Child process unexpectedly failed with {told}", 60)
    verdict = classify(text, Signals(alive=True, silent_for_s=4000))
    assert (verdict.outcome, verdict.cause) == (Outcome.CRASH, "killed")


@each_release
def test_watchdog(release: Release) -> None:
    server = Server(release, tp=2)
    told = "Watchdog timeout (self.watchdog_timeout=300)"
    if release >= (0, 5, 7):
        told = "Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)"
    verdict = classify(server.all() + server.said(told, 500, label=" TP1"), DEAD)
    assert (verdict.outcome, verdict.stage, verdict.cause, verdict.reached_ready) == (
        Outcome.HANG,
        Stage.SERVING,
        "scheduler-watchdog",
        True,
    )


@pytest.mark.parametrize("release", tiers(between("0.5.7")))
def test_a_soft_watchdog_only_warns(release: Release) -> None:
    server = Server(release, tp=2)
    soft = server.said("Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=True)", 500, label=" TP1")
    assert classify(server.all() + soft, Signals(alive=True)).outcome is Outcome.READY


@each_release
def test_port_in_use_after_everything(release: Release) -> None:
    server = Server(release)
    text = server.all().replace("INFO:     Uvicorn running on http://0.0.0.0:30000 (Press CTRL+C to quit)",
                                "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 30000): address already in use")  # fmt: skip
    verdict = classify(text, Signals(exit_code=3, alive=False))
    assert (verdict.outcome, verdict.stage, verdict.cause, verdict.reached_ready) == (
        Outcome.CRASH,
        Stage.WARMUP,
        "port-in-use",
        False,
    )
    assert verdict.facts["port"] == 30000


@pytest.mark.parametrize("release", tiers(between("0.5.5")))
def test_dp_attention_port(release: Release) -> None:
    server = Server(release)
    text = server.args() + server.said(
        "dist_init_port at 30001 is not available in 30 seconds. [Errno 98] Address already in use", 40
    )
    text += (
        'Traceback (most recent call last):\n  File "/x/sglang/srt/server_args.py", line 9, in init_new\n'
        "ValueError: Port is already in use. dist_init_port=30001 port_base=30002\n"
    )
    assert classify(text, Signals(exit_code=1, alive=False)).cause == "port-in-use"


@each_release
def test_the_warm_up_that_timed_out(release: Release) -> None:
    server = Server(release)
    text = server.all().removesuffix(server.fired_up()) + server.said(
        "Initialization failed. warmup error: Traceback (most recent call last):", 700
    )
    text += (
        '  File "/x/sglang/srt/entrypoints/http_server.py", line 9, in _execute_server_warmup\n'
        "requests.exceptions.ReadTimeout: HTTPConnectionPool(host='0.0.0.0', port=30000): Read timed out. (read timeout=600)\n\n"
    )
    verdict = classify(text, DEAD)
    assert (verdict.outcome, verdict.stage, verdict.cause) == (Outcome.HANG, Stage.WARMUP, "warmup-timeout")


@each_release
def test_an_oom_in_the_first_request(release: Release) -> None:
    server = Server(release)
    text = server.all().removesuffix(server.fired_up())
    text += raised(server, TORCH_OOM, frame("managers/scheduler.py", "event_loop_overlap"))
    verdict = classify(text, DEAD)
    assert (verdict.outcome, verdict.stage, verdict.cause) == (Outcome.OOM, Stage.WARMUP, "warmup")


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("launch_server.py: error: unrecognized arguments: --reasoning_parser x", "bad-flag"),
        (
            "launch_server.py: error: ambiguous option: --cuda-graph-max-bs could match --cuda-graph-max-bs-decode",
            "bad-flag",
        ),
        ("launch_server.py: error: argument --attention-backend: invalid choice: 'nope'", "bad-flag"),
        ("sglang serve: error: the following arguments are required: --model-path", "bad-flag"),
        ("__main__.py: error: argument --tp-size: expected one argument", "bad-flag"),
    ],
)
def test_bad_flags(line: str, cause: str) -> None:
    text = "usage: launch_server.py [-h] --model-path MODEL_PATH [--watchdog-timeout WATCHDOG_TIMEOUT]\n" + line + "\n"
    verdict = classify(text, Signals(exit_code=2, alive=False))
    assert (verdict.outcome, verdict.stage, verdict.cause) == (Outcome.CRASH, Stage.IMPORT, cause)


@each_release
def test_the_draft_model_fails_in_its_own_role(release: Release) -> None:
    server = Server(release, tp=2, draft=True)
    text = server.all().split("max_total_num_tokens=")[0].rpartition("\n")[0] + "\n"
    text += raised(server, "AttributeError: 'ModelConfig' object has no attribute 'kv_lora_rank'",
                   frame("managers/scheduler.py", "init_model_worker"), frame("speculative/eagle_worker.py", "__init__"),
                   frame("speculative/eagle_draft_cuda_graph_runner.py", "capture"))  # fmt: skip
    verdict = classify(text, DEAD)
    assert (verdict.role, verdict.stage, verdict.cause) == (Role.DRAFT, Stage.GRAPH_CAPTURE, "attribute-error")


def test_a_version_guard() -> None:
    text = (
        "Traceback (most recent call last):\n"
        '  File "/x/sglang/srt/entrypoints/engine.py", line 700, in _set_envs_and_config\n'
        "Exception: flashinfer_python is installed with version 0.2.0, which is less than the minimum required version 0.2.3."
        " Please uninstall the old version\n"
    )
    verdict = classify(text, Signals(exit_code=1, alive=False))
    assert (verdict.outcome, verdict.stage, verdict.cause) == (Outcome.CRASH, Stage.IMPORT, "package-version")
