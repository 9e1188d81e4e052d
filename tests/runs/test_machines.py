"""What a training chooses on machines that are simulated: old GPUs, several of them, a Mac."""

import pytest

from agentsgym.generation.vllm import launcher
from agentsgym.training import GRPOEnvConfig
from simgpu import SimGPU


@pytest.fixture
def settings(tmp_path):
    return lambda **options: GRPOEnvConfig(str(tmp_path), report_to="none", **options)


@pytest.mark.parametrize(("major", "expected"), [(7, False), (8, True)])
def test_python_gets_bfloat16_where_the_gpu_multiplies_it(settings, major, expected):
    """T4 and V100 (7) only emulate it; they train in float32, or in float16 if that is asked."""
    with SimGPU(major=major):
        made = settings()
        assert (made.bf16, made.fp16, made.device.type) == (expected, False, "cuda")
        assert settings(use_cpu=True).bf16 is False
        half = settings(fp16=True)
        assert (half.bf16, half.fp16) == (False, True)


def test_a_mac_trains_on_its_cpu_and_says_so(settings, caplog):
    with SimGPU("mps") as gpu:
        made = settings()
        assert (made.use_cpu, made.device.type, made.bf16) == (True, "cpu", False)
        assert "uses the CPU; the GPU of a Mac (MPS) is not supported" in caplog.text
        caplog.clear()
        assert settings(use_cpu=True).device.type == "cpu" and not caplog.text
        assert not gpu.faults


def test_one_process_uses_one_of_several_gpus_and_says_how_to_use_all(settings, caplog):
    with SimGPU(count=3):
        made = settings(per_device_train_batch_size=8)
        assert (made.n_gpu, made.train_batch_size) == (1, 8)
        assert "one of 3 GPUs" in caplog.text and "--processes 3" in caplog.text
        caplog.clear()
        assert settings(engine={"launch": 1}).n_gpu == 1 and not caplog.text  # they are a server's


@pytest.mark.parametrize(
    ("variable", "count", "expected"),
    [("0,-1,1", 1, ["0"]), ("GPU-a, GPU-b", 2, ["GPU-a", "GPU-b"]), (None, 2, ["0", "1"])],
)
def test_the_gpus_are_those_that_cuda_sees(monkeypatch, variable, count, expected):
    """It reads the variable up to the first name that is no GPU."""
    if variable is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    with SimGPU(count=count):
        assert launcher._gpus() == expected
    assert launcher._gpus() == []
