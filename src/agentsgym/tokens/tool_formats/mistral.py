"""Mistral: a name and a JSON object, or a list of calls, after `[TOOL_CALLS]`."""

from agentsgym.tokens.tool_formats.reading import CallFormat, named_call

FORMAT = CallFormat("Mistral", "[TOOL_CALLS]", "", named_call, inner=("[ARGS]", "[CALL_ID]"))
