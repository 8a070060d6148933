"""Stands in for Triton where SGLang is only imported and no kernel of Triton's ever runs.

Decorators return the function they are given; any other name, and any submodule, is inert. Launching a kernel
fails (a plain function has no ``[grid]``), and asking for the active GPU driver raises as Triton itself does on a
machine without one: SGLang 0.5.9 tells "no GPU" by that error (srt/layers/attention/fla/utils.py).
"""

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

__version__ = "3.5.1"


def cdiv(x: int, y: int) -> int:
    return -(-x // y)


def next_power_of_2(n: int) -> int:
    return 1 << max(n - 1, 0).bit_length()


class _Inert(ModuleType):
    """A module, function, class or decorator, whichever the importer takes it for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"the stand-in for triton has no {self.__name__}.{name}")
        if self.__name__ == "triton.runtime.driver" and name == "active":
            raise RuntimeError("0 active drivers: this is the stand-in for triton, which has no GPU")
        child = _Inert(f"{self.__name__}.{name}")
        child.__path__ = []
        setattr(self, name, child)
        return child

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return args[0] if len(args) == 1 and not kwargs and callable(args[0]) else self

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        return ()

    def __instancecheck__(self, instance: object) -> bool:
        return False

    def __or__(self, other: object) -> Any:
        return self

    __ror__ = __or__


class _Submodules(MetaPathFinder, Loader):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self, is_package=True) if fullname.startswith("triton.") else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        parent, _, name = spec.name.rpartition(".")
        module: ModuleType = getattr(sys.modules[parent], name)
        return module

    def exec_module(self, module: ModuleType) -> None:
        pass


sys.modules[__name__].__class__ = _Inert
sys.meta_path.append(_Submodules())
