"""A module of which every name and submodule exists and does nothing: what the stand-in packages are made of."""

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

NO_VERSION = "0.0.0"


class Inert(ModuleType):
    """A module, function, class or decorator, whichever the importer takes it for.

    Used as a decorator it gives back what it decorates; called otherwise, itself.
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"the stand-in has no {self.__name__}.{name}")
        child = type(self)(f"{self.__name__}.{name}")
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
    """``import package.any.thing`` gives the very object that the attribute ``package.any.thing`` is."""

    def __init__(self, package: str) -> None:
        self._prefix = f"{package}."

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self, is_package=True) if fullname.startswith(self._prefix) else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        parent, _, name = spec.name.rpartition(".")
        module: ModuleType = getattr(sys.modules[parent], name)
        return module

    def exec_module(self, module: ModuleType) -> None:
        pass


def make_inert(package: str, kind: type[Inert] = Inert) -> None:
    """Turn the package that is being imported into an inert one; names that it defines itself stay.

    Whoever may do without a package asks for its version first. One that is older than any that is asked for says:
    not usable. transformers 5.3.0 reads a package without one as version "N/A", and dies of it
    (utils/import_utils.py, is_torchao_available); 4.57 asked for an installed distribution, which a stand-in has not.
    """
    module = sys.modules[package]
    vars(module).setdefault("__version__", NO_VERSION)
    module.__class__ = kind
    sys.meta_path.append(_Submodules(package))
