"""The names that ``sglang/srt/mem_cache/memory_pool_host.py`` (0.5.9) imports unguarded; calling one is an error."""

from collections.abc import Callable
from typing import NoReturn


def __getattr__(name: str) -> Callable[..., NoReturn]:
    if not name.startswith("transfer_kv_"):
        raise AttributeError(f"the stand-in for sgl_kernel has no kvcacheio.{name}")

    def missing(*args: object, **kwargs: object) -> NoReturn:
        raise NotImplementedError(f"sgl_kernel.kvcacheio.{name} needs a GPU: this is the stand-in")

    return missing
