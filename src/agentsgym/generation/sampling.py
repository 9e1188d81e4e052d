"""From logits to token ids and log-probabilities, as pure functions over rows of a batch.

A row's result is a function of that row's logits, parameters and uniform alone. The uniform of a
sampled token comes from a counter hash, so that the noise belongs to the session. With `mix` the
finalizer of splitmix64 (Steele, Lea and Flood 2014) and all arithmetic modulo 2**64, the uniform of
token `index` under `seed` is

    h(x)        = mix(x + 0x9E3779B97F4A7C15)
    bits        = h(h(seed) ^ h(index + 0xD1B54A32D192ED03))
    u           = (bits >> 11) * 2**-53            in [0, 1)

so it depends only on this pair: not on the batch, the device or the order of sampling.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

UInts = npt.NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_INDEX_OFFSET = np.uint64(0xD1B54A32D192ED03)
_MASK = (1 << 64) - 1


def sample(
    logits: Tensor,
    uniforms: Tensor,
    temperature: Tensor | None = None,
    top_k: Tensor | None = None,
    top_p: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Sample one token per row by the inverse CDF of its (truncated) distribution.

    `logits` is [n, vocab] float32; `uniforms` is [n] float64 in [0, 1); `temperature` is [n] float
    (0 = greedy, None = all 1), `top_k` [n] int (0 = off, None = all off), `top_p` [n] float (1 =
    off, None = all off). A logit of -inf is of a token that cannot be sampled. Returns ids [n]
    int64; their log-probabilities [n] float32 (nats) at the sampling temperature (at 1 where it is
    0) among the tokens that truncation left; and which these are, bool [n, vocab], None without
    top-k and top-p.
    """
    greedy = None if temperature is None else temperature == 0
    logprobs = log_softmax(logits, temperature)
    untruncated = logprobs.exp()
    probabilities = truncate(untruncated, top_k, top_p)
    ids = inverse_cdf(probabilities, uniforms)
    if greedy is not None:
        ids = torch.where(greedy, logits.argmax(-1), ids)
    own = logprobs.gather(1, ids[:, None])[:, 0]
    if probabilities is untruncated:
        return ids, own, None
    kept = probabilities > 0
    left = torch.log_softmax(logprobs.masked_fill(~kept, -torch.inf), -1)
    return ids, torch.where(kept.all(-1), own, left.gather(1, ids[:, None])[:, 0]), kept


def log_softmax(logits: Tensor, temperature: Tensor | None = None) -> Tensor:
    """Log-probabilities [n, vocab] at `temperature` [n]; a temperature of 0 counts as 1."""
    if temperature is None:
        return torch.log_softmax(logits, -1)
    # Of `where` a number would be a copy from the CPU, which no CUDA graph may have.
    divisor = temperature.masked_fill(temperature == 0, 1.0).to(logits.dtype)
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
        ordered = ordered.masked_fill((top_k[:, None] != 0) & (rank >= top_k[:, None]), 0.0)
    if top_p is not None:
        mass = ordered.cumsum(-1, dtype=widest(ordered.device))
        before = mass - ordered
        outside = (before >= top_p[:, None] * mass[:, -1:]) & (top_p[:, None] < 1)
        outside[:, 0] = False
        ordered = ordered.masked_fill(outside, 0.0)
    return torch.zeros_like(probabilities).scatter_(-1, order, ordered)


def inverse_cdf(probabilities: Tensor, uniforms: Tensor) -> Tensor:
    """The first token of each row whose cumulated mass exceeds `uniforms` x the row's total.

    Summed in float64 where the device has it, because a float32 sum over a large vocabulary loses
    the small tokens. Never picks a token of probability 0. Rows with NaN give an arbitrary valid
    id.
    """
    cdf = probabilities.cumsum(-1, dtype=widest(probabilities.device))
    total = cdf[:, -1]
    # u * total may round up to total, which would go beyond the last possible token.
    target = torch.minimum(uniforms * total, torch.nextafter(total, torch.zeros_like(total)))
    ids = torch.searchsorted(cdf, target[:, None], right=True)[:, 0]
    return ids.clamp_(max=probabilities.shape[-1] - 1)


def widest(device: torch.device) -> torch.dtype:
    """The floating numbers of most bits that a device has: MPS has no float64."""
    return torch.float32 if device.type == "mps" else torch.float64


def as_seed(seed: int) -> int:
    """Any Python int, also negative or huge, as the 64-bit seed to which it is congruent."""
    return seed & _MASK


def uniforms(
    seeds: UInts | Sequence[int], indices: npt.NDArray[Any] | Sequence[int]
) -> npt.NDArray[np.float64]:
    """One float64 in [0, 1) for each pair of (`seeds`, `indices`), both of shape [n]."""
    seed_bits = np.asarray(seeds, dtype=np.uint64)
    index_bits = np.asarray(indices).astype(np.uint64)
    bits = _hash(_hash(seed_bits) ^ _hash(index_bits + _INDEX_OFFSET))
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _hash(values: UInts) -> UInts:
    """splitmix64 of each value; array arithmetic in uint64 wraps without a warning, as intended."""
    x = values + _GOLDEN
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
