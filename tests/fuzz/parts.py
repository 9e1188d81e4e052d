"""Models and tokenizers that areas share; made once."""

import functools
from typing import Any

from agentsgym import register
from helpers import CHATML, build_tokenizer, random_llama


@functools.cache
def chat_tokenizer() -> Any:
    """A byte-level tokenizer of 400 tokens with ChatML's template."""
    return build_tokenizer(CHATML)


@functools.cache
def tiny_model() -> Any:
    """A random Llama over that tokenizer."""
    return random_llama(
        chat_tokenizer(),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=40_000,
    ).eval()


@functools.cache
def tiny_engine() -> Any:
    """An engine over that model; `Fuzzed` is registered for it."""
    from agentsgym.generation import EmbeddedEngine
    from fuzz.areas.sessions import FuzzedEnv

    register("Fuzzed", FuzzedEnv)
    return EmbeddedEngine(tiny_model(), chat_tokenizer(), capacity=8)
