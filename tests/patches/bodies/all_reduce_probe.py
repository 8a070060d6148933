"""The probe's own module, with a group, tensors and CUDA events that are mocked. Prints one JSON object."""

import json
import logging
from types import SimpleNamespace

import torch
from sglang.srt.distributed import all_reduce_probe, parallel_state

LINES = []


class Collect(logging.Handler):
    def emit(self, record):
        LINES.append(record.getMessage())


class Event:
    """A CUDA event that the GPU reaches when ``reached`` says so. Waiting for it is a fault."""

    reached = False
    clock = 0.0

    def __init__(self, enable_timing):
        assert enable_timing

    def record(self):
        Event.clock += 2.5
        self.at = Event.clock

    def query(self):
        return Event.reached

    def elapsed_time(self, end):
        assert Event.reached
        return end.at - self.at

    def synchronize(self):
        raise AssertionError("the probe waited for the GPU")


def tensor(*, cuda):
    return SimpleNamespace(is_cuda=cuda, numel=lambda: 64, element_size=lambda: 2)


def one_pass(number, *, calls, cuda=False, graph=False, ranks=2):
    group = SimpleNamespace(world_size=ranks)
    all_reduce_probe.start_pass(number)
    for _ in range(calls):
        MEASURED(group, tensor(cuda=cuda))
    all_reduce_probe.end_pass(role="target", graph=graph)
    taken, LINES[:] = list(LINES), []
    return taken


def original(group, input_):
    return input_


MEASURED = all_reduce_probe.measured(original)


def main():
    method = parallel_state.GroupCoordinator.all_reduce
    seen = {
        "enabled": all_reduce_probe.ENABLED,
        "same": MEASURED is original,
        "wrapped": hasattr(method, "__wrapped__"),
    }
    if all_reduce_probe.ENABLED:
        torch.cuda.Event = Event
        all_reduce_probe.logger.addHandler(Collect())
        all_reduce_probe.logger.setLevel(logging.INFO)
        capturing = [False]
        torch.cuda.is_current_stream_capturing = lambda: capturing[0]
        seen["host"] = one_pass(1, calls=5)
        seen["alone"] = one_pass(2, calls=5, ranks=1)
        capturing[0] = True
        seen["captured"] = one_pass(3, calls=5, cuda=True, graph=True)
        capturing[0] = False
        seen["device, not reached"] = one_pass(4, calls=2, cuda=True)
        Event.reached = True
        seen["device, reached"] = one_pass(5, calls=1, cuda=True)
        Event.reached = False
        for number in range(100, 300):
            one_pass(number, calls=1, cuda=True)
        seen["unfinished"] = len(all_reduce_probe._unfinished)
    print(json.dumps(seen))


main()
