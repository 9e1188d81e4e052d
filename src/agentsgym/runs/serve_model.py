"""What `agentsgym serve-model` serves: an engine of this process, the application before it, and
the weights that it samples from: the model's own, others, and adapters."""

from pathlib import Path
from typing import Any

from agentsgym.generation.factory import make_engine
from agentsgym.generation.models import is_adapted, positions_of
from agentsgym.generation.settings import EngineParts, EngineSettings
from agentsgym.runs.models import Use, device_in_use, load_model, reloaded
from agentsgym.runs.settings import ModelSettings
from agentsgym.runs.weights import StoredAdapter, merged, read_adapter, with_stored

_UNBOUNDED = 131_072
"""The context of a model that names no longest one."""


def load_engine(model: ModelSettings, engine: EngineSettings, *, trust: bool = False) -> Any:
    """An engine of this process over a model, an adapter merged into its base; on a GPU if there is
    one. Raises ConfigError for a model that cannot be loaded."""
    device = device_in_use()
    policy = load_model(model, Use(training=False, device=device, trust=trust))
    whole = merged(policy.model) if is_adapted(policy.model) else policy.model
    whole = whole.to(device).eval()
    parts = EngineParts(model=lambda: whole, tokenizer=lambda: policy.tokenizer)
    return make_engine(engine, parts, training=False)


def application(
    engine: Any,
    name: str,
    *,
    root: str = "",
    key: str | None = None,
    max_model_len: int | None = None,
    weights: Any = None,
) -> tuple[Any, Any]:
    """The application over an engine, which nothing else may use, and the `Batcher` in whose thread
    it samples. `name` is the model's for clients, `root` its directory or its name on the hub; None
    for `key` asks for none, for `max_model_len` (tokens) is the model's own, and for `weights` is
    `ModelWeights`."""
    from agentsgym.generation.serving.app import create_app
    from agentsgym.generation.serving.batcher import Batcher
    from agentsgym.generation.serving.engine import EngineBackend, ModelFacts
    from agentsgym.generation.serving.vllm_api import VLLMApi

    model = engine.model
    longest = positions_of(model.config.get_text_config()) or _UNBOUNDED
    most = min(longest, max_model_len or longest)
    facts = ModelFacts(name=name, root=root or name, max_model_len=most)
    served = weights or ModelWeights(engine, name)
    batcher = Batcher(engine, served.select)
    backend = EngineBackend(batcher, facts, engine.tokenizer, key)
    return create_app(backend, routes=VLLMApi(backend, served).routes()), batcher


_ADAPTERS = 16
"""So many are served; the oldest go."""


class ModelWeights:
    """The weights that `engine` samples from, an engine of this process. The model's own are served
    as `name`. `select` and `reload` are called in its thread, while no request is open."""

    def __init__(self, engine: Any, name: str) -> None:
        self._engine = engine
        self._name = name
        self._adapted: Any = None
        self._adapters: dict[str, StoredAdapter] = {}

    def adapters(self) -> list[str]:
        """The names of the adapters."""
        return list(self._adapters)

    def add(self, name: str, folder: Path) -> None:
        """Serve the adapter in a directory, which is read when it is selected. Raises
        ConfigError."""
        self._adapters[name] = read_adapter(folder, self._name)
        while len(self._adapters) > _ADAPTERS:
            del self._adapters[next(iter(self._adapters))]

    def select(self, name: str) -> None:
        """Sample from the adapter `name`, or from the model itself. Raises KeyError, ConfigError,
        and FileNotFoundError if its files are gone."""
        stored = None if name == self._name else self._adapters[name]
        self._unload()
        if stored is not None:
            self._adapted = with_stored(self._engine.model, stored, trainable=False)

    def reload(self, folder: Path) -> None:
        """Sample from all weights in a directory. Raises ConfigError for those of another
        model."""
        model = self._engine.model
        self._unload()
        new = reloaded(folder, model, self._engine.tokenizer)
        ours = model.state_dict()
        for key, weight in new.state_dict().items():
            ours[key].copy_(weight)

    def _unload(self) -> None:
        """Take the adapter's layers out of the model."""
        if self._adapted is not None:
            self._adapted.unload()
            self._adapted = None
        self._engine.reset()
