"""Exact token records: chat-template deltas and the transcript."""

from agentsgym.tokens.codec import Codec, PlainCodec, TemplateCodec, codec_for
from agentsgym.tokens.transcript import DraftRow, Transcript

__all__ = ["Codec", "DraftRow", "PlainCodec", "TemplateCodec", "Transcript", "codec_for"]
