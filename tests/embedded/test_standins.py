"""The stand-ins, imported as a server imports them: from a directory on PYTHONPATH, in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys

from patchbisect.embedded.environment import STANDINS

SCRIPT = """
import triton, triton.language as tl
from triton.language.extra.cuda import libdevice
from triton.runtime import driver
import torchvision.transforms as transforms
from torchvision.transforms import InterpolationMode
import sgl_kernel
import torchao.quantization
from torchao.quantization.observer import AffineQuantizedObserverBase
from sgl_kernel.kvcacheio import transfer_kv_per_layer

@triton.jit
def plain(x: tl.constexpr, y: tl.constexpr | None):
    return x

@triton.autotune(configs=[triton.Config({"BLOCK": 64}, num_warps=4)], key=["n"])
@triton.heuristics({"EVEN": lambda args: True})
@triton.jit(do_not_specialize=["n"])
def decorated(n):
    return n

class Kernel(triton.runtime.jit.JITFunction):
    pass

assert plain(1, 2) == 1 and decorated(3) == 3
assert triton.cdiv(7, 2) == 4
assert [triton.next_power_of_2(n) for n in (1, 2, 3, 1024, 1025)] == [1, 2, 4, 1024, 2048]
assert int(triton.__version__.split(".")[0]) == 3
assert libdevice is triton.language.extra.cuda.libdevice and tl is triton.language
assert {tl.float32: 1}[tl.float32] == 1
assert not isinstance(plain, triton.runtime.JITFunction)
assert InterpolationMode.BICUBIC is transforms.InterpolationMode.BICUBIC

def raises(kind, call):
    try:
        call()
    except kind:
        return True

assert raises(RuntimeError, lambda: driver.active.get_current_target())
assert raises(RuntimeError, lambda: triton.runtime.driver.active)
assert raises(NotImplementedError, transfer_kv_per_layer)
assert raises(NotImplementedError, sgl_kernel.silu_and_mul)
assert raises(TypeError, lambda: plain[(1,)](1))
assert raises(AttributeError, lambda: sgl_kernel.kvcacheio.other)
assert raises(AttributeError, lambda: triton.__wrapped__)
"""


def test_importing_them_is_all_that_works() -> None:
    env = {**os.environ, "PYTHONPATH": str(STANDINS)}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


AVAILABILITY = """
import importlib.metadata, importlib.util, sys
from packaging.version import Version

for name in sys.argv[1:]:
    assert importlib.util.find_spec(name), name
    module = __import__(name)
    assert importlib.util.find_spec(name) is module.__spec__, name
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
    else:
        raise AssertionError(f"{name} is installed here: the test says nothing")
    print(name, Version(module.__version__))
"""


def test_whoever_asks_what_they_are_gets_a_version_and_one_that_is_too_old_but_for_triton() -> None:
    """transformers 5 asks a package that is no distribution for its ``__version__``, and parses what it gets."""
    names = sorted(path.name for path in STANDINS.iterdir() if (path / "__init__.py").exists())
    assert len(names) >= 4
    env = {**os.environ, "PYTHONPATH": str(STANDINS)}
    words = [sys.executable, "-c", AVAILABILITY, *names]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    versions = dict(line.split() for line in done.stdout.splitlines())
    assert {name for name, version in versions.items() if version != "0.0.0"} == {"triton"}
