"""Training runs: configuration, orchestration, and resuming after an interruption."""

from typing import TYPE_CHECKING, Any

from agentsgym.runs.progress import Progress, StepReport
from agentsgym.runs.settings import (
    EvalSettings,
    LoraSettings,
    ModelSettings,
    RunConfig,
    parse_config,
)
from agentsgym.runs.sources import load_config, load_run, merge, parse_overrides, presets

if TYPE_CHECKING:
    from agentsgym.runs.train import train_run

__all__ = [
    "EvalSettings",
    "LoraSettings",
    "ModelSettings",
    "Progress",
    "RunConfig",
    "StepReport",
    "load_config",
    "load_run",
    "merge",
    "parse_config",
    "parse_overrides",
    "presets",
    "train_run",
]


def __getattr__(name: str) -> Any:
    if name != "train_run":
        raise AttributeError(f"module 'agentsgym.runs' has no attribute {name!r}")
    from agentsgym.runs.train import train_run

    return train_run
