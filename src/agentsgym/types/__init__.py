"""The nouns of the library and the protocols that all packages share. Imports no other one."""

from agentsgym.types.answers import Answer
from agentsgym.types.batch import RolloutBatch
from agentsgym.types.messages import Message, ToolCall, ToolSchema
from agentsgym.types.names import (
    ImportRefused,
    Trust,
    checked_path,
    import_path,
    is_under,
    real_path,
    with_modules_of,
)
from agentsgym.types.protocols import (
    Agent,
    Engine,
    EngineAgent,
    PrivilegedAgent,
    RolloutSource,
    SessionView,
    Tokenizer,
    TrainableEngine,
    WeightUpdate,
    trainable,
    wait_for,
)
from agentsgym.types.records import (
    ActionKind,
    Episode,
    Rollout,
    Step,
)
from agentsgym.types.requests import (
    EngineStats,
    FinishReason,
    GenerationRequest,
    GenerationResult,
    ModelCall,
    Prompt,
    RolloutRequest,
    SamplingParams,
    session_seed,
)
from agentsgym.types.rows import Row, StepSpan
from agentsgym.types.trials import EpisodeOutcome, TrialInfo

__all__ = [
    "ActionKind",
    "Agent",
    "Answer",
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
    "ModelCall",
    "PrivilegedAgent",
    "Prompt",
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
    "ToolCall",
    "ToolSchema",
    "TrainableEngine",
    "TrialInfo",
    "Trust",
    "WeightUpdate",
    "checked_path",
    "import_path",
    "is_under",
    "real_path",
    "session_seed",
    "trainable",
    "wait_for",
    "with_modules_of",
]
