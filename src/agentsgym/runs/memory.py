"""Memory of one process at its peak, as arithmetic over a model's numbers and a run's settings.

With N weights of which N' are trained, all in bytes:

    weights         4 N; with LoRA b (N - N') + 4 N', b the bytes of the frozen base
    sampling copy   2 N' under autocast, where the embedded engine samples
    reference       4 N for KL without an adapter
    optimizer       8 N' for Adam's two moments
    gradients       4 N', twice under DDP, which keeps buckets of their size
    cast weights    2 per weight of a linear layer under autocast, which casts each once per pass
    cache           4 kv_heads head_dim layers per token in float32, times keys and values
    activations     what backward passes of a block need, for each token of a forward chunk; with
                    gradient checkpointing one vector per layer, and one block at a time
    head            log-probabilities are computed in tiles of 4096 x 8192 logits (TRL's chunked
                    log-probabilities), so the vocabulary enters through the head's gradient only
    sampling        float32 logits, log-probabilities and probabilities, and float64 sums, of the
                    rows that are sampled at once

A block's activations were counted in the operations of transformers' Llama and Qwen3 with sdpa:
per token 6 vectors of the model's width (residual, normalized, scaled, for two norms), 4 of the
queries' (q, k, v, output; keys and values are repeated to the queries' heads) and 4 of the MLP's;
Qwen3 adds 2 of the queries' and 2 of the keys' for its norms. Under autocast the linear layers' are
2 bytes.

Weights, reference and copy are always there. Rolling out needs cache and sampling besides; the loss
needs gradients, cast weights, activations and head; so the peak is the larger of the two. ZeRO-2
(Rajbhandari et al. 2020, section 5) divides gradients and optimizer over the processes and keeps
2 N for the weights in bfloat16; its communication buckets are not counted.
"""

from dataclasses import dataclass
from typing import Literal

from agentsgym.runs.architecture import Architecture

Layout = Literal["one process", "DDP", "ZeRO-2"]

_TILE_TOKENS, _TILE_WIDTH = 4096, 8192  # trl/kernels/chunked_logprob.py
_TILES = 4  # the tile itself and the float32 temporaries of its torch formula
_SAMPLED = 4 + 4 + 4 + 8  # bytes per logit in generation/embedded/sampling.py


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What a process holds and computes.

    `trained` of the model's weights are trained, in float32; `base_bytes` is the size of a frozen
    weight. `half` says that passes compute in 16 bits (autocast where weights are float32).
    `moments` is the number of float32 values that the optimizer keeps per trained weight. Backward
    passes go through the last `differentiated` blocks.
    `forward_tokens` are the padded tokens of a forward chunk, `agent_tokens` those of them that are
    scored; `several` says that an optimizer step has more than one chunk. `cache_tokens` tokens of
    `cache_bytes` per value are cached and `rows` rows are sampled at once, 0 where servers sample.
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
    agent_tokens: int
    several: bool
    rows: int
    cache_tokens: int


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes by what needs them; `peak` is the most that is needed at once."""

    weights: int
    copies: int
    optimizer: int
    cache: int
    sampling: int
    gradients: int
    activations: int
    head: int
    several: bool

    @property
    def always(self) -> int:
        """What is there all the time, from the first optimizer step on."""
        return self.weights + self.copies + self.optimizer

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
        return max(self.playing, self.updating)


def memory_of(load: Workload, layout: Layout = "one process", processes: int = 1) -> Memory:
    """The memory of one of `processes` processes, without the libraries' own."""
    model, share = load.model, processes if layout == "ZeRO-2" else 1
    frozen = model.parameters + load.adapter - load.trained
    full = 2 if layout == "ZeRO-2" and load.half else 4
    master = (4 if full == 2 else 0) * load.trained / share
    gradients = full * load.trained / share * (2 if layout == "DDP" else 1)
    copy = 2 * load.trained if load.half and load.rows and full == 4 else 0
    reference = 4 * model.parameters if load.reference else 0
    return Memory(
        weights=round(full * load.trained + load.base_bytes * frozen),
        copies=round(copy + reference),
        optimizer=round(4 * load.moments * load.trained / share + master),
        cache=load.cache_tokens * cached_bytes(model, half=load.half),
        sampling=load.rows * model.vocabulary * _SAMPLED,
        gradients=round(gradients),
        activations=round(_activations(load) + (_cast(load) if full == 4 else 0)),
        head=_head(load),
        several=load.several,
    )


def cached_bytes(model: Architecture, *, half: bool) -> int:
    """Keys and values of one token in all layers."""
    return 2 * model.layers * model.keys * (2 if half else 4)


def block_bytes(model: Architecture, *, half: bool, base_bytes: float = 4) -> float:
    """What backward passes of one block need of one token.

    The residual stream is as wide as the weights (`base_bytes`), a norm computes in float32.
    """
    linear = 2 if half else 4
    residual = 2 * (4 + max(base_bytes, 2) + linear) if half else 24
    heads = (4 * linear + (8 if model.qk_norm else 0)) * model.queries
    keys = (8 if model.qk_norm else 0) * model.keys
    return residual * model.width + heads + keys + 4 * linear * model.mlp


def _activations(load: Workload) -> float:
    model, tokens = load.model, load.forward_tokens
    base = load.base_bytes if load.trained == load.adapter else 4
    block = block_bytes(model, half=load.half, base_bytes=base)
    linear = 2 if load.half else 4
    # The gradients of a block's widest part while it is differentiated.
    working = 3 * linear * model.mlp + 2 * 4 * model.width
    stream = 4 if base >= 4 else 2
    kept = load.differentiated * (stream * model.width if load.checkpointing else block)
    return tokens * (kept + working + (block if load.checkpointing else 0))


def _cast(load: Workload) -> float:
    """Copies of float32 weights that autocast keeps for a pass."""
    if not load.half:
        return 0
    whole = load.trained > load.adapter
    blocks = load.model.linear + load.model.vocabulary * load.model.width
    return 2 * (blocks if whole else load.adapter)


def _head(load: Workload) -> int:
    """The tiles of the log-probabilities, and a gradient of the whole head where it is trained."""
    tokens = min(load.agent_tokens, _TILE_TOKENS)
    tiles = tokens * min(_TILE_WIDTH, load.model.vocabulary) * 4 * _TILES
    trained = load.trained > load.adapter
    return tiles + (4 * load.model.vocabulary * load.model.width if trained else 0)
