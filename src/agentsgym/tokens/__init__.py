"""Exact token records: chat-template deltas and the transcript."""

from agentsgym.tokens.check import CallCheck, TokenCheck, inspect_calls, inspect_tokenizer
from agentsgym.tokens.codec import Codec, TemplateCodec, codec_for, warn_rewritten
from agentsgym.tokens.speech import ActionText
from agentsgym.tokens.transcript import DraftRow, Transcript

__all__ = [
    "ActionText",
    "CallCheck",
    "Codec",
    "DraftRow",
    "TemplateCodec",
    "TokenCheck",
    "Transcript",
    "codec_for",
    "inspect_calls",
    "inspect_tokenizer",
    "warn_rewritten",
]
