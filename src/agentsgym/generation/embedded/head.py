"""The head of a model over some ids only, in float32: what is chosen from few ids needs no other
logits, and few nats tell them apart."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from agentsgym.generation.models import without_adapter


@contextmanager
def head_over(model: Any, ids: Tensor | None = None) -> Iterator[None]:
    """Inside the block `model`, a causal language model (with an adapter or not), gives the logits
    of `ids` [U] only, [..., U] (None: all), with its own scales and soft caps. They are float32
    (float64 in a model of float64), whatever the type of its weights, also within autocast."""
    head = without_adapter(model).get_output_embeddings()
    plain = type(head) is nn.Linear and "forward" not in vars(head)
    whole = head.forward

    def forward(hidden: Tensor) -> Tensor:
        if not plain:  # an adapter's, or one that is quantized
            logits = whole(hidden)
            return _wide(logits if ids is None else logits.index_select(-1, ids.to(logits.device)))
        at = slice(None) if ids is None else ids.to(head.weight.device)
        bias = None if head.bias is None else _wide(head.bias[at])
        with torch.autocast(hidden.device.type, enabled=False):
            return nn.functional.linear(_wide(hidden), _wide(head.weight[at]), bias)

    head.forward = forward
    try:
        yield
    finally:
        if plain:
            del head.forward
        else:
            head.forward = whole


def _wide(values: Tensor) -> Tensor:
    return values if values.dtype == torch.float64 else values.float()
