"""Frozen records and small protocols that all other rooms share. Imports nothing of them."""

from agentsgym.types.actions import (
    Action,
    ActionKind,
    ActionRequest,
    EngineStats,
    FinishReason,
    GenerationRequest,
    GenerationResult,
    Message,
    SamplingParams,
)
from agentsgym.types.batch import RolloutBatch, pad_id
from agentsgym.types.imports import AllowImports, ImportRefused, import_path
from agentsgym.types.protocols import Agent, Engine, EngineAgent, Tokenizer, wait_for
from agentsgym.types.records import Episode, Rollout, Row, Step, StepSpan, count_steps

__all__ = [
    "Action",
    "ActionKind",
    "ActionRequest",
    "Agent",
    "AllowImports",
    "Engine",
    "EngineAgent",
    "EngineStats",
    "Episode",
    "FinishReason",
    "GenerationRequest",
    "GenerationResult",
    "ImportRefused",
    "Message",
    "Rollout",
    "RolloutBatch",
    "Row",
    "SamplingParams",
    "Step",
    "StepSpan",
    "Tokenizer",
    "count_steps",
    "import_path",
    "pad_id",
    "wait_for",
]
