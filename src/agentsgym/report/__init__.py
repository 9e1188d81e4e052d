"""Reports about past runs: credit of stored rollouts under several estimators."""

from typing import Any

from agentsgym.moved import moved_name


def __getattr__(name: str) -> Any:
    return moved_name(__name__, name)
