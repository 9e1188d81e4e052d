"""Gemma 4: keys without quotes, texts between a token of their own."""

import json
import re

from agentsgym.tokens.tool_formats.reading import (
    ArgumentTypes,
    CallFormat,
    Read,
    call_of,
    json_value,
)


def _quoted_key(match: re.Match[str]) -> str:
    return f"{json.dumps(match[1].strip())}:"


def _gemma_call(body: str, types: ArgumentTypes) -> Read:
    """`call:name{key:<|"|>text<|"|>,other:1}`: keys without quotes, texts between a token."""
    head, brace, rest = body.partition("{")
    pieces = (brace + rest).split('<|"|>')
    for number, piece in enumerate(pieces):
        if number % 2:
            pieces[number] = json.dumps(piece)
        else:
            piece = re.sub(r"(?<=[{,])([^{}\[\],:]+):", _quoted_key, piece)
            pieces[number] = re.sub(r"(?<=[:,\[])None\b", "null", piece)
    name = head.strip().removeprefix("call:")
    return [call_of({"name": name, "arguments": json_value("".join(pieces))})]


FORMAT = CallFormat("Gemma 4", "<|tool_call>", "<tool_call|>", _gemma_call, inner=('<|"|>',))
