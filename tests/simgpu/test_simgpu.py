"""The simulated GPU itself: what it counts, what it refuses, and what a CUDA graph of it does."""

import copy
import threading

import pytest
import torch

from simgpu import SimGPU


@pytest.fixture
def gpu():
    with SimGPU() as gpu:
        yield gpu


def test_it_counts_kernels_copies_and_waits(gpu):
    x = torch.ones(3, 4).to("cuda")
    assert (gpu.uploads.total(), gpu.syncs.total(), gpu.launches.total()) == (1, 1, 0)
    gpu.reset()
    y = x @ x.T + 1  # two kernels; the transposed view is none
    assert dict(gpu.launches) == {"mm": 1, "add": 1} and not gpu.syncs
    assert y.tolist() == [[5.0] * 3] * 3
    assert gpu.downloads.total() == gpu.syncs.total() == 1
    gpu.reset()
    assert y[0, 0].item() == 5.0 and bool((y > 4).all())
    assert gpu.syncs.total() == 2
    gpu.reset()
    assert y[y > 4].shape == (9,)  # its size is known only there
    assert gpu.syncs.total() == 1 and gpu.launches.total() == 1 + 1 + 3
    assert not gpu.faults


def test_it_counts_the_bytes_that_are_held(gpu):
    x = torch.zeros(1000, device="cuda")  # 4,000 bytes in pages of 512
    view = x[10:]
    assert gpu.live == gpu.peak == 4096
    y = x + 1
    assert gpu.live == 8192
    del x, y
    assert (gpu.live, gpu.peak) == (4096, 8192)
    del view
    assert gpu.live == 0


def test_memory_runs_out():
    with SimGPU(limit=10_000) as gpu:
        x = torch.zeros(1000, device="cuda")
        with pytest.raises(torch.OutOfMemoryError, match="4096 bytes"):
            x + x + x
        assert gpu.live == 4096 and torch.cuda.mem_get_info() == (10_000 - 4096, 10_000)


def test_devices_that_meet_are_refused_and_noted(gpu):
    x = torch.ones(3, device="cuda")
    assert (x * torch.tensor(2.0)).tolist() == [2.0] * 3  # a number
    with pytest.raises(RuntimeError, match=r"same device.* cpu and cuda:0"):
        x + torch.ones(3)
    with pytest.raises(TypeError, match="cuda:0"):
        x.numpy()
    assert [what for what, _ in gpu.faults] == ["devices meet in add", "numpy"]


def test_a_backward_pass_runs_on_another_thread_with_the_gradients_of_the_cpu(gpu):
    torch.manual_seed(0)
    here = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))
    there = copy.deepcopy(here).to("cuda")
    threads = set()
    next(there.parameters()).register_hook(lambda _: threads.add(threading.get_ident()))
    x = torch.randn(5, 4)
    here(x).pow(2).sum().backward()
    there(x.to("cuda")).pow(2).sum().backward()
    assert threads and threading.get_ident() not in threads
    for ours, expected in zip(there.parameters(), here.parameters()):
        assert ours.is_cuda and torch.equal(ours.grad.cpu(), expected.grad)


def test_mps_has_no_float64():
    with SimGPU("mps") as gpu:
        assert torch.ones(2).to("mps").sum().item() == 2.0
        with pytest.raises(TypeError, match="float64"):
            torch.ones(2, dtype=torch.float64).to("mps")
        assert gpu.faults.total() == 1


def test_what_does_not_wait_is_there_after_a_wait(gpu):
    x = torch.arange(3, device="cuda")
    there = x.to("cpu", non_blocking=True)
    assert there.tolist() == [-1, -1, -1] and not gpu.syncs
    torch.cuda.synchronize()
    assert there.tolist() == [0, 1, 2] and gpu.syncs.total() == 1


# -- CUDA graphs -----------------------------------------------------------------------------------


def capture(step):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = step()
    return graph, result


def test_a_graph_does_nothing_before_its_replay_and_is_one_launch(gpu):
    x, table = torch.ones(2, 3, device="cuda"), torch.zeros(4, device="cuda")
    at = torch.tensor([1], device="cuda")

    def step():
        table[at] = x.sum()
        at.add_(1)
        return torch.nn.functional.linear(x, x) + torch.arange(2, device="cuda")

    graph, out = capture(step)
    gpu.reset()
    assert table.tolist() == [0.0] * 4 and at.tolist() == [1] and out.isnan().all()
    x.copy_(torch.full((2, 3), 2.0))
    gpu.reset()
    graph.replay()
    graph.replay()
    assert dict(gpu.launches) == {"graph": 2} and not gpu.syncs
    assert table.tolist() == [0.0, 12.0, 12.0, 0.0] and at.tolist() == [3]
    assert out.tolist() == [[12.0, 13.0], [12.0, 13.0]]
    assert sum(graph.launches.values()) == 6 and not gpu.faults


@pytest.mark.parametrize(
    "step",
    [
        lambda x: x.sum().item(),
        lambda x: x.cpu(),
        lambda x: x + torch.ones(2).to("cuda"),
        lambda x: x[x > 0],
        lambda x: torch.cuda.synchronize(),
    ],
    ids=["number", "download", "upload", "data-dependent size", "synchronize"],
)
def test_what_a_graph_cannot_hold_is_a_fault(gpu, step):
    x = torch.ones(2, device="cuda")
    with pytest.raises(RuntimeError, match="captur"):
        capture(lambda: step(x))
    assert gpu.faults.total() == 1 and x.tolist() == [1.0, 1.0]
    assert not torch.cuda.is_current_stream_capturing()


def test_graphs_of_one_pool_share_what_they_need_meanwhile(gpu):
    x = torch.zeros(1024, device="cuda")  # 4 KiB
    before, pool = gpu.live, torch.cuda.graph_pool_handle()
    graphs = [torch.cuda.CUDAGraph() for _ in range(2)]
    for graph in graphs:
        with torch.cuda.graph(graph, pool=pool):
            x.copy_((x + 1) * 2)  # two results, the first of which is needed until the second
    assert gpu.live - before == 8192
    graphs[0].replay()
    graphs[1].replay()
    assert x[0].item() == 6.0
