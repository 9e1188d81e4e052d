"""Phi-4, Granite 3: JSON between `<|tool_call|>` and `<|/tool_call|>`."""

from agentsgym.tokens.tool_formats.reading import CallFormat, json_calls

FORMAT = CallFormat("Phi-4, Granite 3", "<|tool_call|>", "<|/tool_call|>", json_calls)
