"""Llama 3: an answer that is JSON and nothing else."""

from agentsgym.tokens.tool_formats.reading import CallFormat, json_calls

_WRITTEN = r'\s*(<\|python_\w+\|>)*\{"name": ?"\w+", ?"(parameters|arguments)"'
FORMAT = CallFormat("Llama 3", "", "", json_calls, whole=_WRITTEN)
