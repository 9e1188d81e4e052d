"""CUDA graphs, streams and events of the simulated device.

Nothing that is captured takes effect before a replay: what the capture wrote to is as it was
before, and what it made holds NaN or -1. A replay runs the same operators on the same tensors.
"""

import contextlib
from types import SimpleNamespace

import torch

from simgpu import tensors


def new_pool():
    """Memory that graphs share: as much as the capture that needed most."""
    return SimpleNamespace(size=0, block=None)


class CUDAGraph:
    """`torch.cuda.CUDAGraph`; `launches`, by operator, are those that a replay saves."""

    def __init__(self, keep_graph=False):
        self.reset()

    def reset(self):
        self._nodes, self._made, self._written = [], [], {}
        self._pool, self.launches = None, {}

    def pool(self):
        return self._pool

    def capture_begin(self, pool=None, capture_error_mode="global", check_input_liveness=False):
        gpu = tensors.gpu
        self.reset()
        self._pool = pool or new_pool()
        self._outside = gpu.launches, gpu.peak, gpu.faults.total()
        gpu.launches, gpu.peak, gpu.capture = type(gpu.launches)(), gpu.live, self

    def capture_end(self):
        gpu, pool = tensors.gpu, self._pool
        for whole, before in self._written.values():
            whole.copy_(before)
        for tensor in self._made:
            spoil(tensor)
        if gpu.peak - gpu.live > pool.size:
            pool.size, pool.block = gpu.peak - gpu.live, None  # the old block is given back first
            pool.block = gpu.allocate(pool.size)
        self.launches, gpu.capture = gpu.launches, None
        gpu.launches, peak, faults = self._outside
        gpu.peak = max(peak, gpu.peak)
        if gpu.faults.total() > faults:
            raise RuntimeError("CUDA error: operation failed due to an error during capture")

    def run(self, call, written, recorded):
        """Run an operator of the capture, which writes to CPU tensors."""
        for tensor in written:
            whole = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
            if whole.data_ptr() not in self._written:
                self._written[whole.data_ptr()] = whole, whole.clone()
        result = call()
        if recorded:
            self._nodes.append((call, result))
        return result

    def made(self, tensor):
        """Told of new memory."""
        self._made.append(tensor)

    def replay(self):
        tensors.gpu.count("graph", 1)
        with torch.inference_mode():
            for call, result in self._nodes:
                for old, new in zip(tensors.leaves(result), tensors.leaves(call())):
                    if old is not new:
                        old.copy_(new)


def spoil(tensor):
    """Fill a CPU tensor with what no program may read."""
    with torch.inference_mode():
        tensor.fill_(torch.nan if tensor.is_floating_point() else -1)


class Stream:
    """A stream or an event. All work is done in order, so nothing waits but the CPU."""

    def __init__(self, *_, **__):
        pass

    def wait_stream(self, other=None):
        return self

    wait_event = record_event = record = wait = wait_stream

    def synchronize(self):
        tensors.gpu.wait("synchronize")

    def query(self):
        return True


PATCHES = {
    **{"CUDAGraph": CUDAGraph, "graph_pool_handle": new_pool, "Event": Stream},
    **dict.fromkeys(("Stream", "current_stream", "default_stream"), Stream),
    "stream": lambda stream: contextlib.nullcontext(),
    "is_current_stream_capturing": lambda: tensors.gpu.capture is not None,
}
"""By the names of torch.cuda."""
