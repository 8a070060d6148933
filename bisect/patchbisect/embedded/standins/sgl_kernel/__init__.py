"""Stands in for SGLang's kernel package where there is no GPU: no operator is registered, SGLang takes torch's."""

from typing import NoReturn

__version__ = "0.0.0"


def silu_and_mul(*args: object, **kwargs: object) -> NoReturn:
    """Imported unguarded by SGLang 0.5.8."""
    raise NotImplementedError("sgl_kernel.silu_and_mul needs a GPU: this is the stand-in")
