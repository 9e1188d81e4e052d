"""Training runs: configuration, orchestration, and resuming after an interruption."""

from typing import TYPE_CHECKING

from agentsgym.runs.parts import Progress, StepReport
from agentsgym.runs.settings import (
    EvalSettings,
    LoraSettings,
    ModelSettings,
    RunConfig,
    parse_config,
)
from agentsgym.runs.sources import load_config, load_run, merge, parse_overrides, presets
from agentsgym.types.names import lazy_names

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


__getattr__ = lazy_names(__name__, {"train_run": "train"})
