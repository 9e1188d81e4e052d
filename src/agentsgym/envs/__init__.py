"""Environments: the base class, the registry, dataset rows, one folder per environment."""

from agentsgym.envs.base import MultistepEnv
from agentsgym.envs.dataset import EnvPool, TaskRow, check_row, check_rows, task_dataset
from agentsgym.envs.function_tools import Outcome, tool
from agentsgym.envs.mcp_tools import McpTools
from agentsgym.envs.registry import (
    UnknownEnvironment,
    find,
    make,
    register,
    registered,
)
from agentsgym.envs.settings import EnvSettings
from agentsgym.envs.tools import ToolEnv
from agentsgym.types.names import ConfigError

__all__ = [
    "ConfigError",
    "EnvPool",
    "EnvSettings",
    "McpTools",
    "MultistepEnv",
    "Outcome",
    "TaskRow",
    "ToolEnv",
    "UnknownEnvironment",
    "check_row",
    "check_rows",
    "find",
    "make",
    "register",
    "registered",
    "task_dataset",
    "tool",
]
