"""Worker processes that play environments."""

from typing import Any

from agentsgym.moved import moved_name


def __getattr__(name: str) -> Any:
    return moved_name(__name__, name)
