"""gpt-oss: a call is a message to a function."""

from agentsgym.tokens.tool_formats.reading import CallFormat, named_call

FORMAT = CallFormat("gpt-oss", "to=functions.", "", named_call, in_messages=True)
