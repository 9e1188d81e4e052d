"""Qwen, SmolLM3, GLM, Granite 4: JSON or tags between `<tool_call>` and `</tool_call>`."""

import re

from agentsgym.tokens.tool_formats.reading import (
    ArgumentTypes,
    CallFormat,
    Read,
    call_of,
    json_calls,
)

_PARAMETER = re.compile(
    r"<parameter=([^>\n]+)>\n?(.*?)\n?</parameter>\s*(?=<parameter=|</function>|$)", re.DOTALL
)
_ARGUMENT = re.compile(r"<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>", re.DOTALL)


def _tagged_call(body: str, types: ArgumentTypes) -> Read:
    """JSON, or tags as Qwen3.5 and Nemotron (`<parameter=key>`) or GLM (`<arg_key>`) write them."""
    body = body.strip()
    if body.startswith(("{", "[")):
        return json_calls(body, types)
    function = re.match(r"<function=([^>\n]+)>", body)
    name = function[1] if function else re.split(r"\n|<arg_key>", body, maxsplit=1)[0].strip()
    pairs = (_PARAMETER if function else _ARGUMENT).findall(body)
    arguments = {key: types.value(name, key, text) for key, text in pairs}
    return [call_of({"name": name, "arguments": arguments})]


FORMAT = CallFormat(
    "Qwen, SmolLM3, GLM, Granite 4",
    "<tool_call>",
    "</tool_call>",
    _tagged_call,
    inner=("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
)
