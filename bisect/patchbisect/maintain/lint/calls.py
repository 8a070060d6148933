"""Which calls a probe may make, and why not the others. Facts on SGLang and torch: release 0.5.9, ``srt/utils``."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from patchbisect.maintain.lint.bound import dotted
from patchbisect.maintain.lint.scopes import Scope, words

LOG_METHODS = words(
    "debug info warning warn error critical log exception info_once warning_once debug_once info_on_rank0"
)
_LOGGER_NAMES = frozenset({"logger", "log", "_logger", "LOGGER", "LOG"})

_BUILTINS = words(
    "len vars dir repr str int float bool round abs min max sum sorted list tuple dict set frozenset type isinstance "
    "issubclass hasattr getattr callable id format range enumerate zip hex bin any all divmod print hash ascii chr "
    "ord reversed"
)
_FUNCTIONS = words(
    "time.time time.perf_counter time.monotonic time.time_ns time.perf_counter_ns time.monotonic_ns time.strftime "
    "time.process_time time.localtime time.ctime os.getpid os.getppid os.getenv os.environ.get os.cpu_count "
    "os.path.basename os.path.exists os.path.join os.path.dirname os.path.abspath threading.current_thread "
    "threading.get_ident threading.active_count traceback.format_stack traceback.print_stack traceback.format_exc "
    "datetime.datetime.now datetime.now socket.gethostname sys.getsizeof "
    "psutil.Process psutil.virtual_memory torch.cuda.memory_stats "
    "platform.platform logging.getLogger math.isnan "
    "torch.cuda.memory_allocated torch.cuda.memory_reserved torch.cuda.max_memory_allocated "
    "torch.cuda.max_memory_reserved torch.cuda.is_available torch.cuda.is_initialized torch.cuda.device_count "
    "torch.is_grad_enabled torch.is_inference_mode_enabled torch.is_tensor torch.compiler.is_compiling "
    ""
    "torch.get_default_dtype torch.distributed.is_initialized torch.distributed.is_available "
    "sys.stdout.write sys.stderr.write sys.stdout.flush sys.stderr.flush "
    "contextlib.suppress collections.defaultdict collections.Counter collections.deque"
)
_METHODS = words(
    "size numel dim element_size nelement stride data_ptr is_contiguous get_device storage_offset keys values items "
    "format join split rsplit strip lstrip rstrip upper lower title startswith endswith replace hex total_seconds "
    "isoformat strftime partition rpartition count qsize empty is_set locked ljust rjust center zfill "
    "is_floating_point "
    "memory_info isEnabledFor getEffectiveLevel "
    "parameters named_parameters buffers named_buffers modules named_modules children named_children"
)
SYNC_METHODS = words("item cpu tolist numpy cuda to synchronize nonzero is_nonzero wait wait_stream")
_SYNC_FUNCTIONS = words(
    "torch.cuda.synchronize torch.equal torch.allclose torch.nonzero torch.save torch.cuda.current_stream "
    "torch.cuda.reset_peak_memory_stats"
)
_COLLECTIVES = words(
    "all_reduce all_gather all_gather_into_tensor all_gather_object broadcast broadcast_object_list broadcast_pyobj "
    "broadcast_object broadcast_tensor_dict barrier monitored_barrier reduce_scatter reduce_scatter_tensor all_to_all "
    "all_to_all_single gather_object scatter_object_list tensor_model_parallel_all_reduce new_group "
    "tensor_model_parallel_all_gather init_process_group attention_tensor_model_parallel_all_reduce "
    "all_reduce_coalesced destroy_process_group"
)
_POINT_TO_POINT = words("reduce gather scatter send recv isend irecv batch_isend_irecv")
_NEEDS_GROUP = words(
    "get_rank get_world_size get_tensor_model_parallel_rank get_tensor_model_parallel_world_size get_tp_group "
    "get_world_group get_pp_group get_attention_tp_rank get_attention_tp_size"
)
"""They raise where the process group is not set up yet."""
_GUARDS_OF_GROUP = ("is_initialized", "model_parallel_is_initialized")

_KNOWN_MODULES = words("time torch os datetime json contextlib")
"""Whose names the lists above give in full."""

_WHY = {
    "torch.cuda.mem_get_info": "creates a CUDA context where there is none: ask torch.cuda.is_initialized() first",
    "torch.cuda.empty_cache": "gives torch's cached memory back: the run is another one after it",
    "torch.cuda.current_device": "creates a CUDA context where there is none, and raises without a GPU",
    "gc.collect": "frees memory that the run would have held",
    "time.sleep": "changes the timing",
    "locals": "prints every local, tensors too: each is copied from the GPU",
    "breakpoint": "stops the server",
    "input": "waits for somebody to type",
    "open": "can raise, and writes beside the log",
    "next": "takes a value out of an iterator that other code reads",
    "setattr": "changes an object that other code reads",
    "exec": "runs code that lint does not see",
    "eval": "runs code that lint does not see",
    "json.dumps": "raises for what JSON does not know: give default=str",
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a call may not be made: the rule it breaks, and the reason."""

    rule: str
    why: str
    remedy: str = "Read a value that is there already, or put `Waive:` with the rule and a reason into the patch."


class Calls:
    """Judges the calls of one scope. ``own``: names that the patch itself brings; calling them is its own affair."""

    def __init__(self, scope: Scope, *, own: frozenset[str], true_calls: frozenset[str]) -> None:
        self.scope = scope
        self.own = own
        self.true_calls = true_calls

    def refusal(self, node: ast.Call) -> Refusal | None:
        """None for a call that may be made."""
        name = canonical(self.scope, node.func)
        last = name.rpartition(".")[2] or (node.func.attr if isinstance(node.func, ast.Attribute) else "")
        if name == "print" or self.is_log(node) or self._is_own(node, name):
            return None
        if name == "torch.cuda.mem_get_info" and "torch.cuda.is_initialized" in self.true_calls:
            return None
        if last == "get_available_gpu_memory":
            return _of_memory_query(node)
        if last in _COLLECTIVES or (last in _POINT_TO_POINT and name.startswith("torch.distributed.")):
            return Refusal("collective", f"{_shown(node)} is a collective call: every rank of the group must come")
        if last in _NEEDS_GROUP:
            return self._of_group(node)
        if name in _SYNC_FUNCTIONS or (isinstance(node.func, ast.Attribute) and last in SYNC_METHODS):
            return Refusal("gpu-sync", f"{_shown(node)} waits for the GPU or copies from it")
        if name in _FUNCTIONS or self._is_builtin(name):
            return self._of_arguments(node, name)
        if name.startswith("logging.") and last in LOG_METHODS:
            return Refusal(
                "call",
                f"{_shown(node)} uses the root logger, and sets logging up if nobody has",
                "Use the file's logger.",
            )
        if name == "json.dumps" and any(word.arg == "default" for word in node.keywords):
            return None
        if isinstance(node.func, ast.Attribute) and name not in _WHY and self._of_method(node):
            return None
        return Refusal("call", f"{_shown(node)} {_WHY.get(name, 'is not on the list of calls that change nothing')}")

    def is_log(self, node: ast.Call) -> bool:
        """A call of a logger's method: of a name that a logger is called, or that ``getLogger`` gave."""
        if not isinstance(node.func, ast.Attribute) or node.func.attr not in LOG_METHODS:
            return False
        value = node.func.value
        if isinstance(value, ast.Call):
            return dotted(value.func).rpartition(".")[2] in ("getLogger", "init_logger", "get_logger")
        return dotted(value).rpartition(".")[2] in _LOGGER_NAMES

    def _is_own(self, node: ast.Call, name: str) -> bool:
        """A function, a method or an object that the patch brings."""
        method = isinstance(node.func, ast.Attribute) and node.func.attr in self.own
        return method or name.partition(".")[0] in self.own

    def _is_builtin(self, name: str) -> bool:
        return name in _BUILTINS and self.scope.home(name) is None

    def _of_group(self, node: ast.Call) -> Refusal | None:
        if any(guard in self.true_calls for guard in _GUARDS_OF_GROUP):
            return None
        return Refusal(
            "may-raise",
            f"{_shown(node)} raises where the process group is not set up yet",
            "Ask torch.distributed.is_initialized() in an `if` around it.",
        )

    def _of_method(self, node: ast.Call) -> bool:
        assert isinstance(node.func, ast.Attribute)
        if node.func.attr in _METHODS:
            return True
        if node.func.attr == "get":
            # With one argument that is a key; queue.get() and queue.get(True) wait.
            if dotted(node.func).startswith("envs."):
                # SGLang's own accessor of environment variables (srt/environ.py).
                return not node.args
            return bool(node.args) and not _is_flag(node.args[0]) and not node.keywords
        if node.func.attr == "copy":
            return not node.args and not node.keywords
        return False

    @staticmethod
    def _of_arguments(node: ast.Call, name: str) -> Refusal | None:
        if name == "getattr" and len(node.args) == 2:
            return Refusal("may-raise", f"{_shown(node)} raises AttributeError", "Give getattr a default.")
        if name == "vars" and not node.args:
            return Refusal("call", f"{_shown(node)} {_WHY['locals']}")
        return None


def canonical(scope: Scope, function: ast.expr) -> str:
    """The dotted name of a function, with import aliases undone: ``dist.barrier`` → ``torch.distributed.barrier``."""
    name = dotted(function)
    root, _, rest = name.partition(".")
    home = scope.home(root) if root else None
    for node in home.bound.get(root, []) if home else []:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.asname == root:
                    return f"{alias.name}.{rest}" if rest else alias.name
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if (alias.asname or alias.name) == root and node.module in _KNOWN_MODULES:
                    return ".".join(filter(None, (node.module, alias.name, rest)))
                if (alias.asname or alias.name) == root and node.module.startswith("torch"):
                    return ".".join(filter(None, (node.module, alias.name, rest)))
    return name


def _of_memory_query(node: ast.Call) -> Refusal | None:
    """``get_available_gpu_memory(device, gpu_id, distributed=False, empty_cache=True, cpu_group=None)``."""
    given = dict(zip(("device", "gpu_id", "distributed", "empty_cache", "cpu_group"), node.args, strict=False))
    given.update({word.arg: word.value for word in node.keywords if word.arg})
    if "distributed" in given and not _is_false(given["distributed"]):
        return Refusal(
            "collective",
            f"{_shown(node)} takes the minimum over the ranks: a collective call",
            "Leave distributed out.",
        )
    if "empty_cache" not in given or not _is_false(given["empty_cache"]):
        return Refusal(
            "call",
            f"{_shown(node)} empties torch's cache, which waits for the GPU and changes what is free",
            "Say empty_cache=False.",
        )
    return None


def _shown(node: ast.Call) -> str:
    text = ast.unparse(node.func)
    return f"{text if len(text) <= 60 else '...' + text[-57:]}(...)"


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def _is_flag(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, bool)
