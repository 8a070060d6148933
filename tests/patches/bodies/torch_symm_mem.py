"""TorchSymmMemCommunicator on GPUs of several compute capabilities. Prints one JSON object.

Mocked: the GPU (capability, device), the process group, torch's symmetric memory and its two kernels.
"""

import json
import logging
from types import SimpleNamespace

import torch
from sglang.srt.distributed.device_communicators import torch_symm_mem as module

WORLD = 8
SIZES = module.TORCH_SYMM_MEM_ALL_REDUCE_MAX_SIZES


class Warnings(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


def start(capability):
    torch.cuda.get_device_capability = lambda device: (capability, 0)
    warnings = Warnings()
    module.logger.addHandler(warnings)
    try:
        communicator = module.TorchSymmMemCommunicator(SimpleNamespace(group_name="tp"), torch.device("cpu"))
    except KeyError as error:
        return None, {"error": repr(error)}
    finally:
        module.logger.removeHandler(warnings)
    tensor = torch.zeros(16, dtype=torch.bfloat16)
    takes = communicator.should_torch_symm_mem_allreduce(tensor)
    return communicator, {"error": None, "takes": takes, "warnings": warnings.lines}


def kernel_chosen(capability):
    communicator, seen = start(capability)
    if communicator is None:
        return seen["error"]
    called = []
    torch.ops.symm_mem.multimem_all_reduce_ = lambda *arguments: called.append("multimem")
    torch.ops.symm_mem.two_shot_all_reduce_ = lambda *arguments: called.append("two_shot")
    try:
        communicator.all_reduce(torch.zeros(16, dtype=torch.bfloat16))
    except KeyError as error:
        return repr(error)
    return called


def main():
    module.torch_symm_mem_available = True
    module.torch_symm_mem = SimpleNamespace(
        empty=torch.empty, rendezvous=lambda buffer, name: SimpleNamespace(multicast_ptr=1)
    )
    module.dist = SimpleNamespace(get_world_size=lambda group: WORLD)
    torch.cuda.set_device = lambda device: None
    seen = {"start": {capability: start(capability)[1] for capability in (8, 9, 10, 12)}}
    SIZES[10] = {WORLD: 1 << 20}
    SIZES[12] = {WORLD: 1 << 20}
    seen["kernel"] = {capability: kernel_chosen(capability) for capability in (10, 12)}
    print(json.dumps(seen))


main()
