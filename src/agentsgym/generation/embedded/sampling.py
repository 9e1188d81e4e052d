"""From logits to token ids and log-probabilities, as pure functions over rows of a batch.

A row's result is a function of that row's logits, parameters and uniform alone.
"""

import torch
from torch import Tensor


def sample(
    logits: Tensor,
    uniforms: Tensor,
    temperature: Tensor | None = None,
    top_k: Tensor | None = None,
    top_p: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Sample one token per row by the inverse CDF of its (truncated) distribution.

    `logits` is [n, vocab] float32; `uniforms` is [n] float64 in [0, 1); `temperature` is [n] float
    (0 = greedy, None = all 1), `top_k` [n] int (0 = off, None = all off), `top_p` [n] float (1 =
    off, None = all off). Returns ids [n] int64 and their log-probabilities [n] float32 (nats)
    under the untruncated softmax at the sampling temperature (at 1 where it is 0).
    """
    greedy = None if temperature is None else temperature == 0
    logprobs = log_softmax(logits, temperature)
    probabilities = truncate(logprobs.exp(), top_k, top_p)
    ids = inverse_cdf(probabilities, uniforms)
    if greedy is not None:
        ids = torch.where(greedy, logits.argmax(-1), ids)
    return ids, logprobs.gather(1, ids[:, None])[:, 0]


def log_softmax(logits: Tensor, temperature: Tensor | None = None) -> Tensor:
    """Log-probabilities [n, vocab] at `temperature` [n]; a temperature of 0 counts as 1."""
    if temperature is None:
        return torch.log_softmax(logits, -1)
    divisor = torch.where(temperature == 0, 1.0, temperature).to(logits.dtype)
    return torch.log_softmax(logits / divisor[:, None], -1)


def truncate(
    probabilities: Tensor, top_k: Tensor | None = None, top_p: Tensor | None = None
) -> Tensor:
    """Zero all but each row's `top_k` likeliest tokens, then all beyond its nucleus of `top_p`.

    The nucleus is the smallest set of likeliest tokens that holds at least `top_p` of the mass
    that top-k left; it always has at least one. Ties keep the lower token id. Rows are not
    renormalized.
    """
    if top_k is None and top_p is None:
        return probabilities
    ordered, order = probabilities.sort(dim=-1, descending=True, stable=True)
    if top_k is not None:
        rank = torch.arange(ordered.shape[-1], device=ordered.device)
        ordered = ordered.where((top_k[:, None] == 0) | (rank < top_k[:, None]), 0.0)
    if top_p is not None:
        mass = ordered.cumsum(-1, dtype=torch.float64)
        before = mass - ordered
        outside = (before >= top_p[:, None] * mass[:, -1:]) & (top_p[:, None] < 1)
        outside[:, 0] = False
        ordered = ordered.masked_fill(outside, 0.0)
    return torch.zeros_like(probabilities).scatter_(-1, order, ordered)


def inverse_cdf(probabilities: Tensor, uniforms: Tensor) -> Tensor:
    """The first token of each row whose cumulated mass exceeds `uniforms` x the row's total.

    Summed in float64, because a float32 sum over a large vocabulary loses the small tokens. Never
    picks a token of probability 0. Rows with NaN give an arbitrary valid id.
    """
    cdf = probabilities.cumsum(-1, dtype=torch.float64)
    total = cdf[:, -1]
    # u * total may round up to total, which would go beyond the last possible token.
    target = torch.minimum(uniforms * total, torch.nextafter(total, torch.zeros_like(total)))
    ids = torch.searchsorted(cdf, target[:, None], right=True)[:, 0]
    return ids.clamp_(max=probabilities.shape[-1] - 1)
