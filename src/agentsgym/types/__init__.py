"""Frozen records and small protocols that all other rooms share. Imports nothing of them."""

from agentsgym.types.actions import (
    Action,
    ActionRequest,
    EngineStats,
    FinishReason,
    GenerationRequest,
    GenerationResult,
    Message,
    SamplingParams,
)
from agentsgym.types.batch import RolloutBatch, pad_id
from agentsgym.types.protocols import Agent, Engine, EngineAgent, Tokenizer
from agentsgym.types.records import Episode, Rollout, Row, Step, StepSpan, count_steps

__all__ = [
    "Action",
    "ActionRequest",
    "Agent",
    "Engine",
    "EngineAgent",
    "EngineStats",
    "Episode",
    "FinishReason",
    "GenerationRequest",
    "GenerationResult",
    "Message",
    "Rollout",
    "RolloutBatch",
    "Row",
    "SamplingParams",
    "Step",
    "StepSpan",
    "Tokenizer",
    "count_steps",
    "pad_id",
]
