"""Exact token records: chat-template deltas and the tree of what was read and answered."""

from agentsgym.tokens.check import CallCheck, TokenCheck, inspect_calls, inspect_tokenizer
from agentsgym.tokens.codec import Codec, TemplateCodec, codec_for, warn_rewritten
from agentsgym.tokens.speech import ActionText
from agentsgym.tokens.tree import Node, Tree

__all__ = [
    "ActionText",
    "CallCheck",
    "Codec",
    "Node",
    "TemplateCodec",
    "TokenCheck",
    "Tree",
    "codec_for",
    "inspect_calls",
    "inspect_tokenizer",
    "warn_rewritten",
]
