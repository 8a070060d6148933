"""Small patches of SGLang 0.5.9: code added before or after one line, and the rules that it breaks.

``RUNNABLE`` marks those that a real server on a machine without a GPU reaches and dies of (or changes its mind by).
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

MIXIN = "python/sglang/srt/model_executor/model_runner_kv_cache_mixin.py"
RUNNER = "python/sglang/srt/model_executor/model_runner.py"
PARALLEL = "python/sglang/srt/distributed/parallel_state.py"
SYMM_MEM = "python/sglang/srt/distributed/device_communicators/torch_symm_mem.py"

PROFILED = (MIXIN, "        return int(rest_memory * (1 << 30)) // cell_size\n")
"""The end of profile_max_num_token: cell_size, rest_memory, num_layers are bound; effective_layer_ids may be."""
POOLED = (RUNNER, "        # Init max running requests\n")
"""initialize, right after init_memory_pool."""
LOADED = (RUNNER, "        self.weight_load_mem_usage = before_avail_memory - after_avail_memory\n")
"""load_model, before that line."""
BUILDING = (RUNNER, "        self.dist_port = nccl_port\n")
"""ModelRunner.__init__, among its first assignments."""
REDUCING = (
    PARALLEL,
    "        # On AMD, use the deterministic 1-stage kernel when:\n        # - SGLANG_USE_1STAGE_ALLREDUCE=1",
)
"""GroupCoordinator.all_reduce; input_ is a torch.Tensor."""
LIMITING = (
    MIXIN,
    "        if max_total_tokens is not None:\n            if max_total_tokens > self.max_total_num_tokens:\n",
)
"""init_memory_pool, before the user's cap."""
CONNECTING = (
    RUNNER,
    "        before_avail_memory = get_available_gpu_memory(self.device, self.gpu_id)\n        if not",
)
"""init_torch_distributed, before the process group exists."""
CAPABLE = (SYMM_MEM, "        if self.device_capability < 9:\n")
TURNING = (RUNNER, "                    try:\n                        next(gen)\n")
"""A loop that takes from the iterator gen."""
ASKING = ("python/sglang/srt/managers/tokenizer_manager.py", "        # Normalize the request\n")
"""TokenizerManager.generate_request, a coroutine, at its beginning."""
MODULE = (MIXIN, "_is_npu = is_npu()\n")


@dataclass(frozen=True)
class Case:
    name: str
    at: tuple[str, str]
    code: str
    rules: frozenset[str] = frozenset()
    indent: int = 8
    runnable: bool = False
    instead: bool = False
    """The code takes the place of the anchor, as it is written."""

    def apply(self, text: str) -> str:
        """The file with the code before the anchor."""
        _, anchor = self.at
        assert text.count(anchor) == 1, f"{self.name}: the anchor stands {text.count(anchor)} times"
        if self.instead:
            return text.replace(anchor, self.code)
        return text.replace(
            anchor, textwrap.indent(textwrap.dedent(self.code).strip("\n"), " " * self.indent) + "\n" + anchor
        )


def bad(name: str, at: tuple[str, str], code: str, *rules: str, indent: int = 8, runnable: bool = False) -> Case:
    return Case(name=name, at=at, code=code, rules=frozenset(rules), indent=indent, runnable=runnable)


def edited(name: str, path: str, old: str, new: str, *rules: str) -> Case:
    """A change of SGLang's own lines."""
    return Case(name=name, at=(path, old), code=new, rules=frozenset(rules), instead=True)


def good(name: str, at: tuple[str, str], code: str, indent: int = 8) -> Case:
    return Case(name=name, at=at, code=code, indent=indent)


def shown(expression: str) -> str:
    return f'logger.info("%s", {expression})'


GOOD = [
    good("f-string", PROFILED, 'logger.info(f"[DBG] {cell_size=} {rest_memory=} {num_layers=}")'),
    good("lazy logging", PROFILED, 'logger.info("PROBE kv cell_size=%s rest=%s", cell_size, rest_memory)'),
    good("flushed print", PROFILED, 'print(f"[DBG] cell_size={cell_size}", flush=True)'),
    good("print to stderr", PROFILED, 'import sys\nprint("cell_size", cell_size, file=sys.stderr)'),
    good("a number that was subtracted", PROFILED, 'logger.info(f"rest={rest_memory:.3f} GB")'),
    good("repr with a width", PROFILED, 'logger.info(f"{self.kv_cache_dtype!r:>20}")'),
    good("guarded division", PROFILED, 'logger.info("%s", rest_memory / cell_size if cell_size else None)'),
    good("division in an if", PROFILED, 'if num_layers > 0:\n    logger.info("%s", cell_size / num_layers)'),
    good("the next line's own sum", PROFILED, 'logger.info("%s", int(rest_memory * (1 << 30)) // cell_size)'),
    good("a fresh local", PROFILED, '_dbg_free = rest_memory\nlogger.info("%s", _dbg_free)'),
    good("a fresh clock", PROFILED, 'import time\n_dbg_now = time.perf_counter()\nlogger.info("%s", _dbg_now)'),
    good("several lines", PROFILED, 'logger.info(\n    "PROBE kv fraction=%s",\n    self.mem_fraction_static,\n)'),
    good("getattr with default", PROFILED, 'logger.info("%s", getattr(self, "nothing_sets_this", None))'),
    good(
        "an environment variable",
        PROFILED,
        'import os\nif os.environ.get("SGLANG_DBG"):\n    logger.info("%s", num_layers)',
    ),
    good(
        "a broad try",
        PROFILED,
        'try:\n    logger.info(f"{1 / cell_size:.3f} {self.nope[0]}")\nexcept Exception:\n    logger.info("no")',
    ),
    good(
        "a handler for that",
        PROFILED,
        "try:\n    logger.info(effective_layer_ids)\nexcept UnboundLocalError:\n    pass",
    ),
    good(
        "asked for in locals", PROFILED, 'if "effective_layer_ids" in locals():\n    logger.info(effective_layer_ids)'
    ),
    good("a logger's level", PROFILED, "if logger.isEnabledFor(logging.DEBUG):\n    logger.debug(cell_size)"),
    good("an attribute that hasattr found", POOLED, 'if hasattr(self, "no"):\n    logger.info("%s", self.no)'),
    good("an attribute set before", POOLED, 'logger.info("%s", self.max_total_num_tokens)'),
    good("the name of a type", PROFILED, 'logger.info("%s", type(self.model).__name__)'),
    good("a method of its own", (MIXIN, "    def profile_max_num_token("), "def _dbg_show(self):\n    return 1\n", 4),
    good(
        "the driver's numbers",
        POOLED,
        'if torch.cuda.is_initialized():\n    logger.info("%s", torch.cuda.mem_get_info())',
    ),
    good("a comment", PROFILED, "# The pool is sized from here on."),
    good("formatted before as well", LOADED, 'logger.info(f"free={after_avail_memory:.2f}")'),
    good(
        "own memory", POOLED, 'logger.info("%s", get_available_gpu_memory(self.device, self.gpu_id, empty_cache=False))'
    ),
    good("torch's counters", POOLED, 'logger.info("%.2f", torch.cuda.memory_allocated() / (1 << 30))'),
    good("an attribute that was set", BUILDING, 'logger.info("%s %s", self.tp_rank, self.pp_size)'),
    good("shape of a tensor", REDUCING, 'logger.info("%s %s %s", input_.shape, input_.dtype, input_.numel())'),
    good("bytes of a tensor", REDUCING, 'logger.debug(f"{input_.numel() * input_.element_size():,d}")'),
    good(
        "rank if there is one",
        CONNECTING,
        'if torch.distributed.is_initialized():\n    logger.info("%s", torch.distributed.get_rank())',
    ),
    good("asked for None", LIMITING, 'if max_total_tokens is not None:\n    logger.info("%s", max_total_tokens + 1)'),
    good(
        "inside a branch",
        (MIXIN, "            num_layers = len(effective_layer_ids)\n"),
        'logger.info("%s", len(effective_layer_ids))',
        12,
    ),
    good("a comprehension's own name", PROFILED, 'logger.info("%s", [num_layers for num_layers in range(3)])'),
    good("a counter of its own", MODULE, "_dbg_calls = []", 0),
    good("a helper of its own", MODULE, 'def _dbg_show(value):\n    logger.info("%s", value)\n', 0),
    good(
        "a table with get",
        CAPABLE,
        'logger.info("%s", TORCH_SYMM_MEM_ALL_REDUCE_MAX_SIZES.get(self.device_capability))',
    ),
    good("a loop's else", PROFILED, "for _dbg in (1, 2):\n    pass\nelse:\n    _dbg_e = 1\n" + shown("_dbg_e")),
    good("walrus before and", PROFILED, "if num_layers and (_dbg := cell_size):\n    " + shown("_dbg")),
    good("annotated and bound", PROFILED, "_dbg: int = cell_size\n" + shown("_dbg")),
    good(
        "every case of a match",
        PROFILED,
        "match num_layers:\n    case 1:\n        _dbg = 1\n    case _dbg:\n        pass\n" + shown("_dbg"),
    ),
    good("a global of its own", PROFILED, "global _dbg_g\n_dbg_g = 1\n" + shown("_dbg_g")),
    good("a handler's own name", PROFILED, "try:\n    pass\nexcept ValueError as _dbg:\n    " + shown("_dbg")),
    good("never taken", PROFILED, shown("effective_layer_ids if False else 0")),
    good(
        "suppressed",
        PROFILED,
        "import contextlib\nwith contextlib.suppress(Exception):\n    " + shown("effective_layer_ids"),
    ),
    good("an f-string in one", PROFILED, "logger.info(f\"{f'{cell_size}'} {rest_memory!r}\")"),
    good("a function of its own", PROFILED, "def _dbg(*, a, **kw):\n    return a, kw\n" + shown("_dbg(a=cell_size)")),
    good("the largest of some", PROFILED, shown("max([cell_size, num_layers])")),
    good("the largest, or nothing", PROFILED, shown("max(self.server_args.__dict__, default=None)")),
    good("the first or nothing", PROFILED, shown("(self.model_config.hf_config.architectures or [None])[0]")),
    good("texts joined", PROFILED, shown("', '.join(str(one) for one in (1, 2))")),
    good("values by name", PROFILED, 'logger.info("%(cell)s", {"cell": cell_size})'),
    good("a number from text", PROFILED, shown("int('16')")),
    good("stack", PROFILED, "import traceback\ntraceback.print_stack()"),
]

BAD = [
    bad("a name of one branch", PROFILED, 'logger.info(f"[DBG] {effective_layer_ids=}")', "unbound", runnable=True),
    bad("a name of nobody", PROFILED, 'logger.info(f"{cell_sizes=}")', "unbound", runnable=True),
    bad(
        "a name of later",
        (MIXIN, "        # Get the number of layers used for KV cache calculation\n"),
        'logger.info(f"{cell_size=}")',
        "unbound",
        runnable=True,
    ),
    bad("a name of a nested branch", LIMITING, 'logger.info(f"[DBG] {ratio=}")', "unbound", runnable=True),
    bad("a loop's name", PROFILED, 'logger.info("%s", i)', "unbound", runnable=True),
    bad("a type checker's name", PROFILED, 'logger.info("%s", ModelRunner)', "unbound", runnable=True),
    bad("a caught exception", CONNECTING, 'logger.info("%s", mooncake_ib_device)', "unbound", runnable=True),
    bad("import of a global", PROFILED, "import logging", "makes-local"),
    bad("import that unbinds", CONNECTING, "import time", "makes-local", runnable=True),
    bad("a global assigned", PROFILED, "logger = None", "makes-local"),
    bad(
        "a global read before",
        (RUNNER, "        self.dtype = self.model_config.dtype\n\n        after"),
        "torch = None",
        "makes-local",
        runnable=True,
    ),
    bad("a local assigned", PROFILED, "cell_size = int(cell_size)", "binds"),
    bad("a loop over a local's name", PROFILED, "for rest_memory in range(2):\n    pass", "binds"),
    bad("walrus", PROFILED, 'logger.info("%s", (rest_memory := 3))', "binds"),
    bad("with as a local", PROFILED, "with open('/tmp/x') as rest_memory:\n    pass", "binds", "call"),
    bad("an attribute", POOLED, "self.max_total_num_tokens = 64", "binds"),
    bad(
        "an attribute halved",
        (RUNNER, "        self.init_memory_pool(min_per_gpu_memory)\n"),
        "self.mem_fraction_static /= 2",
        "binds",
    ),
    bad("a dictionary's entry", PROFILED, 'self.__dict__["x"] = 1', "binds"),
    bad("a builtin", PROFILED, "id = 3", "shadows"),
    bad("a module's name bound again", MODULE, "logger = logging.getLogger('x')", "binds", indent=0),
    bad("global", PROFILED, "global logger\nlogger = None", "control-flow", "binds"),
    bad("return", PROFILED, "return 4096", "control-flow"),
    bad("raise", PROFILED, "raise RuntimeError(cell_size)", "control-flow", "call", runnable=True),
    bad("assert", PROFILED, "assert cell_size > 1 << 40", "control-flow", runnable=True),
    bad("del", PROFILED, "del cell_size", "control-flow", "binds", runnable=True),
    bad("break", TURNING, "break", "control-flow", indent=20),
    bad("continue", TURNING, "continue", "control-flow", indent=20),
    bad("a loop without end", PROFILED, "while cell_size:\n    pass", "control-flow", runnable=True),
    bad("text joined with a number", PROFILED, 'logger.info("cell " + cell_size)', "may-raise", runnable=True),
    bad("an attribute of a number", PROFILED, "logger.info(cell_size.shape)", "may-raise", runnable=True),
    bad(
        "an attribute that SGLang asks for",
        PROFILED,
        "logger.info(self.model_config.hf_config.num_nextn_predict_layers)",
        "attribute",
        runnable=True,
    ),
    bad("an attribute that comes later", LOADED, "logger.info(self.max_running_requests)", "attribute", runnable=True),
    bad(
        "a name that SGLang's module may not have",
        PROFILED,
        "from sglang.srt.utils.common import get_bool_env_var_",
        "import",
    ),
    bad("the log's level", PROFILED, "logger.setLevel(10)", "call"),
    bad("an environment variable set", PROFILED, 'import os\nos.environ["X"] = "1"', "binds"),
    bad("a debugger", PROFILED, "import pdb\npdb.set_trace()", "call"),
    bad(
        "never reached",
        (MIXIN, "    def handle_max_mamba_cache("),
        'logger.info("here")\n',
        "never-runs",
    ),
    bad("a class's attribute", (MIXIN, "    def profile_max_num_token("), "dbg = 1", "binds", indent=4),
    bad("an iterator used up", TURNING, 'logger.info("%s", list(gen))', "consumes", indent=20),
    bad("sys.exit", PROFILED, "import sys\nsys.exit(1)", "call", runnable=True),
    bad("format of an unknown", POOLED, 'logger.info(f"{self.server_args.mem_fraction_static:.3f}")', "format"),
    bad(
        "format of None",
        POOLED,
        'print(f"{self.remote_instance_transfer_engine:.3f}", flush=True)',
        "format",
        runnable=True,
    ),
    bad(
        "format of an optional",
        LIMITING,
        'logger.info(f"{self.server_args.max_total_tokens:>10}")',
        "format",
        runnable=False,
    ),
    bad("format of a tensor", REDUCING, 'logger.info(f"{input_:.3f}")', "format"),
    bad("whole number of a float", LOADED, 'logger.info(f"{after_avail_memory:d}")', "format", runnable=True),
    bad("text as a number", POOLED, 'logger.info(f"{str(self.tp_rank):.2f}")', "format", runnable=True),
    bad("too few values", PROFILED, 'logger.info("%s %s", cell_size)', "format"),
    bad("percent of too few", PROFILED, 'logger.info("%s %s" % (cell_size,))', "format", runnable=True),
    bad("percent of a shape", REDUCING, 'logger.info("%s" % input_.shape)', "format"),
    bad("str.format of too few", PROFILED, 'logger.info("{} {}".format(cell_size))', "format", runnable=True),
    bad("division", PROFILED, 'logger.info("%s", cell_size / self.start_layer)', "division", runnable=True),
    bad("modulo", PROFILED, 'logger.info("%s", cell_size % self.pp_rank)', "division", runnable=True),
    bad("division by a length", PROFILED, 'logger.info("%s", 1 / len(self.server_args.__dict__))', "division"),
    bad("print without flush", PROFILED, 'print(f"[DBG] {cell_size=}")', "flush"),
    bad("item", REDUCING, 'logger.info("%s", input_.max().item())', "gpu-sync", "call"),
    bad("cpu", REDUCING, 'logger.info("%s", input_.cpu())', "gpu-sync"),
    bad("a tensor shown", REDUCING, 'logger.info(f"{input_}")', "gpu-sync"),
    bad("a tensor printed", REDUCING, "print(input_, flush=True)", "gpu-sync"),
    bad("a tensor's truth", REDUCING, 'if input_ == 0:\n    logger.info("zero")', "gpu-sync"),
    bad("synchronize", POOLED, "torch.cuda.synchronize()", "gpu-sync"),
    bad("barrier", POOLED, "torch.distributed.barrier()", "collective"),
    bad(
        "minimum over ranks",
        POOLED,
        'logger.info("%s", get_available_gpu_memory(self.device, self.gpu_id, distributed=True))',
        "collective",
    ),
    bad("a collective by its alias", REDUCING, "torch.distributed.all_reduce(input_)", "collective"),
    bad("an emptied cache", POOLED, "torch.cuda.empty_cache()", "call"),
    bad(
        "a query that empties", POOLED, 'logger.info("%s", get_available_gpu_memory(self.device, self.gpu_id))', "call"
    ),
    bad("sleep", PROFILED, "import time\ntime.sleep(1)", "call"),
    bad(
        "a method of its own accord",
        PROFILED,
        'logger.info("%s", self.handle_max_mamba_cache(rest_memory))',
        "call",
        runnable=True,
    ),
    bad("the root logger", PROFILED, 'logging.info("x")', "call"),
    bad("locals", PROFILED, 'logger.info("%s", locals())', "call"),
    bad(
        "rank before there is one",
        CONNECTING,
        'logger.info("%s", torch.distributed.get_rank())',
        "may-raise",
        runnable=True,
    ),
    bad(
        "a missing key",
        PROFILED,
        'import os\nlogger.info("%s", os.environ["SGLANG_NOT_SET"])',
        "may-raise",
        runnable=True,
    ),
    bad(
        "a table's hole",
        CAPABLE,
        'logger.info("%s", TORCH_SYMM_MEM_ALL_REDUCE_MAX_SIZES[self.device_capability])',
        "may-raise",
    ),
    bad(
        "getattr without default",
        PROFILED,
        'logger.info("%s", getattr(self, "nothing_sets_this"))',
        "may-raise",
        runnable=True,
    ),
    bad("None calculated with", BUILDING, 'logger.info("%s", dp_rank + 1)', "may-raise", runnable=True),
    bad("None's attribute", BUILDING, 'logger.info("%s", req_to_token_pool.size)', "may-raise", runnable=True),
    bad("an attribute not set yet", BUILDING, 'logger.info("%s", self.page_size)', "attribute", runnable=True),
    bad(
        "a try that may leave it",
        PROFILED,
        "try:\n    _dbg = 1 / cell_size\nexcept Exception:\n    pass\n" + shown("_dbg"),
        "unbound",
    ),
    bad("a loop that may not run", PROFILED, "for _i in range(num_layers):\n    _dbg = 1\n" + shown("_dbg"), "unbound"),
    bad(
        "an else that a break skips",
        PROFILED,
        "for _i in (1, 2):\n    if _i:\n        break\nelse:\n    _dbg = 1\n" + shown("_dbg"),
        "unbound",
        runnable=True,
    ),
    bad(
        "a comprehension's leak",
        PROFILED,
        shown("[_i for _i in (1, 2)]") + "\n" + shown("_i"),
        "unbound",
        runnable=True,
    ),
    bad("in a lambda", PROFILED, "_dbg = lambda: effective_layer_ids\n" + shown("_dbg()"), "unbound", runnable=True),
    bad("walrus behind or", PROFILED, "if num_layers or (_dbg := 1):\n    " + shown("_dbg"), "unbound", runnable=True),
    bad(
        "walrus in a comprehension",
        PROFILED,
        shown("[(_dbg := _i) for _i in range(self.start_layer)]") + "\n" + shown("_dbg"),
        "unbound",
        runnable=True,
    ),
    bad("in a class's body", PROFILED, "class _Dbg:\n    a = effective_layer_ids", "unbound", runnable=True),
    bad(
        "in a function inside",
        PROFILED,
        "def _dbg():\n    return effective_layer_ids\n" + shown("_dbg()"),
        "unbound",
        runnable=True,
    ),
    bad("as a default", PROFILED, "def _dbg(a=effective_layer_ids):\n    return a", "unbound", runnable=True),
    bad("as a decorator", PROFILED, "@effective_layer_ids\ndef _dbg(a):\n    return a", "unbound", runnable=True),
    bad("annotated alone", PROFILED, "_dbg: int\n" + shown("_dbg"), "unbound", runnable=True),
    bad(
        "in finally",
        PROFILED,
        "try:\n    pass\nfinally:\n    " + shown("effective_layer_ids"),
        "unbound",
        runnable=True,
    ),
    bad(
        "deleted in finally",
        PROFILED,
        "_dbg = 1\ntry:\n    pass\nfinally:\n    del _dbg\n" + shown("_dbg"),
        "unbound",
        "control-flow",
        runnable=True,
    ),
    bad(
        "a match without a default",
        PROFILED,
        "match num_layers:\n    case -1:\n        _dbg = 1\n" + shown("_dbg"),
        "unbound",
        runnable=True,
    ),
    bad(
        "in a format's width",
        PROFILED,
        'logger.info(f"{cell_size:{effective_layer_ids}}")',
        "unbound",
        runnable=True,
    ),
    bad(
        "imported after",
        PROFILED,
        shown("_dbg") + "\nimport json as _dbg\n" + shown("_dbg"),
        "unbound",
        runnable=True,
    ),
    bad(
        "a handler's name after it",
        PROFILED,
        "_dbg = 1\ntry:\n    pass\nexcept ValueError as _dbg:\n    pass\n" + shown("_dbg"),
        "unbound",
    ),
    bad("behind a condition", PROFILED, shown("cell_size and effective_layer_ids"), "unbound", runnable=True),
    bad("in a coroutine", ASKING, shown("tokenized_obj"), "unbound"),
    bad("await", ASKING, "await self.abort_all()", "control-flow", "call"),
    bad("a lock taken", ASKING, "async with self.is_pause_cond:\n    " + shown("self.is_pause"), "control-flow"),
    bad("length of what is asked for None", LIMITING, shown("len(max_total_tokens)"), "may-raise"),
    bad("order of what is asked for None", LIMITING, "if max_total_tokens > 3:\n    " + shown("1"), "may-raise"),
    bad(
        "a number of any text",
        PROFILED,
        "import os\n" + shown("int(os.environ.get('SGLANG_NOT_SET', 'none'))"),
        "may-raise",
        runnable=True,
    ),
    bad("the largest of perhaps none", PROFILED, shown("max(getattr(self, 'no', []))"), "may-raise", runnable=True),
    bad("numbers joined", PROFILED, shown("', '.join([cell_size + 1, 2])"), "may-raise", runnable=True),
    bad("a key that is not given", PROFILED, 'logger.info("%(rest)s", {"cell": cell_size})', "format"),
    bad("a key that % lacks", PROFILED, 'logger.info("%(rest)s" % {"cell": cell_size})', "format", runnable=True),
    bad("an import of SGLang", PROFILED, "import sglang.srt.managers.scheduler as _dbg_scheduler", "import"),
]

_SIZED = "        return int(rest_memory * (1 << 30)) // cell_size\n"
_HYBRID = """        if self.mambaish_config is not None:
            rest_memory = self.handle_max_mamba_cache(rest_memory)

        return int"""
EDITED = [
    edited("an indent", MIXIN, _SIZED, "        if cell_size:\n    " + _SIZED, "indent"),
    edited(
        "an indent taken away",
        MIXIN,
        _HYBRID,
        _HYBRID.replace("            rest", "            pass\n        rest"),
        "indent",
    ),
    edited("a line taken away", MIXIN, _HYBRID, "        return int", "changes-code"),
    edited("a formula", MIXIN, _SIZED, _SIZED.replace("<< 30", "<< 29"), "changes-code", "control-flow", "division"),
    edited("a condition", MIXIN, _HYBRID, _HYBRID.replace("is not None", "is None"), "changes-code"),
    edited(
        "a default",
        MIXIN,
        "total_gpu_memory: int):\n        available",
        "total_gpu_memory: int = 0):\n        available",
        "changes-code",
    ),
    edited(
        "a decorator",
        MIXIN,
        "    def profile_max_num_token(",
        "    @staticmethod\n    def profile_max_num_token(",
        "changes-code",
    ),
    edited("more imported", MIXIN, "from typing import TYPE_CHECKING\n", "from typing import TYPE_CHECKING, Any\n"),
    edited(
        "more imported from SGLang",
        PARALLEL,
        "from sglang.srt.environ import envs\n",
        "from sglang.srt.environ import EnvBool, envs\n",
        "import",
    ),
    edited("layout", MIXIN, _SIZED, _SIZED.replace("1 << 30", "1  <<  30") + "        # sized\n"),
]

CASES = GOOD + BAD + EDITED
