"""A simulated GPU for a torch that was built without one: `with SimGPU() as gpu: model.to("cuda")`.

Everything runs with real numbers on the CPU and is counted: launches, synchronizations, copies,
live bytes. What CUDA or MPS would refuse raises and is a fault. Import this before the process's
first backward pass: autograd counts devices once. Not shown: kernels' rounding, races, alignment,
fragmentation, the order of streams, speed; Triton; NCCL; CUDA's random numbers. How many kernels an
operator launches, and which attention torch chooses, are from its sources.
"""

import shutil

import pytest

if shutil.which("g++") is None:
    pytest.skip("the simulated GPU needs a C++ compiler (g++)", allow_module_level=True)

from simgpu.device import SimGPU

__all__ = ["SimGPU"]
