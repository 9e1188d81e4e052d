"""DeepSeek: a name and a JSON object, perhaps in a block of code."""

from agentsgym.tokens.tool_formats.reading import CallFormat, named_call

FORMAT = CallFormat(
    "DeepSeek",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>",
    named_call,
    inner=("<｜tool▁sep｜>",),
)
