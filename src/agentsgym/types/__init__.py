"""Frozen records and small protocols that all other rooms share. Imports no other room."""

from agentsgym.types.actions import (
    ActionKind,
    EngineStats,
    FinishReason,
    GenerationRequest,
    GenerationResult,
    Message,
    SamplingParams,
    copy_message,
)
from agentsgym.types.batch import RolloutBatch, pad_id
from agentsgym.types.engine import (
    Engine,
    EngineAgent,
    TrainableEngine,
    WeightTransfer,
    WeightUpdate,
    can_update_while_sampling,
    trainable,
    wait_for,
)
from agentsgym.types.imports import AllowImports, ImportRefused, import_path
from agentsgym.types.paths import (
    AllowPaths,
    PathRefused,
    allowed_directories,
    checked_path,
    is_allowed,
    real_path,
)
from agentsgym.types.privileged import PrivilegedAgent, SessionView
from agentsgym.types.protocols import Agent, Tokenizer
from agentsgym.types.records import Episode, Rollout, Row, Step, StepSpan, count_steps
from agentsgym.types.rollout_request import RolloutRequest, session_seed
from agentsgym.types.rollout_source import RolloutSource
from agentsgym.types.trial_info import EpisodeOutcome, TrialInfo

__all__ = [
    "ActionKind",
    "Agent",
    "AllowImports",
    "AllowPaths",
    "Engine",
    "EngineAgent",
    "EngineStats",
    "Episode",
    "EpisodeOutcome",
    "FinishReason",
    "GenerationRequest",
    "GenerationResult",
    "ImportRefused",
    "Message",
    "PathRefused",
    "PrivilegedAgent",
    "Rollout",
    "RolloutBatch",
    "RolloutRequest",
    "RolloutSource",
    "Row",
    "SamplingParams",
    "SessionView",
    "Step",
    "StepSpan",
    "Tokenizer",
    "TrainableEngine",
    "TrialInfo",
    "WeightTransfer",
    "WeightUpdate",
    "allowed_directories",
    "can_update_while_sampling",
    "checked_path",
    "copy_message",
    "count_steps",
    "import_path",
    "is_allowed",
    "pad_id",
    "real_path",
    "session_seed",
    "trainable",
    "wait_for",
]
