"""Which words mean which failure: two ordered tables, the first row that fits decides.

``EXCEPTIONS`` is matched against ``Type: message`` of an exception, ``LINES`` against single lines outside of
tracebacks. The table of all causes for people is in ``docs/verdicts.md``; a test keeps the two equal.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum

from patchbisect.model import Outcome, Stage


class Grade(IntEnum):
    """How much a sign says. Lower decides over higher."""

    FATAL = 0
    """Ends the server. The earliest decides."""
    CLUE = 1
    """Decides only if the server died and nothing fatal was said."""
    CONSEQUENCE = 2
    """Shows that something died; never why, while a cause is there."""
    NOTE = 3
    """Explains another failure; never decides."""


@dataclass(frozen=True, slots=True)
class Cause:
    """What a row stands for. ``stage`` is set where the words themselves name one."""

    name: str
    outcome: Outcome
    pattern: re.Pattern[str]
    stage: Stage | None = None
    grade: Grade = Grade.FATAL


def _crash(name: str, *words: str, stage: Stage | None = None, grade: Grade = Grade.FATAL) -> Cause:
    return Cause(name, Outcome.CRASH, re.compile("|".join(words)), stage, grade)


def _oom(name: str, *words: str, stage: Stage | None = None, grade: Grade = Grade.FATAL) -> Cause:
    return Cause(name, Outcome.OOM, re.compile("|".join(words)), stage, grade)


def _hang(name: str, *words: str, stage: Stage | None = None, grade: Grade = Grade.FATAL) -> Cause:
    return Cause(name, Outcome.HANG, re.compile("|".join(words)), stage, grade)


DEVICE_OOM = "device-oom"
"""Not a cause that a verdict shows: which one it is depends on the stage (``oom_cause``)."""

EXCEPTIONS: tuple[Cause, ...] = (
    # By type, before any word of a message: code that does not compile or link. These can name a patch.
    _crash("syntax-error", r"^(?:SyntaxError|IndentationError|TabError)\b"),
    _crash("unbound-name", r"^UnboundLocalError\b", r"cannot access free variable"),
    _crash("name-error", r"^NameError\b"),
    _crash("import-error", r"^(?:ImportError|ModuleNotFoundError)\b"),
    # Consequences of another process's death.
    _crash(
        "peer-lost",
        r"Connection closed by peer",
        r"Connection reset by peer",
        r"Broken pipe|Socket closed",
        r"remote process exited|ncclRemoteError|[Cc]losed by remote peer|NCCL communicator was aborted",
        r"Call to (?:recv|send)\w* .*failed|Connection reset",
        r"gloo.*(?:Read|Write) error",
        r"recvValue failed|failed to recv, got 0 bytes",
        r"(?:Connection refused|ECONNREFUSED).*(?:TCPStore|c10d)",
        grade=Grade.CONSEQUENCE,
    ),
    _crash(
        "child-died",
        r"^EOFError\b",
        r"Rank \d+ scheduler (?:is dead|died)",
        r"Initialization failed\. Please see the error messages above",
        grade=Grade.CONSEQUENCE,
    ),
    _crash("stopped", r"^KeyboardInterrupt\b|^SystemExit\b|CancelledError\b", grade=Grade.CONSEQUENCE),
    # SGLang's own words, which quote others' ("e.g., OOM", "CUDA errors").
    _oom(
        "kv-profile",
        r"Not enough memory\. Please try to increase --mem-fraction-static",
        r"Loaded weights leave no GPU memory for the KV cache",
        r"Not enough GPU memory for hybrid",
        r"Hybrid \(mamba/linear-attention\) state cache is too small",
        r"SWA pool cap \(.*leaves no room",
        r"SWA pool \(.*cannot hold even one request",
        stage=Stage.KV_PROFILE,
    ),
    _crash(
        "pool-too-small",
        r"Memory pool size is too small",
        r"max_running_requests? is zero",
        stage=Stage.KV_ALLOC,
    ),
    _crash("memory-unbalanced", r"The memory capacity is unbalanced", stage=Stage.DIST_INIT),
    _crash("token-pool-exhausted", r"(?:Prefill|Decode) out of memory\. Try to lower your batch size"),
    _crash("context-length", r"User-specified context_length .* is greater than the derived"),
    _hang(
        "load-barrier-timeout",
        r"could finish the model loading, but there are other ranks that didn't",
        stage=Stage.WEIGHT_LOAD,
    ),
    # Waiting that ended the server.
    _hang(
        "rendezvous-timeout",
        r"Timed out after \d+ seconds waiting for clients",
        r"wait timeout after \d+ ?ms, keys",
        r"client socket has timed out",
        r"TCPStore.*timed out|DistStoreError.*[Tt]imed?.?out",
        stage=Stage.DIST_INIT,
    ),
    _crash(
        "rendezvous-failed",
        r"connectFullMesh failed|makeDeviceFor\w+\(\)|Unable to find (?:address|interface)",
        r"[Cc]lient socket has failed to connect|Name or service not known|[Nn]ame resolution|getaddrinfo",
    ),
    _hang(
        "collective-timeout",
        r"[Cc]ollective operation timeout",
        r"Timed out waiting \d+ ?ms for (?:recv|send)",
        r"monitoredBarrier.*timed? ?out",
        r"timed out waiting for ranks",
    ),
    # Host memory.
    _oom(
        "host-ram",
        r"^MemoryError\b|std::bad_alloc",
        r"DefaultCPUAllocator: (?:can't|not enough)",
        r"Cannot allocate memory",
        r"Not enough host memory available",
        r"cudaHost(?:Alloc|Register).*(?:out of memory|failed)",
        r"DataLoader worker .* is killed by signal: Killed",
    ),
    # Compilers, whose words contain others' ("No such file", "out of memory", "Segmentation fault").
    _crash("triton-shared-memory", r"out of resources?: (?:shared memory|tensor memory|threads)", r"OutOfResources"),
    _crash(
        "torch-compile",
        r"torch\._dynamo\.|torch\._inductor\.",
        r"BackendCompilerFailed|InductorError|LoweringException",
        r"Failed to find C compiler",
    ),
    _crash(
        "jit-compile",
        r"Error building extension|JIT compil\w+ fail|Compilation failed|CompilationError|compilation terminated",
        r"ninja exited with|[Nn]inja build failed|ninja: build stopped|Ninja is required to load C\+\+",
        r"NVRTC|nvcc (?:fatal|failed|not found)|Could not find nvcc|CUDA_HOME environment variable is not set",
        r"ptxas (?:fatal|error)|PTXASError|cicc\b|hiprtc",
        r"CalledProcessError.*(?:nvcc|ninja|gcc|g\+\+)",
    ),
    # The GPU, its driver, its links.
    _oom(
        DEVICE_OOM,
        r"OutOfMemoryError",
        r"(?:CUDA|HIP|NPU|XPU|MUSA)(?: error:| driver error:)? out of memory",
        r"cudaErrorMemoryAllocation|CUDA_ERROR_OUT_OF_MEMORY|hipErrorOutOfMemory",
        r"CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED",
        r"Cuda failure(?: 2)? '?out of memory|cudaMalloc failed",
        r"(?:CUDA (?:runtime )?error|cuMemCreate|Triton Error \[CUDA\]).{0,200}out of memory",
    ),
    _crash(
        "unsupported-arch",
        r"no kernel image is available",
        r"CUDA capability sm_?\d+ is not compatible",
        r"[Rr]equires? (?:SM|sm|compute capability|CUDA capability|Hopper|Blackwell)|SM ?[<>]=? ?\d+",
        r"not (?:supported|compiled) (?:on|for) (?:this |the )?(?:GPU|device|arch|sm_?\d|SM ?\d|compute)",
        r"[Uu]nsupported (?:GPU )?arch\w*(?!.*\['\w)",
        r"only supported on (?:SM|sm|Hopper|Blackwell|H100|B200)",
        r"No supported CUDA architectures",
        r"KeyError: 1[02]\d?$",
    ),
    _crash(
        "nccl-error",
        r"NCCL error|DistBackendError|nccl\w* failed",
        r"ncclUnhandled|ncclSystemError|ncclInternalError|ncclInvalid",
    ),
    _crash(
        "cuda-init",
        r"driver version is insufficient|NVIDIA driver .*too old|Found no NVIDIA driver",
        r"Torch not compiled with CUDA|No CUDA GPUs are available|no CUDA-capable device",
        r"CUDA unknown error|system not yet initialized|forward compatibility was attempted",
        r"CUDA error: (?:initialization error|invalid device ordinal|unknown error)",
        r"Failed to initialize NVML|NVMLError",
        r"CUDA-capable device\(s\) is/are busy|device\(s\) not ready",
    ),
    _crash(
        "cuda-error",
        r"CUDA error|CUDA driver error|cudaError|CUDA_ERROR_|Failed: Cuda error|Triton Error \[CUDA\]",
        r"CUBLAS_STATUS_|CUDNN_STATUS_|AcceleratorError|HIP error|custom_all_reduce\.cuh",
        r"illegal memory access|device-side assert|misaligned address|unspecified launch failure",
    ),
    # Ports, disk, rights.
    _crash(
        "port-in-use",
        r"[Aa]ddress already in use|Port is already in use|EADDRINUSE|cannot assign requested address",
        r"port \d+ is (?:already in use|not available)|is not available in \d+ seconds",
        r"The server socket has failed to bind",
    ),
    _crash("disk-full", r"No space left on device|Disk quota exceeded|ENOSPC"),
    _crash("permission", r"^PermissionError\b|Permission denied|Operation not permitted"),
    _crash(
        "package-version",
        r"is less than the minimum required version",
        r"with minimum required version .* is not installed",
        r"DistributionNotFound|VersionConflict|PackageNotFoundError",
    ),
    # The model.
    _crash(
        "unsupported-model",
        r"Model architectures? .*(?:not supported|failed to be inspected)|Unsupported architectures?:? \[",
        r"does not recognize this architecture|has no SGLang implementation",
    ),
    _crash(
        "missing-model",
        r"Can't load (?:the )?(?:configuration|config|tokenizer|image processor|feature extractor) (?:of|for)",
        r"Repo id must (?:be in the form|use alphanumeric)|HFValidationError|Invalid repository ID",
        r"RepositoryNotFoundError|GatedRepoError|RevisionNotFoundError|EntryNotFoundError|OfflineModeIsEnabled",
        r"is not a local folder and is not a valid model identifier|Incorrect path_or_model_id",
        r"does not appear to have a file named|Unrecognized model in|Cannot find any model weights",
        r"missing from .* \(incomplete download|[Cc]ouldn't connect to 'https://huggingface|We couldn't connect to",
        r"FileNotFoundError.*(?:config\.json|\.safetensors|\.bin|\.gguf|tokenizer|model)",
        r"404 Client Error.*(?:huggingface|hf-mirror|modelscope)",
    ),
    _crash(
        "download-failed",
        r"(?:HTTPSConnectionPool|huggingface\.co|hf-mirror|modelscope|cdn-lfs).*"
        r"(?:timed out|Max retries|refused|Errno)",
        r"Consistency check failed: file should be|ChunkedEncodingError|IncompleteRead|429 Client Error",
    ),
    _crash(
        "weight-mismatch",
        r"size of tensor a \(\d+\) must match|expanded size of the tensor|shape mismatch|exceeds dimension size",
        r"size mismatch for|Error\(s\) in loading state_dict|not found in params_dict",
        r"[Ss]hapes? .*(?:do not|don't|doesn't) match",
        r"SafetensorError|safetensors_rust|MetadataIncompleteBuffer|InvalidHeader|HeaderTooLarge|invalid load key",
        r"KeyError: '[\w.]*(?:weight|bias|scale|layers|experts|mlp|attn|lm_head|embed)[\w.]*'",
        r"loaded_weight\.shape|param(?:_data|eter)?\.(?:size|shape)",
    ),
    _crash("assertion-shape", r"divisib(?:le|ility)"),
    _crash(
        "import-error",
        r"undefined symbol|cannot open shared object file|cannot import name|No module named",
        r"version `[\w.]+' not found",
    ),
    _crash(
        "bad-setting",
        r"SGLANG_LOGGING_CONFIG_PATH|[Ii]nvalid (?:value|argument|environment|attention backend)|environment variable",
        r"[Uu]nknown quantization|[Qq]uantization method .*(?:does not match|not supported)",
        r"mutually exclusive|not supported (?:with|when|for)|is incompatible with|are not compatible",
        r"must be (?:specified|set|greater|less|positive)",
    ),
    # Bugs, by type.
    _crash("attribute-error", r"^AttributeError\b"),
    _crash("type-error", r"^TypeError\b"),
    _crash("key-error", r"^KeyError\b"),
    _crash("index-error", r"^IndexError\b"),
    _crash("assertion", r"^AssertionError\b"),
    _crash("not-implemented", r"^NotImplementedError\b"),
    _crash("recursion", r"^RecursionError\b"),
    _crash("missing-file", r"^FileNotFoundError\b|No such file or directory"),
    _crash("value-error", r"^ValueError\b"),
    _crash("timeout", r"^(?:\w+\.)*\w*Timeout\w*\b"),
    _crash("runtime-error", r"^RuntimeError\b"),
)
ANY_EXCEPTION = _crash("exception", r"")

GENERIC = frozenset(
    {
        *("attribute-error", "type-error", "key-error", "index-error", "assertion", "not-implemented", "recursion"),
        *("missing-file", "value-error", "timeout", "runtime-error", "exception", "bad-setting"),
    }
)
"""Causes that only repeat the exception's type: an earlier link of the chain may know better."""

NAMES_A_PATCH = frozenset({"syntax-error", "unbound-name", "name-error", "import-error"})

# The launcher's own first request ("Initialization failed. warmup error: <traceback>").
WARMUP_TIMEOUT = _hang("warmup-timeout", r"", stage=Stage.WARMUP)
WARMUP_FAILED = _crash("warmup-failed", r"", stage=Stage.WARMUP)

LINES: tuple[tuple[tuple[str, ...], Cause], ...] = (
    (
        ("igquit", "SIGQUIT"),
        _crash(
            "parent-told",
            r"Received sigquit from a child proces",
            r"SIGQUIT received\.|Received SIGQUIT from scheduler",
            grade=Grade.CONSEQUENCE,
        ),
    ),
    (
        ("scheduler", "hild process", "ubprocess", "Exit code", "DP worker", "exited prematurely"),
        _crash(
            "child-died",
            r"Rank \d+ scheduler is dead",
            r"^Exit code: -?\d+",
            r"[Cc]hild process unexpectedly failed",
            r"Subprocess .* crashed with exit code",
            r"DP worker rank=\d+ .*exited with code|Weight cache daemon exited prematurely",
            grade=Grade.CONSEQUENCE,
        ),
    ),
    # The kernel's words, from journald or dmesg, and Kubernetes'.
    (
        ("Killed", "oom-kill"),
        _oom(
            "host-ram",
            r"[Oo]ut of memory: Killed process \d+ \(sglang::",
            r"oom-kill:.*task=sglang::",
        ),
    ),
    (
        ("Killed", "oom-kill"),
        _oom(
            "host-ram",
            r"[Oo]ut of memory: Killed process \d+ \((?:sglang|python|pt_main|ray::)",
            r"oom-kill:.*task=(?:sglang|python|pt_main|ray::)",
            r"\bOOMKilled\b",
            grade=Grade.CLUE,
        ),
    ),
    (("Killed",), _crash("killed", r"^(?:\S+: line \d+:\s+\d+ )?Killed\b", grade=Grade.CONSEQUENCE)),
    # uvicorn: "[date] ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 30000)"
    (
        ("Errno", "ddress already"),
        _crash(
            "port-in-use",
            r"\[Errno (?:98|48|99)\].*(?:bind|address)",
            r"error while attempting to bind on address .* already in use",
            stage=Stage.WARMUP,
        ),
    ),
    (("Errno 13",), _crash("permission", r"\[Errno 13\].*bind", stage=Stage.WARMUP)),
    (
        ("error: ",),
        _crash(
            "bad-flag",
            r"^(?:[\w./-]{1,200}\.py|[\w./-]*sglang(?: serve)?|launch_server|python\S*(?: -m \S+)?): error: \S",
            stage=Stage.IMPORT,
        ),
    ),
    (
        ("atchdog",),
        _hang(
            "scheduler-watchdog",
            r"[Ww]atchdog timeout \(self\.watchdog_timeout=[\d.]+(?:, self\.soft=False)?\)",
        ),
    ),
    (("atchdog",), _hang("collective-timeout", r"Watchdog caught collective operation timeout")),
    (("imed out",), _hang("load-barrier-timeout", r"[Tt]imed out waiting for ranks", grade=Grade.NOTE)),
    (
        ("inconsistency",),
        _crash("abort", r"To avoid data inconsistency, we are taking the entire process down", grade=Grade.CONSEQUENCE),
    ),
    # A command line that never reached SGLang.
    (
        ("No module named", "finding module", "not found", "can't open file"),
        _crash(
            "import-error",
            r"^\S*python[\d.]*: (?:No module named|Error while finding module|can't open file)",
            r"^\S+: (?:line \d+: )?(?:sglang|\S*python[\d.]*): (?:command )?not found",
            stage=Stage.IMPORT,
        ),
    ),
    # numactl around a scheduler, in a container that may not bind memory.
    (
        ("mempolicy", "membind", "mbind"),
        _crash("permission", r"^(?:set_mempolicy|setting membind|mbind): ", grade=Grade.CLUE),
    ),
    # The GPU went away, or ROCm's way of saying bad access.
    (("Xid",), _crash("gpu-fault", r"NVRM: Xid", grade=Grade.CLUE)),
    (("Memory access fault",), _crash("cuda-error", r"Memory access fault by GPU", grade=Grade.CLUE)),
    # C++ that prints and leaves.
    (
        ("kernel image",),
        _crash("unsupported-arch", r"no kernel image is available for execution", grade=Grade.CLUE),
    ),
    (
        ("out of memory",),
        _oom(
            DEVICE_OOM,
            r"(?:CUDA error|CUDA Error|Cuda failure|Failed: Cuda error).{0,200}out of memory",
            r"(?:cuda|CUDA) [Gg]raph failed(?: with error)?: .*out of memory",
            r"nvshmem.{0,200}out of memory",
            grade=Grade.CLUE,
        ),
    ),
    (
        ("CUDA error", "Failed: C", "illegal memory"),
        _crash(
            "cuda-error",
            r"^(?:what\(\): +)?(?:CUDA error|Failed: Cuda error|Failed: CUDA error)",
            r"an illegal memory access was encountered",
            r"watchdog thread terminated with exception: CUDA error",
            grade=Grade.CLUE,
        ),
    ),
    (("bad_alloc",), _oom("host-ram", r"std::bad_alloc", grade=Grade.CLUE)),
    (("Fatal Python error: Seg",), _crash("segfault", r"Fatal Python error: Segmentation fault")),
    (("Fatal Python error: Bus",), _crash("bus-error", r"Fatal Python error: Bus error")),
    (
        ("egmentation fault", "SIGSEGV", "signal 11"),
        _crash(
            "segfault",
            r"^Segmentation fault",
            r"SIGSEGV|Caught signal 11 ",
            grade=Grade.CLUE,
        ),
    ),
    (
        ("us error", "signal 7"),
        _crash("bus-error", r"^Bus error|Caught signal 7 ", grade=Grade.CLUE),
    ),
    (
        ("bort", "terminate called"),
        _crash("abort", r"^Fatal Python error: Aborted|^Aborted\b|terminate called", grade=Grade.CONSEQUENCE),
    ),
    (
        ("llegal instruction",),
        _crash(
            "illegal-instruction",
            r"^Fatal Python error: Illegal instruction|^Illegal instruction",
            grade=Grade.CLUE,
        ),
    ),
    (("NCCL WARN",), _crash("nccl-error", r"NCCL WARN", grade=Grade.NOTE)),
    (("startup failed",), _crash("startup-failed", r"Application startup failed\. Exiting", grade=Grade.CLUE)),
    (
        ("armup failed", "warmup error"),
        _crash(
            "warmup-failed",
            r"Disaggregation warmup failed",
            r"Initialization failed\. warmup error",
            stage=Stage.WARMUP,
            grade=Grade.CLUE,
        ),
    ),
    (("barrier failed",), _crash("startup-failed", r"readiness barrier failed; exiting", grade=Grade.CLUE)),
    (
        ("already in use", "not available in"),
        _crash(
            "port-in-use",
            r"^Port is already in use\. dist_init_port",
            r"^\w+ at \d+ is not available in [\d.]+ seconds",
            stage=Stage.IMPORT,
            grade=Grade.CLUE,
        ),
    ),
    # Said on the way, by servers that start and by servers that do not.
    (("unbalanced",), _crash("memory-unbalanced", r"The memory capacity is unbalanced", grade=Grade.NOTE)),
    (("profiled value",), _crash("token-cap", r"max_total_tokens=\d+ is larger than the profiled", grade=Grade.NOTE)),
    (
        ("was reduced from", "fewer than --context-length"),
        _crash(
            "small-pool",
            r"max_running_requests was reduced from",
            r"KV pool holds \d+ tokens, fewer than --context-length",
            grade=Grade.NOTE,
        ),
    ),
    (("lower your batch size",), _crash("token-pool-exhausted", r"out of memory\. Try to lower", grade=Grade.NOTE)),
    (("Disable ",), _crash("no-graph", r"^Disable .*(?:CUDA|cuda) graph", grade=Grade.NOTE)),
    (("kill_process_tree",), _crash("cleanup", r"kill_process_tree called: ", grade=Grade.NOTE)),
    (("Health check failed",), _crash("unhealthy", r"Health check failed\.", grade=Grade.NOTE)),
    # A rank that gave up a communication buffer and went on: the others will wait for it.
    (
        ("out of memory",),
        _oom(
            "comm-buffer",
            r"Failed to initialize FlashInfer workspace",
            r"[Ss]ymm\w*",
            r"[Ww]orkspace.*(?:allocat|init)",
            r"[Aa]ll-?reduce.*(?:disabl|fail)|[Dd]isabl\w+ .*all-?reduce",
            grade=Grade.NOTE,
        ),
    ),
)
"""(words of which one must be there, row); the words spare most lines the pattern."""

LINE_WORDS: tuple[str, ...] = tuple(dict.fromkeys(word for words, _ in LINES for word in words))


def of_exception(kind: str, message: str) -> Cause:
    """The row for an exception ``kind: message``. Never None: the last resort is the cause ``exception``."""
    text = f"{kind}: {message}" if message else kind
    short = text if "." not in kind else f"{kind.rpartition('.')[2]}: {message}"
    for row in EXCEPTIONS:
        if row.pattern.search(text) or row.pattern.search(short):
            return row
    return ANY_EXCEPTION


def of_line(text: str) -> Cause | None:
    """The row for a line outside of tracebacks, or None where it means nothing."""
    for words, row in LINES:
        for word in words:
            if word in text:
                if row.pattern.search(text):
                    return row
                break
    return None


_COMM_BUFFER = re.compile(
    r"deep_?ep|nvshmem|symm_?mem|custom_all_reduce|workspace|pynccl|mscclpp|quick_all_reduce|ncclComm|NCCL|mnnvl",
    re.IGNORECASE,
)
_BY_STAGE = {
    Stage.IMPORT: "comm-buffer",
    Stage.DIST_INIT: "comm-buffer",
    Stage.WEIGHT_LOAD: "weight-load",
    Stage.KV_PROFILE: "kv-alloc",
    Stage.KV_ALLOC: "kv-alloc",
    Stage.KERNEL_WARMUP: "warmup",
    Stage.GRAPH_CAPTURE: "graph-capture",
    Stage.WARMUP: "warmup",
    Stage.SERVING: "runtime",
}


def oom_cause(stage: Stage, where: str) -> str:
    """DESIGN's cause for a device OOM. ``where``: innermost frame and message, for communication buffers."""
    if stage is not Stage.WEIGHT_LOAD and _COMM_BUFFER.search(where):
        return "comm-buffer"
    return _BY_STAGE[stage]
