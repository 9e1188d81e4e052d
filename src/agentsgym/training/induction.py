"""Induction heads in the initial weights of a tiny Llama: it copies before it has learned anything.

An induction head finds the place where the present token stood before, and copies what came after
it (Olsson et al., "In-context Learning and Induction Heads", 2022). Trained from drawn weights a
tiny model needs long to find this circuit of two layers; here it is written into them. The model
has no other parameters than before and remains an ordinary `LlamaForCausalLM`.
"""

from typing import Any

import torch

CONSTANT = 8.0
"""The entry that all embeddings share, in units of the length of a drawn embedding. It fixes what
RMSNorm divides by, so that what is written into the residual stream keeps its scale."""
FAST = 0.05
"""RoPE turns pairs of a head above this frequency (radians per token) to tell positions apart;
slower ones hardly turn within a game and compare contents."""
POSITION_SCORE, MATCH_SCORE = 20.0, 10.0
"""Scores of the token before, in layer 0, and of a matching one, in layer 1."""
WRITTEN, COPIED = 3.0, 10.0
"""How much larger than what stands there is what layer 0 writes (than embeddings) and what layer 1
copies (than its input)."""


@torch.no_grad()
def write_induction_heads(model: Any, heads: int) -> None:
    """Make the first `heads` heads of the first two layers of a drawn Llama induction heads.

    The residual stream has three parts: entry 0, the constant; the lower half, which is read as the
    token's content; and the upper half, into which layer 0 writes. Layer 0 attends to the token
    before and writes a random orthonormal map of its content into the upper half. The query of
    layer 1 maps the present content as the values of layer 0 do, its key reads the upper half back,
    so that a token matches whose predecessor equals the present one; values and output copy its
    content. Everything else stays as drawn, but does not read the constant. Random numbers are
    torch's global ones.
    """
    core, width = model.model, model.config.hidden_size
    first, second = core.layers[0].self_attn, core.layers[1].self_attn
    table, half = core.embed_tokens.weight, width // 2
    spread = table.std()
    for layer in core.layers:
        own, mlp = layer.self_attn, layer.mlp
        for reader in (own.q_proj, own.k_proj, own.v_proj, mlp.gate_proj, mlp.up_proj):
            reader.weight[:, 0] = 0
    table[:, 0] = CONSTANT * spread * width**0.5
    core.norm.weight.mul_((1 + CONSTANT**2) ** 0.5)  # as if the constant were not there

    normed = core.layers[0].input_layernorm(table)
    _attend_to_the_token_before(model, heads, normed[:, 0].mean())
    slow = _slow(model, heads)
    match, copy = _orthonormal(len(slow), half - 1), _orthonormal(len(slow), half - 1)
    message = _orthonormal(width - half, len(slow))
    for attention in (first, second):
        attention.v_proj.weight[slow] = 0
        attention.o_proj.weight[:, slow] = 0
    first.v_proj.weight[slow, 1:half] = match
    first.o_proj.weight[half:, slow] = message * WRITTEN * spread / normed[:, 1:].std()
    second.q_proj.weight[slow, 1:half] = match
    second.k_proj.weight[slow, half:] = message.T
    second.v_proj.weight[slow, 1:half] = copy
    second.o_proj.weight[1:half, slow] = copy.T
    _scale_second(model, heads, slow)


def _attend_to_the_token_before(model: Any, heads: int, constant: torch.Tensor) -> None:
    """Queries and keys of layer 0 read only the constant. In each fast pair of frequency f the key
    is a·(cos f, sin f), one position ahead, and the query a·(1, 0): after RoPE a distance of Δ
    tokens has the score Σ a²·cos(f·(Δ − 1)) / √d, highest at Δ = 1. Those of layer 1 become 0."""
    frequencies = model.model.rotary_emb.inv_freq
    d = 2 * len(frequencies)
    for layer in model.model.layers[:2]:
        layer.self_attn.q_proj.weight[: heads * d] = 0
        layer.self_attn.k_proj.weight[: heads * d] = 0
    fast = (frequencies > FAST).nonzero().flatten()
    size = (POSITION_SCORE * d**0.5 / len(fast)) ** 0.5 / constant
    attention = model.model.layers[0].self_attn
    for start in range(0, heads * d, d):
        attention.q_proj.weight[start + fast, 0] = size
        attention.k_proj.weight[start + fast, 0] = size * frequencies[fast].cos()
        attention.k_proj.weight[start + d // 2 + fast, 0] = size * frequencies[fast].sin()


def _scale_second(model: Any, heads: int, slow: torch.Tensor) -> None:
    """Scale scores and output of layer 1 by what they are on random tokens."""
    layer = model.model.layers[1]
    tokens = torch.randint(model.config.vocab_size, (8, 32))
    seen: list[torch.Tensor] = []
    hook = layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    model.model(tokens, use_cache=False)
    hook.remove()
    stream, attention = seen[0], layer.self_attn
    normed = layer.input_layernorm(stream)
    queries = attention.q_proj(normed)[:, :-1, slow]
    keys = attention.k_proj(normed)[:, 1:, slow]  # the next token's predecessor is this one
    score = (queries * keys).sum(-1).mean() / heads / attention.head_dim**0.5
    for reader in (attention.q_proj, attention.k_proj):
        reader.weight[slow] *= (MATCH_SCORE / score) ** 0.5
    contents = slice(1, model.config.hidden_size // 2)
    copied = (attention.v_proj(normed)[..., slow] @ attention.o_proj.weight[:, slow].T)[
        ..., contents
    ]
    attention.o_proj.weight[:, slow] *= COPIED * stream[..., contents].std() / copied.std()


def _slow(model: Any, heads: int) -> torch.Tensor:
    """Rows of the slow pairs of the first heads; RoPE pairs the entries j and j + d/2 of a head."""
    frequencies = model.model.rotary_emb.inv_freq
    pairs = (frequencies <= FAST).nonzero().flatten()
    rows = torch.cat([pairs, pairs + len(frequencies)])
    return (2 * len(frequencies) * torch.arange(heads)[:, None] + rows).flatten()


def _orthonormal(rows: int, columns: int) -> torch.Tensor:
    return torch.nn.init.orthogonal_(torch.empty(rows, columns))
