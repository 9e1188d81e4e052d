"""Conversations that are longer than a model's context."""

import re

# The sentence below, and what endpoints say: OpenAI and vLLM, the former's code, llama.cpp.
_SAID = re.compile(
    r"leaves no room in the model's \d+ positions|maximum context length|context_length_exceeded"
    r"|exceeds? the available context size",
    re.IGNORECASE,
)


def no_room(tokens: int, positions: int) -> str:
    """The reason why a model of so many `positions` cannot read a context of so many `tokens`."""
    return f"the context of {tokens} tokens leaves no room in the model's {positions} positions"


def says_no_room(error: str | None) -> bool:
    """Whether the error of a rollout says that the conversation is longer than the context of the
    model, which an endpoint tells in words only."""
    return error is not None and _SAID.search(error) is not None
