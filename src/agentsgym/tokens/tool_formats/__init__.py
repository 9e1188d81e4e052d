"""The table of the formats of tool calls: a line and a file for each."""

from collections.abc import Sequence
from importlib import import_module

from agentsgym.tokens.tool_formats.reading import CallFormat

NAMES = (
    "tagged",
    "phi",
    "gemma",
    "mistral",
    "deepseek",
    "harmony",
    "bare",
)
"""Each is a file here with its `FORMAT`. The first that wrote a call is taken."""

FORMATS: Sequence[CallFormat] = [import_module(f"{__name__}.{name}").FORMAT for name in NAMES]

FAMILIES = ", ".join(one.families for one in FORMATS)
"""The families of models whose calls can be read."""

INNER = frozenset(word for one in FORMATS for word in one.inner)
"""The tokens that structure calls."""


def format_of(written: str) -> CallFormat | None:
    """The format in which a template wrote a call of the tool `LOOK_UP`; None if it is unknown."""
    return next((one for one in FORMATS if one.wrote(written)), None)
