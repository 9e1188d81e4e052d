"""A model in memory that two processes share; the processes: tests/training/test_ahead.py."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from generation_helpers import build_model

from agentsgym.generation.embedded.shared_weights import (
    ModelInMemory,
    ModelParts,
    SharedMemory,
    bytes_of,
)


def test_the_other_side_has_the_weights_that_were_written_last() -> None:
    model: Any = build_model("llama")
    parts = ModelParts(model, None)
    memory = SharedMemory(bytes_of(parts.specs))
    views = memory.views(parts.specs)
    parts.write(views)
    there = SharedMemory(bytes_of(parts.specs), os.dup(memory.fileno))
    other = ModelInMemory(parts.structure, parts.specs, there, "cpu")
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    parts.write(views)
    for name, weight in other.model.state_dict().items():
        assert torch.equal(weight, before[name])
    other.refresh()
    for name, weight in other.model.state_dict().items():
        assert torch.equal(weight, model.state_dict()[name])


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="only Linux has memory files")
def test_the_memory_is_not_that_which_containers_limit() -> None:
    assert os.fstat(SharedMemory(10).fileno).st_dev != Path("/dev/shm").stat().st_dev
