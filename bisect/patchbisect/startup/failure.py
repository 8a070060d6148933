"""From the signs of one life to the one failure that decides: which sign, which stage, which role."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from patchbisect.model import Outcome, Role, Stage
from patchbisect.startup import causes
from patchbisect.startup.blocks import Block, Exc, Frame, Mode
from patchbisect.startup.causes import Cause, Grade
from patchbisect.startup.hang import missing_ranks
from patchbisect.startup.life import Life, Sign
from patchbisect.startup.ranks import ORDER, Position, Progress

_BOILERPLATE = re.compile(r"\n?Possible solutions:.*", re.DOTALL)
_WRAPPED = re.compile(r"^(?:Capture (?:[\w ]+ )?(?:cuda|CUDA) graph failed|Piecewise CUDA Graph failed with error): ")
_MESSAGE_LINES = 25

_FUNCTION_STAGE: Mapping[str, Stage] = {
    "prepare_server_args": Stage.IMPORT,
    "from_cli_args": Stage.IMPORT,
    "__post_init__": Stage.IMPORT,
    "init_torch_distributed": Stage.DIST_INIT,
    "init_parallel_runtime": Stage.DIST_INIT,
    "init_distributed_environment": Stage.DIST_INIT,
    "initialize_model_parallel": Stage.DIST_INIT,
    "initialize_dp_attention": Stage.DIST_INIT,
    "load_model": Stage.WEIGHT_LOAD,
    "load_weights": Stage.WEIGHT_LOAD,
    "load_weights_and_postprocess": Stage.WEIGHT_LOAD,
    "_initialize_model": Stage.WEIGHT_LOAD,
    "create_weights": Stage.WEIGHT_LOAD,
    "process_weights_after_loading": Stage.WEIGHT_LOAD,
    "download_weights_from_hf": Stage.WEIGHT_LOAD,
    "profile_max_num_token": Stage.KV_PROFILE,
    "_profile_available_bytes": Stage.KV_PROFILE,
    "get_cell_size_per_token": Stage.KV_PROFILE,
    "_compute_cell_size": Stage.KV_PROFILE,
    "handle_max_mamba_cache": Stage.KV_PROFILE,
    "config_from_budget": Stage.KV_PROFILE,
    "init_memory_pool": Stage.KV_ALLOC,
    "init_memory_pools": Stage.KV_ALLOC,
    "_create_buffers": Stage.KV_ALLOC,
    "init_kv_buffer": Stage.KV_ALLOC,
    "kernel_warmup": Stage.KERNEL_WARMUP,
    "_flashinfer_autotune": Stage.KERNEL_WARMUP,
    "init_attention_backend": Stage.KERNEL_WARMUP,
    "_get_attention_backend": Stage.KERNEL_WARMUP,
    "init_cublas": Stage.KERNEL_WARMUP,
    "init_cuda_graphs": Stage.GRAPH_CAPTURE,
    "init_device_graphs": Stage.GRAPH_CAPTURE,
    "capture_decode_graph": Stage.GRAPH_CAPTURE,
    "capture_one_batch_size": Stage.GRAPH_CAPTURE,
    "init_piecewise_cuda_graphs": Stage.GRAPH_CAPTURE,
    "event_loop_normal": Stage.WARMUP,
    "event_loop_overlap": Stage.WARMUP,
    "event_loop_pp": Stage.WARMUP,
    "forward_thread_func": Stage.WARMUP,
    "get_next_batch_to_run": Stage.WARMUP,
    "_execute_server_warmup": Stage.WARMUP,
    "_wait_and_warmup": Stage.WARMUP,
}
_FILE_STAGE: tuple[tuple[re.Pattern[str], Stage], ...] = (
    (re.compile(r"mem_cache/\w*memory_pool\w*\.py$"), Stage.KV_ALLOC),
    (re.compile(r"graph_runner\w*\.py$|cuda_graph_setup\.py$"), Stage.GRAPH_CAPTURE),
    (re.compile(r"layers/attention/.*_backend\.py$"), Stage.KERNEL_WARMUP),
    (re.compile(r"^srt/server_args\.py$"), Stage.IMPORT),
    (re.compile(r"model_loader/\w+\.py$"), Stage.WEIGHT_LOAD),
)


@dataclass(frozen=True, slots=True)
class Failure:
    """The failure that decides a verdict."""

    cause: str
    outcome: Outcome
    stage: Stage
    role: Role
    sign: Sign
    exception: Exc | None
    settled: bool
    """Nothing that belongs to this sign can still arrive."""

    said: tuple[int, str]
    """(line, text) of the line that names the cause."""

    @property
    def line(self) -> int:
        return self.said[0]

    @property
    def text(self) -> str:
        return self.said[1]

    @property
    def frame(self) -> Frame | None:
        return self.exception.innermost_own if self.exception else None

    @property
    def exception_type(self) -> str:
        return self.exception.type.rpartition(".")[2] if self.exception else ""


@dataclass(frozen=True, slots=True)
class Reading:
    """What one sign turns out to mean once its traceback has been read."""

    sign: Sign
    cause: Cause
    exception: Exc | None

    @property
    def grade(self) -> Grade:
        block = self.sign.block
        if block is not None and block.handled and self.cause.grade is not Grade.CONSEQUENCE:
            return Grade.NOTE
        return self.cause.grade


def read_signs(life: Life) -> list[Reading]:
    """All signs with their true grade, earliest first: by time stamp, within one second by line."""
    readings = [_read(sign) for signs in life.signs.values() for sign in signs]
    return sorted(readings, key=lambda reading: (reading.sign.time or life.last_time, reading.sign.line))


def _read(sign: Sign) -> Reading:
    if sign.block is None or not sign.block.chain:
        return Reading(sign, sign.cause, None)
    cause, exception = cause_of(sign.block)
    if sign.block.who == "warmup" and cause.name in causes.GENERIC:
        cause = causes.WARMUP_TIMEOUT if cause.name == "timeout" else causes.WARMUP_FAILED
    return Reading(sign, cause, exception)


def cause_of(block: Block) -> tuple[Cause, Exc]:
    """The cause of a chain of exceptions, and the link that tells it.

    The last link is what ended the process. Where it only wraps ("Capture cuda graph failed: …") or says
    nothing beyond its type, an earlier link may know better: one that it was raised from, or one about the
    machine (memory, compiler, network) that it followed.
    """
    last = block.chain[-1]
    cause = _cause_of_link(last)
    if cause.name not in causes.GENERIC:
        return cause, last
    direct = last.direct
    for link in reversed(block.chain[:-1]):
        earlier = _cause_of_link(link)
        telling = earlier.name not in causes.GENERIC and earlier.grade is Grade.FATAL
        machine = earlier.outcome is not Outcome.CRASH or earlier.name in _MACHINE
        if telling and (direct or machine):
            return earlier, link
        direct = direct and link.direct
    return cause, last


_MACHINE = frozenset(
    {
        *("jit-compile", "torch-compile", "nccl-error", "cuda-error", "cuda-init", "unsupported-arch"),
        *("triton-shared-memory", "disk-full", "port-in-use", "missing-model", "download-failed"),
    }
)


def _cause_of_link(link: Exc) -> Cause:
    message = _BOILERPLATE.sub("", "\n".join(link.message[:_MESSAGE_LINES]))
    return causes.of_exception(link.type, _WRAPPED.sub("", message))


def settle(reading: Reading, life: Life, progress: Progress, *, may_draft: bool) -> Failure:
    """Stage, role and cause of the sign that decides."""
    position = _position(reading, life, progress)
    stage, role = _stage_and_role(reading, life, position, may_draft=may_draft)
    cause = reading.cause.name
    if cause == causes.DEVICE_OOM:
        if stage is Stage.KV_PROFILE:
            stage = Stage.KV_ALLOC
        cause = causes.oom_cause(stage, _where(reading))
    block = reading.sign.block
    settled = block is None or block.mode is Mode.CLOSED
    said = _said(reading, life)
    return Failure(cause, reading.cause.outcome, stage, role, reading.sign, reading.exception, settled, said)


COMPILER_LINES = 80
"""How far before its traceback a compiler's own words may stand: they go straight to the terminal."""


def _said(reading: Reading, life: Life) -> tuple[int, str]:
    """The line that names the cause. A compiler that was run prints it itself, before the exception that quotes
    nothing but the command line."""
    exception = reading.exception
    if exception is None:
        return reading.sign.line, reading.sign.text
    line, text = exception.telling
    compiler = life.activity.compiler_said
    if compiler is None or not exception.names_no_cause or line != exception.line:
        return line, text
    return compiler if 0 < reading.sign.line - compiler[0] <= COMPILER_LINES else (line, text)


def _where(reading: Reading) -> str:
    """Where a device OOM happened: the innermost frames and, for bare lines, the line itself."""
    if reading.exception is None:
        return reading.sign.text
    frames = reading.exception.frames[-2:]
    places = ["/".join(frame.path.split("/")[-2:]) + " " + frame.function for frame in frames]
    return " ".join([*places, reading.exception.message[0]])


def _position(reading: Reading, life: Life, progress: Progress) -> Position:
    """Where the failing rank stood; where all stood if it never said."""
    if life.was_ready(line=reading.sign.line, time=reading.sign.time):
        return Position(Role.TARGET, Stage.SERVING, ended=False)
    if life.http_line and reading.sign.line > life.http_line:
        return Position(Role.TARGET, Stage.WARMUP, ended=False)
    rank = reading.sign.rank
    if progress.tracks.get(rank):
        return progress.position(rank)
    return where_all_stand(life, progress)


def where_all_stand(life: Life, progress: Progress) -> Position:
    """The furthest place, or the stage in which some still are when others have ended it."""
    mark = progress.furthest()
    if mark is not None and missing_ranks(mark, life.args, progress):
        return Position(mark.role, mark.stage, ended=False)
    return progress.position()


def _stage_and_role(reading: Reading, life: Life, position: Position, *, may_draft: bool) -> tuple[Stage, Role]:
    named = reading.cause.stage or _stage_of_frames(reading, position)
    role = position.role
    if reading.cause.stage is Stage.IMPORT or position.stage is Stage.SERVING:
        return named if named is Stage.IMPORT else position.stage, Role.TARGET
    block = reading.sign.block
    if may_draft and block is not None and block.drafty and position.stage is not Stage.IMPORT:
        started_over = position.role is Role.TARGET and ORDER[position.stage] >= ORDER[Stage.KV_ALLOC]
        role = Role.DRAFT
        if named is None and started_over:
            named = Stage.DIST_INIT if not life.ready_line else Stage.SERVING
    if named is not None:
        return named, role
    if position.stage is Stage.IMPORT and _has_imported(reading):
        return Stage.DIST_INIT, role
    return position.next_stage, role


def _has_imported(reading: Reading) -> bool:
    """A scheduler that runs its own code has done its imports, though it has printed nothing yet."""
    block, exception = reading.sign.block, reading.exception
    if (
        block is None
        or block.who != "Scheduler"
        or exception is None
        or reading.cause.name in ("syntax-error", "import-error")
    ):
        return False
    frame = exception.innermost_own
    return frame is not None and frame.function != "<module>"


def _stage_of_frames(reading: Reading, position: Position) -> Stage | None:
    """The stage that the innermost telling frame of SGLang's own code names."""
    if reading.exception is None:
        return None
    for frame in reversed(reading.exception.frames):
        own = frame.own
        if not own:
            continue
        stage = _FUNCTION_STAGE.get(frame.function)
        if stage is None and frame.function != "<module>":
            stage = next((stage for pattern, stage in _FILE_STAGE if pattern.search(own)), None)
        if stage is None:
            continue
        if stage is Stage.WARMUP and position.stage is Stage.SERVING:
            return Stage.SERVING
        if stage is Stage.KERNEL_WARMUP and ORDER[position.stage] > ORDER[stage]:
            return position.next_stage
        return stage
    return None
