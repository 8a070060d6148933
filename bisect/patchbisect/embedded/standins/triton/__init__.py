"""Stands in for Triton where SGLang is only imported and no kernel of Triton's ever runs.

Decorators return the function they are given. Launching a kernel fails (a plain function has no ``[grid]``), and
asking for the active GPU driver raises as Triton itself does on a machine without one: SGLang 0.5.9 tells "no GPU"
by that error (srt/layers/attention/fla/utils.py).
"""

# mypy: disable-error-code="import-not-found, misc"
# patchbisect_inert is beside this package, on the server's PYTHONPATH.

from typing import Any

from patchbisect_inert import Inert, make_inert

__version__ = "3.5.1"


def cdiv(x: int, y: int) -> int:
    return -(-x // y)


def next_power_of_2(n: int) -> int:
    return 1 << max(n - 1, 0).bit_length()


class _Triton(Inert):
    def __getattr__(self, name: str) -> Any:
        if self.__name__ == "triton.runtime.driver" and name == "active":
            raise RuntimeError("0 active drivers: this is the stand-in for triton, which has no GPU")
        return super().__getattr__(name)


make_inert(__name__, _Triton)
