"""Memory of one process at its peak, as arithmetic over a model's numbers and a run's settings.

With N weights of which N' are trained, all in bytes:

    weights         4 N; with LoRA b (N - N') + 4 N', b the bytes of the frozen base
    sampling copy   2 N' under autocast, where the embedded engine samples; where it is in a process
                    of its own, all weights in the type that is sampled in, once there and, on a
                    CPU, once more in memory that both share
    reference       4 N for KL without an adapter
    optimizer       8 N' for Adam's two moments
    gradients       4 N', twice under DDP, which keeps buckets of their size
    cast weights    2 per trained weight of a block's linear layers under autocast, which casts each
                    once per pass; with gradient checkpointing they go with the forward pass
    cache           4 kv_heads head_dim layers per token in float32, times keys and values
    activations     what backward passes of a block need, for each token of a forward chunk; with
                    gradient checkpointing one vector per layer, and one block at a time
    head            log-probabilities are computed in tiles of 4096 x 8192 logits (TRL's chunked
                    log-probabilities), so the vocabulary enters through the head's gradient only
    kernels         0.7 MB per matrix product that oneDNN compiles: on a CPU it compiles those of 16
                    bits once for each shape, also for each number of tokens
    sampling        float32 logits, log-probabilities and probabilities, and float64 sums, of the
                    rows that are sampled at once

A block's activations were counted in what transformers' Llama and Qwen3 with sdpa save for the
backward pass. Per token these are vectors of the model's width: of each of two norms the input in
float32, the normalized values where the norm is trained, and the input of the linear layers behind
it, which autocast casts for each of them (5 copies instead of 2 vectors). Then 4 of the queries'
(q, k, v, output; keys and values are repeated to the queries' heads; LoRA under autocast casts the
output once more), and 4 of the MLP's, in 2 bytes under autocast. Qwen3 adds those of its norms of
queries and keys. Where rows are padded, each block keeps an attention mask of its own, one number
per token and position. The r values per token of an adapted layer are not counted.

Weights, reference, copy and kernels are always there. Rolling out needs cache and sampling besides;
the loss needs gradients, cast weights, activations and head; so the peak is the larger of the two,
or their sum where a process of its own samples beside the optimizer.
ZeRO-2 (Rajbhandari et al. 2020, section 5) divides gradients and optimizer over the processes and
keeps 2 N for the weights in bfloat16; its communication buckets are not counted.
"""

from dataclasses import dataclass
from typing import Literal

from agentsgym.runs.architecture import Architecture

Layout = Literal["one process", "DDP", "ZeRO-2"]

_TILE_TOKENS, _TILE_WIDTH = 4096, 8192  # trl/kernels/chunked_logprob.py
_TILES = 4  # the tile itself and the float32 temporaries of its torch formula
_SAMPLED = 4 + 4 + 4 + 8  # bytes per logit in generation/embedded/sampling.py
_KERNEL = 690_000  # oneDNN of torch 2.13, equal for all shapes, in a loop over 100 of each product


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What a process holds and computes.

    `trained` of the model's weights are trained, in float32; `base_bytes` is the size of a frozen
    weight. `half` says that passes compute in 16 bits (autocast where weights are float32).
    `moments` is the number of float32 values that the optimizer keeps per trained weight. Backward
    passes go through the last `differentiated` blocks.
    `forward_tokens` are the padded tokens of a forward chunk in rows of `row_tokens`,
    `agent_tokens` those of them that are scored; `several` says that an optimizer step has more
    than one chunk. `cache_tokens` tokens of `cached_bytes` each are cached and `rows` rows are
    sampled at once, 0 where servers sample. `products` is how many matrix products oneDNN keeps.
    `sent` is how many copies of the weights a process of its own that samples adds, 0 without one.
    """

    model: Architecture
    trained: int
    adapter: int
    base_bytes: float
    half: bool
    moments: float
    differentiated: int
    reference: bool
    checkpointing: bool
    forward_tokens: int
    row_tokens: int
    agent_tokens: int
    several: bool
    rows: int
    cache_tokens: int
    products: int
    sent: int = 0


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes by what needs them; `peak` is the most that is needed at once. `beside`: sampling goes
    on beside the update."""

    weights: int
    copies: int
    optimizer: int
    cache: int
    sampling: int
    gradients: int
    activations: int
    head: int
    kernels: int
    several: bool
    beside: bool = False

    @property
    def always(self) -> int:
        """What is there all the time, from the first optimizer step on."""
        return self.weights + self.copies + self.optimizer + self.kernels

    @property
    def playing(self) -> int:
        """At the peak of the rollouts."""
        return self.always + self.cache + self.sampling

    @property
    def updating(self) -> int:
        """At the peak of the update. Gradients of earlier chunks are there while a chunk is read;
        those of a single chunk come as its activations go."""
        chunk = self.activations + self.head
        both = self.gradients + chunk if self.several else max(self.gradients, chunk)
        return self.always + both

    @property
    def peak(self) -> int:
        """The most that is needed at once."""
        if self.beside:
            return self.playing + self.updating - self.always
        return max(self.playing, self.updating)


def memory_of(load: Workload, layout: Layout = "one process", processes: int = 1) -> Memory:
    """The memory of one of `processes` processes, without the libraries' own."""
    model, share = load.model, processes if layout == "ZeRO-2" else 1
    frozen = model.parameters + load.adapter - load.trained
    full = 2 if layout == "ZeRO-2" and load.half else 4
    master = (4 if full == 2 else 0) * load.trained / share
    gradients = full * load.trained / share * (2 if layout == "DDP" else 1)
    sampled = 2 if load.half else 4
    copy: float = 2 * load.trained if load.half and load.rows and full == 4 else 0
    if load.sent:
        copy = load.sent * (sampled * load.trained + min(load.base_bytes, sampled) * frozen)
    reference = 4 * model.parameters if load.reference else 0
    return Memory(
        weights=round(full * load.trained + load.base_bytes * frozen),
        copies=round(copy + reference),
        optimizer=round(4 * load.moments * load.trained / share + master),
        cache=load.cache_tokens * cached_bytes(model, half=load.half),
        sampling=load.rows * model.vocabulary * _SAMPLED,
        gradients=round(gradients),
        activations=round(_activations(load, cast=load.half and full == 4)),
        head=_head(load),
        kernels=load.products * _KERNEL,
        several=load.several,
        beside=load.sent > 0,
    )


def cached_bytes(model: Architecture, *, half: bool) -> int:
    """Keys and values of one token in all layers."""
    return 2 * model.layers * model.keys * (2 if half else 4)


def block_bytes(
    model: Architecture,
    *,
    half: bool,
    cast: bool | None = None,
    frozen: bool = False,
    masked: int = 0,
) -> float:
    """What backward passes of one block need of one token.

    `half` says that passes compute in 16 bits, `cast` (as `half` unless given) that autocast casts
    the weights for it, `frozen` that only an adapter is trained. A norm computes in float32.
    `masked` is the number of positions that an attention mask has for the token.
    """
    cast = half if cast is None else cast
    linear = 2 if half else 4
    normalized = 0 if frozen else 4 if cast else linear
    width = 2 * (4 + normalized) + linear * (5 if cast else 2)
    heads = linear * (5 if cast and frozen else 4)
    norm = 4 + (0 if frozen else linear) if model.qk_norm else 0
    return (
        width * model.width
        + (heads + norm) * model.queries
        + norm * model.keys
        + linear * (4 * model.mlp + masked)
    )


def _activations(load: Workload, *, cast: bool) -> float:
    """Of a chunk; with what else is there while its widest block is differentiated."""
    model, tokens, frozen = load.model, load.forward_tokens, load.trained == load.adapter
    masked = load.row_tokens if tokens > load.row_tokens else 0  # a row alone is not padded
    each = block_bytes(model, half=load.half, cast=cast, frozen=frozen, masked=masked)
    block = tokens * each
    linear = 2 if load.half else 4
    # The gradients of a block's widest part while it is differentiated.
    working = tokens * (3 * linear * model.mlp + 2 * 4 * model.width)
    weights = 2 * (load.adapter if frozen else model.linear) if cast else 0
    if not load.checkpointing:
        return load.differentiated * block + working + weights
    stream = load.base_bytes if frozen else 4 if cast else linear
    kept = load.differentiated * tokens * max(stream, 2) * model.width
    return kept + max(weights, block + working + weights / model.layers)


def _head(load: Workload) -> int:
    """The tiles of the log-probabilities, and a gradient of the whole head where it is trained."""
    tokens = min(load.agent_tokens, _TILE_TOKENS)
    tiles = tokens * min(_TILE_WIDTH, load.model.vocabulary) * 4 * _TILES
    trained = load.trained > load.adapter
    return tiles + (4 * load.model.vocabulary * load.model.width if trained else 0)
