"""Scoring agent tokens only, on the CPU too.

TRL's fused head leaves out the positions without a label where it runs its Triton kernels.
Elsewhere it scores every position, since a number of positions that changes would make compiled
kernels compile anew. Torch on the CPU compiles nothing here, and the head is a large part of a
small model.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from trl.trainer import utils as trl_utils


@contextmanager
def compact_head() -> Iterator[None]:
    """Let forward passes with `fused_lm_head=True` score labelled positions only."""
    before = trl_utils._use_triton

    def leave_out(device: torch.device) -> bool:
        return device.type == "cpu" or before(device)

    trl_utils._use_triton = leave_out
    try:
        yield
    finally:
        trl_utils._use_triton = before
