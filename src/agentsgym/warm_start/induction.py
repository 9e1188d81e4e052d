"""Induction heads in the initial weights of a tiny Llama: it copies before it has learned anything.

An induction head finds the place where the present token stood before, and copies what came after
it (Olsson et al., "In-context Learning and Induction Heads", 2022). Trained from drawn weights a
tiny model needs long to find this circuit of two layers; here it is written into them. Further
heads copy what came two, three, … tokens after, as looking something up in a table needs. The model
has no other parameters than before and remains an ordinary `LlamaForCausalLM`.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch

CONSTANT = 8.0
"""The entry that all embeddings share, in units of the length of a drawn embedding. It fixes what
RMSNorm divides by, so that what is written into the residual stream keeps its scale."""
FAST = 0.05
"""RoPE turns pairs of a head above this frequency (radians per token) to tell positions apart;
slower ones hardly turn within a game and compare contents."""
POSITION_SCORE, MATCH_SCORE = 20.0, 10.0
"""Scores of the token before, in layer 0, and of a matching one, in later layers."""
RECENT, RECENT_SCORE = 16, 6.0
"""Tokens that a recency head attends to, and how much the nearest adds to their score."""
WRITTEN = COPIED = 3.0
"""How much larger than what stands there is what layer 0 writes (than embeddings), and what later
layers copy (than their inputs)."""


@torch.no_grad()
def write_induction_heads(model: Any, heads: int, words: Sequence[int], recent: int = 0) -> None:
    """Make the first `heads` heads of each layer of a drawn Llama induction heads: head k copies
    what came k + 1 tokens after an earlier occurrence of the present token.

    `words` has an entry for each token of the vocabulary: the token whose content it starts with,
    the same word without the space before it, so that a name is recognized, and copied, wherever in
    a sentence it stands.

    The residual stream has three parts: entry 0, the constant; the lower half, which is read as the
    token's content; and the upper half, into which layer 0 writes. Head k of layer 0 attends to the
    token k + 1 places before and writes a random orthonormal map of its content into the upper
    half. In each later layer the head's query maps the present content as its values of layer 0 do,
    and its key reads the upper half back, so that a token matches that comes k + 1 places after
    one that equals the present content. Values and outputs of all heads of later layers copy
    contents, exactly if a head is as large as the lower half: other heads only have to learn where
    to attend. The present content is also what an earlier layer copied: a name that stands in an
    answer can be looked up in the next layer. The next `recent` heads of later layers attend to
    the last tokens. Everything else stays as drawn, but does not read the constant. Random numbers
    are torch's global ones.
    """
    core, width = model.model, model.config.hidden_size
    first, *later = (layer.self_attn for layer in core.layers)
    table, half = core.embed_tokens.weight, width // 2
    spread = table.std()
    for layer in core.layers:
        own, mlp = layer.self_attn, layer.mlp
        for reader in (own.q_proj, own.k_proj, own.v_proj, mlp.gate_proj, mlp.up_proj):
            reader.weight[:, 0] = 0
    table[:, 1:half] = table[words, 1:half]
    table[:, 0] = CONSTANT * spread * width**0.5
    core.norm.weight.mul_((1 + CONSTANT**2) ** 0.5)  # as if the constant were not there

    normed = core.layers[0].input_layernorm(table)
    _attend_to_tokens_before(model, heads, normed[:, 0].mean())
    _attend_to_recent(model, range(heads, heads + recent), normed[:, 0].mean())
    slow = _slow(model, heads)
    each = len(slow) // heads
    match = torch.cat([_orthonormal(each, half - 1) for _ in range(heads)])
    message = torch.cat([_orthonormal(width - half, each) for _ in range(heads)], dim=1)
    first.v_proj.weight[slow] = 0
    first.o_proj.weight[:, slow] = 0
    first.v_proj.weight[slow, 1:half] = match
    first.o_proj.weight[half:, slow] = message * WRITTEN * spread / normed[:, 1:].std()
    for number, attention in enumerate(later, 1):
        copies = [
            _orthonormal(attention.head_dim, half - 1)
            for _ in range(model.config.num_attention_heads)
        ]
        attention.v_proj.weight.zero_()[:, 1:half] = torch.cat(copies)
        attention.o_proj.weight.zero_()[1:half] = torch.cat(copies).T
        attention.q_proj.weight[slow, 1:half] = match
        attention.k_proj.weight[slow, half:] = message.T
        _scale(model, number, heads, slow)


def _attend_to_tokens_before(model: Any, heads: int, constant: torch.Tensor) -> None:
    """Queries and keys of layer 0 read only the constant. In each fast pair of frequency f the key
    of head k is a·(cos (k + 1)f, sin (k + 1)f), k + 1 positions ahead, and the query
    a·(1, 0): after RoPE a distance of Δ tokens has the score Σ a²·cos(f·(Δ − k − 1)) / √d, highest
    at Δ = k + 1. Those of later layers become 0."""
    frequencies = model.model.rotary_emb.inv_freq
    d = 2 * len(frequencies)
    for layer in model.model.layers:
        layer.self_attn.q_proj.weight[: heads * d] = 0
        layer.self_attn.k_proj.weight[: heads * d] = 0
    fast = (frequencies > FAST).nonzero().flatten()
    size = (POSITION_SCORE * d**0.5 / len(fast)) ** 0.5 / constant
    attention = model.model.layers[0].self_attn
    for head in range(heads):
        start, angle = head * d, (head + 1) * frequencies[fast]
        attention.q_proj.weight[start + fast, 0] = size
        attention.k_proj.weight[start + fast, 0] = size * angle.cos()
        attention.k_proj.weight[start + d // 2 + fast, 0] = size * angle.sin()


def _attend_to_recent(model: Any, heads: Iterable[int], constant: torch.Tensor) -> None:
    """Queries and keys of these heads of later layers read the constant too, with equal entries
    a·(1, 0): after RoPE a distance of Δ tokens adds Σ a²·cos(f·Δ) / √d to the score, over pairs
    that turn by at most half a circle within `RECENT` tokens."""
    frequencies = model.model.rotary_emb.inv_freq
    d = 2 * len(frequencies)
    near = ((frequencies > FAST) & (frequencies < torch.pi / RECENT)).nonzero().flatten()
    size = (RECENT_SCORE * d**0.5 / max(1, len(near))) ** 0.5 / constant
    for head in heads:
        for layer in model.model.layers[1:]:
            layer.self_attn.q_proj.weight[head * d + near, 0] = size
            layer.self_attn.k_proj.weight[head * d + near, 0] = size


def _scale(model: Any, number: int, heads: int, slow: torch.Tensor) -> None:
    """Scale scores and output of a later layer by what they are on random tokens."""
    layer = model.model.layers[number]
    tokens = torch.randint(model.config.vocab_size, (8, 32))
    seen: list[torch.Tensor] = []
    hook = layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    model.model(tokens, use_cache=False)
    hook.remove()
    stream, attention = seen[0], layer.self_attn
    normed = layer.input_layernorm(stream)
    queries, keys = attention.q_proj(normed), attention.k_proj(normed)
    for head, rows in enumerate(slow.view(heads, -1)):
        pairs = queries[:, : -head - 1, rows] * keys[:, head + 1 :, rows]  # those that match
        score = pairs.sum(-1).mean() / attention.head_dim**0.5
        for reader in (attention.q_proj, attention.k_proj):
            reader.weight[rows] *= (MATCH_SCORE / score) ** 0.5
    contents = slice(1, model.config.hidden_size // 2)
    copied = attention.o_proj(attention.v_proj(normed))[..., contents]
    attention.o_proj.weight *= COPIED * stream[..., contents].std() / copied.std()


def _slow(model: Any, heads: int) -> torch.Tensor:
    """Rows of the slow pairs of the first heads; RoPE pairs the entries j and j + d/2 of a head."""
    frequencies = model.model.rotary_emb.inv_freq
    pairs = (frequencies <= FAST).nonzero().flatten()
    rows = torch.cat([pairs, pairs + len(frequencies)])
    return (2 * len(frequencies) * torch.arange(heads)[:, None] + rows).flatten()


def _orthonormal(rows: int, columns: int) -> torch.Tensor:
    return torch.nn.init.orthogonal_(torch.empty(rows, columns))
