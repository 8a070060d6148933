"""Four gloo ranks start SGLang's own GroupCoordinator and CustomAllreduce. Prints one JSON list per case.

Mocked: NVML (no NVLink), CUDA's peer check and shared buffers, PyNccl (gloo sums instead), and the kernel, which
does what the real one does: told that the link is not full, it launches nothing on more than two ranks.
"""

import contextlib
import json
import multiprocessing
import os
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from sglang.srt.distributed import parallel_state
from sglang.srt.distributed.device_communicators import custom_all_reduce, pynccl

RANKS = 4
VARIABLE = "SGLANG_FORCE_CUSTOM_AR_PCIE"


class Kernel:
    """Stands for custom_all_reduce_ops."""

    IS_CUSTOM_AR_AVAILABLE = True

    def __init__(self, *, wrong_on=None):
        self.wrong_on = wrong_on
        self.full_nvlink = None
        self.group = None

    def meta_size(self):
        return 0

    def init_custom_ar(self, meta, rank_data, rank, full_nvlink):
        self.full_nvlink = full_nvlink
        return 1

    def register_buffer(self, pointer, buffers):
        pass

    def dispose(self, pointer):
        pass

    def all_reduce(self, pointer, inp, out, buffer, size):
        out.fill_(-1)
        if not self.full_nvlink:
            return
        total = inp.clone()
        dist.all_reduce(total, group=self.group)
        out.copy_(total)
        two_stage = inp.numel() * inp.element_size() >= 512 * 1024
        if two_stage and self.wrong_on == dist.get_rank():
            out[-1] += 1


class GlooInsteadOfNccl:
    """Stands for PyNcclCommunicator."""

    def __init__(self, group, device, use_current_stream=False):
        self.group = group
        self.available = True
        self.disabled = True
        self.sums = 0

    @contextlib.contextmanager
    def change_state(self, enable, stream):
        self.disabled = not enable
        yield
        self.disabled = True

    def all_reduce(self, tensor):
        assert not self.disabled
        self.sums += 1
        dist.all_reduce(tensor, group=self.group)


def start(*, kernel, peers):
    """What a rank sees when its group starts."""
    custom_all_reduce.ops = kernel
    custom_all_reduce._can_p2p = lambda rank, world_size: peers

    def on_device(group, device):
        kernel.group = group
        return custom_all_reduce.CustomAllreduce(group=group, device=torch.device("cpu", 0))

    custom_all_reduce.dispatch_custom_allreduce = lambda: on_device
    seen = {"error": None, "enabled": False, "kernel_full_nvlink": None, "sum_is_right": None, "nccl_sums": 0}
    try:
        group = parallel_state.GroupCoordinator(
            group_ranks=[list(range(RANKS))],
            local_rank=dist.get_rank(),
            torch_distributed_backend="gloo",
            use_pynccl=True,
            use_pymscclpp=False,
            use_custom_allreduce=True,
            use_torch_symm_mem_all_reduce=False,
            use_hpu_communicator=False,
            use_xpu_communicator=False,
            use_npu_communicator=False,
        )
    except RuntimeError as error:
        seen["error"] = str(error)
        return seen
    seen["enabled"] = not group.ca_comm.disabled
    seen["kernel_full_nvlink"] = kernel.full_nvlink
    seen["nccl_sums"] = group.pynccl_comm.sums
    number = torch.full((64,), float(dist.get_rank() + 1))
    if group.ca_comm.should_custom_ar(number):
        seen["sum_is_right"] = bool((group.ca_comm.custom_all_reduce(number) == 10).all())
    return seen


def cases(rank):
    yield "forced", "1", {"kernel": Kernel(), "peers": True}
    yield "not asked for", "", {"kernel": Kernel(), "peers": True}
    yield "wrong on one rank", "1", {"kernel": Kernel(wrong_on=2), "peers": True}
    yield "no peer access on one rank", "1", {"kernel": Kernel(), "peers": rank != 1}


def be_rank(rank, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=RANKS)
    seen = {}
    for name, asked, world in cases(rank):
        os.environ[VARIABLE] = asked or "0"
        seen[name] = start(**world)
    Path(folder, f"{rank}.json").write_text(json.dumps(seen))


def mock_the_machine():
    custom_all_reduce._is_cuda = True
    custom_all_reduce.is_full_nvlink = lambda ids, world_size: False
    custom_all_reduce.in_the_same_node_as = lambda group, source_rank: [True] * RANKS
    custom_all_reduce.CustomAllreduce.create_shared_buffer = staticmethod(lambda size, group=None: [0] * RANKS)
    custom_all_reduce.CustomAllreduce.free_shared_buffer = staticmethod(lambda pointers, group=None: None)
    pynccl.PyNcclCommunicator = GlooInsteadOfNccl
    parallel_state.get_current_device_stream_fast = lambda: None
    torch.cuda.device_count = lambda: RANKS


def main():
    mock_the_machine()
    with tempfile.TemporaryDirectory() as folder:
        fork = multiprocessing.get_context("fork")  # what is mocked here is mocked there
        children = [fork.Process(target=be_rank, args=(rank, folder)) for rank in range(RANKS)]
        for child in children:
            child.start()
        for child in children:
            child.join()
        if any(child.exitcode for child in children):
            sys.exit("a rank failed")
        ranks = [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(RANKS)]
    print(json.dumps({name: [rank[name] for rank in ranks] for name in ranks[0]}))


main()
