"""agentsgym: train LLM agents that learn within a task.

Names are loaded on first use, so `import agentsgym` imports neither torch nor TRL.
"""

import importlib.util
import pkgutil
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentsgym.agents import DirectOutputAgent, HumanAgent, ScriptedAgent
    from agentsgym.envs import (
        EnvPool,
        EnvSettings,
        McpTools,
        MultistepEnv,
        Outcome,
        ToolEnv,
        make,
        register,
        task_dataset,
        tool,
    )
    from agentsgym.training import GRPOEnvConfig, GRPOEnvTrainer
    from agentsgym.types import Agent, PrivilegedAgent, RolloutBatch, SamplingParams, TrialInfo

_HOMES = {
    "Agent": "agentsgym.types",
    "DirectOutputAgent": "agentsgym.agents",
    "EnvPool": "agentsgym.envs",
    "EnvSettings": "agentsgym.envs",
    "GRPOEnvConfig": "agentsgym.training",
    "GRPOEnvTrainer": "agentsgym.training",
    "HumanAgent": "agentsgym.agents",
    "McpTools": "agentsgym.envs",
    "MultistepEnv": "agentsgym.envs",
    "Outcome": "agentsgym.envs",
    "PrivilegedAgent": "agentsgym.types",
    "RolloutBatch": "agentsgym.types",
    "SamplingParams": "agentsgym.types",
    "ScriptedAgent": "agentsgym.agents",
    "ToolEnv": "agentsgym.envs",
    "TrialInfo": "agentsgym.types",
    "make": "agentsgym.envs",
    "register": "agentsgym.envs",
    "task_dataset": "agentsgym.envs",
    "tool": "agentsgym.envs",
}

__version__ = "0.1.0"
__all__ = [
    "Agent",
    "DirectOutputAgent",
    "EnvPool",
    "EnvSettings",
    "GRPOEnvConfig",
    "GRPOEnvTrainer",
    "HumanAgent",
    "McpTools",
    "MultistepEnv",
    "Outcome",
    "PrivilegedAgent",
    "RolloutBatch",
    "SamplingParams",
    "ScriptedAgent",
    "ToolEnv",
    "TrialInfo",
    "TwentyQuestionsEnv",
    "__version__",
    "make",
    "register",
    "task_dataset",
    "tool",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name.endswith("Env"):  # the class of an environment of the package
        registry = importlib.import_module("agentsgym.envs.registry")
        return registry.class_named(name)
    if importlib.util.find_spec(f"agentsgym.{name}") is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"agentsgym.{name}")


def __dir__() -> list[str]:
    return sorted({*__all__, *(module.name for module in pkgutil.iter_modules(__path__))})
