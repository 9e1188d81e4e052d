"""Logits of chosen positions alone: the output layer is often the largest product of a model."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn


@contextmanager
def only_at(head: nn.Module, rows: Any, positions: Any) -> Iterator[None]:
    """Inside the block the output layer computes the logits of these P (row, position) only: shape
    (1, P, vocabulary). `rows` and `positions` are lists or int64 tensors of length P."""

    def pick(_: nn.Module, given: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        return (given[0][rows, positions][None], *given[1:])

    handle = head.register_forward_pre_hook(pick)
    try:
        yield
    finally:
        handle.remove()
