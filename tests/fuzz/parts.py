"""Models and tokenizers that areas share; made once."""

import functools
from typing import Any

from agentsgym import register
from helpers import CHATML, build_tokenizer


@functools.cache
def chat_tokenizer() -> Any:
    """A byte-level tokenizer of 400 tokens with ChatML's template."""
    return build_tokenizer(CHATML)


@functools.cache
def tiny_model() -> Any:
    """A random Llama over that tokenizer."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = chat_tokenizer()
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=40_000,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )
    return LlamaForCausalLM(config).eval()


@functools.cache
def tiny_engine() -> Any:
    """An engine over that model; `Fuzzed` is registered for it."""
    from agentsgym.generation import EmbeddedEngine
    from fuzz.areas.sessions import FuzzedEnv

    register("Fuzzed", FuzzedEnv)
    return EmbeddedEngine(tiny_model(), chat_tokenizer(), capacity=8)
