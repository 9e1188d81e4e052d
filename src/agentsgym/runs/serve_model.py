"""What `agentsgym serve-model` serves: an engine of this process, and the application before it."""

from typing import Any

from agentsgym.generation.factory import make_engine
from agentsgym.generation.models import end_of_turn_ids, positions_of
from agentsgym.generation.settings import EngineParts, EngineSettings
from agentsgym.runs.models.load import Use, load_model
from agentsgym.runs.models.pretrained import device_in_use
from agentsgym.runs.models.served import ModelWeights, plain
from agentsgym.runs.settings import TINY, ModelSettings
from agentsgym.types.names import ConfigError

_UNBOUNDED = 131_072
"""The context of a model that names no longest one."""


def load_engine(model: ModelSettings, capacity: int, *, trust: bool = False) -> Any:
    """An engine of this process over a model, an adapter merged into its base; on a GPU if there is
    one. Raises ConfigError for a model that cannot be loaded."""
    if model.path == TINY:
        raise ConfigError("model: 'tiny' is made by a training; name the directory of a model")
    device = device_in_use()
    policy = load_model(model, Use(training=False, device=device, trust=trust))
    merged = plain(policy.model).to(device).eval()
    parts = EngineParts(model=lambda: merged, tokenizer=lambda: policy.tokenizer)
    return make_engine(EngineSettings(capacity=capacity), parts, training=False)


def application(
    engine: Any,
    name: str,
    *,
    root: str = "",
    key: str | None = None,
    max_model_len: int | None = None,
    weights: Any = None,
) -> tuple[Any, Any]:
    """The application over an engine, and the `Batcher` in whose thread it samples.

    Args:
        engine: the engine; nothing else may use it.
        name: the model's name for clients.
        root: the model's directory, or its name on the hub.
        key: what clients must send; None if nothing.
        max_model_len: the most tokens of context and answer; None: what the model has.
        weights: a `ReplaceableWeights`; None: the engine's model takes those that clients name.
    """
    from agentsgym.generation.serving.app import create_app
    from agentsgym.generation.serving.batcher import Batcher
    from agentsgym.generation.serving.engine import EngineBackend, ModelFacts
    from agentsgym.generation.serving.vllm_api import VLLMApi

    model = engine.model
    longest = positions_of(model.config.get_text_config()) or _UNBOUNDED
    facts = ModelFacts(
        name=name,
        root=root or name,
        max_model_len=min(longest, max_model_len or longest),
        stop_token_ids=end_of_turn_ids(engine.tokenizer, model),
    )
    served = weights or ModelWeights(engine, name)
    batcher = Batcher(engine, served.select)
    backend = EngineBackend(batcher, facts, engine.tokenizer, key)
    return create_app(backend, routes=VLLMApi(backend, served).routes()), batcher
