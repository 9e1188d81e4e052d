"""Exact token records: chat-template deltas and the transcript."""

from agentsgym.tokens.codec import Codec, PlainCodec, TemplateCodec, codec_for
from agentsgym.tokens.speech import ActionText
from agentsgym.tokens.transcript import DraftRow, Transcript

__all__ = [
    "ActionText",
    "Codec",
    "DraftRow",
    "PlainCodec",
    "TemplateCodec",
    "Transcript",
    "codec_for",
]
